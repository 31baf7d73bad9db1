import PipelineCore
import Transport

/// The interface of a message receiver for the thread that runs the turns.
protocol MessageReceiver: AnyObject {
  func stop(handsOver: Bool)
  func cancel()
}

extension DatagramReceiver: MessageReceiver {}
extension StreamReceiver: MessageReceiver {
  func stop(handsOver: Bool) {
    if handsOver { handOver() } else { stop() }
  }
}

/// A source that receives messages on a socket address.
protocol ReceivingSource: SourceComponent {
  var endpoint: SocketEndpoint { get }
}

/// Messages from one sender.
struct ReceivedPiece: Sendable {
  /// The number of the connection; nil for datagrams.
  var connection: Int?
  var peer: SocketPeer
  /// The subject of the sender's certificate.
  var subject: String?
  var rows: DecodedBlock?
  var refused: [RefusedBytes]
  /// The offset of the incomplete event; nil if there is none.
  var pendingOffset: Int64?
  /// The connection is over.
  var isLast = false

  init(_ piece: StreamReceiver.Piece) {
    pendingOffset = piece.pendingOffset
    isLast = piece.isLast
    connection = piece.sender.number
    peer = piece.sender.peer
    subject = piece.sender.subject
    rows = piece.rows
    refused = piece.refused
  }

  init(_ piece: DatagramReceiver.Piece) {
    peer = piece.peer
    rows = piece.rows
    refused = piece.refused
  }
}

/// A source that receives messages on a socket address, from streams or as datagrams.
///
/// Messages cannot be received again: at the end, and before a reload continues, received ones are sent first.
final class ReceivingNode: PieceSource<ReceivedPiece> {
  enum Way {
    case stream(StreamReceiver.Options, TLSServing.Files?)
    case datagrams(DatagramReceiver.Options)
  }

  private let endpoint: SocketEndpoint
  private let way: Way
  private let maxConnections: Int
  /// How long the last event of a connection waits for further lines; nil if lines are not joined.
  private let wait: TimeSpan?
  /// For each connection, the timer of that wait and the offset of the event.
  private var timers: [Int: (wake: Wake, offset: Int64)] = [:]
  private lazy var inputQueue = InputQueue(nodeContext, gate: SemaphoreGate())
  private var receiver: (any MessageReceiver)?
  /// Whether the receiver has started.
  private var receives = false
  /// The receiver has ended, and all that it had received is here.
  private var isReceived = false
  /// The open connections that have sent events.
  private var parts: [Int: InputPart] = [:]
  /// The origin of the current piece.
  private var pieceOrigin = Origin.none
  /// Names this run of the source in the names of its events.
  private lazy var run = freshIdentity() == nil ? "" : String(execution.services.random(), radix: 16)
  /// Whether the execution must wait until everything that was received has been sent.
  private var isPausing = false

  init(_ endpoint: SocketEndpoint, _ way: Way, _ nodeContext: NodeContext, _ downstream: Downstream) {
    self.endpoint = endpoint
    self.way = way
    if case .stream(let options, _) = way {
      (maxConnections, wait) = (options.maxConnections, options.decoding.join?.wait)
    } else {
      (maxConnections, wait) = (0, nil)
    }
    super.init(nodeContext, downstream: downstream)
    // The advice about the format reads the input as one text; in other framings there are bytes between the messages.
    if case .stream(let options, _) = way, options.framing == .lines, options.decoding.unit == .stream {
      decoderOptions = options.decoding
    }
  }

  override var connections: PipelineStatistics.Connections? { (receiver as? StreamReceiver)?.counts }

  /// Reserves the address until the reload has finished.
  override func dryRun() {
    do throws(SocketFailure) {
      if case .stream(_, let files?) = way { _ = try TLSServing(files) { _ in } }
      try BoundSocket.reserve(endpoint)
    } catch {
      fail(error)
    }
  }

  override func begin() {
    let services = execution.services
    let label = execution.plan.steps[nodeContext.step.number].label
    let queue = inputQueue
    let node = Weak(self)
    let hand: @Sendable ([ReceivedPiece]) -> Bool = { pieces in
      queue.deliver(bytes: pieces.reduce(0) { $0 + ($1.rows?.bytes ?? 0) }) { node.object?.received(pieces) }
    }
    do throws(SocketFailure) {
      let text: String
      switch way {
      case .stream(var options, let files):
        options.memory = services.memory
        if let files {
          options.tls = try TLSServing(files) { services.log(.info, label, $0) }
        }
        let receiver = try StreamReceiver(endpoint, options)
        self.receiver = receiver
        text = receiver.text
        let limit = maxConnections
        let log = OncePerSecond { services.log(.warning, label, $0) }
        whenBegun { () throws(SocketFailure) in
          try receiver.start { notice in
            switch notice {
            case .accepting(let notice): services.report(notice, label)
            case .full:
              services.log(
                .warning, label, "'maxConnections', \(limit), are open: further connections are closed at once")
            case .lost(let peer, let reason):
              log.write("the connection\(peer.isEmpty ? "" : " of \(peer)") is over: \(reason)")
            case .fault(let reason): log.write(reason)
            }
          } deliver: {
            hand($0.map { ReceivedPiece($0) })
          }
        }
      case .datagrams(var options):
        options.allBlocks = services.memory.ofReaders
        let receiver = try DatagramReceiver(endpoint, options)
        self.receiver = receiver
        text = receiver.text
        if let wanted = options.receiveBuffer, let granted = receiver.grantedBuffer, granted < wanted {
          services.log(
            .warning, label,
            "'receiveBuffer' is \(wanted) bytes, and the system grants \(granted): raise net.core.rmem_max")
        }
        let log = OncePerSecond { services.log(.warning, label, $0) }
        whenBegun { () throws(SocketFailure) in
          try receiver.start { notice in
            switch notice {
            case .dropped(let count):
              log.write(
                "the system had no room for \(count) datagram\(count == 1 ? "" : "s"), which are lost: raise 'receiveBuffer'"
              )
            case .failed(let reason): services.log(.warning, label, "cannot receive: \(reason); trying again")
            case .fault(let reason): services.log(.warning, label, reason)
            }
          } deliver: {
            hand($0.map { ReceivedPiece($0) })
          }
        }
      }
      services.log(.info, label, "listening on \(text)")
    } catch {
      receiver = nil
      fail(error)
    }
  }

