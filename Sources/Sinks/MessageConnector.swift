import PipelineCore
import Synchronization
import Transport

/// How messages are separated in a stream.
enum SentFraming: String, ChoiceParameter {
  case lines, nul, length, octets, none
  var help: String {
    switch self {
    case .lines: "a line feed behind each"
    case .nul: "a zero byte behind each; an event that contains one goes to the errors output"
    case .length: "its length before it, a binary number of four bytes, the most significant first"
    case .octets: "its length before it, in decimal digits and a space (RFC 6587)"
    case .none: "nothing between them"
    }
  }
}

/// A sink that sends messages to a socket or a program: encodes and frames events as they come, and hands those of each turn to the sender in one piece.
final class SocketSink: RunningSink {
  struct Settings {
    var place: SocketPlace
    var options = SocketSender.Options()
    /// In place of the socket.
    var program: (call: ProgramCall, options: ProgramSender.Options)?
    var encode: EncodeParameter
    var framing = SentFraming.lines
    /// The longest message, in bytes.
    var maxMessage = Int.max
    /// How many bytes may wait.
    var queue = 16 << 20
    /// In place of `encode`.
    var syslog: SyslogEncoding?
    /// In place of both.
    var journal: JournalEncoding?
    /// In place of the socket.
    var webSocket: WebSocketTarget?
  }

  /// A server of WebSockets; no event is in its URL and headers.
  struct WebSocketTarget {
    var parameters: WebSocketParameters
    var options: WebSocketSender.Options
  }

  private let settings: Settings
  private let encoder: any EventEncoder
  private let syslog: SyslogEncoder?
  /// Its format ends each event with a line break of its own.
  private let endsLines: Bool
  private let message = OutputBuffer()
  private let buffer = OutputBuffer()
  private var ends: [Int] = []
  private var sender: (any MessageSender)?
  private let book = Book()
  private var counted = 0
  private var taken = 0
  private var isOver = false
  /// The target of a WebSocket, for messages.
  private var targetText: String?

  init(_ nodeContext: NodeContext, _ settings: Settings) {
    var settings = settings
    settings.encode.options.terminated = false
    // Receivers could not tell it from an event.
    settings.encode.options.csv.header = false
    self.settings = settings
    syslog = settings.syslog.map { SyslogEncoder($0) }
    encoder =
      syslog ?? settings.journal.map { JournalEncoder($0) as any EventEncoder } ?? settings.encode.makeEncoder()
    endsLines =
      settings.syslog == nil && settings.journal == nil
      && [.lines, .csv, .logfmt].contains(settings.encode.options.format)
    super.init(nodeContext)
  }

  private func log(_ level: Services.Level, _ message: String) {
    execution.services.log(level, execution.plan.steps[nodeContext.step.number].label, message)
  }

  override func open() {
    if let program = settings.program { return open(program.call, program.options) }
    let services = execution.services
    let label = execution.plan.steps[nodeContext.step.number].label
    let executor = executor
    let node = Weak(self)
    let trouble = trouble
    let notify: @Sendable (SocketSender.Notice) -> Void = { notice in
      switch notice {
      case .failing(let reason):
        trouble.begins(reason)
        services.log(.warning, label, "\(reason); trying again")
      case .recovered(let failures):
        trouble.ends()
        services.log(.info, label, "sending again, after \(failures) failed attempt\(failures == 1 ? "" : "s")")
      case .tooLong(let bytes):
        services.log(.warning, label, "a datagram of \(bytes) bytes is longer than the system sends: it is lost")
      case .ended(let reason): executor.post { node.object?.senderEnded(reason) }
      case .fault(let reason): services.log(.warning, label, reason)
      case .moved: services.log(.info, label, "the name of the receiver has another address now: connecting to that")
      }
    }
    if let target = settings.webSocket { return open(target, notify) }
    do throws(SocketFailure) {
      sender = try SocketSender(settings.place, settings.options, notify: notify)
    } catch {
      fail(because: SignalFailure(.sink, error.message, at: nodeContext.location))
    }
  }

