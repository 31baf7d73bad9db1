import CLinux
import Glibc
import PipelineCore

/// A line that is longer than the limit.
package struct LongLine: Sendable, Equatable {
  package enum Policy: String, Sendable {
    /// Deliver the first `maxLine` bytes as the line.
    case cut
    /// Deliver no part of it.
    case drop
    /// Deliver no part of it, but report its start as an error.
    case reject
  }
  /// The offset of the line in the stream.
  package var offset: Int64
  /// The length of the whole line in bytes, without its newline.
  package var length: Int64
  package var policy: Policy
  /// With `drop` and `reject`, the line's first bytes, at most `headBytes`.
  package var head: [UInt8] = []

  package static let headBytes = 4096
}

/// Consecutive whole lines of the stream.
package struct LineBlock: Sendable {
  /// Lines, each with its newline; only the very last line may lack it: at the end of the stream, and where a long line
  /// was cut. Empty if there is only a `longLine` to report.
  package var slab: Slab
  /// The offset of the slab's first byte in the stream.
  package var offset: Int64
  /// Where reading continues: all bytes before it are in this or an earlier block, or were dropped and reported.
  package var endOffset: Int64
  /// The long line at the end of this block: with `cut` its start is the slab's last line, otherwise it followed the
  /// slab's last line.
  package var longLine: LongLine?
}

/// Cuts a stream of bytes into blocks of whole lines. No I/O: the caller gets `space`, fills it, and calls `filled`.
///
/// Memory is bounded by `maxLine` plus the largest space requested. Copies a byte at most once if lines arrive in small
/// pieces, and hands over its own memory if they come in large ones.
struct LineAssembler {
  let maxLine: Int
  let policy: LongLine.Policy
  /// The source of memory for large reads.
  var pool: SlabPool?

  /// Whether a block may end anywhere: then no bytes are held back, and no line is too long.
  var endsAnywhere = false

  /// The undelivered bytes: the start of one line, without newline, of which `discarded` bytes were dropped.
  private var slab: Slab?
  /// Valid bytes in `slab`.
  private(set) var held = 0
  /// The offset of the first held byte in the stream.
  private(set) var offset: Int64
  /// The number of bytes of the current line that were dropped because it is too long; its start is held. -1: the line is not too long.
  private var discarded: Int64 = -1
  /// Whether the bytes up to the next newline are skipped, because their line started before reading did.
  private var skipping = false
  /// Whether the last line was delivered without its newline: if the newline comes now, it is not an empty line.
  private var awaitsNewline = false

  init(maxLine: Int, policy: LongLine.Policy, offset: Int64 = 0, pool: SlabPool? = nil) {
    self.maxLine = max(maxLine, 1)
    self.policy = policy
    self.pool = pool
    self.offset = offset
  }

  /// Skips everything up to the next newline: reading started within a line.
  mutating func skipToLineStart() { skipping = true }

  /// The offset of the next byte to be read.
  var readOffset: Int64 { offset &+ Int64(held) &+ max(discarded, 0) }

  /// Room for at least `count` more bytes. Valid until the next call of this value.
  mutating func space(_ count: Int) -> UnsafeMutableRawBufferPointer {
    let current: Slab
    if let slab, slab.capacity - held >= count {
      current = slab
    } else {
      // Doubles, so that a line that arrives byte by byte is copied a constant number of times.
      current = slab(for: held == 0 ? count : max(held + count, min(held * 2, maxLine + count)))
      if let slab { current.start.copyMemory(from: slab.start, byteCount: held) }
      slab = current
    }
    return UnsafeMutableRawBufferPointer(
      start: current.start + held, count: current.capacity - held)
  }

  private func slab(for capacity: Int) -> Slab {
    if let pool, capacity <= pool.capacity, capacity * 2 >= pool.capacity { return pool.take() }
    return Slab(capacity: capacity)
  }

  /// Takes the first `count` bytes of the space as the next bytes of the stream.
  mutating func filled(_ count: Int, deliver: (LineBlock) -> Void) {
    guard count > 0, let slab else { return }
    let newline: Int32 = 10
    if awaitsNewline {
      awaitsNewline = false
      if slab.start.load(fromByteOffset: held, as: UInt8.self) == 10 {
        offset &+= 1
        memmove(slab.start, slab.start + 1, count - 1)
        if count == 1 {
          deliver(LineBlock(slab: Slab(capacity: 0), offset: offset, endOffset: offset, longLine: nil))
        }
        return filled(count - 1, deliver: deliver)
      }
    }
    if discarded >= 0 || skipping {
      let fresh = slab.start + held
      guard let end = memchr(fresh, newline, count) else {
        if skipping { offset &+= Int64(count) } else { discarded &+= Int64(count) }
        return
      }
      let gone = end - fresh
      if skipping {
        skipping = false
        offset &+= Int64(gone + 1)
      } else {
        discarded &+= Int64(gone)
        deliverLong(newlines: 1, deliver)
      }
      let rest = count - gone - 1
      let target = space(rest)  // The held bytes may have been handed over.
      if rest > 0, let base = target.baseAddress { memmove(base, end + 1, rest) }
      withExtendedLifetime(slab) {}
      return filled(rest, deliver: deliver)
    }
    if endsAnywhere { return emit(slab, count, count, deliver) }
    guard let last = lastNewline(slab.start + held, count) else {
      held += count
      if held > maxLine { beginLong() }
      return
    }
    let complete = last - UnsafeRawPointer(slab.start) + 1
    let filled = held + count
    if complete > maxLine, let start = firstLong(slab, complete) {
      return splitAtLong(slab, start, filled, deliver)
    }
    emit(slab, complete, filled, deliver)
    if held > maxLine { beginLong() }
  }