  /// Starts to receive. Until then, messages and connections belong to the previous version.
  private func whenBegun(_ start: @escaping () throws(SocketFailure) -> Void) {
    execution.whenBegun { [self] in
      guard !isClosed else { return }
      do throws(SocketFailure) {
        try start()
        receives = true
      } catch {
        fail(error)
      }
    }
  }

  private func fail(_ failure: SocketFailure) {
    finish(failing: SignalFailure(.source, failure.message, at: nodeContext.location))
  }

  /// Takes pieces; an empty list: all have been received.
  private func received(_ pieces: [ReceivedPiece]) {
    isReceived = pieces.isEmpty
    take(pieces[...])
  }

  override func begin(_ piece: ReceivedPiece) -> Origin {
    pieceOrigin = origin(of: piece)
    return pieceOrigin
  }

  override func end(_ piece: ReceivedPiece) {
    reject(piece)
    awaitMore(piece)
    if piece.isLast, let connection = piece.connection, let part = parts.removeValue(forKey: connection) {
      partEnded(part)
    }
  }

  /// The connection that a piece came over; nil for datagrams.
  private func part(of piece: ReceivedPiece) -> InputPart? {
    guard let connection = piece.connection else { return nil }
    if let known = parts[connection] { return known }
    let title = piece.peer.text.isEmpty ? "connection \(connection)" : piece.peer.text
    let part = InputPart("connection \(connection)", title: title)
    parts[connection] = part
    return part
  }

  override func tookAll() {
    guard isReceived, !isClosed else { return }
    receiver = nil
    if isPausing { endPause() } else { finish() }
  }

  private func awaitMore(_ piece: ReceivedPiece) {
    guard let wait, let connection = piece.connection else { return }
    if var timer = timers.removeValue(forKey: connection)?.wake { cancelWake(&timer) }
    guard let offset = piece.pendingOffset, !isClosed else { return }
    timers[connection] = (wake(after: wait, connection), offset)
  }

  override func woke(_ token: Int) {
    guard let timer = timers.removeValue(forKey: token) else { return }
    (receiver as? StreamReceiver)?.endEvent(of: token, at: timer.offset)
  }

  private func reject(_ piece: ReceivedPiece) {
    for refused in piece.refused where !isClosed {
      refused.head.withUnsafeBytes {
        rejectInput($0, refused.reason, origin: pieceOrigin, position: refused.offset)
      }
    }
  }

  private func origin(of piece: ReceivedPiece) -> Origin {
    let members = arena.entries(4)
    var count = 0
    func add(_ key: StaticString, _ value: Value) {
      members[count] = Entry(key: .literal(key), value: value)
      count += 1
    }
    let peer = piece.peer
    if !peer.text.isEmpty { add("peer", arena.string(peer.text)) }
    if let process = peer.process { add("pid", .int(Int64(process))) }
    if let user = peer.user { add("uid", .int(Int64(user))) }
    if let subject = piece.subject { add("subject", arena.string(subject)) }
    let origin = Origin(
      source: origin.source, path: peer.text.isEmpty ? nil : peer.text, receivedAt: executor.wallTime,
      fields: OwnedValue(Value(kind: .map, pointer: members.baseAddress, length: count)), reply: origin.reply,
      identity: identity("\(run)-\(piece.connection ?? 0)"), part: part(of: piece))
    arena.keep(origin)
    return origin
  }

  // MARK: The end

  override func drain() {
    if let receiver { receiver.stop(handsOver: false) } else { finish() }
  }

  override func suspend() {
    guard let receiver, !isPausing else { return }
    isPausing = true
    execution.hold()
    let endpoint = endpoint
    receiver.stop(
      handsOver: execution.successorHas { ($0 as? any ReceivingSource)?.endpoint.excludes(endpoint) ?? false })
  }

  private func endPause() {
    guard isPausing else { return }
    isPausing = false
    execution.release()
  }

  override func stop() {
    inputQueue.stop()
    for var timer in timers.values.map(\.wake) { cancelWake(&timer) }
    timers = [:]
    if receives { receiver?.cancel() } else { receiver?.stop(handsOver: true) }
    receiver = nil
    endPause()
  }
}
