import PipelineCore

/// A word of the pipeline file that is not a component: a key, an option, an output, a variable, a format.
struct DescribedWord {
  var name: String
  /// The kind, shown after the name: `option of a signal`.
  var kind: String
  /// One sentence with a full stop.
  var summary: String
  /// Paragraphs, separated by blank lines.
  var details = ""
  var parameters: [ParameterInfo] = []
  var example = ""
  var seeAlso: [String] = []

  static func named(_ name: String) -> [DescribedWord] { all.filter { $0.name == name } }

  static let all: [DescribedWord] = grammar + variables + formats + lineFormats

  private static let lineFormats = ["apache", "nginx", "combined"].map { name in
    DescribedWord(
      name: name, kind: "log format", summary: "The access log of Apache and nginx, a line a request.",
      details: """
        The fields are host, user, time, method, path, protocol, status, bytes, referrer and agent. For a format of your own write its \
        expression in place of 'combined', or take the lines apart with the function 'grok'.
        """,
      example: """
        sources:
          requests: { file: { path: /var/log/nginx/access.log, follow: true, decode: { regex: combined } } }
        sinks:
          failed: { from: requests, chain: [ { filter: event.status >= 500 } ], stdout: {} }
        """, seeAlso: ["regex", "grok"])
  }

  private static let grammar: [DescribedWord] = [
    .init(
      name: "sources", kind: "section", summary: "Names the sources of events.",
      example: "sources:\n  lines: { stdin: { decode: text } }", seeAlso: ["from"]),
    .init(
      name: "signals", kind: "section", summary: "Names the signals made from sources and other signals.",
      example: "signals:\n  long:\n    from: lines\n    chain:\n      - filter: size(event) > 80",
      seeAlso: ["from", "chain", "share", "cold"]),
    .init(
      name: "tables", kind: "section", summary: "Names tables, which expressions read by key.",
      details: """
        NAME[KEY] is an optional: the row with that key, or nothing; 'KEY in NAME' says whether there is one. A table with a source \
        of its own is loaded before the first event passes, and again every 'every'. With 'from' it changes as the events of a \
        signal come; 'delete' says which ones remove a row.
        """,
      example: """
        tables:
          users: { file: { path: users.csv, decode: csv }, key: event.id, every: 1m }
        signals:
          named: { from: logins, chain: [ { set: { name: users[event.user].name } } ] }
        """, seeAlso: ["join", "withLatestFrom"]),
    .init(
      name: "sinks", kind: "section", summary: "Names the sinks of events.",
      example: "sinks:\n  screen: { from: long, stdout: {} }", seeAlso: ["from"]),
    .init(
      name: "commands", kind: "section",
      summary: "Names signals that a step runs on demand, and that report whether they run.",
      details: "Its outputs are NAME.values, NAME.errors, NAME.executing and NAME.enabled.",
      example: "commands:\n  save: { run: { http: { method: POST, url: \"http://127.0.0.1:8080/\" } } }",
      seeAlso: ["execute", "executing", "enabled"]),
    .init(
      name: "templates", kind: "section", summary: "Names parts with parameters, which 'use' inserts.",
      details: """
        A template is one of chain, signal, source and sink. $(NAME) is the value of a parameter. The types are text, template, \
        expression, int, number, bool, duration, size, name, list, mapping, chain and any; with '?' the parameter may be \
        left out, and so is anything that consists of it alone.
        """,
      example: """
        templates:
          rising:
            parameters: { field: expression, every: { type: duration, default: 1s } }
            chain: [ { map: $(field) }, { throttle: $(every) }, distinctUntilChanged ]
        signals:
          load: { from: host, chain: [ { use: rising, with: { field: event.load } } ] }
        """, seeAlso: ["use", "foreach", "include"]),
    .init(
      name: "functions", kind: "section", summary: "Names functions that expressions can call.",
      details: """
        A function has 'parameters', each with a type (as in 'schema': int, double, string?, list(int), map, dyn ...), and 'value', an \
        expression that sees the parameters and other functions, but no event. 'returns' gives the type of the result. 'examples' are \
        conditions that 'rxd check' evaluates. A function cannot call itself. celsius(x) can also be written x.celsius().
        """,
      example: """
        functions:
          celsius:
            parameters: { f: double }
            value: (f - 32.0) * 5.0 / 9.0
            examples: [ celsius(212.0) == 100.0 ]
        signals:
          warm: { from: readings, chain: [ { filter: celsius(event.heat) > 30.0 } ] }
        """, seeAlso: ["templates", "include"]),
    .init(
      name: "use", kind: "key of a step, a signal, a source or a sink",
      summary: "Inserts a template, or a preset of rxd.",
      details:
        "'with' gives the values of its parameters. 'rxd list --presets' lists the templates that come with rxd.",
      example:
        "sinks:\n  search: { from: orders, use: elasticsearch, with: { url: 'http://127.0.0.1:9200', index: event.kind } }",
      seeAlso: ["templates"]),
    .init(
      name: "foreach", kind: "section", summary: "Repeats sections for the values of a list.",
      details: "In a list of steps or inputs '{ each: NAME, in: LIST, do: ITEM }' repeats one item.",
      example: """
        foreach:
          each: room
          in: [kitchen, hall]
          sources: { $(room): { interval: 10s } }
        """, seeAlso: ["templates"]),
    .init(
      name: "include", kind: "section", summary: "Names files with templates and further parts of the pipeline.",
      details: "They are in the directory of the file or below it, and are watched with it.",
      example: "include: shared/templates.yaml", seeAlso: ["templates"]),
    .init(
      name: "tests", kind: "section", summary: "Holds tests of the pipeline, which 'rxd test' runs in virtual time.",
      example:
        "tests:\n  - name: only long lines\n    inputs: { lines: { marbles: \"-a-|\" } }\n    expect: { screen: [] }"),
    .init(
      name: "from", kind: "key of a signal or a sink",
      summary: "Names the input: a signal, or an output of one.",
      example: "from: lines\nfrom: lines.errors\nfrom: { merge: [a, b] }", seeAlso: ["merge", "errors"]),
    .init(
      name: "chain", kind: "key of a signal or a sink",
      summary: "Lists the operators that events pass, one after the other.",
      example: "chain:\n  - filter: event.status >= 500\n  - take: 10"),
    .init(
      name: "onError", kind: "key of a step", summary: "Decides what happens to an event for which the step fails.",
      details:
        "route (the errors output, the usual), drop (dropped and counted), keep (passed on as it is) or fail (the signal ends).",
      example: "- { map: int(event), onError: drop }", seeAlso: ["errors"]),
    .init(
      name: "message", kind: "key of a step",
      summary: """
        Sets the message of the error with which 'tryMap' ends the signal.
        """,
      details:
        "A template. It is a key of the step, next to 'tryMap', because every key of its mapping is a field of the event.",
      example: "- { tryMap: int(event), message: \"no number: {{ event }}\" }", seeAlso: ["tryMap", "onError"]),
    .init(
      name: "cold", kind: "option of a source or signal",
      summary: "Runs a named signal separately for each reference, instead of sharing one.",
      example: "signals:\n  tick: { cold: true, from: { interval: 1s } }", seeAlso: ["share"]),
    .init(
      name: "time", kind: "option of a source or signal",
      summary: "Gives the events a time of their own, by which windows and other steps downstream go.",
      details:
        "It may be combined with 'lateness', 'idle' and 'maxAhead': the parameters of the step 'eventTime'. The page docs/event-time.md explains them.",
      example: "sources:\n  orders: { file: { path: orders.ndjson, decode: json }, time: event.at, lateness: 10s }",
      seeAlso: ["eventTime", "window"]),
    .init(
      name: "share", kind: "option of a source or signal", summary: "Decides how a named signal is shared.",
      details: "Named signals are shared by default; the option changes how.", parameters: Sharing.fields.map(\.info),
      example: "signals:\n  state: { from: changes, share: { replay: 1 } }", seeAlso: ["cold"]),
    .init(
      name: "schema", kind: "option of a source",
      summary: "Declares the fields of the events, which expressions are checked against.",
      example: "orders: { stdin: { decode: json }, schema: { id: int, note: string? } }"),
    .init(
      name: "delivery", kind: "key of the file, a source or a sink",
      summary: "Decides how the events of the pipeline are stored, if there is a state directory.",
      details:
        words(Delivery.allCases.map { ($0.rawValue, $0.help) })
          + """
           The default is the lightest that loses no event.

          Beside a source or a sink it can only be bestEffort: the events of the source are acknowledged at once, and what \
          the sink takes counts as delivered. 'rxd check -v FILE' prints what each path promises.
          """,
      example: "delivery: durable\nsinks:\n  screen: { from: orders, stdout: {}, delivery: bestEffort }",
      seeAlso: ["require"]),
    .init(
      name: "whenFull", kind: "key of a sink",
      summary: "Decides what happens when more events wait for the sink on disk than 'buffer' allows.",
      details:
        words(OutboxLimit.Policy.allCases.map { ($0.rawValue, $0.help) })
          + """
           The default is block.

          Events wait on disk in durable delivery, which is the default of a pipeline with 'whenFull' or 'buffer'; without a \
          state directory, the input waits. Dropped events are counted, and the log says how many they were.
          """,
      example: "sinks:\n  shop: { from: orders, http: 'http://127.0.0.1:9000/', buffer: 256MiB, whenFull: dropOldest }",
      seeAlso: ["buffer", "delivery"]),
    .init(
      name: "buffer", kind: "key of a sink",
      summary: "Limits the space on disk of events that wait for the sink: 1MiB to 1TiB, 1GiB by default.",
      example: "sinks:\n  shop: { from: orders, http: 'http://127.0.0.1:9000/', buffer: 256MiB }", seeAlso: ["whenFull"]
    ),
    .init(
      name: "require", kind: "key of the file",
      summary: "Makes it an error if a path from a source to a sink has a weaker delivery guarantee.",
      details:
        words(DeliveryRequirement.allCases.map { ($0.rawValue, $0.help) })
        + " A file that requires a guarantee does not run without a state directory.",
      example: "require: atLeastOnce", seeAlso: ["delivery"]),
    .init(
      name: "whenLate", kind: "key of the file, a source or a step",
      summary: "Decides how time that passed while the pipeline was down is treated, if there is a state directory.",
      details:
        words(WhenLate.allCases.map { ($0.rawValue, $0.help) })
          + """
           The default is fire. At the top of the file it holds for every source and step for which it has a meaning, and \
          fire for the others; 'rxd describe NAME' says what skip leaves out.

          A clock that was set back counts as if no time had passed. A reload is no time: everything goes on.
          """,
      example:
        "whenLate: skip\nsources:\n  tick: { interval: 1m }\n  daily: { interval: { cron: '0 6 * * *' }, whenLate: fire }",
      seeAlso: ["delivery", "interval"]),
    .init(
      name: "state", kind: "key of the file",
      summary: "Keeps the oldest keys of steps that remember many on the disk instead of in memory.",
      details: """
        'memory' is how many bytes such keys, with what finds them on the disk, may take in memory: 16MiB to 1TiB. The keys \
        are in DIR/pipelines/NAME.keys of the state directory, and belong to the committed state: a crash loses none. \
        So far 'distinct' keeps keys there, except inside of 'groupBy'. It needs RocksDB (librocksdb7.8).
        """,
      example: "state: { memory: 256MiB }\nsources:\n  orders: { file: { path: orders.ndjson, decode: json } }",
      seeAlso: ["distinct", "delivery"]),
    .init(
      name: "errors", kind: "output",
      summary: "Sends the events that a source, a signal, a command or a sink rejected, with the reason.",
      example: "sinks:\n  rejected: { from: orders.errors, file: rejected.ndjson }", seeAlso: ["onError"]),
    .init(
      name: "executing", kind: "output of a command",
      summary: """
        Sends true while the command runs, and false while it does not: first the current state, then changes.
        """,
      example: "from: save.executing", seeAlso: ["commands", "enabled"]),
    .init(
      name: "enabled", kind: "output and key of a command",
      summary: "Sends whether the command would start now; as a key, names the signal that allows it.",
      example: "commands:\n  save: { run: { from: request }, enabled: isValid }", seeAlso: ["commands", "executing"]),
  ]

