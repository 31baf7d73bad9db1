import Glibc
import PipelineCore

/// How a stream of bytes is cut into messages.
package enum MessageFraming: Sendable, Equatable {
  /// Each line, without its line feed or CRLF. The last one of a stream may lack it.
  case lines
  /// Each ends with a zero byte; the last one of a stream may lack it.
  case nul
  /// Each message is preceded by its length, in that many bytes.
  case length(bytes: Int, isLittle: Bool)
  /// Each message is preceded by its length, in decimal digits and a space (RFC 6587, 3.4.1).
  case octets
  /// Each message has that many bytes.
  case fixed(Int)
  /// The whole stream is one message.
  case whole
  /// A message that begins with a digit is framed as in `octets`, any other as in `lines`: syslog over TCP (RFC 6587).
  case syslog
}

/// Bytes of a stream that belong to no message.
package struct RefusedBytes: Sendable, Equatable {
  /// The offset of the message in the stream.
  package var offset: Int64
  /// The first bytes of the message, at most ``LongLine/headBytes``.
  package var head: [UInt8]
  /// The reason, one sentence without a full stop.
  package var reason: String

  package init(offset: Int64, head: [UInt8], reason: String) {
    self.offset = offset
    self.head = head
    self.reason = reason
  }
}

/// Whole messages that arrived together.
package struct MessageBlock: Sendable {
  /// Contains the messages and the bytes between them.
  package var slab: Slab
  /// The offset of the slab in the stream.
  package var offset: Int64
  /// The ranges of the messages in the slab.
  package var messages: [Range<Int>] = []
  package var refused: [RefusedBytes] = []
  /// Whether the rest of the stream cannot be understood: it must be closed.
  package var isBroken = false

  package init(slab: Slab, offset: Int64) {
    self.slab = slab
    self.offset = offset
  }
}

