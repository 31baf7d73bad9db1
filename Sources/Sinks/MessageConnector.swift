import PipelineCore
import Synchronization
import Transport

/// How messages are separated in a stream.
enum SentFraming: String, ChoiceParameter {
  case lines, nul, length, octets, none
  var help: String {
    switch self {
    case .lines: "a line feed after each"
    case .nul: "a zero byte after each; an event that contains one goes to the errors output"
    case .length: "preceded by its length, a binary number of four bytes, most significant byte first"
    case .octets: "its length before it, in decimal digits and a space (RFC 6587)"
    case .none: "nothing between them"
    }
  }

  /// Whether nothing precedes a message.
  var isBehind: Bool { self != .length && self != .octets }

  /// A message without its frame.
  func message(in framed: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
    let head: Int
    switch self {
    case .none: return framed
    case .lines, .nul: return UnsafeRawBufferPointer(rebasing: framed.dropLast())
    case .length: head = 4
    case .octets: head = (framed.firstIndex(of: UInt8(ascii: " ")) ?? -1) + 1
    }
    return UnsafeRawBufferPointer(rebasing: framed.dropFirst(head))
  }
}

/// Sends each event as a message to a socket, a program or a WebSocket: encodes and frames events as they come.
final class MessageConnector: StreamConnector {
  struct Settings {
    var endpoint: SocketEndpoint
    var options = SocketSender.Options()
    /// The pauses between attempts to connect, or to start the program.
    var attempts = Attempts(.milliseconds(100), most: .seconds(10))
    /// Replaces the socket.
    var program: (call: ProgramCall, options: ProgramSender.Options)?
    var encode: EncodeParameter
    var framing = SentFraming.lines
    /// The longest message, in bytes.
    var maxMessage = Int.max
    /// The maximum size of the queue in bytes.
    var queue = 16 << 20
    /// Replaces `encode`.
    var syslog: SyslogEncoding?
    /// Replaces both.
    var journal: JournalEncoding?
    /// Replaces the socket.
    var webSocket: WebSocketTarget?
  }

  /// A server of WebSockets; no event is in its URL and headers.
  struct WebSocketTarget {
    var parameters: WebSocketParameters
    var options: WebSocketSender.Options
  }

  /// Passes the sender's notices to the log of the version that has the sender.
  private final class Notices: Sendable {
    private let write = Mutex<(@Sendable (Services.Level, String) -> Void)?>(nil)
    func lead(_ write: @escaping @Sendable (Services.Level, String) -> Void) { self.write.withLock { $0 = write } }
    func log(_ level: Services.Level, _ message: String) { write.withLock { $0 }?(level, message) }
  }

  let traits: DeliveryTraits
  let messagesAreJSON: Bool
  private let settings: Settings
  /// The values that ``check(_:)`` reads for each event.
  private let (sendsText, maxMessage): (Bool, Int)
  private let framing: SentFraming
  private let nodeContext: NodeContext
  private let encoder: any EventEncoder
  private let syslog: SyslogEncoder?
  /// Whether the format ends each event with a line break of its own.
  private let endsLines: Bool
  private let encoded = OutputBuffer()
  private var sender: (any MessageSender)?
  private var notices = Notices()

  init(_ settings: Settings, _ nodeContext: NodeContext) {
    var settings = settings
    settings.encode.options.terminated = false
    // Receivers could not distinguish a header from an event.
    settings.encode.options.csv.header = false
    self.settings = settings
    (sendsText, maxMessage) = (settings.webSocket?.options.isText == true, settings.maxMessage)
    self.nodeContext = nodeContext
    framing = settings.endpoint.isDatagram || settings.webSocket != nil ? .none : settings.framing
    syslog = settings.syslog.map { SyslogEncoder($0) }
    encoder =
      syslog ?? settings.journal.map { JournalEncoder($0) as any EventEncoder } ?? settings.encode.makeEncoder()
    let isEncoded = settings.syslog == nil && settings.journal == nil
    endsLines = isEncoded && [.lines, .csv, .logfmt].contains(settings.encode.options.format)
    messagesAreJSON = isEncoded && [.json, .ndjson].contains(settings.encode.options.format)
    traits = DeliveryTraits(
      streamTo: Self.words(settings), queueBytes: settings.queue, settings.attempts,
      startsAtOnce: settings.program != nil)
  }

