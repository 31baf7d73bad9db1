import CLinux
import Glibc
import PipelineCore
import Synchronization

extension StreamReceiver {
  /// The work of the thread.
  final class Work {
    let owner: StreamReceiver
    let options: Options
    let poller: Int32
    let notify: @Sendable (Notice) -> Void
    let deliver: @Sendable ([Piece]) -> Bool
    var connections: [UInt64: Connection] = [:]
    var unfinished: UnfinishedMessages<UInt64>
    let mostUnfinished: Int
    /// TLS connections whose handshake is under way.
    var shaking: [UInt64: (session: TLSSession, peer: SocketPeer, descriptor: Int32, since: Int64)] = [:]
    var nextTag: UInt64 = 2
    var shortage = AcceptShortage()
    var acceptsAt: Int64 = 0
    var isFull = false
    var checksIdleAt: Int64 = 0
    /// How long the thread has waited for the pipeline in total: this time does not count as idle time of a connection.
    var waited: Int64 = 0
    var pieces: [Piece] = []
    var ready = [rx_ready](repeating: rx_ready(), count: 256)
    let readBytes = 64 << 10
    /// The smallest read: a whole TLS record, because the poller does not see bytes that are left in the session.
    let leastRead = 16 << 10
    /// The bytes read since pieces were last handed over.
    var taken = 0

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

    var now: Int64 { monotonicNow() &- waited }

    /// - Parameter kept: Connections of the previous version.
    func run(goingOnWith kept: [Connection]) {
      for fault in owner.socket.faults { notify(.fault(fault)) }
      adopt(kept)
      // The adopted connections may have had input, which is delivered at once, because more may not come for a long time.
      var goesOn = handOverPieces()
      while goesOn, owner.ending.withLock({ $0 }) == nil {
        let count = Int(rx_wait(poller, &ready, 256, timeout()))
        let reads = !waitsForRoom()
        // The reader counts as active until the blocks have been delivered.
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

    /// The maximum number of bytes that are read before they are delivered, from one connection or from all together.
    var share: Int {
      guard let memory = options.memory else { return readBytes * 4 }
      return min(readBytes * 4, max(leastRead, ActiveReader.share(of: memory.ofReaders)))
    }

    /// Whether reading pauses, because the memory of the process is used up and this receiver's unfinished messages
    /// occupy more than its minimum share. Senders wait meanwhile. If that lasts, the largest message is given up,
    /// because memory may be full of such messages.
    func waitsForRoom() -> Bool {
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
    /// The time since which ``waitsForRoom()`` is true; 0: it is false.
    var fullSince: Int64 = 0
    static let patience = TimeSpan.seconds(10)
    /// The interval at which room is checked while reading pauses, in milliseconds.
    static let look: Int32 = 100

    func endEvents() {
      let due = owner.due.withLock { due in
        defer { due = [:] }
        return due
      }
      guard !due.isEmpty else { return }
      for connection in connections.values {
        guard let offset = due[connection.sender.number], connection.decoding.pendingOffset == offset,
          let (rows, _) = connection.decoding.endEvent()
        else { continue }
        add(Piece(sender: connection.sender, rows: rows), of: connection)
      }
    }

    func count() {
      owner.counted.withLock { $0.open = connections.count }
    }

    func timeout() -> Int32 {
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

    func handle(_ event: rx_ready) {
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

    func accept() {
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

    func begin(_ descriptor: Int32, _ address: rx_address) {
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

    func shake(_ tag: UInt64) {
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

    func giveUp(_ tag: UInt64, _ reason: String) {
      guard let (session, peer, descriptor, _) = shaking.removeValue(forKey: tag) else { return }
      session.close()
      Glibc.close(descriptor)
      owner.counted.withLock { $0.broken += 1 }
      notify(.lost(peer: peer.text, reason: reason))
    }

    func add(_ tag: UInt64, _ descriptor: Int32, _ sender: Sender, _ session: TLSSession?) {
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

    func adopt(_ kept: [Connection]) {
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
          add(Piece(sender: connection.sender, pendingOffset: offset), of: connection)
        }
        read(tag, connection)
      }
      count()
    }

    /// Continues a connection of the previous version with these options; false: it must be closed, and its sender must
    /// start over.
    func goesOn(_ connection: Connection) -> Bool {
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

    /// Decodes again, with a new decoder, the bytes of a stream that are not part of any event yet.
    func readOn(_ connection: Connection, _ decoding: BlockDecoding, _ old: Options) {
      var lines = connection.lines
      var bytes = lines.rest
      var offset = lines.offset
      if let undecoded = connection.decoding.undecoded {
        bytes = undecoded + bytes
        offset &-= Int64(undecoded.count)
      } else if let (rows, _) = connection.decoding.endEvent() {
        add(Piece(sender: connection.sender, rows: rows), of: connection)
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

    /// Does the timed work that is due: tries `accept` again, resumes paused connections, and ends idle ones.
    func keepTime() {
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

    func handOverPieces() -> Bool {
      guard !pieces.isEmpty else { return true }
      let before = monotonicNow()
      let goesOn = deliver(pieces)
      pieces = []
      taken = 0
      waited &+= monotonicNow() &- before
      return goesOn
    }

    func end(_ goesOn: Bool) {
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
          connections.values.map { Kept(connection: $0, notify: notify) }, for: owner.socket.endpoint.exclusive)
      if !isKept { for connection in connections.values { finish(connection) } }
      connections = [:]
      if handOverPieces() { _ = deliver([]) }
    }
  }
}