/// Cuts a stream of bytes into messages. No I/O: the caller gets `space`, fills it, and calls `filled`.
///
/// Memory is bounded by the largest message plus the largest space requested. Any way of cutting the stream into pieces gives the same
/// messages.
package struct MessageCutter {
  private let framing: MessageFraming
  /// The longest message in bytes, without its frame; a new limit also applies to the current message.
  var limit: Int { didSet { limit = max(limit, 1) } }

  private var slab: Slab
  /// The start and the end of the undelivered bytes in `slab`.
  private var start = 0
  private var end = 0
  /// The offset of `start` in the stream.
  private var offset: Int64
  /// How far the message at `start` has been searched for its end.
  private var searched = 0
  /// How the rest of a message that is too long is skipped.
  private var skipped: Skip?

  private enum Skip {
    case bytes(Int64)
    /// Up to and including this byte.
    case until(UInt8)
  }

  /// - Parameter limit: The longest message in bytes, without its frame.
  package init(_ framing: MessageFraming, limit: Int, offset: Int64 = 0) {
    self.framing = framing
    self.limit = max(limit, 1)
    self.offset = offset
    slab = Slab(capacity: 0)
  }

  /// The offset of the next byte to be read.
  package var readOffset: Int64 { offset &+ Int64(end - start) }

  /// Room for at least `count` more bytes. Valid until the next call of this value.
  package mutating func space(_ count: Int) -> UnsafeMutableRawBufferPointer {
    if slab.capacity - end < count {
      let held = end - start
      // Doubles, so that a message that arrives byte by byte is copied a constant number of times.
      let larger = Slab(capacity: max(held + count, min(held * 2, limit + count)))
      larger.start.copyMemory(from: slab.start + start, byteCount: held)
      slab = larger
      searched -= start
      start = 0
      end = held
    }
    return UnsafeMutableRawBufferPointer(start: slab.start + end, count: slab.capacity - end)
  }

  /// Takes the first `count` bytes of the space as the next bytes of the stream. `isLast`: the stream ends with them.
  package mutating func filled(_ count: Int, isLast: Bool = false) -> MessageBlock? {
    end += count
    var block = MessageBlock(slab: slab, offset: offset)
    let base = start
    while !block.isBroken, let found = next(isLast) {
      switch found {
      case .message(let range): block.messages.append((range.lowerBound - base)..<(range.upperBound - base))
      case .refused(let refused): block.refused.append(refused)
      case .broken(let refused):
        block.refused.append(refused)
        block.isBroken = true
      case .nothing: break
      }
    }
    let taken = start - base
    guard !block.messages.isEmpty else {
      if start == end {
        start = 0
        end = 0
        searched = 0
      }
      block.slab = .empty
      return block.refused.isEmpty ? nil : block
    }
    let held = end - start
    if taken * 2 >= slab.capacity, base == 0 {
      // Most of the memory is in use: it is handed over without copying.
      let rest = Slab(capacity: held)
      rest.start.copyMemory(from: slab.start + start, byteCount: held)
      slab.count = taken
      block.slab = slab
      slab = rest
    } else {
      block.slab = Slab(UnsafeRawBufferPointer(start: slab.start + base, count: taken))
      if held > 0 { memmove(slab.start, slab.start + start, held) }
    }
    searched = max(0, searched - start)
    start = 0
    end = held
    return block
  }

  /// The start of an incomplete message; empty if part of it was skipped.
  package var rest: UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(start: slab.start + start, count: skipped == nil ? end - start : 0)
  }

  /// The memory that an incomplete message occupies between two reads.
  package var capacity: Int { slab.capacity }

  /// Frees unused memory, unless little more is allocated than the incomplete message needs.
  package mutating func release() {
    let held = end - start
    guard slab.capacity > (held == 0 ? 0 : 2 * held + Self.spare) else { return }
    let smaller = Slab(capacity: held)
    smaller.start.copyMemory(from: slab.start + start, byteCount: held)
    slab = smaller
    (start, end, searched) = (0, held, max(0, searched - start))
  }
  private static let spare = 512

  private enum Found {
    case message(Range<Int>)
    case refused(RefusedBytes)
    case broken(RefusedBytes)
    /// Bytes were skipped.
    case nothing
  }

  private var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: slab.start, count: end) }

  private mutating func advance(to newStart: Int) {
    offset &+= Int64(newStart - start)
    start = newStart
    searched = newStart
  }

  /// The next message, or bytes that belong to none; nil: more bytes are needed.
  private mutating func next(_ isLast: Bool) -> Found? {
    if let skip = skipped { return pass(skip) }
    guard start < end else { return nil }
    switch framing {
    case .lines: return delimited(0x0A, isLast)
    case .nul: return delimited(0, isLast)
    case .length(let count, let isLittle):
      guard end - start >= count else { return incomplete(isLast) }
      var length = 0
      for index in 0..<count { length = length << 8 | Int(bytes[start + (isLittle ? count - 1 - index : index)]) }
      return sized(header: count, length, isLast)
    case .octets: return counted(isLast)
    case .fixed(let count): return sized(header: 0, count, isLast)
    case .whole:
      if end - start > limit { return tooLong(end, .bytes(.max)) }
      guard isLast else { return nil }
      defer { advance(to: end) }
      return .message(start..<end)
    case .syslog:
      switch bytes[start] {
      case 0x0A, 0x0D, 0:
        advance(to: start + 1)
        return .nothing
      case 0x31...0x39: return counted(isLast)
      default: return delimited(0x0A, isLast)
      }
    }
  }

  private mutating func pass(_ skip: Skip) -> Found? {
    guard start < end else { return nil }
    switch skip {
    case .bytes(let left):
      let count = min(left, Int64(end - start))
      advance(to: start + Int(count))
      skipped = left > count ? .bytes(left - count) : nil
    case .until(let byte):
      guard let found = memchr(slab.start + start, Int32(byte), end - start) else {
        advance(to: end)
        return .nothing
      }
      advance(to: UnsafeRawPointer(found) - UnsafeRawPointer(slab.start) + 1)
      skipped = nil
    }
    return .nothing
  }

  private mutating func delimited(_ byte: UInt8, _ isLast: Bool) -> Found? {
    let from = max(searched, start)
    let found = memchr(slab.start + from, Int32(byte), end - from).map {
      UnsafeRawPointer($0) - UnsafeRawPointer(slab.start)
    }
    guard let stop = found ?? (isLast ? end : nil) else {
      searched = end
      // One byte more is allowed: the last one may be the carriage return of the line's end.
      return end - start > limit + 1 ? tooLong(end, .until(byte)) : nil
    }
    var last = stop
    if byte == 0x0A, last > start, bytes[last - 1] == 0x0D { last -= 1 }
    let next = min(stop + 1, end)
    if last - start > limit { return tooLong(next, nil) }
    defer { advance(to: next) }
    return .message(start..<last)
  }

  private mutating func sized(header: Int, _ length: Int, _ isLast: Bool) -> Found? {
    if length > limit {
      let whole = start.addingReportingOverflow(header + length)
      let here = whole.overflow ? end : min(end, whole.partialValue)
      let left = Int64(header + length) - Int64(here - start)
      return tooLong(here, left > 0 ? .bytes(left) : nil, length: length)
    }
    guard end - start >= header + length else { return incomplete(isLast) }
    let first = start + header
    defer { advance(to: first + length) }
    return .message(first..<(first + length))
  }

  /// Parses a length in digits, a space, and that many bytes.
  private mutating func counted(_ isLast: Bool) -> Found? {
    var at = start
    var length = 0
    while at < end, bytes[at] &- 0x30 < 10, at - start < 10 {
      length = length * 10 + Int(bytes[at] - 0x30)
      at += 1
    }
    if at == end, at - start < 10 { return incomplete(isLast) }
    guard at > start, bytes[start] != 0x30, at < end, bytes[at] == 0x20 else {
      return broken("a message must begin with its length in digits and a space")
    }
    return sized(header: at + 1 - start, length, isLast)
  }

  private mutating func incomplete(_ isLast: Bool) -> Found? {
    guard isLast else { return nil }
    defer { advance(to: end) }
    return .refused(refused(end, "the stream ended within a message"))
  }

  private mutating func broken(_ reason: String) -> Found {
    defer { advance(to: end) }
    return .broken(refused(end, reason))
  }

  private mutating func tooLong(_ stop: Int, _ rest: Skip?, length: Int? = nil) -> Found {
    let size = length.map { "has \($0) bytes, more" } ?? "is longer"
    let refused = refused(stop, "the message \(size) than the \(limit) bytes that 'maxMessage' allows")
    advance(to: stop)
    skipped = rest
    return .refused(refused)
  }

  private func refused(_ stop: Int, _ reason: String) -> RefusedBytes {
    let shown = UnsafeRawBufferPointer(start: slab.start + start, count: min(stop - start, LongLine.headBytes))
    return RefusedBytes(offset: offset, head: [UInt8](shown), reason: reason)
  }
}
