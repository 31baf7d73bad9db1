import PipelineCore
import PipelineTestSupport

@testable import Transport

/// A scripted receiver of messages. Used on the test's thread.
final class ScriptedStream: @unchecked Sendable {
  /// One connection.
  final class Link {
    fileprivate let answer: DeliveryAnswer
    /// The messages that it received, with their frames.
    fileprivate(set) var given: [String] = []
    /// How many of them have passed, or were refused.
    fileprivate(set) var answered = 0
    var isOver = false
    /// Whether it was told to end normally, or immediately.
    fileprivate(set) var isRetired = false
    fileprivate(set) var isEnded = false
    fileprivate init(_ answer: DeliveryAnswer) { self.answer = answer }

    var inHand: [String] { Array(given[answered...]) }
  }

  var traits: DeliveryTraits
  /// Whether connections succeed.
  var isReachable = true
  /// Accepts everything immediately.
  var takesAll = false
  /// How many messages of an ended connection still arrive.
  var accepted = 0
  var startFailure: String?
  private(set) var links: [Link] = []
  /// The messages that have passed, without frames.
  private(set) var received: [String] = []
  private(set) var blocks: [SentBlock] = []

  init(_ change: (inout DeliveryTraits) -> Void = { _ in }) {
    traits = DeliveryTraits(
      streamTo: DeliveryWords(
        "the receiver", recovered: "the receiver takes messages again", failure: "failure",
        left: "the receiver had not taken"), queueBytes: 16 << 20,
      Attempts(.seconds(1), most: .seconds(8)), startsAtOnce: false)
    traits.shortensPauses = false
    change(&traits)
  }

  var link: Link? { links.last }

  func pass(_ count: Int, of link: Link? = nil) {
    guard let link = link ?? self.link, !link.isOver else { return }
    let count = min(count, link.inHand.count)
    received += link.inHand.prefix(count).map { $0.trimmed }
    link.answered += count
    link.answer.put(.passed(count))
  }

  func refuse(_ reason: String) {
    guard let link, !link.isOver, !link.inHand.isEmpty else { return }
    link.answered += 1
    link.answer.put(.refusedNext(reason))
  }

  func lose(_ reason: String? = nil) {
    guard let link, !link.isOver else { return }
    link.isOver = true
    link.answer.put(reason.map { .down($0) } ?? .lost(after: .zero))
  }

  fileprivate func open(_ answer: DeliveryAnswer) -> Link {
    let link = Link(answer)
    links.append(link)
    if isReachable {
      answer.put(.answered())
    } else {
      link.isOver = true
      answer.put(.down("nobody is there"))
    }
    return link
  }

  fileprivate func send(_ new: [SentBlock], to link: Link?) {
    guard let link, !link.isOver else { return }
    blocks += new
    for block in new {
      for message in block.first..<block.ends.count {
        link.given.append(String(decoding: block.bytes[block.start(message)..<block.ends[message]], as: UTF8.self))
      }
    }
    if takesAll { pass(.max, of: link) }
  }

  final class Connector: StreamConnector {
    let stream: ScriptedStream
    let frame: UInt8
    private var link: Link?
    private let location: SourceLocation?

    init(_ stream: ScriptedStream, frame: Character, _ nodeContext: NodeContext) {
      self.stream = stream
      self.frame = frame.asciiValue ?? 0
      location = nodeContext.location
    }

    var traits: DeliveryTraits { stream.traits }
    var messagesAreJSON: Bool { true }
    func start() -> SignalFailure? { stream.startFailure.map { SignalFailure(.sink, $0, at: location) } }

    func append(_ event: Event, to block: OutputBuffer) throws(DeliveryRefusal) {
      let text = String(event.value.asInt)
      if text == "13" { throw DeliveryRefusal("13 has no message") }
      block.append(text)
      block.append(frame)
    }

    func append(message: UnsafeRawBufferPointer, to block: OutputBuffer) throws(DeliveryRefusal) {
      block.append(message)
      block.append(frame)
    }

    func message(in framed: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
      UnsafeRawBufferPointer(rebasing: framed.dropLast())
    }

    func open(_ answer: DeliveryAnswer) -> Bool {
      link = stream.open(answer)
      return false
    }

    func send(_ blocks: [SentBlock]) { stream.send(blocks, to: link) }

    func goOn(with former: any LastingConnector) -> Bool {
      guard let former = former as? Connector else { return false }
      (link, former.link) = (former.link, nil)
      return true
    }

    func retire() { link?.isRetired = true }

    func end() -> (accepted: Int, wait: @Sendable () -> Void) {
      defer { link = nil }
      link?.isOver = true
      link?.isEnded = true
      return (min(stream.accepted, link?.inHand.count ?? 0), {})
    }
  }
}

extension String {
  /// The message without its frame.
  fileprivate var trimmed: String { String(dropLast()) }
}

/// A sink with a scripted receiver.
struct ScriptedStreamSink: SinkComponent {
  static let spec = ComponentSpec<ScriptedStreamSink>(
    "scriptedStream", summary: "Does what a test says.", persistence: .position(version: 1))
  var stream = ScriptedStream()
  var frame: Character = ";"

  init() {}
  init(_ stream: ScriptedStream, frame: Character = ";") { (self.stream, self.frame) = (stream, frame) }

  func makeSink(_ nodeContext: NodeContext) -> RunningSink {
    ScriptedStream.Connector(stream, frame: frame, nodeContext).sink(nodeContext)
  }
}
