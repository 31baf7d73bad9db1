import Glibc
import PipelineCore

/// The progress of a `BlockReader`, with the start of an incomplete line. Used by one thread at a time.
struct BlockReading {
  /// The open file; nil: the next of `waiting` must be opened.
  private var file: FileDescriptor?
  /// The decompressed content of the file; nil: it is read as it is.
  private var content: CompressedContent?
  /// The paths of the files after it, the next one last.
  private var waiting: [String]
  /// Whether the ends and starts of files are reported.
  private let isSeveral: Bool
  private let options: BlockReader.Options
  private let stopEvent: WakeEvent
  private var lines: LineAssembler
  /// The size of the next read, in mode `lines`.
  private var lineBlock: Int
  /// In mode `lines`, of a regular file: how many bytes it had at the start of reading, less those that have been read.
  private var left: Int?
  /// The status of the file, if it has just been opened.
  private var status: FileDescriptor.Status?
  /// The offset at which reading of the file starts.
  private var start: Int64
  /// The offset of the next byte; not in mode `lines`.
  private var offset: Int64
  /// The buffer of mode `bytes`.
  private var buffer: Slab?
  private var isPrepared = false
  /// Nil for a regular file: reading it never blocks, so nothing must be polled.
  private var stop: WakeEvent?
  /// Whether the next read is the start of the stream, which is checked.
  private var checksStart: Bool
  /// Whether the end has been reported.
  private var isOver = false
  /// The number of the next read with a result.
  private var number = 0
  /// Pieces of the bytes left by another reader, before the first read.
  private var early: [BlockReader.Piece] = []
  /// The start of the input, in mode `whole`, that was read before the first read, or before reading was stopped.
  private var whole: [UInt8] = []

  /// Row memory grows with lines; 16,384 lines amortise a block's cost.
  private static let linesWanted = 16_384
  /// The smallest read, unless the options ask for less or many readers run.
  private static let leastBlock = 128 << 10
  private var active: ActiveReader? = ActiveReader()
  /// The size of the sample from which the length of lines is estimated.
  private static let sampleBytes = 4096
  /// The maximum number of pieces of small files that are delivered together.
  private static let mostPieces = 48

  /// Reads `file` and, unless `paths` is nil, these files after it.
  init(_ file: FileDescriptor?, _ paths: [String]?, _ options: BlockReader.Options, _ stopEvent: WakeEvent) {
    self.file = file
    waiting = paths?.reversed() ?? []
    isSeveral = paths != nil
    self.options = options
    self.stopEvent = stopEvent
    start = options.offset
    offset = options.offset
    checksStart = options.refusesCompressed && options.offset == 0 && options.beginning == nil
    lineBlock = min(options.blockBytes, Self.leastBlock, max(ActiveReader.leastBlock, Self.share(options)))
    lines = LineAssembler(
      maxLine: options.maxLine, policy: options.whenTooLong, offset: options.offset, pool: Self.pool(lineBlock))
    if let rest = options.beginning { begin(with: rest) }
  }

  /// Continues where another reader of the stream was stopped.
  private mutating func begin(with rest: BlockReader.Rest) {
    let bytes = rest.bytes
    start = rest.offset
    offset = rest.offset
    switch options.mode {
    case .lines:
      if let line = rest.lines, rest.again.isEmpty, line.maxLine == lines.maxLine, line.policy == lines.policy {
        let pool = lines.pool
        lines = line
        lines.pool = pool
        return
      }
      lines.reset(offset: rest.offset)
      if !bytes.isEmpty {
        lines.space(bytes.count).copyBytes(from: bytes)
        lines.filled(bytes.count) { early.append(.block($0)) }
      }
      if let offset = endLostLine(rest) {
        lines.reset(offset: offset)
        lines.skipToLineStart()
      }
    case .bytes:
      if !bytes.isEmpty {
        offset &+= Int64(bytes.count)
        let slab = bytes.withUnsafeBytes { Slab($0) }
        early.append(.block(LineBlock(slab: slab, offset: start, endOffset: offset, longLine: nil)))
      }
      if let end = endLostLine(rest) { offset = end }
    case .whole: whole = bytes
    }
  }

