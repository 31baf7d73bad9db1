#!/bin/sh
# A plugin of rxd in ten lines of shell with jq: `upper: name` writes a text of each event in capitals.
exec jq --compact-output --null-input --unbuffered 'foreach inputs as $frame (null;
  if $frame.open then $frame.parameters.field else . end; . as $field | $frame |
  if .hello then {spec: {plugin: "shell-tools", version: "1.0.0", summary: "Small operators in shell.", components: [
    {kind: "operator", name: "upper", summary: "Writes a text of the event in capitals.",
     parameters: [{name: "field", type: "text", primary: true, required: true, help: "The field to change."}]}]}}
  elif .open then {opened: .open} elif .ping then {pong: .ping} elif has("id") | not then empty
  elif has("event") then try {id, events: [.event | .[$field] |= ascii_upcase]} catch {id: $frame.id, error: .}
  else {id} end)'