  private func open(_ target: WebSocketTarget, _ notify: @escaping @Sendable (SocketSender.Notice) -> Void) {
    if let fault = target.parameters.clientFault {
      return fail(because: SignalFailure(.sink, fault, at: nodeContext.location))
    }
    let frame = makeFrame()
    frame.loadNothing()
    let template = RequestTemplate(
      method: "GET", url: target.parameters.url, headers: target.parameters.headers, body: TemplateParameter())
    switch template.render(frame) {
    case .failure(let failure): fail(because: SignalFailure(.sink, failure.message, at: nodeContext.location))
    case .success(let request):
      guard let place = WebSocketClient.Target(request.url) else {
        return fail(
          because: SignalFailure(.sink, "'\(request.shownURL)' is no URL of a WebSocket", at: nodeContext.location))
      }
      var options = target.options
      options.client.headers = request.headers
      targetText = place.text
      do throws(PosixError) {
        sender = try WebSocketSender(place, options, by: execution.services.http, notify: notify)
      } catch {
        fail(because: SignalFailure(.sink, error.message, at: nodeContext.location))
      }
    }
  }

  private func open(_ call: ProgramCall, _ options: ProgramSender.Options) {
    let services = execution.services
    let label = execution.plan.steps[nodeContext.step.number].label
    let name = call.program
    let executor = executor
    let node = Weak(self)
    let trouble = trouble
    do throws(ProgramFailure) {
      sender = try ProgramSender(call, options) { notice in
        switch notice {
        case .said(let level, let text): services.log(level, label, text)
        case .failing(let reason):
          trouble.begins("'\(name)' \(reason)")
          services.log(.warning, label, "'\(name)' \(reason); starting it again")
        case .restarted(let failures):
          trouble.ends()
          services.log(
            .info, label, "'\(name)' runs again, after it had ended \(failures == 1 ? "once" : "\(failures) times")")
        case .badEnd(let reason): services.log(.warning, label, "'\(name)' \(reason)")
        case .ended(let reason): executor.post { node.object?.senderEnded("'\(name)' \(reason)") }
        }
      }
    } catch {
      fail(because: SignalFailure(.sink, "'\(name)' \(error.message)", at: nodeContext.location))
    }
  }

  private func senderEnded(_ message: String) {
    guard sender != nil else { return }
    fail(because: SignalFailure(.sink, message, at: nodeContext.location))
  }

  /// Whether it can connect shows later: a receiver that is not there is waited for.
  override func dryRun() {
    if let program = settings.program {
      do throws(ProgramFailure) { _ = try ChildProgram.path(of: program.call) } catch {
        fail(
          because: SignalFailure(.sink, "'\(program.call.program)' \(error.message)", at: nodeContext.location))
      }
      return
    }
    if let fault = settings.webSocket?.parameters.clientFault {
      return fail(because: SignalFailure(.sink, fault, at: nodeContext.location))
    }
    guard let tls = settings.options.tls else { return }
    do throws(SocketFailure) { _ = try TLSContext(asking: tls) } catch {
      fail(because: SignalFailure(.sink, error.message, at: nodeContext.location))
    }
  }

  override func receive(_ event: Event) {
    guard !isOver else { return }
    message.clear()
    syslog?.now = executor.wallTime
    if let failure = encoder.append(event.value, to: message) { return reject(event, because: failure) }
    var bytes = message.bytes
    if endsLines, bytes.last == 0x0A { bytes = UnsafeRawBufferPointer(rebasing: bytes.dropLast()) }
    if endsLines, bytes.last == 0x0D { bytes = UnsafeRawBufferPointer(rebasing: bytes.dropLast()) }
    if settings.webSocket?.options.isText == true, !UTF8Text.isValid(bytes) {
      return reject(event, "a text message must be UTF-8; 'type: binary' sends any bytes")
    }
    if bytes.count > settings.maxMessage {
      return reject(event, "the message has \(bytes.count) bytes, more than the \(settings.maxMessage) of a datagram")
    }
    switch settings.place.isDatagram ? .none : settings.framing {
    case .lines:
      buffer.append(bytes)
      buffer.append(0x0A)
    case .nul:
      if bytes.contains(0) { return reject(event, "the message contains a zero byte, which would end it") }
      buffer.append(bytes)
      buffer.append(0)
    case .length:
      for shift in stride(from: 24, through: 0, by: -8) {
        buffer.append(UInt8(truncatingIfNeeded: bytes.count >> shift))
      }
      buffer.append(bytes)
    case .octets:
      buffer.append("\(bytes.count) ")
      buffer.append(bytes)
    case .none: buffer.append(bytes)
    }
    ends.append(buffer.count)
  }