  /// Reports a line that has lost some of its bytes; returns the offset in it at which reading continues.
  private mutating func endLostLine(_ rest: BlockReader.Rest) -> Int64? {
    guard var line = rest.lines, line.isWithinLostLine else { return nil }
    line.endLostLine { early.append(.block($0)) }
    return line.readOffset
  }

  /// The undelivered bytes.
  var rest: BlockReader.Rest {
    switch options.mode {
    case .lines: BlockReader.Rest(offset: lines.offset, lines: lines)
    case .bytes: BlockReader.Rest(offset: offset)
    case .whole: BlockReader.Rest(offset: start, whole: whole)
    }
  }

  /// Reads until there is a result, and adds it to `pieces`; the end is the last piece. Reading of files continues
  /// without blocking, to the end and into the next ones, until there is a block's worth. Returns the number of the
  /// read, from 0; nil once the end has been reported.
  mutating func next(_ pieces: inout [BlockReader.Piece]) -> Int? {
    guard !isOver else { return nil }
    if !early.isEmpty {
      swap(&pieces, &early)
      defer { number += 1 }
      return number
    }
    var enough = min(options.blockBytes, lineBlock, Self.leastBlock) / 2
    var bytes = 0
    repeat {
      var end: BlockReader.End?
      do throws(PosixError) {
        try openNext(&pieces)
        try prepare()
        end =
          stopEvent.isAwake
          ? .stopped(offset: currentOffset)
          : try read { block in
            bytes += block.slab.count
            pieces.append(.block(block))
          }
      } catch { end = .failed(error) }
      guard let end else { continue }
      if isSeveral, case .finished(let offset) = end {
        pieces.append(.closed(offset: offset))
        file = nil
        // Collects several small files: delivering one costs as much as reading it.
        enough = max(enough, min(options.blockBytes, Self.share(options)))
        if !waiting.isEmpty { continue }
      }
      pieces.append(.end(end))
      isOver = true
      buffer = nil
      active = nil
    } while !isOver && (pieces.isEmpty || stop == nil && bytes < enough && pieces.count < Self.mostPieces)
    defer { number += 1 }
    return number
  }

  /// Opens the next file if the previous one has been read to its end.
  private mutating func openNext(_ pieces: inout [BlockReader.Piece]) throws(PosixError) {
    guard file == nil, let path = waiting.popLast() else { return }
    let next = try options.open(path)
    let status = try next.status()
    let isCompressed = status.kind == .regular && options.decompresses.format(of: next) != nil
    pieces.append(.opened(FilePosition(of: next, status, path, isCompressed: isCompressed), next))
    file = next
    content = nil
    self.status = status
    left = nil
    isPrepared = false
    checksStart = options.refusesCompressed
    start = 0
    offset = 0
    lines.reset(offset: 0)
  }

  /// Everything before this offset has been delivered.
  private var currentOffset: Int64 {
    switch options.mode {
    case .lines: lines.offset
    case .bytes: offset
    case .whole: start
    }
  }

  private mutating func prepare() throws(PosixError) {
    guard !isPrepared, let file else { return }
    isPrepared = true
    let status = if let status { status } else { try file.status() }
    self.status = nil
    if status.kind == .directory {
      throw PosixError("read", file.name, code: EISDIR)
    }
    stop = status.kind == .regular ? nil : stopEvent
    if status.kind == .regular, let format = options.decompresses.format(of: file) {
      checksStart = false
      try decompress(file, format)
    } else if options.offset > 0, start > 0, lseek(file.number, off_t(start), SEEK_SET) < 0 {
      throw PosixError("seek in", file.name)
    }
    if status.kind == .regular, content == nil { left = Int(max(0, status.size &- start)) }
    if status.kind == .regular, status.size > Self.leastBlock {
      posix_fadvise(file.number, 0, 0, POSIX_FADV_SEQUENTIAL)
    }
  }

