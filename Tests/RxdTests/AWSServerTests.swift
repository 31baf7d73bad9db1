import Foundation
import PipelineHost
import Testing

/// The presets `s3`, `sqs` and `kinesis` against moto's server, which checks the signature of each request.
@Suite(.timeLimit(.minutes(10)), .enabled(if: MotoServer.python != nil, "needs moto: scripts/install-packages --tests"))
struct AWSServerTests {
  let folder: Scratch
  init() throws { folder = try Scratch() }

  private func events(_ count: Int) -> String {
    (1...count).map { #"{"n":\#($0),"k":"k\#($0 % 3)","t":"ü \#($0)"}"# }.joined(separator: "\n") + "\n"
  }

  private func run(_ use: String, _ input: String) throws -> Rxd.Outcome {
    let file = try folder.write(
      "aws.yaml",
      """
      sources: { in: { stdin: { decode: json } } }
      sinks:
        out: { from: in, \(use) }
        refused: { from: out.errors, chain: [ { map: '[event.event.n, event.error]' } ], stdout: {} }

      """)
    return try Rxd.run("run", file, input: input)
  }

  @Test func objectsAreWritten() throws {
    let server = try MotoServer()
    let outcome = try run(
      "use: s3, with: { url: '\(server.url)', bucket: logs, count: 1000, prefix: '{{ urlEncode(event.k) }}/a%20b/', \(server.credentials) }",
      events(2500))
    #expect(outcome.output == "", "\(outcome.errors)")
    #expect(outcome.status == 0)
    let objects = try #require(server.read("objects") as? [[String: String]])
    // Each object has the events of one key, from the first 1000 waiting ones.
    #expect((3...9).contains(objects.count), "\(objects.count)")
    var seen: [Int] = []
    for object in objects {
      let key = try #require(object["key"])
      #expect(object["type"] == "application/x-ndjson")
      #expect(key.wholeMatch(of: /k[012]\/a b\/[0-9]{8}T[0-9]{6}Z-[0-9]+-[0-9a-f]{32}\.ndjson\.gz/) != nil, "\(key)")
      for line in (object["body"] ?? "").split(separator: "\n") {
        #expect(line.contains(#""k":"\#(key.prefix(2))""#))
        seen.append(Int(line.dropFirst(5).prefix { $0.isNumber }) ?? -1)
      }
    }
    #expect(seen.sorted() == Array(1...2500))
  }

  @Test func aWrongSecretIsAWrongConfiguration() throws {
    let server = try MotoServer()
    let outcome = try run(
      "use: s3, with: { url: '\(server.url)', bucket: logs, region: eu-central-1, accessKey: \(server.access), secretKey: wrong }",
      events(2))
    #expect(outcome.lines.count == 2)
    #expect(outcome.output.contains("PUT answered 403"))
    #expect((try server.read("objects") as? [Any])?.isEmpty == true)
  }

  @Test func messagesAreQueued() throws {
    let server = try MotoServer()
    let outcome = try run(
      "use: sqs, with: { url: '\(server.url)', queue: '\(server.queue)', attributes: { kind: { DataType: \"'String'\", StringValue: event.k } }, \(server.credentials) }",
      events(25))
    #expect(outcome.output == "", "\(outcome.errors)")
    let messages = try #require(server.read("messages", server.queue) as? [[String: Any]])
    #expect(messages.count == 25)
    #expect(messages.first?["body"] as? String == #"{"n":1,"k":"k1","t":"ü 1"}"#)
    #expect((messages.first?["attributes"] as? [String: String]) == ["kind": "k1"])
  }

  @Test func onlyMessagesThatTheQueueRefusesAreErrors() throws {
    let server = try MotoServer()
    // A delay above 900 seconds is rejected as the sender's error.
    let outcome = try run(
      "use: sqs, with: { url: '\(server.url)', queue: '\(server.queue)', delay: 'event.n == 4 ? 1800 : 0', \(server.credentials) }",
      events(12))
    #expect(outcome.lines.count == 1, "\(outcome.output)")
    #expect(outcome.output.hasPrefix("[4,\"the server refused the event: InvalidParameterValue: "), "\(outcome.output)")
    let messages = try #require(server.read("messages", server.queue) as? [[String: Any]])
    #expect(messages.count == 11)
  }

  @Test func aQueueInOrderHasGroups() throws {
    let server = try MotoServer()
    let outcome = try run(
      "use: sqs, with: { url: '\(server.url)', queue: '\(server.fifo)', group: event.k, deduplication: string(event.n), \(server.credentials) }",
      events(12))
    #expect(outcome.output == "", "\(outcome.errors)")
    let messages = try #require(server.read("messages", server.fifo) as? [[String: Any]])
    #expect(messages.count == 12)
    #expect(Set(messages.compactMap { $0["group"] as? String }) == ["k0", "k1", "k2"])
    let missing = try run(
      "use: sqs, with: { url: '\(server.url)', queue: '\(server.queue)-missing', \(server.credentials) }", events(3))
    #expect(missing.lines.count == 3)
    #expect(missing.output.contains("QueueDoesNotExist") || missing.output.contains("NonExistentQueue"))
  }

  @Test func recordsAreWritten() throws {
    let server = try MotoServer()
    let outcome = try run(
      "use: kinesis, with: { url: '\(server.url)', stream: clicks, key: event.k, \(server.credentials) }", events(1200))
    #expect(outcome.output == "", "\(outcome.errors)")
    let records = try #require(server.read("records") as? [[String: String]])
    #expect(records.count == 1200)
    // One record exceeds 1 MiB; the others are accepted.
    let large = #"{"n":1201,"k":"k1","t":"\#(String(repeating: "x", count: 600_000))"}"#
    let mixed = try run(
      "use: kinesis, with: { url: '\(server.url)', stream: clicks, key: event.k, data: toJson(event) + toJson(event), \(server.credentials) }",
      events(9) + large + "\n")
    #expect(mixed.lines.count == 1)
    #expect(mixed.output.hasPrefix("[1201,"), "\(mixed.output.prefix(300))")
    #expect((try server.read("records") as? [Any])?.count == 1209)
    #expect(records.contains { $0["data"] == #"{"n":700,"k":"k1","t":"ü 700"}"# && $0["key"] == "k1" })
    let missing = try run(
      "use: kinesis, with: { url: '\(server.url)', stream: missing, key: event.k, \(server.credentials) }", events(2))
    #expect(missing.lines.count == 2)
    #expect(missing.output.contains("ResourceNotFoundException"))
  }
}

/// moto's server on a local port; it ends with the value.
final class MotoServer {
  let port: Int
  private(set) var access = ""
  private(set) var queue = ""
  private(set) var fifo = ""
  private var secret = ""
  private let process: pid_t

