import Foundation
import PipelineCore
import PipelineHost
import Synchronization
import Testing
import Transport

/// The entry of each source in the laws of all sources. A new source needs an entry in ``entry(_:)``: without one the laws fail and say so.
final class SourceWorld {
  struct Entry {
    /// The source in a pipeline that is only compiled, as YAML.
    var plain: String
    /// How its events are repeated.
    var recovery: SourceRecovery
    /// How a full sink holds it back.
    var held: Hold
    /// Inputs of numbered records, created for each test.
    var inputs: [() throws -> SourceInput] = []
    /// Why it has no numbered records, if so.
    var hasNoRecords: String?
    /// Inputs much larger than its memory limit.
    var floods: () throws -> [SourceFlood] = { [] }
    /// Why none of its input waits in memory, if so.
    var keepsNothing: String?
    /// What the machine lacks, so that the source cannot be fed.
    var lacks: String?
    /// The file of the plugin that has the source, if one has.
    var plugin: String?
  }

  /// How a full sink holds a source back.
  enum Hold {
    /// Its batches wait in the executor: threads or peers feed it, and its calls are timers.
    case asInput
    /// Its timers wait. The texts are signals with it, for virtual time.
    case byTime([(name: String, signal: String)])
    /// It sends no event on its own.
    case sendsNothing
  }

  let scratch = Scratch()

  /// The built-in sources, and the sources of plugins that need no server.
  static let names = Catalogue.sources.components.map(\.name) + pluginNames

  /// The entry, or a test failure that says what to add.
  func required(_ name: String) throws -> Entry {
    try #require(entry(name), "say in SourceWorld how '\(name)' may stand in the laws of all sources")
  }