  /// Opens the content of a file, and skips the part before the start of reading.
  private mutating func decompress(_ file: FileDescriptor, _ format: Decompressor.Format) throws(PosixError) {
    guard let opened = CompressedContent(file, format) else {
      throw PosixError(
        "decompress", file.name, code: ENOENT,
        detail: "the library for \(format.rawValue) is not installed, or memory is short")
    }
    content = opened
    let skipped = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 16)
    defer { skipped.deallocate() }
    while opened.offset < start, !stopEvent.isAwake {
      let rest = Int(min(Int64(skipped.count), start - opened.offset))
      guard try fill(UnsafeMutableRawBufferPointer(rebasing: skipped[..<rest])) != 0 else {
        throw PosixError(
          "decompress", file.name, code: EINVAL,
          detail: "its content has \(opened.offset) bytes, and \(start) of it had been read")
      }
    }
  }

  /// Reads once from the file or its content; 0 at the end; nil if `stop` was woken first.
  private mutating func fill(_ room: UnsafeMutableRawBufferPointer) throws(PosixError) -> Int? {
    guard let file else { return 0 }
    guard let content else { return try file.read(into: room, stop: stop) }
    let count = try content.read(into: room)
    guard count == 0 else { return count }
    switch content.state {
    case .whole, .more: return 0
    case .unfinished:
      throw PosixError(
        "decompress", file.name, code: EINVAL,
        detail: "it ends in the middle, after \(content.offset) bytes of its content")
    case .damaged:
      throw PosixError(
        "decompress", file.name, code: EINVAL,
        detail: content.offset == 0
          ? "it is damaged, or not in the expected format"
          : "it is damaged after \(content.offset) bytes of its content")
    }
  }

  /// Reads once, or everything in mode `whole`. Nil: reading continues.
  private mutating func read(_ deliver: (LineBlock) -> Void) throws(PosixError) -> BlockReader.End? {
    switch options.mode {
    case .lines: try readLines(deliver)
    case .bytes: try readBytes(deliver)
    case .whole(let limit): try readWhole(limit, deliver)
    }
  }

  private mutating func readLines(_ deliver: (LineBlock) -> Void) throws(PosixError) -> BlockReader.End? {
    guard file != nil else { return .finished(offset: currentOffset) }
    // A small file gets memory of its size, which is handed over as it is: from a large block it would be copied.
    let block = left.map { min(lineBlock, max(Self.sampleBytes, $0 + 1)) } ?? lineBlock
    let room = UnsafeMutableRawBufferPointer(rebasing: lines.space(block).prefix(block))
    guard let count = try fill(room) else { return .stopped(offset: currentOffset) }
    try checkStart(at: room, count)
    if let rest = left { left = max(0, rest - count) }
    if count == 0 {
      lines.finish(deliver: deliver)
      return .finished(offset: lines.offset)
    }
    if count >= Self.sampleBytes { adapt(to: UnsafeRawBufferPointer(rebasing: room.prefix(Self.sampleBytes))) }
    lines.filled(count, deliver: deliver)
    return nil
  }

  private mutating func checkStart(at room: UnsafeMutableRawBufferPointer, _ count: Int) throws(PosixError) {
    guard checksStart else { return }
    checksStart = false
    try refuseCompressed(UnsafeRawBufferPointer(rebasing: room[..<count]), file?.name ?? "")
  }

  /// Adapts the size of reads to lines such as those in `sample`.
  private mutating func adapt(to sample: UnsafeRawBufferPointer) {
    var count = 0
    var rest = sample
    while let start = rest.baseAddress, let feed = memchr(start, 10, rest.count) {
      count += 1
      rest = UnsafeRawBufferPointer(rebasing: rest[(UnsafeRawPointer(feed) - start + 1)...])
    }
    // Sizes are halved, so a wanted size often has room for a quarter more before the size doubles.
    let wanted = count == 0 ? Int.max / 2 : sample.count / count * Self.linesWanted
    var block = self.block(for: wanted)
    // Shrinks only if lines have become clearly shorter; near a boundary, memory would otherwise be reallocated at
    // every other read.
    if block < lineBlock { block = min(self.block(for: wanted + wanted / 4), lineBlock) }
    guard block != lineBlock else { return }
    lineBlock = block
    lines.pool = Self.pool(block)
  }

  private static func share(_ options: BlockReader.Options) -> Int { ActiveReader.share(of: options.allBlocks) }

  private func block(for wanted: Int) -> Int {
    var block = options.blockBytes
    while block / 2 >= max(wanted, Self.leastBlock) { block /= 2 }
    let share = Self.share(options)
    while block > share, block / 2 >= ActiveReader.leastBlock { block /= 2 }
    return block
  }

  /// Blocks have room for the start of a line left over from the previous block.
  private static func pool(_ blockBytes: Int) -> SlabPool { SlabPool(capacity: blockBytes + blockBytes / 8) }

  private mutating func readBytes(_ deliver: (LineBlock) -> Void) throws(PosixError) -> BlockReader.End? {
    guard file != nil else { return .finished(offset: currentOffset) }
    let size = block(for: .max)
    let fitting = self.buffer.flatMap { $0.capacity == size ? $0 : nil }
    let buffer = fitting ?? Slab(capacity: size)
    self.buffer = buffer
    let room = UnsafeMutableRawBufferPointer(start: buffer.start, count: buffer.capacity)
    guard let count = try fill(room) else { return .stopped(offset: currentOffset) }
    if count == 0 { return .finished(offset: offset) }
    let start = offset
    offset &+= Int64(count)
    let slab = Slab(UnsafeRawBufferPointer(start: buffer.start, count: count))
    deliver(LineBlock(slab: slab, offset: start, endOffset: offset, longLine: nil))
    return nil
  }

  private mutating func readWhole(
    _ limit: Int, _ deliver: (LineBlock) -> Void
  ) throws(PosixError) -> BlockReader.End? {
    guard let file else { return .finished(offset: currentOffset) }
    guard whole.count <= limit else { throw tooLong(file, limit) }
    var slab = Slab(capacity: max(whole.count, min(limit, 64 << 10)) + 1)
    UnsafeMutableRawBufferPointer(start: slab.start, count: slab.capacity).copyBytes(from: whole)
    slab.count = whole.count
    whole = []
    while !stopEvent.isAwake {
      if slab.count == slab.capacity {
        // One byte more than the limit distinguishes "full" from "too large".
        let larger = Slab(capacity: min(slab.capacity * 2, limit + 1))
        larger.start.copyMemory(from: slab.start, byteCount: slab.count)
        larger.count = slab.count
        slab = larger
      }
      let room = UnsafeMutableRawBufferPointer(
        start: slab.start + slab.count, count: slab.capacity - slab.count)
      guard let count = try fill(room) else { break }
      try checkStart(at: room, count)
      slab.count += count
      if slab.count > limit { throw tooLong(file, limit) }
      if count == 0 {
        let end = start &+ Int64(slab.count)
        deliver(LineBlock(slab: slab, offset: start, endOffset: end, longLine: nil))
        return .finished(offset: end)
      }
    }
    whole = Array(slab.bytes)
    return .stopped(offset: start)
  }

  private func tooLong(_ file: FileDescriptor, _ limit: Int) -> PosixError {
    PosixError("read", file.name, code: EFBIG, detail: "it is longer than \(limit) bytes")
  }
}