  override func turnEnded() { handOver() }

  private func handOver() {
    guard let sender, !ends.isEmpty else { return }
    let count = ends.count
    let receipt = take(count, bytes: buffer.count + Self.bytesOfBlock + count * MemoryLayout<Int>.stride)
    taken += count
    let block = SocketSender.Block(bytes: Array(buffer.bytes), ends: ends)
    buffer.clear()
    ends.removeAll(keepingCapacity: ends.capacity <= 4096)
    let book = book
    let progress = Progress()
    sender.send(block) { sent, givenUp in
      book.add(sent, givenUp, bytes: sent > 0 ? progress.bytes(of: sent, block.ends) : 0)
      progress.messages += givenUp
      if sent > 0 { receipt.acknowledge(sent) }
      if givenUp > 0 { receipt.acknowledge(givenUp, .failed("it could not be sent")) }
    }
  }

  override var memoryLimit: Int { settings.queue }
  /// The memory of a block beside its messages.
  private static let bytesOfBlock = 512

  override var queued: PipelineStatistics.Queue? {
    let (sent, givenUp, _) = book.counts
    return PipelineStatistics.Queue(
      events: max(0, taken + ends.count - sent - givenUp), bytes: (sender?.queuedBytes ?? 0) + buffer.count)
  }

  override var connections: PipelineStatistics.Connections? {
    (sender as? SocketSender)?.counts ?? (sender as? WebSocketSender)?.counts
  }

  override func countDelivered() {
    let (sent, _, bytes) = book.counts
    countSent(sent - counted)
    counted = sent
    countBytes(bytes - countedBytes)
    countedBytes = bytes
  }
  private var countedBytes = 0

  // MARK: The end

  override func finish() {
    handOver()
    isOver = true
    guard let sender else { return drained() }
    let executor = executor
    let node = Weak(self)
    // Another thread waits until all is sent.
    do throws(PosixError) {
      _ = try OwnThread("rxd close") {
        sender.close()
        executor.post { node.object?.over() }
      }
    } catch {
      sender.close()
      over()
    }
  }

  private func over() {
    guard sender != nil else { return }
    sender = nil
    countLost()
    drained()
  }

  override func cancel() {
    if !isOver { handOver() }
    isOver = true
    guard let sender else { return }
    self.sender = nil
    sender.cancel()
    let node = Weak(self)
    closeBeside({ _ = sender.waitForEnd(within: .seconds(1)) }, then: { node.object?.countLost() })
  }

  private func countLost() {
    let (sent, givenUp, _) = book.counts
    let left = max(taken - sent, givenUp)
    guard left > 0, !isRepeatedLater else { return }
    countUndelivered(left)
    log(
      .warning,
      "\(left) event\(left == 1 ? " was" : "s were") taken but not sent to \(settings.program?.call.program ?? targetText ?? settings.place.text)"
    )
  }

  /// How far a block has been sent. Used on the sending thread only.
  private final class Progress: @unchecked Sendable {
    var messages = 0

    /// The bytes of the given number of further messages.
    func bytes(of sent: Int, _ ends: [Int]) -> Int {
      let start = messages == 0 ? 0 : ends[messages - 1]
      messages += sent
      return ends[messages - 1] - start
    }
  }

  /// The results of the sending thread.
  private final class Book: Sendable {
    private let state = Mutex((sent: 0, givenUp: 0, bytes: 0))
    var counts: (sent: Int, givenUp: Int, bytes: Int) { state.withLock { $0 } }
    func add(_ sent: Int, _ givenUp: Int, bytes: Int) {
      state.withLock { $0 = ($0.sent + sent, $0.givenUp + givenUp, $0.bytes + bytes) }
    }
  }
}