  private static let variables: [DescribedWord] = [
    .init(
      name: "event", kind: "variable of expressions", summary: "Is the event that the step gets.",
      example: "filter: event.status >= 500"),
    .init(
      name: "meta", kind: "variable of expressions",
      summary: "Is the origin of the event: source, time, path, offset, key, id.",
      details: """
        'id' names the event, and is the same when the event is read again after a crash or delivered again. Events that are \
        made by time or of several have none. A member that is not known is missing.

        A row of a step whose results change says which one it is: 'pane' is 'early', 'on-time' or 'late'; 'replaces' is true if it takes the place of \
        the row with the same key that was sent before, and 'retracts' if it is that row again, as a retraction.
        """,
      example: "set: { id: meta.id }"),
    .init(
      name: "now", kind: "variable of expressions", summary: "Is the time of the event, a timestamp.",
      example: "set: { seen: now }"),
    .init(
      name: "env", kind: "variable of expressions", summary: "Holds the variables of the environment.",
      example: "map: env.HOME"),
    .init(
      name: "outer", kind: "variable of expressions",
      summary: "Is, in an inner signal, the event that it was made for.",
      example: "flattenMap: { signal: { from: prices, chain: [ { filter: event.id == outer.id } ] } }",
      seeAlso: ["flattenMap"]),
    .init(
      name: "running", kind: "variable of expressions",
      summary: "Is, in 'scan' and 'aggregate', the value so far.",
      example: "scan: { start: 0, next: running + event }", seeAlso: ["scan", "aggregate"]),
    .init(
      name: "index", kind: "variable of expressions",
      summary: "Is, in 'scan' and 'aggregate', the number of the event, from 0.",
      example: "scan: { next: index }", seeAlso: ["scan", "aggregate"]),
  ]

