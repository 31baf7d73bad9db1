#!/bin/sh
# A sink without jq: appends events to a file. It relies on the order of members in rxd's frames, which the contract promises.
again=',"again":true}' waiting=
while IFS= read -r frame; do
  value=${frame#*:}; value=${value%%[,\}]*}
  case $frame in
    '{"hello"'*) echo '{"spec":{"plugin":"keep","version":"1.0.0","summary":"Keeps events in a file.","components":[{"kind":"sink","name":"keep","summary":"Appends events to the file that the program gets as argument.","confirmation":"system"}]}}' ;;
    '{"open"'*) echo "{\"opened\":$value}" ;;
    '{"ping"'*) echo "{\"pong\":$value}" ;;
    '{"id"'*'"event":'*)
      # After a retry, events are ignored up to the first one that comes again.
      case $frame in *"$again") waiting= frame="${frame%"$again"}}" ;; esac
      frame=${frame#*\"event\":}
      if [ "$waiting" ]; then continue; fi
      if printf '%s\n' "${frame%\}}" >> "$1"; then echo "{\"id\":$value}"; else
        waiting=1; echo "{\"id\":$value,\"retry\":\"the file cannot be written\"}"
      fi ;;
    '{"id"'*) echo "{\"id\":$value}" ;;
  esac
done
