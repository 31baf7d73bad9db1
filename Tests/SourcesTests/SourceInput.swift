import Foundation
import PipelineCore
import PipelineHost
import Synchronization
import Testing
import Transport

/// An input of a source with records numbered from 0 on, to which a test adds some.
final class SourceInput {
  /// The number of records of a scripted server.
  final class Records {
    var count = 0
  }

  /// A scripted server that the source polls.
  struct Server {
    let answer: (ScriptedHTTP.Exchange) -> ScriptedHTTP.Answer
    init(_ answer: @escaping (ScriptedHTTP.Exchange) -> ScriptedHTTP.Answer) { self.answer = answer }
  }

  /// The statuses of a server's answers, by record. Written by threads.
  final class Answers: Sendable {
    private let statuses = Mutex<[Int: Int]>([:])
    var all: [Int: Int] { statuses.withLock { $0 } }
    func add(_ numbers: Range<Int>, _ status: Int) {
      statuses.withLock { all in for number in numbers { all[number] = status } }
    }
  }

  /// The source as YAML.
  let source: String
  /// The file of the plugin that has the source, if one has.
  private let plugin: String?
  /// Steps that make records of the source's events, and the expression that gives the number of a record.
  private let chain: String
  private let number: String
  /// The number of records that exist from the start, if none can be added.
  let made: Int
  /// The answers to its senders, if they wait for answers.
  let answers: Answers?
  private let server: Server?
  private let usesCurl: Bool
  private let keeps: [AnyObject]
  private let adding: (Range<Int>, RealPipeline) throws -> Void
  /// The number of records.
  private(set) var count = 0

  init(
    _ source: String, number: String = "int(event)", made: Int = 0, answers: Answers? = nil,
    server: Server? = nil, chain: String = "", usesCurl: Bool = false, plugin: String? = nil,
    keeps: [AnyObject] = [], adding: @escaping (Range<Int>, RealPipeline) throws -> Void = { _, _ in }
  ) {
    self.source = source
    self.plugin = plugin
    self.number = number
    self.made = made
    self.answers = answers
    self.server = server
    self.chain = chain
    self.usesCurl = usesCurl
    self.keeps = keeps
    self.adding = adding
    count = made
  }

  /// Adds as many records at once, while a pipeline reads the input.
  func add(_ more: Int, to pipeline: RealPipeline) throws {
    guard made == 0 else { return }
    try adding(count..<(count + more), pipeline)
    count += more
  }

  /// The plugins of a pipeline with the source.
  var plugins: any PluginProvider { plugin == nil ? NoPlugins() : PluginFixtures.plugins }

  var yaml: String {
    """
    name: t
    plugins: [\(plugin.map { "'\($0)'" } ?? "")]
    sources: { in: { \(source) } }
    sinks: { out: { from: in, chain: [ \(chain.isEmpty ? "" : chain + ", "){ map: "\(number)" } ], discard: {} } }
    """
  }

  /// A pipeline that reads the input into `sink`, one event per turn.
  func pipeline(
    into sink: GatedSink, restoring state: [UInt8]? = nil, before: @escaping (Execution) -> Void = { _ in }
  ) throws -> RealPipeline {
    let scripted = ScriptedHTTP()
    if let server { scripted.script = { _, exchange in server.answer(exchange) } }
    let pipeline = try RealPipeline(
      yaml, http: usesCurl ? CurlClient() : scripted, restoring: state,
      before: { execution in
        execution.replacements.sinks = { _ in sink }
        execution.executor.limits.events = 1
        let executor = execution.executor
        scripted.later = { executor.post($0) }
        before(execution)
      }, plugins: plugins)
    #expect(pipeline.execution.refusals.isEmpty, "\(source)")
    return pipeline
  }
}

/// Much more input than a source may hold in memory, and how it is fed.
struct SourceFlood {
  /// The memory limit of the process.
  static let limit = 1 << 20
  static let line = String(repeating: "x", count: 999) + "\n"
  static let text = String(repeating: line, count: 8000)
  /// The memory limit of a source that reads the whole flood as one answer.
  static var most: Int { text.utf8.count + limit / 4 }

  /// The source as YAML.
  var source: String
  /// The file of the plugin that has the source, if one has.
  var plugin: String?
  /// Whether the source polls, which stops while the input is paused: its memory is then measured between the turns of one answer.
  var asks = false
  /// The maximum number of bytes that may be counted.
  var most: Int
  /// Objects that are kept until the end.
  var keeps: [AnyObject]
  /// Sends the flood, before the start or while the input is paused. Threads end with the source.
  var feed: (RealPipeline) throws -> Void

  init(
    _ source: String, plugin: String? = nil, asks: Bool = false, most: Int = Self.limit / 4, keeps: [AnyObject] = [],
    feed: @escaping (RealPipeline) throws -> Void = { _ in }
  ) {
    self.source = source
    self.plugin = plugin
    self.asks = asks
    self.most = most
    self.keeps = keeps
    self.feed = feed
  }

  /// Clients that connect and send the bytes.
  static func listening(_ source: String, _ bytes: String, clients: Int = 1, most: Int = Self.limit / 4) -> Self {
    Self(source, most: most) { pipeline in
      let port = try #require(pipeline.port())
      for _ in 0..<clients {
        nonisolated(unsafe) let client = try #require(SocketClient(port: port))
        try thread {
          client.send(bytes)
          // The connection is open until the source ends it.
          _ = client.receiveAll(within: 120_000)
        }
      }
    }
  }

  static func datagrams(_ source: String, _ datagram: String) -> Self {
    Self(source) { pipeline in
      let port = try #require(pipeline.port())
      let client = try #require(SocketClient(port: port, isDatagram: true))
      for _ in 0..<300 { client.send(datagram) }
    }
  }

  /// A pipeline with the source as the input of a sink that drops it.
  var yaml: String {
    """
    name: t
    plugins: [\(plugin.map { "'\($0)'" } ?? "")]
    sources: { in: { \(source) } }
    sinks: { out: { from: in, discard: {} } }
    """
  }
  var plugins: any PluginProvider { plugin == nil ? NoPlugins() : PluginFixtures.plugins }

  static func thread(_ body: @escaping @Sendable () -> Void) throws { _ = try OwnThread("test feed", body) }
}

/// Standard input of the process, to which a test writes. Only one at a time.
final class StandardInputPipe {
  private let pipe = Pipe()
  private let former: Int32

  init() throws {
    former = fcntl(0, F_DUPFD_CLOEXEC, 3)
    try #require(dup2(pipe.fileHandleForReading.fileDescriptor, 0) == 0)
  }

  deinit {
    dup2(former, 0)
    close(former)
  }

  func write(_ text: String) throws { try pipe.fileHandleForWriting.write(contentsOf: Data(text.utf8)) }
}
