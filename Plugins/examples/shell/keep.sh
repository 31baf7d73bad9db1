#!/bin/sh
# A sink without jq: appends events to a file. It relies on the order of members in rxd's frames, which the contract promises.
while IFS= read -r frame; do
  value=${frame#*:}; value=${value%%[,\}]*}
  case $frame in
    '{"hello"'*) echo '{"spec":{"plugin":"keep","version":"1.0.0","summary":"Keeps events in a file.","components":[{"kind":"sink","name":"keep","summary":"Appends events to the file that the program gets as argument.","confirmation":"system"}]}}' ;;
    '{"open"'*) echo "{\"opened\":$value}" ;;
    '{"ping"'*) echo "{\"pong\":$value}" ;;
    '{"id"'*'"event":'*) frame=${frame#*\"event\":} && printf '%s\n' "${frame%\}}" >> "$1" && echo "{\"id\":$value}" || echo "{\"id\":$value,\"retry\":\"$1 cannot be written\"}" ;;
    '{"id"'*) echo "{\"id\":$value}" ;;
  esac
done