  /// A Python interpreter with moto; nil: there is none.
  static let python: String? = ["\(Rxd.root)/.build/servers/bin/python3", "python3"].first { python in
    VerbTests.has(python, "-c", "import boto3, flask, moto.server")
  }

  var url: String { "http://127.0.0.1:\(port)" }
  var credentials: String { "region: eu-central-1, accessKey: \(access), secretKey: '\(secret)'" }

  init() throws {
    let free = try FreePort()
    port = free.number
    // Not `Process`: a long-running child would keep the pipes open by which other tests notice the end of their
    // processes.
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    for descriptor in [Int32(0), 1, 2] {
      posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_RDWR, 0)
    }
    var environment = ProcessInfo.processInfo.environment
    // After the requests of `setup`, each request needs a signature.
    environment["INITIAL_NO_AUTH_ACTION_COUNT"] = "7"
    process = try spawn(
      "/usr/bin/env",
      ["env", Self.python ?? "python3", "-m", "moto.server", "-H", "127.0.0.1", "-p", String(port)], environment,
      &actions)
    _ = try read("ready", signed: false)
    let made = try read("setup", signed: false) as? [String: String] ?? [:]
    access = made["access"] ?? ""
    secret = made["secret"] ?? ""
    queue = made["queue"] ?? ""
    fifo = made["fifo"] ?? ""
  }

  deinit {
    kill(process, SIGTERM)
    waitpid(process, nil, 0)
  }

  /// The output of `Tests/Servers/aws.py`.
  func read(_ command: String, _ argument: String = "", signed: Bool = true) throws -> Any {
    let outcome = try Program.run(
      "/usr/bin/env",
      [Self.python ?? "python3", "\(Rxd.root)/Tests/Servers/aws.py", String(port), command]
        + (signed ? [access, secret, argument] : []))
    let line = outcome.output.split(separator: "\n").last ?? ""
    return try JSONSerialization.jsonObject(with: Data(line.utf8))
  }
}
