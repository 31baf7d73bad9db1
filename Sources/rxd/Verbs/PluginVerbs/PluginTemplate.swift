/// The files of a first plugin: an operator that adds a member to each event, and a pipeline whose test shows this.
struct PluginTemplate {
  struct File {
    var name: String
    var text: String
    var isProgram = false
  }

  /// The path of the package RxdPlugin.
  enum SwiftPackage {
    case path(String)
    case url(String)
  }

  let name: String
  private let package: SwiftPackage?
  /// The component's name: `parseDate` for `parse-date`.
  let component: String

  init(_ name: String, package: SwiftPackage? = nil) {
    self.name = name
    self.package = package
    let parts = name.split(separator: "-")
    component =
      (parts.first.map(String.init) ?? name)
      + parts.dropFirst().map { $0.prefix(1).uppercased() + $0.dropFirst() }.joined()
  }

  func files(_ language: PluginNew.Language) -> [File] {
    switch language {
    case .shell: [File(name: "\(name).sh", text: shell, isProgram: true), pipeline("./\(name).sh"), readme(language)]
    case .python: [File(name: "\(name).py", text: python, isProgram: true), pipeline("./\(name).py"), readme(language)]
    case .rust:
      [
        File(name: "\(name).rs", text: rust), File(name: "rxd.rs", text: Self.rustLayer),
        File(name: "spec.json", text: rowSpec + "\n"), File(name: "Makefile", text: rustMakefile),
        pipeline("./\(name).so"),
        readme(language),
      ]
    case .swift:
      [
        File(name: "Package.swift", text: manifest(package)),
        File(name: "Sources/\(module)/\(module).swift", text: swift),
        File(name: "Makefile", text: swiftMakefile), File(name: ".gitignore", text: ".build/\n\(name).so\n"),
        pipeline("./\(name).so"), readme(language),
      ]
    case .c:
      [
        File(name: "\(name).c", text: c), File(name: "Makefile", text: makefile), pipeline("./\(name).so"),
        readme(language),
      ]
    }
  }

  /// The command that builds the plugin and runs its test.
  func trial(_ language: PluginNew.Language) -> String {
    let file: String
    switch language {
    case .shell: file = "./\(name).sh"
    case .python: file = "./\(name).py"
    case .c, .rust, .swift: file = "./\(name).so"
    }
    return (language == .shell || language == .python ? "" : "make && ")
      + "rxd plugin check pipeline.yaml && rxd test pipeline.yaml && rxd plugin test \(file)"
  }

  private func pipeline(_ path: String) -> File {
    File(
      name: "pipeline.yaml",
      text: """
        # Try it: echo '{"name":"Ada"}' | rxd pipeline.yaml
        plugins: { \(name): \(path) }
        sources: { in: { stdin: { decode: json } } }
        sinks:
          out:
            from: in
            chain:
              - \(component): { text: hello }
            stdout: { encode: json }
        tests:
          - name: each event gets the text
            inputs: { in: { marbles: "a|", values: { a: { name: Ada } } } }
            expect: { out: [ { next: { name: Ada, text: hello } }, { complete: true } ] }

        """)
  }

  private func readme(_ language: PluginNew.Language) -> File {
    File(
      name: "README.md",
      text: """
        # \(name)

        A plugin for rxd with the operator `\(component)`, which adds a text to each event.

        ```sh
        \(trial(language).split(separator: "&&").map { $0.drop { $0 == " " } }.joined(separator: "\n"))
        ```

        `rxd plugin check` starts the plugin, checks its spec, and keeps it, so that `rxd check` starts nothing. Do it again after each change.
        `rxd plugin test` plays rxd, strictly: odd events, many at once, kills, stops.

        """)
  }

  /// The spec of a pure function.
  var rowSpec: String { spec.replacing("FORM", with: " \"form\": \"row\",") }

  var spec: String {
    """
    {"plugin": "\(name)", "version": "0.1.0", "summary": "Adds a text to events.", "components": [
      {"kind": "operator", "name": "\(component)", "summary": "Adds a text to each event.",FORM
       "parameters": [{"name": "text", "type": "text", "primary": true, "default": "hello", "help": "The text."}],
       "input": {"type": "object"}, "output": {"type": "object"},
       "examples": [{"title": "a greeting", "yaml": "\(component): hello"}]}]}
    """
  }

  private var shell: String {
    """
    #!/bin/sh
    # A plugin for rxd, with jq: one frame is one line of JSON, and each input is answered.
    exec jq --compact-output --null-input --unbuffered '
      \(spec.replacing("FORM", with: "")) as $spec |
      foreach inputs as $frame (null; if $frame.open then $frame.parameters.text else . end;
        . as $text | $frame |
        if .hello then {spec: $spec}
        elif .open then {opened: .open}
        elif .ping then {pong: .ping}
        elif has("event") then try {id, events: [.event + {text: $text}]} catch {id: $frame.id, error: .}
        elif has("id") then {id}
        else empty end)'

    """
  }

