import Glibc
import PipelineCore
import PipelineTestSupport
import Testing

@testable import Transport

/// The output of one file from check to check, whatever happens to it in between.
@Suite struct FollowedFileTests {
  /// A file, and the expected output of following it.
  private struct Model {
    let maxLine: Int
    /// The content of the file.
    var content: [UInt8] = []
    /// The number of bytes read so far.
    var reached = 0
    /// The expected output since the last comparison.
    var delivered: [UInt8] = []
    var truncations = 0

    /// The end of the last delivered line.
    var lineEnd: Int { (content[..<reached].lastIndex(of: 10) ?? -1) + 1 }

    /// The partial line at the time when the file was found to be another one, or shorter.
    mutating func startAgain(held: ArraySlice<UInt8>) {
      delivered += held.prefix(maxLine)
      truncations += 1
      reached = 0
    }

    mutating func look() {
      let new = content[lineEnd...]
      reached = content.count
      var lines = new.split(separator: 10, omittingEmptySubsequences: false)
      lines.removeLast()
      for line in lines { delivered += line.prefix(maxLine) + (line.count > maxLine ? [] : [10]) }
    }
  }

  /// Each line that was complete at a check, and had not been truncated earlier, arrives once, in order and whole.
  @Test(arguments: 0..<40 as Range<UInt64>) func everyLineComesOnce(seed: UInt64) throws {
    var random = SplitMix(seed)
    let directory = ScratchDirectory()
    let path = directory("a.log")
    directory.append("", to: "a.log")
    var options = FileFollower.Options(paths: [path])
    options.maxLine = random.pick([20, 300, 1 << 20])
    options.blockBytes = random.pick([64, 1000, 256 << 10])
    options.rewriteWait = .zero
    let small = UnsafeMutableRawBufferPointer.allocate(byteCount: random.pick([16, 100, 16 << 10]), alignment: 64)
    defer { small.deallocate() }
    let descriptor = try FileDescriptor.openForReading(path)
    let file = FollowedFile(descriptor, try descriptor.status(), options)

    var model = Model(maxLine: options.maxLine)
    var delivered: [UInt8] = []
    var truncations = 0
    var generation: UInt8 = 0
    var number = 0
    /// Complete lines and the start of another one, limited to a number of bytes if given.
    var pending: [UInt8] = []
    func append(_ count: Int) {
      while pending.count < count {
        // The first byte of the file identifies its generation.
        let length = random.pick([0, 1, 10, 19, 20, 21, 200, random.below(40_000)])
        pending += [65 + generation % 26] + Array("\(number) ".utf8) + Array(repeating: 120, count: length) + [10]
        number += 1
      }
      directory.append(String(decoding: pending.prefix(count), as: UTF8.self), to: "a.log")
      model.content += pending.prefix(count)
      pending.removeFirst(count)
    }
    func look() throws {
      var isOver = false
      while !isOver {
        switch try file.read(
          options.blockBytes, small: small, deliver: { block, _ in delivered += block.slab.bytes })
        {
        case .end: isOver = true
        case .caughtUp:
          // Data that arrives meanwhile is announced separately, so there is another check.
          isOver = random.below(8) > 0
          if !isOver { append(random.below(50)) }
        case .read: if random.below(8) == 0 { append(random.below(50)) }
        case .truncated: truncations += 1
        // Truncated within its last line.
        case .same: break
        case .waits, .other: Issue.record("nothing is waited for")
        }
      }
      model.look()
    }

    for step in 0..<60 {
      switch random.below(10) {
      case 0:  // Emptied, and perhaps rewritten before the next check.
        let held = model.content[model.lineEnd..<model.reached]
        if model.reached > 0 { model.startAgain(held: held) }
        #expect(truncate(path, 0) == 0)
        model.content = []
        generation += 1
        pending = []
        if random.below(2) == 0 { append(random.below(60_000)) }
        try look()
      case 1 where model.reached > 1:  // Truncated within the part that was already read.
        let rest = 1 + random.below(model.reached - 1)
        let held = model.content[model.lineEnd..<model.reached]
        // The rest is the same up to the last complete line.
        let position = file.position
        let isSame =
          rest >= position.offset && position.offset >= 64 && rest >= position.fingerprintBytes
          && !file.lines.isWithinLostLine
        if isSame { model.reached = model.lineEnd } else { model.startAgain(held: held) }
        #expect(truncate(path, off_t(rest)) == 0)
        model.content.removeSubrange(rest...)
        try look()
      case 2, 3: append(random.pick([small.count - 1, small.count, small.count + 1, options.blockBytes]))
      case 4: append(random.below(100_000))
      default: append(random.below(300))
      }
      if random.below(3) > 0 { try look() }
      try #require(delivered == model.delivered && truncations == model.truncations, "step \(step)")
      delivered = []
      model.delivered = []
      if model.reached == model.content.count, model.maxLine > 100_000 {
        #expect(file.position.offset == Int64(model.lineEnd), "step \(step)")
      }
    }
  }
}