  /// The stream ends: delivers the held bytes as a last line.
  mutating func finish(deliver: (LineBlock) -> Void) {
    skipping = false
    if discarded >= 0 {
      deliverLong(newlines: 0, deliver)
    } else if held > 0, let slab {
      emit(slab, held, held, deliver)
    }
    self.slab = nil
  }

  /// Whether the start of a line is held.
  var isWithinLine: Bool { held > 0 && discarded < 0 && !skipping }

  /// Delivers the start of a line as the last line, although the stream may continue.
  mutating func endLine(deliver: (LineBlock) -> Void) {
    guard isWithinLine else { return }
    finish(deliver: deliver)
    awaitsNewline = true
  }

  /// The stream restarts at `offset`; held bytes are dropped.
  mutating func reset(offset: Int64) {
    self.offset = offset
    held = 0
    discarded = -1
    skipping = false
    awaitsNewline = false
    slab = nil
  }

  /// Whether the next bytes belong to a line that has lost some of its bytes.
  var isWithinLostLine: Bool { discarded >= 0 || skipping }

  /// Reports a line that has lost some of its bytes, with the known part, and skips the rest of it.
  mutating func endLostLine(deliver: (LineBlock) -> Void) {
    if discarded >= 0 { deliverLong(newlines: 0, deliver) }
    skipping = true
  }

  /// The start of an incomplete line; empty if the line has lost some of its bytes.
  var rest: [UInt8] {
    guard let slab, discarded < 0, !skipping else { return [] }
    return [UInt8](UnsafeRawBufferPointer(start: slab.start, count: held))
  }

  /// The memory that an incomplete line occupies between two reads.
  var capacity: Int { slab?.capacity ?? 0 }

  /// Frees unused memory, unless little more is allocated than the incomplete line needs.
  mutating func release() {
    guard let full = slab else { return }
    if held == 0 {
      slab = nil
    } else if full.capacity > 2 * held + Self.spare {
      slab = Slab(UnsafeRawBufferPointer(start: full.start, count: held))
    }
  }
  private static let spare = 512

  // MARK: - Delivering

  /// Delivers the first `complete` of `filled` bytes and holds the rest.
  private mutating func emit(
    _ full: Slab, _ complete: Int, _ filled: Int, _ deliver: (LineBlock) -> Void
  ) {
    let tail = filled - complete
    let start = offset
    offset &+= Int64(complete)
    held = tail
    let out: Slab
    if complete * 2 >= full.capacity {
      // If most of the memory is in use, it is handed over without copying.
      let rest = UnsafeRawBufferPointer(start: full.start + complete, count: tail)
      slab = tail > 0 ? Slab(rest) : nil
      full.count = complete
      out = full
    } else {
      out = Slab(UnsafeRawBufferPointer(start: full.start, count: complete))
      if tail > 0 { memmove(full.start, full.start + complete, tail) }
    }
    deliver(LineBlock(slab: out, offset: start, endOffset: offset, longLine: nil))
  }

  /// The current line has become too long: keeps only its start.
  private mutating func beginLong() {
    let kept =
      switch policy {
      case .cut: maxLine
      case .drop, .reject: min(maxLine, LongLine.headBytes)
      }
    discarded = Int64(held - kept)
    held = kept
  }

  /// Delivers the kept start of a long line whose end has been found.
  private mutating func deliverLong(newlines: Int64, _ deliver: (LineBlock) -> Void) {
    let length = Int64(held) &+ discarded
    let kept = UnsafeRawBufferPointer(start: slab?.start, count: held)
    var long = LongLine(offset: offset, length: length, policy: policy)
    if policy != .cut { long.head = [UInt8](kept) }
    let out = Slab(policy == .cut ? kept : UnsafeRawBufferPointer(start: nil, count: 0))
    let start = offset
    offset &+= length &+ newlines
    held = 0
    discarded = -1
    deliver(LineBlock(slab: out, offset: start, endOffset: offset, longLine: long))
  }

  /// Delivers the lines before a long line that is complete in the slab, then the report of that line, then the rest.
  private mutating func splitAtLong(
    _ full: Slab, _ start: Int, _ filled: Int, _ deliver: (LineBlock) -> Void
  ) {
    if start > 0 {
      let before = UnsafeRawBufferPointer(start: full.start, count: start)
      let block = LineBlock(
        slab: Slab(before), offset: offset, endOffset: offset &+ Int64(start), longLine: nil)
      offset &+= Int64(start)
      deliver(block)
    }
    let base = full.start + start
    let length = memchr(base, 10, filled - start).map { $0 - base } ?? filled - start
    memmove(full.start, base, min(length, maxLine))
    held = length
    // `beginLong` needs only `held`; the bytes it keeps are in place.
    beginLong()
    deliverLong(newlines: 1, deliver)
    let rest = filled - start - length - 1
    guard rest > 0 else { return }
    let target = space(rest)
    if let to = target.baseAddress { memmove(to, base + length + 1, rest) }
    withExtendedLifetime(full) {}
    self.filled(rest, deliver: deliver)
  }

  // MARK: - Searching

  private func lastNewline(_ start: UnsafeMutableRawPointer, _ count: Int) -> UnsafeRawPointer? {
    rx_memrchr(start, 10, count)
  }

  /// The start of the first line longer than `maxLine` among the first `complete` bytes, which end with a newline.
  /// Looks at one offset in every `maxLine` bytes instead of at every line.
  private func firstLong(_ slab: Slab, _ complete: Int) -> Int? {
    var line = 0
    while complete - line > maxLine {
      let window = min(maxLine + 1, complete - line)
      guard let last = lastNewline(slab.start + line, window) else { return line }
      line = last - UnsafeRawPointer(slab.start) + 1
    }
    return nil
  }
}