  /// The values of `decode` and `encode`, and their parameters.
  private static let formats: [DescribedWord] = {
    var words: [DescribedWord] = []
    let decode = records(DecodeParameter.shape(range: nil))
    for format in DecoderFormat.allCases {
      words.append(
        .init(
          name: format.rawValue, kind: "format for decode", summary: sentence(format.summary),
          parameters: decode.first { $0.name == format.rawValue }.map { fields($0.shape) } ?? [],
          example: "decode: \(format.rawValue)"))
    }
    let encode = records(EncodeParameter.shape(range: nil))
    for format in EncoderFormat.allCases {
      words.append(
        .init(
          name: format.rawValue, kind: "format for encode", summary: sentence(format.summary),
          parameters: encode.first { $0.name == format.rawValue }.map { fields($0.shape) } ?? [],
          example: "encode: \(format.rawValue)"))
    }
    return words
  }()

  private static func records(_ shape: ParameterShape) -> [ParameterInfo] {
    SpecText.records(shape).flatMap { $0 }
  }

  private static func fields(_ shape: ParameterShape) -> [ParameterInfo] {
    SpecText.records(shape).flatMap { $0 }
  }

  /// The words of a key, each with its meaning.
  private static func words(_ words: [(name: String, help: String)]) -> String {
    words.map { "\($0.name): \($0.help)" }.joined(separator: "; ") + "."
  }

  private static func sentence(_ phrase: String) -> String {
    guard let first = phrase.first else { return "" }
    return first.uppercased() + phrase.dropFirst() + (phrase.hasSuffix(".") ? "" : ".")
  }
}