  func entry(_ name: String) -> Entry? {
    switch name {
    case "empty", "error":
      Entry(
        plain: name == "empty" ? "empty: {}" : "error: no", recovery: .made, held: .sendsNothing,
        hasNoRecords: "it only ends", keepsNothing: "it has no input")
    case "never":
      Entry(
        plain: "never: {}", recovery: .made,
        held: .byTime([
          ("absence", "{ from: { never: {} }, chain: [ { absence: { after: 1s, repeat: true } } ] }"),
          ("empty windows", "{ from: { never: {} }, chain: [ { window: { every: 1s, empty: true } } ] }"),
        ]), hasNoRecords: "it sends nothing", keepsNothing: "it has no input")
    case "values":
      Entry(
        plain: "values: [1]", recovery: .made,
        held: .byTime([
          ("one after the other", "{ from: { values: { list: [1, 2, 3, 4, 5, 6, 7, 8], every: 1s } } }"),
          ("repeat", "{ from: { values: [1] }, chain: [ repeat ] }"),
          ("repeat after a pause", "{ from: { values: [1] }, chain: [ { repeat: { delay: 1ms } } ] }"),
          (
            "retry",
            "{ from: { values: [1, 0] }, chain: [ { map: 1 / int(event), onError: fail }, { retry: { count: 1000000 } } ] }"
          ),
        ]),
        inputs: [
          {
            SourceInput(
              "values: { list: [\((0..<12).map(String.init).joined(separator: ", "))], every: 1ms }", made: 12)
          }
        ], keepsNothing: "its values are in the pipeline file")
    case "interval":
      Entry(
        plain: "interval: 1s", recovery: .made,
        held: .byTime([
          ("interval", "{ from: { interval: 1ms } }"),
          ("by a schedule", "{ from: { interval: { cron: '* * * * *' } } }"),
          (
            "inner",
            "{ from: { values: [1] }, chain: [ { flattenMap: { signal: { from: { interval: 1ms } } } } ] }"
          ),
          (
            "the newest inner one",
            "{ from: { values: [1] }, chain: [ { switchToLatest: { from: { interval: 1ms } } } ] }"
          ),
          ("sample", "{ from: { interval: 1s }, chain: [ { sample: 1ms } ] }"),
          ("delay", "{ from: { interval: 1ms }, chain: [ { delay: 5s } ] }"),
          ("bufferWithTime", "{ from: { interval: 1ms }, chain: [ { bufferWithTime: 10ms } ] }"),
          (
            "groups",
            "{ from: { interval: 1ms }, chain: [ { groupBy: { key: event.tick % 3, chain: [ { window: 10ms }, { delay: 1ms } ] } } ] }"
          ),
        ]), inputs: [{ SourceInput("interval: 1ms", number: "event.tick - 1", made: .max) }],
        keepsNothing: "it sends one event for all periods that it has missed")
    case "host":
      Entry(
        plain: "host: 10s", recovery: .request, held: .asInput,
        hasNoRecords: "it measures the moment, which does not come again",
        keepsNothing: "it measures in the turn")
    case "file": file
    case "directory":
      Entry(
        plain: "directory: /srv/inbox", recovery: .position, held: .asInput, inputs: [directory],
        keepsNothing: "its entries are names of the file system, looked at one directory at a time; few of them wait")
    case "stdin":
      Entry(
        plain: "stdin: {}", recovery: .never, held: .asInput, inputs: [standardInput],
        keepsNothing: "the reader is that of 'exec' with 'streaming'")
    case "exec": exec
    case "tcp":
      Entry(
        plain: "tcp: 5170", recovery: .never, held: .asInput,
        inputs: [{ Self.sockets("tcp: { address: '127.0.0.1:0', decode: text }") }],
        floods: {
          // Complete lines, and many incomplete ones.
          [
            .listening("tcp: { address: '127.0.0.1:0', decode: text }", SourceFlood.text),
            .listening(
              "tcp: { address: '127.0.0.1:0', decode: text, maxMessage: 64KiB }", String(repeating: "y", count: 60_000),
              clients: 60, most: SourceFlood.limit + SourceFlood.limit / 4),
            .listening(
              "tcp: { address: '127.0.0.1:0', decode: text, framing: nul }", String(repeating: "y\0", count: 100_000)),
          ]
        })
    case "syslog":
      Entry(
        plain: "syslog: 5514", recovery: .never, held: .asInput,
        inputs: [
          {
            Self.sockets("syslog: { address: '127.0.0.1:0', transport: tcp }", number: "int(event.message)") {
              "<14>1 - - - - - - \($0)\n"
            }
          }
        ], floods: { [.listening("syslog: { address: '127.0.0.1:0', transport: tcp }", SourceFlood.text)] })
    case "unix": unix
    case "udp":
      Entry(
        plain: "udp: 5170", recovery: .never, held: .asInput,
        inputs: [{ Self.sockets("udp: { address: '127.0.0.1:0', decode: lines }", isDatagram: true) }],
        floods: {
          [.datagrams("udp: { address: '127.0.0.1:0', decode: text }", String(repeating: "x", count: 50_000))]
        })
    case "statsd":
      Entry(
        plain: "statsd: 8125", recovery: .never, held: .asInput,
        inputs: [
          {
            Self.sockets("statsd: '127.0.0.1:0'", number: "int(event.value)", isDatagram: true) { "m:\($0)|g\n" }
          }
        ],
        floods: {
          [.datagrams("statsd: '127.0.0.1:0'", String(repeating: "a.metric.of.statsd:1|c\n", count: 2000))]
        })
    case "httpServer": httpServer
    case "http": http
    case "sse": sse
    case "docker": docker
    case "webSocket": webSocket
    case "journald": journald
    case "sqlite": sqlite
    default: pluginEntry(name)
    }
  }

  // MARK: Files

