import CLinux
import Glibc
import PipelineCore
import Synchronization

extension StreamReceiver.Work {
  // MARK: Reading

  /// Begins reading with the connection's options in the middle of the stream, first the given bytes, which were read
  /// before.
  func begin(_ connection: StreamReceiver.Connection, with bytes: [UInt8], at offset: Int64) {
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

  func read(_ tag: UInt64, _ connection: StreamReceiver.Connection, until limit: Int? = nil) {
    readPart(tag, connection, until: limit)
    guard connections[tag] != nil else { return }
    connection.release()
    unfinished.set(connection.capacity, of: tag)
    while unfinished.total > mostUnfinished, let largest = unfinished.largest { giveUpUnfinished(largest) }
  }

  /// Ends a connection because its unfinished message occupies memory that others need.
  func giveUpUnfinished(_ tag: UInt64) {
    guard let connection = connections[tag] else { return unfinished.set(0, of: tag) }
    let reason =
      "its message of \(connection.held) bytes or more is the largest of unfinished messages of together more than \(mostUnfinished) bytes"
    let (rest, offset) =
      options.decodesStream
      ? (connection.lines.rest, connection.lines.offset)
      : ([UInt8](connection.cutter.rest), connection.cutter.readOffset &- Int64(connection.cutter.rest.count))
    add(
      StreamReceiver.Piece(
        sender: connection.sender,
        refused: [RefusedBytes(offset: offset, head: Array(rest.prefix(LongLine.headBytes)), reason: reason)]),
      of: connection)
    owner.counted.withLock { $0.broken += 1 }
    notify(.lost(peer: connection.sender.peer.text, reason: reason))
    remove(tag)
  }

  func readPart(_ tag: UInt64, _ connection: StreamReceiver.Connection, until limit: Int?) {
    if connection.pausedUntil > now, limit == nil { return }
    // Reads a limited amount, so that other connections do not wait for this one.
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
  func hold(_ tag: UInt64, _ connection: StreamReceiver.Connection, _ count: Int) {
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

  func take(_ block: LineBlock, _ connection: StreamReceiver.Connection, limit: Int? = nil) {
    var piece = StreamReceiver.Piece(sender: connection.sender)
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
    add(piece, of: connection)
  }

  /// Decodes the messages; returns whether nothing after them in the stream can be understood.
  func take(_ block: MessageBlock, _ connection: StreamReceiver.Connection) -> Bool {
    var piece = StreamReceiver.Piece(sender: connection.sender, refused: block.refused)
    if !block.messages.isEmpty {
      piece.rows = connection.decoding.decode(block.slab, messages: block.messages, offset: block.offset)
    }
    add(piece, of: connection)
    if block.isBroken {
      owner.counted.withLock { $0.broken += 1 }
      notify(
        .lost(peer: connection.sender.peer.text, reason: block.refused.last?.reason ?? "it cannot be understood"))
    }
    return block.isBroken
  }

  /// The connection has ended: its last line is delivered even without a newline.
  func finish(_ connection: StreamReceiver.Connection) {
    guard connection.options.decodesStream else {
      if let block = connection.cutter.filled(0, isLast: true) { _ = take(block, connection) }
      return
    }
    connection.lines.finish { take($0, connection) }
    if connection.decoding.pendingOffset != nil {
      let rows = connection.decoding.decode(
        Slab(capacity: 0), offset: connection.lines.readOffset, isLast: true)
      add(StreamReceiver.Piece(sender: connection.sender, rows: rows), of: connection)
    }
  }

  func add(_ piece: StreamReceiver.Piece, of connection: StreamReceiver.Connection) {
    connection.hasPieces = true
    pieces.append(piece)
  }

  func remove(_ tag: UInt64) {
    guard let connection = connections.removeValue(forKey: tag) else { return }
    unfinished.set(0, of: tag)
    // The end of a connection that sent nothing, such as that of a health check, needs no turn.
    if connection.hasPieces { pieces.append(StreamReceiver.Piece(sender: connection.sender, isLast: true)) }
    rx_unwatch(poller, connection.descriptor)
    isFull = false
    count()
  }
}
