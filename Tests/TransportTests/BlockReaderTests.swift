import Glibc
import PipelineCore
import PipelineTestSupport
import Testing

@testable import Transport

@Suite struct BlockReaderTests {
  private func read(
    _ file: FileDescriptor, _ change: (inout BlockReader.Options) -> Void = { _ in }
  ) throws -> (Collector, BlockReader) {
    var options = BlockReader.Options()
    // Other tests read at the same time.
    options.allBlocks = .max
    change(&options)
    let seen = Collector()
    let reader = try BlockReader(file, options: options)
    try reader.start(deliver: { seen.take($0) }, end: { seen.end($0) })
    return (seen, reader)
  }

  @Test func deliversWholeLinesOfAPipeAtOnce() throws {
    let pipe = Pipe()
    let (seen, reader) = try read(pipe.input)
    pipe.send("one\ntw")
    #expect(seen.wait(for: "one\n"))
    pipe.send("o\n")
    #expect(seen.wait(for: "one\ntwo\n"))
    pipe.send("last")
    close(pipe.output)
    #expect(seen.waitForEnd() == .finished(offset: 12))
    #expect(seen.text == "one\ntwo\nlast")
    reader.join()
    let offsets = seen.state.withLock { $0.blocks.map(\.offset) }
    #expect(offsets == [0, 4, 8])
  }

