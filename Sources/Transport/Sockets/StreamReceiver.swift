import CLinux
import Glibc
import PipelineCore
import Synchronization

/// Receives streams: accepts connections at one address, cuts their bytes into messages, and decodes the messages, all
/// on its own thread.
///
/// While `deliver` blocks, nothing is read, so TCP slows the senders down.
package final class StreamReceiver: Sendable {
  package struct Options: Sendable {
    package var framing = MessageFraming.lines
    package var decoding = DecoderOptions()
    /// In bytes, without the frame.
    package var maxMessage = 1 << 20
    package var maxConnections = 1024
    /// Bytes of incomplete messages on all connections together; at least two whole messages.
    package var maxUnfinished = UnfinishedMessages<UInt64>.usualLimit
    /// The memory budget of the process, against which they are counted; nil: they are not.
    package var memory: MemoryBudget?
    /// How long a connection may send nothing; nil: for ever.
    package var idleTimeout: TimeSpan?
    /// The maximum number of bytes per second from each connection; nil: no limit.
    package var maxRate: Int?
    /// In bytes; nil: chosen by the system.
    package var receiveBuffer: Int?
    package var keepAlive = true
    package var tls: TLSServing?

    package init() {}

    /// Whether the decoder receives a stream as one text, so that lines are not decoded one by one.
    var decodesStream: Bool { framing == .lines && (decoding.framing == .lines || decoding.framing == .anywhere) }

    func lines(at offset: Int64) -> LineAssembler {
      var lines = LineAssembler(maxLine: maxMessage, policy: .reject, offset: offset)
      lines.endsAnywhere = decoding.framing == .anywhere
      return lines
    }
  }

  /// Messages of one connection.
  package struct Piece: Sendable {
    package var sender: Sender
    package var rows: DecodedBlock?
    package var refused: [RefusedBytes] = []
    /// The offset of the incomplete event; nil: no event is incomplete.
    package var pendingOffset: Int64?
  }

  /// The properties of a connection that its events show.
  package final class Sender: Sendable {
    /// Unique in the process.
    package let number: Int
    package let peer: SocketPeer
    /// The subject of the certificate that the client has sent.
    package let subject: String?
    private static let last = Atomic(0)

    init(_ peer: SocketPeer, subject: String? = nil) {
      number = Self.last.add(1, ordering: .relaxed).newValue
      self.peer = peer
      self.subject = subject
    }
  }

  package enum Notice: Sendable, Equatable {
    case accepting(AcceptShortage.Notice)
    /// `maxConnections` are open: one was closed at once.
    case full
    /// A connection ended early, and why.
    case lost(peer: String, reason: String)
    /// The system refuses an option of the socket or of a connection.
    case fault(String)
  }

  private enum Ending {
    /// Bytes that have arrived are read, then all connections are closed.
    case close
    /// In a reload, connections go to the next receiver at this address.
    case handOver
    /// All connections are closed at once.
    case cancel
  }

  private let socket: BoundSocket
  private let options: Options
  private let wake: WakeEvent
  private let ending = Mutex<Ending?>(nil)
  /// Connections that one version of a pipeline leaves to the next, with the bytes of an incomplete message or event,
  /// by address.
  private static let kept = KeptItems<Kept> { $0.abandon() }
  /// By connection number, the offset of a joined event that has waited long enough for more lines. An event that
  /// begins at another offset goes on.
  private let due = Mutex<[Int: Int64]>([:])
  private let counted = Mutex(PipelineStatistics.Connections())

  package init(_ place: SocketPlace, _ options: Options) throws(SocketFailure) {
    do throws(PosixError) { wake = try WakeEvent() } catch { throw SocketFailure(message: error.message) }
    socket = try BoundSocket(place)
    self.options = options
  }

  /// The address of the listening socket.
  package var text: String { socket.text }
  /// The counts of its connections.
  package var counts: PipelineStatistics.Connections { counted.withLock { $0 } }

  /// Starts the thread.
  /// - Parameters:
  ///   - notify: Called on that thread.
  ///   - deliver: Called on that thread with messages that arrived together; may block. Returns false if it takes
  ///     nothing more. After ``stop()`` or ``handOver()``, the last call has an empty list.
  package func start(
    notify: @escaping @Sendable (Notice) -> Void, deliver: @escaping @Sendable ([Piece]) -> Bool
  ) throws(SocketFailure) {
    do throws(CodecFailure) { _ = try options.decoding.decoder() } catch {
      throw SocketFailure(message: "'decode' cannot be used: \(error.message)")
    }
    let poller = rx_poller()
    guard poller >= 0, rx_watch(poller, wake.descriptor, 0, 1, 0, 1) == 0,
      rx_watch(poller, socket.descriptor, 1, 1, 0, 1) == 0
    else {
      let code = errno
      if poller >= 0 { Glibc.close(poller) }
      throw SocketFailure(message: "cannot wait for \(socket.text): \(PosixError.text(code))")
    }
    // Taken before the thread starts, because connections that are still kept when the new version runs are closed.
    let kept = Self.kept.take(socket.place.exclusive).map(\.connection)
    do throws(PosixError) {
      _ = try OwnThread("rxd receive") { [self] in
        let work = Work(self, poller, notify, deliver)
        work.run(goingOnWith: kept)
      }
    } catch {
      Glibc.close(poller)
      throw SocketFailure(message: error.message)
    }
  }

  /// Ends the event of a connection that begins at this offset (``Piece/pendingOffset``): no more lines are awaited for
  /// it.
  package func endEvent(of connection: Int, at offset: Int64) {
    due.withLock { $0[connection] = offset }
    wake.wake()
  }

  /// Stops accepting, delivers the messages that have arrived, then closes everything. The address is free when this
  /// returns.
  package func stop() { end(.close) }
  /// Like ``stop()``, but in a reload the connections stay open for the next receiver at this address.
  package func handOver() { end(.handOver) }
  /// Closes everything, soon.
  package func cancel() { end(.cancel) }

  private func end(_ ending: Ending) {
    self.ending.withLock { if $0 == nil || ending == .cancel { $0 = ending } }
    // From now on, new connections wait for the next version of the pipeline, or are refused.
    socket.close(handsOver: ending == .handOver)
    wake.wake()
  }

  // MARK: - The thread

  private final class Work {
    private let owner: StreamReceiver
    private let options: Options
    private let poller: Int32
    private let notify: @Sendable (Notice) -> Void
    private let deliver: @Sendable ([Piece]) -> Bool
    private var connections: [UInt64: Connection] = [:]
    private var unfinished: UnfinishedMessages<UInt64>
    private let mostUnfinished: Int
    /// TLS connections whose handshake is under way.
    private var shaking: [UInt64: (session: TLSSession, peer: SocketPeer, descriptor: Int32, since: Int64)] = [:]
    private var nextTag: UInt64 = 2
    private var shortage = AcceptShortage()
    private var acceptsAt: Int64 = 0
    private var isFull = false
    private var checksIdleAt: Int64 = 0
    /// How long the thread has waited for the pipeline in all: this time does not count as idle time of a connection.
    private var waited: Int64 = 0
    private var pieces: [Piece] = []
    private var ready = [rx_ready](repeating: rx_ready(), count: 256)
    private let readBytes = 64 << 10
    /// The smallest read: a whole TLS record, because the poller does not see bytes that are left in the session.
    private let leastRead = 16 << 10
    /// The bytes read since pieces were last handed over.
    private var taken = 0

    init(
      _ owner: StreamReceiver, _ poller: Int32, _ notify: @escaping @Sendable (Notice) -> Void,
      _ deliver: @escaping @Sendable ([Piece]) -> Bool
    ) {
      self.owner = owner
      options = owner.options
      mostUnfinished = max(
        min(owner.options.maxUnfinished, owner.options.memory?.limit ?? .max), 2 * owner.options.maxMessage)
      unfinished = UnfinishedMessages(of: owner.options.memory)
      self.poller = poller
      self.notify = notify
      self.deliver = deliver
    }

    deinit { Glibc.close(poller) }

    private var now: Int64 { monotonicNow() &- waited }

    /// - Parameter kept: Connections of the previous version.
    func run(goingOnWith kept: [Connection]) {
      for fault in owner.socket.faults { notify(.fault(fault)) }
      adopt(kept)
      // Adopting has read what was sent meanwhile; it is delivered at once, since more may not come for a long time.
      var goesOn = handOverPieces()
      while goesOn, owner.ending.withLock({ $0 }) == nil {
        let count = Int(rx_wait(poller, &ready, 256, timeout()))
        let reads = !waitsForRoom()
        // Lives until the blocks have been delivered.
        let reader = ActiveReader()
        for event in ready.prefix(max(count, 0)) where goesOn && reads {
          handle(event)
          // Bytes from many connections are delivered in parts, which bounds memory.
          if taken >= share { goesOn = handOverPieces() }
        }
        keepTime()
        endEvents()
        goesOn = goesOn && handOverPieces()
        withExtendedLifetime(reader) {}
      }
      end(goesOn)
      count()
    }

    /// How many bytes are read before they are delivered, from one connection or from all together.
    private var share: Int {
      guard let memory = options.memory else { return readBytes * 4 }
      return min(readBytes * 4, max(leastRead, ActiveReader.share(of: memory.ofReaders)))
    }

    /// Whether reading pauses, because the memory of the process is used up and this receiver's unfinished messages
    /// occupy more than its minimum share. Senders wait meanwhile. If that lasts, the largest message is given up,
    /// because memory may be full of such messages.
    private func waitsForRoom() -> Bool {
      guard let memory = options.memory, memory.isFull, unfinished.total > MemoryBudget.leastOfInput else {
        fullSince = 0
        return false
      }
      let time = monotonicNow()
      if fullSince == 0 { fullSince = time }
      if time &- fullSince >= Self.patience.nanoseconds, let largest = unfinished.largest {
        fullSince = time
        giveUpUnfinished(largest)
        return false
      }
      // Wakes also when the receiver is to end, or a joined event ends.
      if rx_wait_two(-1, 0, owner.wake.descriptor, Self.look) & 2 != 0 { owner.wake.clear() }
      waited &+= monotonicNow() &- time
      return true
    }
    /// Since when ``waitsForRoom()`` has been true; 0: it is not.
    private var fullSince: Int64 = 0
    private static let patience = TimeSpan.seconds(10)
    /// How often room is checked while reading pauses, in milliseconds.
    private static let look: Int32 = 100

    private func endEvents() {
      let due = owner.due.withLock { due in
        defer { due = [:] }
        return due
      }
      guard !due.isEmpty else { return }
      for connection in connections.values {
        guard let offset = due[connection.sender.number], connection.decoding.pendingOffset == offset,
          let (rows, _) = connection.decoding.endEvent()
        else { continue }
        pieces.append(Piece(sender: connection.sender, rows: rows))
      }
    }

    private func count() {
      owner.counted.withLock { $0.open = connections.count }
    }

    private func timeout() -> Int32 {
      var due = Int64.max
      if acceptsAt > 0 { due = acceptsAt }
      if options.idleTimeout != nil, !(connections.isEmpty && shaking.isEmpty) { due = min(due, checksIdleAt) }
      if !shaking.isEmpty { due = min(due, checksIdleAt) }
      if options.maxRate != nil {
        for connection in connections.values where connection.pausedUntil > 0 { due = min(due, connection.pausedUntil) }
      }
      guard due < .max else { return -1 }
      return Int32(clamping: max(0, (due &- now &+ 999_999) / 1_000_000))
    }

    private func handle(_ event: rx_ready) {
      switch event.tag {
      case 0: owner.wake.clear()
      case 1: accept()
      default:
        if shaking[event.tag] != nil {
          shake(event.tag)
        } else if let connection = connections[event.tag] {
          read(event.tag, connection)
        }
      }
    }

    private func accept() {
      for _ in 0..<64 {
        var address = rx_address()
        let found = owner.socket.use { listener -> (descriptor: Int32, code: Int32) in
          let found = rx_accept(listener, &address)
          return (found, found < 0 ? errno : 0)
        }
        guard let (descriptor, code) = found else { return }
        guard descriptor >= 0 else {
          // Other errors concern a single connection, or say that none is waiting.
          if AcceptShortage.stops(code) {
            if let notice = shortage.failed(code) { notify(.accepting(notice)) }
            _ = owner.socket.use { rx_watch(poller, $0, 1, 0, 0, 0) }
            acceptsAt = now &+ AcceptShortage.pause.nanoseconds
          }
          return
        }
        if let notice = shortage.accepted() { notify(.accepting(notice)) }
        guard connections.count + shaking.count < options.maxConnections else {
          Glibc.close(descriptor)
          owner.counted.withLock { $0.refused += 1 }
          if !isFull { notify(.full) }
          isFull = true
          continue
        }
        owner.counted.withLock { $0.opened += 1 }
        begin(descriptor, address)
      }
    }

    private func begin(_ descriptor: Int32, _ address: rx_address) {
      var peer = SocketPeer(address)
      if rx_address_family([address]) == AF_UNIX {
        var pid: Int32 = 0
        var uid: Int32 = 0
        if rx_peer_process(descriptor, &pid, &uid) != 0 { (peer.process, peer.user) = (Int(pid), Int(uid)) }
      } else if options.keepAlive {
        SocketOption.set(SocketOption.keepAlive, descriptor) { notify(.fault($0)) }
      }
      if let bytes = options.receiveBuffer { _ = rx_set_receive_buffer(descriptor, Int32(clamping: bytes)) }
      let tag = nextTag
      nextTag += 1
      guard rx_watch(poller, descriptor, tag, 1, 0, 1) == 0 else {
        let reason = PosixError.text(errno)
        Glibc.close(descriptor)
        owner.counted.withLock { $0.broken += 1 }
        notify(.lost(peer: peer.text, reason: "it cannot be waited for: \(reason)"))
        return
      }
      guard let serving = options.tls else { return add(tag, descriptor, Sender(peer), nil) }
      do throws(SocketFailure) {
        shaking[tag] = (try serving.session(descriptor), peer, descriptor, now)
        if checksIdleAt == 0 { checksIdleAt = now &+ 1_000_000_000 }
        shake(tag)
      } catch {
        Glibc.close(descriptor)
        notify(.lost(peer: peer.text, reason: error.message))
      }
    }

    private func shake(_ tag: UInt64) {
      guard let (session, peer, descriptor, _) = shaking[tag] else { return }
      switch session.handshake() {
      case .done:
        shaking[tag] = nil
        _ = rx_watch(poller, descriptor, tag, 1, 0, 0)
        add(tag, descriptor, Sender(peer, subject: session.peerSubject), session)
        // Bytes that came with the handshake are already in the session, where the poller does not see them.
        if let connection = connections[tag] { read(tag, connection) }
      case .wantsRead: _ = rx_watch(poller, descriptor, tag, 1, 0, 0)
      case .wantsWrite: _ = rx_watch(poller, descriptor, tag, 0, 1, 0)
      case .closed: giveUp(tag, "it was closed during the TLS handshake")
      case .failed(let reason): giveUp(tag, reason)
      }
    }

    private func giveUp(_ tag: UInt64, _ reason: String) {
      guard let (session, peer, descriptor, _) = shaking.removeValue(forKey: tag) else { return }
      session.close()
      Glibc.close(descriptor)
      owner.counted.withLock { $0.broken += 1 }
      notify(.lost(peer: peer.text, reason: reason))
    }

    private func add(_ tag: UInt64, _ descriptor: Int32, _ sender: Sender, _ session: TLSSession?) {
      // A decoder was made at the start, so making another can fail only for lack of memory.
      guard let decoder = try? options.decoding.decoder() else {
        session?.close()
        Glibc.close(descriptor)
        owner.counted.withLock { $0.broken += 1 }
        notify(.lost(peer: sender.peer.text, reason: "its decoder cannot be created"))
        return
      }
      connections[tag] = Connection(descriptor, sender, session, BlockDecoding(decoder), options, now: now)
      if options.idleTimeout != nil, checksIdleAt == 0 { checksIdleAt = now &+ 1_000_000_000 }
      count()
    }

    private func adopt(_ kept: [Connection]) {
      for connection in kept {
        guard goesOn(connection) else {
          finish(connection)
          continue
        }
        let tag = nextTag
        nextTag += 1
        connection.lastRead = now
        connection.pausedUntil = 0
        guard rx_watch(poller, connection.descriptor, tag, 1, 0, 1) == 0 else {
          let reason = PosixError.text(errno)
          finish(connection)
          owner.counted.withLock { $0.broken += 1 }
          notify(.lost(peer: connection.sender.peer.text, reason: "it cannot be waited for: \(reason)"))
          continue
        }
        connections[tag] = connection
        if options.idleTimeout != nil, checksIdleAt == 0 { checksIdleAt = now &+ 1_000_000_000 }
        if let offset = connection.decoding.pendingOffset {
          pieces.append(Piece(sender: connection.sender, pendingOffset: offset))
        }
        read(tag, connection)
      }
      count()
    }

    /// Continues a connection of the previous version with these options; false: it must be closed, and its sender must
    /// start over.
    private func goesOn(_ connection: Connection) -> Bool {
      let old = connection.options
      let isSame = old.framing == options.framing && old.decoding == options.decoding
      guard (old.tls == nil) == (options.tls == nil), isSame || !options.decoding.needsBeginning,
        let decoder = try? options.decoding.decoder()
      else { return false }
      connection.options = options
      if isSame, old.maxMessage == options.maxMessage { return true }
      if old.decodesStream {
        readOn(connection, BlockDecoding(decoder), old)
      } else if old.framing == options.framing, !options.decodesStream {
        connection.decoding = BlockDecoding(decoder)
        connection.cutter.limit = options.maxMessage
      } else {
        let bytes = [UInt8](connection.cutter.rest)
        let offset = connection.cutter.readOffset &- Int64(bytes.count)
        connection.decoding = BlockDecoding(decoder)
        begin(connection, with: bytes, at: offset)
      }
      return true
    }

    /// Decodes again, with a new decoder, the bytes of a stream that are in no event yet.
    private func readOn(_ connection: Connection, _ decoding: BlockDecoding, _ old: Options) {
      var lines = connection.lines
      var bytes = lines.rest
      var offset = lines.offset
      if let undecoded = connection.decoding.undecoded {
        bytes = undecoded + bytes
        offset &-= Int64(undecoded.count)
      } else if let (rows, _) = connection.decoding.endEvent() {
        pieces.append(Piece(sender: connection.sender, rows: rows))
      }
      if old.decoding == options.decoding { decoding.reset(memory: connection.decoding.memory) }
      connection.decoding = decoding
      begin(connection, with: bytes, at: offset)
      guard lines.isWithinLostLine else { return }
      lines.endLostLine { take($0, connection, limit: old.maxMessage) }
      guard options.decodesStream else { return }
      connection.lines.reset(offset: lines.readOffset)
      connection.lines.skipToLineStart()
    }

    /// Begins reading with the connection's options in the middle of the stream, first the given bytes, which were read
    /// before.
    private func begin(_ connection: Connection, with bytes: [UInt8], at offset: Int64) {
      connection.lines = connection.options.lines(at: offset)
      connection.cutter = MessageCutter(options.framing, limit: options.maxMessage, offset: offset)
      guard !bytes.isEmpty else { return }
      if options.decodesStream {
        connection.lines.space(bytes.count).copyBytes(from: bytes)
        connection.lines.filled(bytes.count) { take($0, connection) }
      } else {
        connection.cutter.space(bytes.count).copyBytes(from: bytes)
        if let block = connection.cutter.filled(bytes.count) { _ = take(block, connection) }
      }
    }

    private func read(_ tag: UInt64, _ connection: Connection, until limit: Int? = nil) {
      readPart(tag, connection, until: limit)
      guard connections[tag] != nil else { return }
      connection.release()
      unfinished.set(connection.capacity, of: tag)
      while unfinished.total > mostUnfinished, let largest = unfinished.largest { giveUpUnfinished(largest) }
    }

    /// Ends a connection because its unfinished message takes the room of the others.
    private func giveUpUnfinished(_ tag: UInt64) {
      guard let connection = connections[tag] else { return unfinished.set(0, of: tag) }
      let reason =
        "its message of \(connection.held) bytes or more is the largest of unfinished messages of together more than \(mostUnfinished) bytes"
      let (rest, offset) =
        options.decodesStream
        ? (connection.lines.rest, connection.lines.offset)
        : ([UInt8](connection.cutter.rest), connection.cutter.readOffset &- Int64(connection.cutter.rest.count))
      pieces.append(
        Piece(
          sender: connection.sender,
          refused: [RefusedBytes(offset: offset, head: Array(rest.prefix(LongLine.headBytes)), reason: reason)]))
      owner.counted.withLock { $0.broken += 1 }
      notify(.lost(peer: connection.sender.peer.text, reason: reason))
      remove(tag)
    }

    private func readPart(_ tag: UInt64, _ connection: Connection, until limit: Int?) {
      if connection.pausedUntil > now, limit == nil { return }
      // Reads a limited amount, so that one connection does not keep the others waiting.
      var rest = limit ?? share
      let part = min(readBytes, rest)
      while rest > 0 {
        let isStream = options.decodesStream
        let space = isStream ? connection.lines.space(part) : connection.cutter.space(part)
        let outcome =
          connection.session?.read(space) ?? Self.receive(connection.descriptor, space)
        switch outcome {
        case .bytes(let count):
          connection.lastRead = now
          rest -= count
          taken += count
          if isStream {
            connection.lines.filled(count) { take($0, connection) }
          } else if let block = connection.cutter.filled(count), take(block, connection) {
            return remove(tag)
          }
          if count < space.count, connection.session == nil { return hold(tag, connection, count) }
          if limit == nil, options.maxRate != nil { return hold(tag, connection, count) }
        case .nothing: return
        case .ended(let reason):
          finish(connection)
          if let reason {
            owner.counted.withLock { $0.broken += 1 }
            notify(.lost(peer: connection.sender.peer.text, reason: reason))
          }
          return remove(tag)
        }
      }
    }

    /// Pauses a connection that sends too fast.
    private func hold(_ tag: UInt64, _ connection: Connection, _ count: Int) {
      guard let rate = options.maxRate else { return }
      let pause = Int64(Double(count) / Double(max(rate, 1)) * 1e9)
      connection.pausedUntil = now &+ pause
      _ = rx_watch(poller, connection.descriptor, tag, 0, 0, 0)
    }

    private static func receive(_ descriptor: Int32, _ space: UnsafeMutableRawBufferPointer) -> TLSSession.Outcome {
      let count = uninterrupted { Glibc.recv(descriptor, space.baseAddress, space.count, 0) }
      if count > 0 { return .bytes(count) }
      if count == 0 { return .ended(nil) }
      return errno == EAGAIN ? .nothing : .ended(PosixError.text(errno))
    }

    private func take(_ block: LineBlock, _ connection: Connection, limit: Int? = nil) {
      var piece = Piece(sender: connection.sender)
      if block.slab.count > 0 {
        piece.rows = connection.decoding.decode(block.slab, offset: block.offset, isLast: false)
      }
      if block.longLine != nil, connection.decoding.joinsLines, let (rows, _) = connection.decoding.endEvent() {
        piece.rows = rows
      }
      piece.pendingOffset = connection.decoding.pendingOffset
      if let long = block.longLine {
        piece.refused.append(
          RefusedBytes(
            offset: long.offset, head: long.head,
            reason:
              "the line has \(long.length) bytes, more than the \(limit ?? connection.options.maxMessage) that 'maxMessage' allows"
          ))
      }
      pieces.append(piece)
    }

    /// Decodes the messages; returns whether nothing after them in the stream can be understood.
    private func take(_ block: MessageBlock, _ connection: Connection) -> Bool {
      var piece = Piece(sender: connection.sender, refused: block.refused)
      if !block.messages.isEmpty {
        piece.rows = connection.decoding.decode(block.slab, messages: block.messages, offset: block.offset)
      }
      pieces.append(piece)
      if block.isBroken {
        owner.counted.withLock { $0.broken += 1 }
        notify(
          .lost(peer: connection.sender.peer.text, reason: block.refused.last?.reason ?? "it cannot be understood"))
      }
      return block.isBroken
    }

    /// The connection has ended: its last line counts even without a newline.
    private func finish(_ connection: Connection) {
      guard connection.options.decodesStream else {
        if let block = connection.cutter.filled(0, isLast: true) { _ = take(block, connection) }
        return
      }
      connection.lines.finish { take($0, connection) }
      if connection.decoding.pendingOffset != nil {
        let rows = connection.decoding.decode(
          Slab(capacity: 0), offset: connection.lines.readOffset, isLast: true)
        pieces.append(Piece(sender: connection.sender, rows: rows))
      }
    }

    private func remove(_ tag: UInt64) {
      guard let connection = connections.removeValue(forKey: tag) else { return }
      unfinished.set(0, of: tag)
      rx_unwatch(poller, connection.descriptor)
      isFull = false
      count()
    }

    /// Does what is due now: tries `accept` again, resumes paused connections, and ends idle ones.
    private func keepTime() {
      let now = now
      if acceptsAt > 0, now >= acceptsAt {
        acceptsAt = 0
        _ = owner.socket.use { rx_watch(poller, $0, 1, 1, 0, 0) }
      }
      if options.maxRate != nil {
        for (tag, connection) in connections where connection.pausedUntil > 0 && connection.pausedUntil <= now {
          connection.pausedUntil = 0
          _ = rx_watch(poller, connection.descriptor, tag, 1, 0, 0)
        }
      }
      guard checksIdleAt > 0, now >= checksIdleAt else { return }
      let handshakeLimit: Int64 = 10_000_000_000
      for (tag, one) in shaking where now &- one.since > handshakeLimit { giveUp(tag, "no TLS handshake within 10s") }
      var next = Int64.max
      if let limit = options.idleTimeout {
        for (tag, connection) in connections {
          let due = connection.lastRead &+ max(limit.nanoseconds, 1_000_000)
          guard due <= now else {
            next = min(next, due)
            continue
          }
          finish(connection)
          notify(.lost(peer: connection.sender.peer.text, reason: "it has sent nothing for \(limit)"))
          remove(tag)
        }
      }
      if !shaking.isEmpty { next = min(next, now &+ 1_000_000_000) }
      checksIdleAt = next == .max ? 0 : next
    }

    private func handOverPieces() -> Bool {
      guard !pieces.isEmpty else { return true }
      let before = monotonicNow()
      let goesOn = deliver(pieces)
      pieces = []
      taken = 0
      waited &+= monotonicNow() &- before
      return goesOn
    }

    private func end(_ goesOn: Bool) {
      for (session, _, descriptor, _) in shaking.values {
        session.close()
        Glibc.close(descriptor)
      }
      shaking = [:]
      let ending = owner.ending.withLock { $0 } ?? .cancel
      guard goesOn, ending != .cancel else {
        connections = [:]
        return
      }
      // Bytes that have arrived must not be lost: TCP has confirmed them to the senders.
      for (tag, connection) in connections { read(tag, connection, until: 4 << 20) }
      let isKept =
        ending == .handOver
        && StreamReceiver.kept.keep(
          connections.values.map { Kept(connection: $0, notify: notify) }, for: owner.socket.place.exclusive)
      if !isKept { for connection in connections.values { finish(connection) } }
      connections = [:]
      if handOverPieces() { _ = deliver([]) }
    }
  }
}