  private var file: Entry {
    let scratch = scratch
    return Entry(
      plain: "file: x", recovery: .position, held: .asInput,
      inputs: [
        {
          let name = Self.fresh("followed")
          scratch.append("", to: name)
          return SourceInput("file: { path: '\(scratch(name))', follow: true, start: beginning }") { numbers, _ in
            scratch.append(Self.lines(numbers), to: name)
          }
        },
        {
          let name = Self.fresh("once")
          scratch.append(Self.lines(0..<12), to: name)
          return SourceInput("file: '\(scratch(name))'", made: 12)
        },
      ],
      floods: {
        ["", ", follow: true"].map { more in
          let name = Self.fresh("flood")
          scratch.append(SourceFlood.text, to: name)
          return SourceFlood("file: { path: '\(scratch(name))'\(more) }")
        }
      })
  }

  private func directory() throws -> SourceInput {
    let scratch = scratch
    let name = Self.fresh("directory")
    try FileManager.default.createDirectory(atPath: scratch(name), withIntermediateDirectories: true)
    return SourceInput(
      "directory: { path: '\(scratch(name))', existing: true }", number: "int(event.name) - 100",
      chain: "{ filter: \"event.event == 'created'\" }"
    ) { numbers, _ in
      for number in numbers { scratch.append("x", to: "\(name)/\(100 + number)") }
    }
  }

  private func standardInput() throws -> SourceInput {
    let pipe = try StandardInputPipe()
    return SourceInput("stdin: {}") { numbers, _ in try pipe.write(Self.lines(numbers)) }
  }

  private var exec: Entry {
    let scratch = scratch
    return Entry(
      plain: "exec: { command: [a] }", recovery: .request, held: .asInput,
      inputs: [
        {
          // A program that copies only data added after its start, so that a previous one that is still ending takes nothing
          // from it.
          let name = Self.fresh("copied")
          scratch.append("", to: name)
          let path = scratch(name)
          let shell = "size=$(stat -c %s \(path)); echo started >&2; exec tail -c +$((size + 1)) -f \(path)"
          return SourceInput("exec: { shell: '\(shell)', streaming: true }") { numbers, pipeline in
            pipeline.run(within: .seconds(60)) { pipeline.log.contains { $0.contains("started") } }
            scratch.append(Self.lines(numbers), to: name)
          }
        },
        {
          let name = Self.fresh("runs")
          scratch.append("", to: name)
          return SourceInput("exec: { command: [cat, '\(scratch(name))'], every: 10ms, decode: lines }") {
            numbers, _ in scratch.append(Self.lines(numbers), to: name)
          }
        },
      ],
      floods: {
        let name = Self.fresh("flood")
        scratch.append(SourceFlood.text, to: name)
        let command = "command: [cat, '\(scratch(name))']"
        return [
          SourceFlood("exec: { \(command), streaming: true }"),
          SourceFlood("exec: { \(command), decode: lines }", asks: true, most: SourceFlood.most),
        ]
      })
  }

  // MARK: Sockets

  private var unix: Entry {
    let scratch = scratch
    return Entry(
      plain: "unix: /run/a", recovery: .never, held: .asInput,
      inputs: [
        {
          let path = scratch(Self.fresh("u"))
          return Self.sockets("unix: { path: '\(path)', decode: text }", path: path)
        }
      ],
      floods: {
        let path = scratch(Self.fresh("u"))
        return [
          SourceFlood("unix: { path: '\(path)', decode: text }") { pipeline in
            pipeline.run(within: .seconds(60)) { pipeline.log.contains { $0.contains("listening") } }
            nonisolated(unsafe) let client = try #require(SocketClient(path: path))
            try SourceFlood.thread { client.send(SourceFlood.text) }
          }
        ]
      })
  }