  @Test func takesBytesOneByOne() throws {
    let pipe = Pipe()
    let (seen, _) = try read(pipe.input)
    // Only LF ends a line: not CR, U+2028, U+0085 or NUL.
    let bytes = Array("a\r\n\n\u{2028}x\u{85}\n\0\nend".utf8) + [0xff, 0xc0]
    for byte in bytes { #expect([byte].withUnsafeBytes { write(pipe.output, $0.baseAddress, 1) } == 1) }
    close(pipe.output)
    _ = seen.waitForEnd()
    let (got, blocks) = seen.state.withLock { ($0.bytes, $0.blocks) }
    #expect(got == bytes)
    #expect(blocks.dropLast().allSatisfy { $0.slab.bytes.last == 10 })
  }

  @Test func endsAtOnceWithoutInput() throws {
    let (seen, _) = try read(try FileDescriptor.openForReading("/dev/null", kinds: [.characterDevice]))
    #expect(seen.waitForEnd() == .finished(offset: 0))
    #expect(seen.text.isEmpty)
  }

  @Test func stopsWhileItWaits() throws {
    let pipe = Pipe()
    let (seen, reader) = try read(pipe.input)
    pipe.send("line\npart")
    #expect(seen.wait(for: "line\n"))
    reader.stop()
    reader.join()
    #expect(seen.waitForEnd() == .stopped(offset: 5))
    close(pipe.output)
  }

  @Test func readsNonBlockingPipes() throws {
    let pipe = Pipe()
    _ = fcntl(pipe.input.number, F_SETFL, O_NONBLOCK)
    let (seen, _) = try read(pipe.input)
    pipe.send("one\n")
    #expect(seen.wait(for: "one\n"))
    pipe.send("two\n")
    close(pipe.output)
    #expect(seen.waitForEnd() == .finished(offset: 8))
  }

  /// Pieces made by several threads arrive in stream order, with one end, which is last.
  @Test(arguments: [1, 2, 5]) func severalThreadsKeepTheOrder(_ threads: Int) throws {
    let directory = ScratchDirectory()
    let text = (0..<20_000).map { "line number \($0)\n" }.joined()
    directory.append(text, to: "big")
    var options = BlockReader.Options()
    options.blockBytes = 1000
    let reader = try BlockReader(try FileDescriptor.openForReading(directory("big")), options: options)
    let seen = Collector()
    try reader.start(
      upTo: threads, making: { { $0 } },
      deliver: { pieces in
        for piece in pieces {
          switch piece {
          case .block(let block): seen.take(block)
          case .opened, .closed: break
          case .end(let end): seen.end(end)
          }
        }
      })
    #expect(seen.waitForEnd() == .finished(offset: Int64(text.utf8.count)))
    reader.join()
    #expect(seen.text == text)
  }

  /// The result for the first block waits for the second: they are made concurrently, and still arrive in order.
  @Test func blocksAreMadeAtTheSameTime() throws {
    let directory = ScratchDirectory()
    directory.append("one\ntwo\n", to: "in")
    var options = BlockReader.Options()
    options.blockBytes = 4
    let reader = try BlockReader(try FileDescriptor.openForReading(directory("in")), options: options)
    let hasSecond = Guarded(false)
    let offsets = Guarded<[Int64]>([])
    try reader.start(
      upTo: 2,
      making: {
        { (piece: BlockReader.Piece) -> Int64 in
          guard case .block(let block) = piece else { return -1 }
          if block.offset == 0 {
            _ = hasSecond.wait(until: monotonicNow() + 60_000_000_000) { $0 ? true : nil }
          } else {
            hasSecond.withLock { $0 = true }
            hasSecond.notify()
          }
          return block.offset
        }
      },
      deliver: { (made: [Int64]) in
        offsets.withLock { $0 += made }
        offsets.notify()
      })
    _ = offsets.wait(until: monotonicNow() + 60_000_000_000) { $0.last == -1 ? true : nil }
    #expect(offsets.withLock { $0 } == [0, 4, -1])
    reader.join()
  }

  @Test func severalThreadsStopWhileOneWaits() throws {
    let pipe = Pipe()
    let reader = try BlockReader(pipe.input)
    let seen = Collector()
    try reader.start(
      upTo: 3, making: { { $0 } },
      deliver: { pieces in
        for piece in pieces {
          switch piece {
          case .block(let block): seen.take(block)
          case .opened, .closed: break
          case .end(let end): seen.end(end)
          }
        }
      })
    pipe.send("line\npart")
    #expect(seen.wait(for: "line\n"))
    reader.stop()
    reader.join()
    #expect(seen.waitForEnd() == .stopped(offset: 5))
    close(pipe.output)
  }

  /// One more thread if making blocks is the bottleneck, rather than waiting for input or using the blocks.
  @Test func demandLooksAtWhatTakesTheTime() {
    let millisecond: Int64 = 1_000_000
    func asked(making: Int64, delivering: Int64, blocks: Int, of demand: ReadingDemand = ReadingDemand()) -> Bool {
      (0..<blocks).reduce(false) { found, number in
        let now = Int64(number + 1) * 3 * millisecond
        return demand.isForMore(making: making, begun: now - delivering, now: now) || found
      }
    }
    #expect(asked(making: 2 * millisecond, delivering: 0, blocks: 20))
    #expect(!asked(making: 2 * millisecond, delivering: 0, blocks: 5))
    #expect(!asked(making: 1 * millisecond, delivering: 0, blocks: 100))
    #expect(!asked(making: 2 * millisecond, delivering: 1 * millisecond, blocks: 100))
    let met = ReadingDemand()
    met.took(false)
    #expect(!asked(making: 2 * millisecond, delivering: 0, blocks: 100, of: met))
    // Two threads together spend up to two milliseconds in each.
    for (making, isMore) in [(2, false), (4, true)] {
      let two = ReadingDemand()
      two.took(true)
      #expect(asked(making: Int64(making) * millisecond, delivering: 0, blocks: 100, of: two) == isMore)
    }
  }

  @Test func readsBigFilesInBigBlocks() throws {
    let directory = ScratchDirectory()
    let text = (0..<200_000).map { "line number \($0)\n" }.joined()
    directory.append(text, to: "big")
    let (seen, _) = try read(try FileDescriptor.openForReading(directory("big")))
    #expect(seen.waitForEnd() == .finished(offset: Int64(text.utf8.count)))
    #expect(seen.text == text)
    let blocks = seen.state.withLock { $0.blocks }
    #expect(blocks.count <= text.utf8.count / (256 << 10) + 2)
    var offset: Int64 = 0
    for block in blocks {
      #expect(block.offset == offset)
      offset += Int64(block.slab.count)
      #expect(block.endOffset == offset)
    }
  }

  /// The memory for a block grows with its lines.
  @Test func readsShortLinesInSmallBlocks() throws {
    let directory = ScratchDirectory()
    let short = String(repeating: "7\n", count: 300_000)
    let long = String(repeating: String(repeating: "x", count: 99) + "\n", count: 20_000)
    directory.append(short + long + short, to: "mixed")
    let (seen, _) = try read(try FileDescriptor.openForReading(directory("mixed")))
    #expect(seen.waitForEnd() == .finished(offset: Int64((short + long + short).utf8.count)))
    #expect(seen.text == short + long + short)
    let blocks = seen.state.withLock { $0.blocks }
    // A block is as large as the lines of the previous one suggest.
    let sizes = blocks.filter { $0.endOffset < 600_000 || $0.offset > 2_600_000 + 512 << 10 }.map(\.slab.count)
    #expect(sizes.allSatisfy { $0 <= 128 << 10 } && sizes.count >= 4)
    #expect(blocks.contains { $0.slab.count > 500 << 10 })
  }

  /// Lines whose length is at the border between two block sizes.
  @Test func theSizeOfBlocksIsSteady() throws {
    let directory = ScratchDirectory()
    var random = SplitMix(1)
    let lines = (14...18).map { String(repeating: "x", count: $0) + "\n" }
    var text = ""
    for _ in 0..<400_000 { text += random.pick(lines) }
    directory.append(text, to: "even")
    let (seen, _) = try read(try FileDescriptor.openForReading(directory("even")))
    #expect(seen.waitForEnd() == .finished(offset: Int64(text.utf8.count)))
    let isLarge = seen.state.withLock { $0.blocks.dropLast().map { $0.slab.count > 400_000 } }
    #expect(isLarge.count > 10)
    #expect(zip(isLarge, isLarge.dropFirst()).count { $0 != $1 } <= 2, "\(isLarge)")
  }

  /// Other threads start reading after the first block, whose sample contains no line ending.
  @Test(arguments: [BlockReader.Options.Mode.lines, .bytes])
  func blocksBecomeSmallerWhenOthersRead(_ mode: BlockReader.Options.Mode) throws {
    let directory = ScratchDirectory()
    let text = (0..<60).map { "\($0) " + String(repeating: "x", count: 10_000) + "\n" }.joined()
    directory.append(text, to: "long")
    var options = BlockReader.Options()
    options.mode = mode
    options.allBlocks = 128 << 10
    let reader = try BlockReader(try FileDescriptor.openForReading(directory("long")), options: options)
    let others = (0..<8).map { _ in ActiveReader() }
    let seen = Collector()
    try reader.start(deliver: { seen.take($0) }, end: { seen.end($0) })
    #expect(seen.waitForEnd() == .finished(offset: Int64(text.utf8.count)))
    withExtendedLifetime(others) {}
    #expect(seen.text == text)
    let sizes = seen.state.withLock { $0.blocks.map(\.slab.count) }
    // A read of 8 KiB, after the start of a line.
    #expect(sizes.dropFirst().allSatisfy { $0 <= 20 << 10 }, "\(sizes)")
  }

  @Test func readsWholeStreamsUpToALimit() throws {
    let directory = ScratchDirectory()
    directory.append(String(repeating: "x", count: 100_000), to: "a")
    let file = try FileDescriptor.openForReading(directory("a"))
    let (seen, _) = try read(file) { $0.mode = .whole(limit: 100_000) }
    #expect(seen.waitForEnd() == .finished(offset: 100_000))
    #expect(seen.state.withLock { $0.blocks.count } == 1)
    let again = try FileDescriptor.openForReading(directory("a"))
    let (limited, _) = try read(again) { $0.mode = .whole(limit: 99_999) }
    guard case .failed(let error) = limited.waitForEnd() else {
      throw PosixError("expect", "a failure")
    }
    #expect(error.message.hasSuffix("it is longer than 99999 bytes"))
  }

  /// Every way of cutting the stream into reads gives the same lines and offsets.
  @Test(arguments: [LongLine.Policy.cut, .drop, .reject])
  func cutsTheSameHoweverItReads(_ policy: LongLine.Policy) {
    var seed: UInt64 = 42
    func random(_ limit: Int) -> Int {
      seed = seed &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return Int(seed >> 33) % limit
    }
    for _ in 0..<300 {
      let maxLine = random(20) + 1
      var input: [UInt8] = []
      for _ in 0..<random(40) {
        let length = random(3) == 0 ? random(maxLine * 5) : random(maxLine + 2)
        input += (0..<length).map { _ in UInt8(97 + random(26)) } + (random(8) == 0 ? [] : [10])
      }
      // The expected lines with offset and text, long ones by policy.
      var expected: [String] = []
      var long: [LongLine] = []
      var start = 0
      while start < input.count {
        let end = input[start...].firstIndex(of: 10) ?? input.count
        let line = input[start..<end]
        let text = String(decoding: line.prefix(maxLine), as: UTF8.self)
        if line.count > maxLine {
          var report = LongLine(offset: Int64(start), length: Int64(line.count), policy: policy)
          if policy != .cut { report.head = Array(line.prefix(maxLine)) }
          long.append(report)
          if policy == .cut { expected.append("\(start) \(text)") }
        } else {
          expected.append("\(start) \(text)")
        }
        start = end + 1
      }
      for _ in 0..<4 {
        var lines = LineAssembler(maxLine: maxLine, policy: policy)
        var got: [String] = []
        var reports: [LongLine] = []
        var reached: Int64 = 0
        let deliver = { (block: LineBlock) in
          #expect(block.offset == reached)
          reached = block.endOffset
          var at = block.offset
          var rest = Array(block.slab.bytes)[...]
          while !rest.isEmpty {
            let end = rest.firstIndex(of: 10) ?? rest.endIndex
            got.append("\(at) \(String(decoding: rest[..<end], as: UTF8.self))")
            at += Int64(end - rest.startIndex + 1)
            rest = rest[min(end + 1, rest.endIndex)...]
          }
          if let report = block.longLine { reports.append(report) }
        }
        var rest = input[...]
        while !rest.isEmpty {
          let piece = rest.prefix(random(maxLine * 4) + 1)
          let room = lines.space(piece.count)
          room.copyBytes(from: piece)
          lines.filled(piece.count, deliver: deliver)
          #expect(lines.readOffset == Int64(piece.endIndex))
          rest = rest.dropFirst(piece.count)
        }
        lines.finish(deliver: deliver)
        #expect(got == expected)
        #expect(reports == long)
        #expect(reached == Int64(input.count))
      }
    }
  }
}