  private var python: String {
    """
    #!/usr/bin/env python3
    \"""A plugin for rxd: one frame is one line of JSON, and each input is answered. Messages go to standard error.\"""
    import json
    import sys

    SPEC = json.loads(r'''
    \(spec.replacing("FORM", with: ""))
    ''')


    def work(event, parameters):
        \"""The events that come of one; raise an exception to send it to the errors output.\"""
        return [{**event, "text": parameters["text"]}]


    def main():
        parameters = {}
        for line in sys.stdin:
            frame = json.loads(line)
            answer = None
            if "hello" in frame:
                answer = {"spec": SPEC}
            elif "open" in frame:
                parameters = frame["parameters"]
                answer = {"opened": frame["open"]}
            elif "ping" in frame:
                answer = {"pong": frame["ping"]}
            elif "event" in frame:
                try:
                    answer = {"id": frame["id"], "events": work(frame["event"], parameters)}
                except Exception as problem:
                    answer = {"id": frame["id"], "error": f"{type(problem).__name__}: {problem}"}
            elif "id" in frame:
                answer = {"id": frame["id"]}
            if answer is not None:
                print(json.dumps(answer, separators=(",", ":")), flush=True)


    main()

    """
  }

  private var makefile: String {
    """
    CFLAGS ?= -O2 -g
    # Where rxd_plugin.h is, if not among the system's headers.
    INCLUDE ?= /usr/local/include

    \(name).so: \(name).c
    \t$(CC) -std=c11 -Wall -Wextra -fPIC -fvisibility=hidden $(CFLAGS) -I$(INCLUDE) -shared -o $@ $<

    .PHONY: clean
    clean:
    \trm -f \(name).so

    """
  }

  private var c: String {
    let literal = spec.replacing("FORM", with: " \"form\": \"row\",").split(separator: "\n").map { line in
      "  \"" + line.replacing("\"", with: "\\\"") + "\""
    }
    return """
      // A plugin for rxd: a pure function of an event. rxd_plugin.h describes each function's contract.
      #include <stdlib.h>
      #include <string.h>

      #include "rxd_plugin.h"

      RXD_PLUGIN_MAGIC;

      static const char spec[] =
      \(literal.joined(separator: "\n"));

      static const rxd_host *host;

      // The data of an instance: a copy of the parameter, because rxd's value is valid only during the call.
      typedef struct instance {
        size_t count;
        char text[];
      } instance;

      static int open_instance(const rxd_opening *opening, void **result) {
        rxd_value value = host->member(opening->scope, &opening->parameters, RXD_TEXT_OF("text"));
        rxd_text text = host->text(opening->scope, &value);
        instance *self = malloc(sizeof *self + text.count);
        if (self == NULL) {
          host->fail(opening->scope, RXD_TEXT_OF("no memory"), RXD_TEXT_OF(""));
          return RXD_FAILED;
        }
        self->count = text.count;
        if (text.count > 0) memcpy(self->text, text.bytes, text.count);
        *result = self;
        return RXD_OK;
      }

      // Called on any thread, several at once.
      static int row(void *pointer, rxd_scope *scope, rxd_value *event, const rxd_value *arguments) {
        (void)arguments;
        const instance *self = pointer;
        if (host->kind(event) != RXD_OBJECT) {
          host->fail(scope, RXD_TEXT_OF("the event is not an object"), RXD_TEXT_OF(""));
          return RXD_FAILED;
        }
        rxd_value text = host->make_text(scope, (rxd_text){self->text, self->count});
        *event = host->with_member(scope, event, RXD_TEXT_OF("text"), &text);
        return RXD_OK;
      }

      static const rxd_component components[] = {{
        .size = sizeof(rxd_component),
        .name = {"\(component)", sizeof "\(component)" - 1},
        .kind = {"operator", sizeof "operator" - 1},
        .open = open_instance,
        .close = free,
        .row = row,
      }};

      static const rxd_plugin plugin = {
        .size = sizeof(rxd_plugin),
        .component_count = 1,
        .components = components,
        .component_size = sizeof(rxd_component),
        .spec = {spec, sizeof spec - 1},
      };

      RXD_EXPORT int rxd_plugin_init(
        uint32_t contract, const rxd_host *offered, const rxd_plugin **result, rxd_text *problem) {
        (void)contract;
        if (offered->size < RXD_HOST_SIZE_1_0) {
          *problem = RXD_TEXT_OF("this plugin needs a newer rxd");
          return RXD_FAILED;
        }
        host = offered;
        *result = &plugin;
        return RXD_OK;
      }

      """
  }
}