  /// Records that a client sends, all of a call at once.
  private static func sockets(
    _ source: String, path: String? = nil, number: String = "int(event)", isDatagram: Bool = false,
    _ record: @escaping (Int) -> String = { "\($0)\n" }
  ) -> SourceInput {
    var clients: [SocketClient] = []
    return SourceInput(source, number: number) { numbers, pipeline in
      pipeline.run(within: .seconds(60)) { pipeline.log.contains { $0.contains("listening on") } }
      let client =
        if let path { SocketClient(path: path) } else {
          SocketClient(port: try #require(pipeline.port()), isDatagram: isDatagram)
        }
      let text = numbers.map(record).joined()
      try #require(client?.send(isDatagram ? String(text.dropLast()) : text) == true)
      if let client { clients.append(client) }
    }
  }

  private var httpServer: Entry {
    Entry(
      plain: "httpServer: 8080", recovery: .sender, held: .asInput,
      inputs: [
        {
          let answers = SourceInput.Answers()
          return SourceInput("httpServer: { address: '127.0.0.1:0', decode: lines }", answers: answers) {
            numbers, pipeline in
            let port = try #require(pipeline.port())
            let client = try Connection(port: port)
            let body = Self.lines(numbers)
            try #require(
              client.send(
                "POST / HTTP/1.1\r\nHost: 127.0.0.1:\(port)\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)"))
            try SourceFlood.thread {
              let status = client.message()?.head.split(separator: " ").dropFirst().first.flatMap { Int($0) }
              answers.add(numbers, status ?? 0)
            }
          }
        }
      ],
      floods: {
        [
          SourceFlood(
            "httpServer: { address: '127.0.0.1:0', decode: text, queueTimeout: 1h }",
            most: SourceFlood.limit + SourceFlood.limit / 4
          ) { pipeline in
            let port = try #require(pipeline.port())
            let body = String(repeating: SourceFlood.line, count: 20)
            for _ in 0..<8 {
              try SourceFlood.thread {
                while let client = try? Connection(port: port) {
                  for _ in 0..<40 {
                    guard
                      client.send(
                        "POST / HTTP/1.1\r\nHost: 127.0.0.1:\(port)\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)"
                      ),
                      let answer = client.message(), answer.head.contains(" 200 ") || answer.head.contains(" 503 ")
                    else { return }
                  }
                }
              }
            }
          }
        ]
      })
  }

  private var webSocket: Entry {
    Entry(
      plain: "webSocket: 'ws://127.0.0.1:1/'", recovery: .never, held: .asInput,
      inputs: [
        {
          SourceInput("webSocket: { listen: '127.0.0.1:0', path: /in, decode: text }") { numbers, pipeline in
            let port = try #require(pipeline.port())
            // The handshake is answered in a turn.
            try SourceFlood.thread {
              guard let client = try? RawWebSocket(port), client.head.contains("101") else { return }
              // All frames at once, with a zero mask.
              var frames: [UInt8] = []
              for number in numbers {
                let text = Array("\(number)".utf8)
                frames += [0x81, 0x80 | UInt8(text.count), 0, 0, 0, 0]
                frames += text
              }
              client.connection.send(frames)
              _ = client.closeCode
            }
          }
        }
      ],
      floods: {
        let serving = SourceFlood("webSocket: { listen: '127.0.0.1:0', path: /in, decode: text }") { pipeline in
          let port = try #require(pipeline.port())
          try SourceFlood.thread {
            guard let client = try? RawWebSocket(port), client.head.contains("101") else { return }
            for _ in 0..<200 { client.send(SourceFlood.line + SourceFlood.line) }
            for _ in 0..<2000 where !client.connection.send([0x82, 0x80, 1, 2, 3, 4]) { return }
          }
        }
        var options = HTTPServer.Options()
        options.host = "127.0.0.1"
        let server = HTTPServer(options: options)
        let port = try server.start { request in
          let listener = WebSocketSession.Listener(
            opened: { session in while session.send(isText: true, SourceFlood.line.utf8) {} },
            message: { session, message in session.handled(message.bytes.count) }, ended: { _, _ in })
          _ = request.acceptWebSocket(WebSocketSession(isServer: true, WebSocketSession.Options(), listener))
        }
        return [serving, SourceFlood("webSocket: { url: 'ws://127.0.0.1:\(port)/', decode: text }", keeps: [server])]
      })
  }