  private static func words(_ settings: Settings) -> DeliveryWords {
    if let program = settings.program?.call.program {
      return DeliveryWords(
        "'\(program)'", recovered: "'\(program)' runs again", failure: "end", left: "'\(program)' had not read",
        again: "starting it again")
    }
    // A URL may hold a secret.
    let name = settings.webSocket == nil ? settings.endpoint.text : "the server"
    return DeliveryWords(name, recovered: "sending again")
  }

  // MARK: Messages

  func append(_ event: Event, to block: OutputBuffer) throws(DeliveryRefusal) {
    syslog?.now = nodeContext.execution.executor.wallTime
    guard framing.isBehind else {
      encoded.clear()
      try encode(event, to: encoded)
      return try append(message: encoded.bytes, to: block)
    }
    let start = block.count
    do throws(DeliveryRefusal) {
      try encode(event, to: block)
      try check(UnsafeRawBufferPointer(rebasing: block.bytes[start...]))
    } catch {
      block.truncate(to: start)
      throw error
    }
    endFrame(in: block)
  }

  /// Appends the message without its frame. If it throws, the caller removes the bytes appended so far.
  private func encode(_ event: Event, to buffer: OutputBuffer) throws(DeliveryRefusal) {
    let start = buffer.count
    if let failure = encoder.append(event.value, to: buffer) {
      throw DeliveryRefusal("the event cannot be written: \(failure)")
    }
    if endsLines {
      dropLast(0x0A, in: buffer, behind: start)
      dropLast(0x0D, in: buffer, behind: start)
    }
  }

  private func dropLast(_ byte: UInt8, in buffer: OutputBuffer, behind start: Int) {
    if buffer.count > start, buffer.bytes[buffer.count - 1] == byte { buffer.truncate(to: buffer.count - 1) }
  }

  private func check(_ message: UnsafeRawBufferPointer) throws(DeliveryRefusal) {
    if sendsText, !UTF8Text.isValid(message) {
      throw DeliveryRefusal("a text message must be UTF-8; 'type: binary' sends any bytes")
    }
    if message.count > maxMessage {
      throw DeliveryRefusal(
        "the message has \(message.count) bytes, more than the \(maxMessage) of a datagram")
    }
    if framing == .nul, message.contains(0) {
      throw DeliveryRefusal("the message contains a zero byte, which would end it")
    }
  }

  func append(message bytes: UnsafeRawBufferPointer, to block: OutputBuffer) throws(DeliveryRefusal) {
    try check(bytes)
    beginFrame(of: bytes.count, in: block)
    block.append(bytes)
    endFrame(in: block)
  }

  private func beginFrame(of count: Int, in block: OutputBuffer) {
    switch framing {
    case .length:
      for shift in stride(from: 24, through: 0, by: -8) { block.append(UInt8(truncatingIfNeeded: count >> shift)) }
    case .octets: block.append("\(count) ")
    case .lines, .nul, .none: break
    }
  }

  private func endFrame(in block: OutputBuffer) {
    switch framing {
    case .lines: block.append(0x0A)
    case .nul: block.append(0)
    case .length, .octets, .none: break
    }
  }