  // MARK: Servers

  private var http: Entry {
    Entry(
      plain: "http: 'http://127.0.0.1:1/'", recovery: .request,
      held: .byTime([
        ("http", "{ from: { http: { url: 'http://h.example/', every: 1s } } }"),
        (
          "page after page",
          "{ from: { http: { url: 'http://h.example/', every: 1h, immediate: true, pages: { page: offset, from: 0, step: 1, until: 'size(response.body) == 0' } } } }"
        ),
        (
          "inner polls",
          "{ from: { values: [1] }, chain: [ { flattenMap: { signal: { from: { http: { url: 'http://h.example/', every: 1s } } } } } ] }"
        ),
      ]),
      inputs: [
        {
          let records = SourceInput.Records()
          return SourceInput(
            "http: { url: 'http://h.example/', every: 10ms, immediate: true, decode: lines }",
            server: .init { _ in
              ScriptedHTTP.status(200, Self.lines(0..<records.count))
            }
          ) { numbers, _ in records.count = numbers.upperBound }
        },
        {
          let records = SourceInput.Records()
          return SourceInput(
            "http: { url: 'http://h.example/', every: 10ms, immediate: true, cursor: { from: 'response.body.next', parameter: from, start: '0' } }",
            number: "event",
            server: .init { exchange in
              let from = Int(exchange.request.url.split(separator: "=").last ?? "") ?? 0
              let list = (from..<max(from, records.count)).map(String.init).joined(separator: ",")
              return ScriptedHTTP.status(200, #"{"items":[\#(list)],"next":"\#(max(from, records.count))"}"#)
            }, chain: "{ flattenMap: event.items }"
          ) { numbers, _ in records.count = numbers.upperBound }
        },
      ],
      floods: {
        let server = try ScriptedServer { connection in
          guard connection.message(hasBody: false) != nil else { return }
          connection.send(
            "HTTP/1.1 200 OK\r\nContent-Length: \(SourceFlood.text.utf8.count)\r\n\r\n\(SourceFlood.text)")
        }
        return [
          SourceFlood(
            "http: { url: '\(server.url)/', decode: lines }", asks: true, most: SourceFlood.most, keeps: [server])
        ]
      })
  }

  private var sse: Entry {
    Entry(
      plain: "sse: 'http://127.0.0.1:1/'", recovery: .position, held: .asInput,
      inputs: [
        {
          let records = SourceInput.Records()
          return SourceInput(
            "sse: { url: 'http://h.example/', decode: text, reconnect: 5ms, maxReconnect: 20ms }",
            server: .init { exchange in
              let from = exchange.header("Last-Event-ID").flatMap { Int($0) }.map { $0 + 1 } ?? 0
              let body = (from..<max(from, records.count)).map { "id: \($0)\ndata: \($0)\n\n" }.joined()
              return ScriptedHTTP.status(200, body, [HTTPHeader("Content-Type", "text/event-stream")])
            }
          ) { numbers, _ in records.count = numbers.upperBound }
        }
      ],
      floods: {
        let server = try ScriptedServer { connection in
          guard connection.message(hasBody: false) != nil else { return }
          connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
          for _ in 0..<8000 where !connection.send("data: \(SourceFlood.line)\n") { return }
        }
        return [SourceFlood("sse: { url: '\(server.url)/', decode: text }", keeps: [server])]
      })
  }

  private var docker: Entry {
    let scratch = scratch
    let now = Int64(Date().timeIntervalSince1970) * 1_000_000_000
    func input(
      _ emit: String, _ number: String, _ add: @escaping (inout DockerDaemon.State, Int) -> Void
    ) throws -> SourceInput {
      let path = scratch(Self.fresh("docker"))
      let daemon = DockerDaemon()
      daemon.change { $0.containers["aa"] = .init(name: "a") }
      let server = try ScriptedServer(path: path, daemon.serve)
      return SourceInput(
        "docker: { socket: '\(path)', emit: \(emit), since: 1h, reconnect: 5ms, maxReconnect: 20ms }", number: number,
        usesCurl: true, keeps: [server, DockerDaemon.Ending(daemon, server)]
      ) { numbers, _ in
        daemon.change { state in for number in numbers { add(&state, number) } }
      }
    }
    return Entry(
      plain: "docker: {}", recovery: .position, held: .asInput,
      inputs: [
        {
          try input("logs", "int(event.message)") {
            $0.containers["aa"]?.lines.append((now + Int64($1), false, "\($1)\n"))
          }
        },
        {
          try input("events", "int(event.id)") {
            $0.events.append(
              #"{"Type":"image","Action":"pull","Actor":{"ID":"\#($1)"},"time":1,"timeNano":\#(now + Int64($1))}"#)
          }
        },
      ],
      floods: {
        let path = scratch(Self.fresh("docker"))
        let event =
          #"{"Type":"image","Action":"pull","Actor":{"ID":"\#(SourceFlood.line.dropLast())"},"time":1,"timeNano":1}"#
          + "\n"
        let server = try ScriptedServer(path: path) { connection in
          guard connection.message(hasBody: false) != nil else { return }
          connection.send("HTTP/1.1 200 OK\r\n\r\n")
          for _ in 0..<8000 where !connection.send(event) { return }
        }
        return [SourceFlood("docker: { socket: '\(path)', emit: events }", keeps: [server])]
      })
  }

  // MARK: Journals and tables

  private var journald: Entry {
    Entry(
      plain: "journald: {}", recovery: .position, held: .asInput,
      inputs: [
        {
          let files = JournalFiles()
          try files.write(messages: [])
          return SourceInput("journald: { directory: '\(files.path)' }", number: "int(event.MESSAGE)", keeps: [files]) {
            numbers, _ in try files.write(messages: numbers.map(String.init))
          }
        }
      ],
      floods: {
        let files = JournalFiles()
        try files.write(messages: (0..<3000).map { "\($0) \(SourceFlood.line.dropLast())" })
        return [SourceFlood("journald: { directory: '\(files.path)' }", keeps: [files])]
      }, lacks: JournalFiles.canBeMade ? nil : "systemd-journal-remote of Debian")
  }

  private var sqlite: Entry {
    let scratch = scratch
    func input(_ more: String) throws -> SourceInput {
      let path = scratch(Self.fresh("db"))
      let shell = SQLiteShell(path)
      try shell.run("PRAGMA journal_mode = WAL; CREATE TABLE t(id INTEGER PRIMARY KEY, v);")
      return SourceInput(
        "sqlite: { path: '\(path)', query: 'SELECT * FROM t', every: 10ms\(more) }", number: "event.id"
      ) {
        numbers, _ in try shell.run("INSERT INTO t VALUES \(numbers.map { "(\($0), 'x')" }.joined(separator: ", "));")
      }
    }
    return Entry(
      plain: "sqlite: { path: a.db, query: SELECT 1 }", recovery: .request, held: .asInput,
      inputs: [{ try input(", key: id, maxRows: 4") }, { try input("") }],
      floods: {
        let path = scratch(Self.fresh("db"))
        try SQLiteShell(path).run(
          "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000) INSERT INTO t SELECT i, hex(zeroblob(1000)) FROM n;"
        )
        return [
          SourceFlood("sqlite: { path: '\(path)', query: 'SELECT * FROM t', key: id, maxRows: 4000 }", asks: true)
        ]
      }, lacks: SQLiteShell.isInstalled ? nil : "sqlite3")
  }

  // MARK: Texts

  static func lines(_ numbers: Range<Int>) -> String { numbers.map { "\($0)\n" }.joined() }

  private static let last = Atomic<Int>(0)
  /// A unique file name.
  static func fresh(_ name: String) -> String { "\(name)\(last.add(1, ordering: .relaxed).newValue)" }
}