  func message(in framed: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer { framing.message(in: framed) }

  // MARK: The connection

  private func failure(_ message: String) -> SignalFailure {
    SignalFailure(.sink, message, at: nodeContext.location)
  }

  private func leadNotices() {
    let services = nodeContext.execution.services
    let label = nodeContext.execution.plan.steps[nodeContext.step.number].label
    notices.lead { services.log($0, label, $1) }
  }

  func start() -> SignalFailure? {
    guard sender == nil else { return nil }
    leadNotices()
    let notices = notices
    if let (call, options) = settings.program {
      do throws(ProgramFailure) {
        sender = try ProgramSender(call, options) { notice in
          switch notice {
          case .said(let level, let text): notices.log(level, text)
          case .badEnd(let reason): notices.log(.warning, "'\(call.program)' \(reason)")
          }
        }
      } catch {
        return failure("'\(call.program)' \(error.message)")
      }
      return nil
    }
    let notify: @Sendable (SocketSender.Notice) -> Void = { notice in
      switch notice {
      case .fault(let reason): notices.log(.warning, reason)
      case .moved: notices.log(.info, "the name of the receiver resolves to another address now: connecting to it")
      }
    }
    if let target = settings.webSocket { return start(target, notify) }
    do throws(SocketFailure) {
      sender = try SocketSender(settings.endpoint, settings.options, notify: notify)
      return nil
    } catch {
      return failure(error.message)
    }
  }

  private func start(
    _ target: WebSocketTarget, _ notify: @escaping @Sendable (SocketSender.Notice) -> Void
  ) -> SignalFailure? {
    if let fault = target.parameters.clientFault { return failure(fault) }
    let frame = EventFrame.make(nodeContext)
    frame.loadNothing()
    let template = RequestTemplate(
      method: "GET", url: target.parameters.url, headers: target.parameters.headers, body: TemplateParameter())
    switch template.render(frame) {
    case .failure(let failure): return self.failure(failure.message)
    case .success(let request):
      guard let address = WebSocketClient.Target(request.url) else {
        return failure("'\(request.shownURL)' is not a WebSocket URL")
      }
      var options = target.options
      options.client.headers = request.headers
      do throws(PosixError) {
        sender = try WebSocketSender(address, options, by: nodeContext.execution.services.http, notify: notify)
        return nil
      } catch {
        return failure(error.message)
      }
    }
  }

  /// Whether it can connect is not tested: a missing receiver is waited for, not an error.
  func dryRun() -> SignalFailure? {
    if let call = settings.program?.call {
      do throws(ProgramFailure) { _ = try ChildProgram.path(of: call) } catch {
        return failure("'\(call.program)' \(error.message)")
      }
      return nil
    }
    if let target = settings.webSocket { return target.parameters.clientFault.map(failure) }
    guard let tls = settings.options.tls else { return nil }
    do throws(SocketFailure) { _ = try TLSContext(asking: tls) } catch { return failure(error.message) }
    return nil
  }

  func open(_ answer: DeliveryAnswer) -> Bool {
    guard let sender else {
      answer.put(.impossible(failure("there is nothing to send with")))
      return false
    }
    let (location, program) = (nodeContext.location, settings.program?.call.program)
    @Sendable func text(_ reason: String) -> String { program.map { "'\($0)' \(reason)" } ?? reason }
    sender.open { report in
      switch report {
      case .opened: answer.put(.answered())
      case .passed(let count): answer.put(.passed(count))
      case .refused(let reason): answer.put(.refusedNext(reason))
      case .lost(let reason?, let pause): answer.put(.down(text(reason), after: pause))
      case .lost(nil, pause: _): answer.put(.lost(after: .zero))
      case .ended(let reason): answer.put(.impossible(SignalFailure(.sink, text(reason), at: location)))
      }
    }
    return false
  }

  func send(_ blocks: [SentBlock]) { for block in blocks { sender?.send(block) } }

  var connections: PipelineStatistics.Connections? { sender?.connections }

  // MARK: The end

  func goOn(with former: any LastingConnector) -> Bool {
    guard let former = former as? MessageConnector, let sender = former.sender else { return false }
    former.sender = nil
    (self.sender, notices) = (sender, former.notices)
    leadNotices()
    return true
  }

  func finish(_ answer: DeliveryAnswer) -> Bool {
    guard let sender else { return true }
    sender.finish { answer.put(.answered()) }
    return false
  }

  func retire() {
    sender?.finish {}
    sender = nil
  }

  func end() -> (accepted: Int, wait: @Sendable () -> Void) {
    guard let sender = sender.take() else { return (0, {}) }
    return (sender.cancel(), { sender.waitForEnd(within: .seconds(1)) })
  }
}
