import Foundation
import Glibc
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// A followed file is replaced while it is read: by an editor, `sed -i`, `cp -a` or tar, each in its way. Reading continues at the same position,
/// nothing is lost or repeated, and the log says so. A different file of its name is read from its start.
@Suite struct ReplacedFilesTests {
  let scratch = Scratch()

  private func lines(_ range: Range<Int>) -> [String] { range.map { "2026-11-27T18:00:\($0) a line" } }
  private func text(_ range: Range<Int>) -> String { lines(range).map { $0 + "\n" }.joined() }
  private func events(_ range: Range<Int>) -> [String] { lines(range).map { "\"\($0)\"" } }

  enum Way: CaseIterable {
    /// A new file takes the name: `sed -i`, rsync, most editors.
    case renamed
    /// The same, keeping the times of the old file.
    case keepingTimes
    /// The old file is renamed, and a new one is written: vi.
    case backup
    /// Removed and written: tar.
    case removed
    /// Truncated and written: cp.
    case inPlace
  }

  private func replace(_ way: Way, by content: String) throws {
    let path = scratch("a.log")
    var status = stat()
    try #require(stat(path, &status) == 0)
    let bytes = Array(content.utf8)
    func write(_ target: String, _ flags: Int32) throws {
      let descriptor = open(target, O_WRONLY | O_CLOEXEC | flags, 0o600)
      try #require(descriptor >= 0)
      defer { close(descriptor) }
      #expect(Glibc.write(descriptor, bytes, bytes.count) == bytes.count)
    }
    switch way {
    case .renamed, .keepingTimes:
      try write(scratch(".new"), O_CREAT)
      if way == .keepingTimes {
        #expect(utimensat(AT_FDCWD, scratch(".new"), [status.st_atim, status.st_mtim], 0) == 0)
      }
      try #require(rename(scratch(".new"), path) == 0)
    case .backup:
      try #require(rename(path, scratch("a.log~")) == 0)
      try write(path, O_CREAT)
      unlink(scratch("a.log~"))
    case .removed:
      unlink(path)
      try write(path, O_CREAT)
    case .inPlace: try write(path, O_TRUNC)
    }
  }

  private func pipeline(decode: String = "text") throws -> RealPipeline {
    try RealPipeline(
      """
      sources: { input: { file: { path: ['\(scratch("a.log"))', '\(scratch("zz.log"))'], follow: true, decode: \(decode) } } }
      sinks: { out: { from: input, chain: [ { map: event } ], probe: {} } }
      """)
  }

  @Test(arguments: Way.allCases) func isReadOn(_ way: Way) throws {
    scratch.append(text(0..<100), to: "a.log")
    let pipeline = try pipeline()
    pipeline.run(within: .seconds(60)) { pipeline.events.count >= 100 }
    var (seen, known) = (100, 0)
    // Repeatedly, with and without new lines.
    for end in [100, 120, 121] {
      try replace(way, by: text(0..<end))
      // A file that is written in place may be complete before it is checked.
      known += way == .inPlace ? 0 : 1
      pipeline.run(within: .seconds(60)) { pipeline.log.filter { $0.contains("reading continues") }.count >= known }
      pipeline.run(within: .seconds(60)) { pipeline.events.count >= end }
      seen = end
    }
    scratch.append(text(121..<130), to: "a.log")
    pipeline.run(within: .seconds(60)) { pipeline.events.count >= 130 }
    scratch.append("end\n", to: "zz.log")
    pipeline.run(within: .seconds(60)) { pipeline.events.last == "\"end\"" }
    #expect(seen == 121)
    #expect(pipeline.events.dropLast() == events(0..<130)[...])
    #expect(!pipeline.log.contains { $0.hasPrefix("warning") }, "\(pipeline.log)")
    let end = text(0..<100).utf8.count
    if way == .inPlace { return }
    #expect(
      pipeline.log.contains {
        $0.hasSuffix("is another file than before, with the same content up to byte \(end): reading continues there")
      }, "\(pipeline.log)")
  }

  /// A program writes to the old file, which it still has open, and to the new one.
  @Test func bothFilesAreRead() throws {
    scratch.append(text(0..<50), to: "a.log")
    let writer = open(scratch("a.log"), O_WRONLY | O_APPEND)
    defer { close(writer) }
    let pipeline = try pipeline()
    pipeline.run(within: .seconds(60)) { pipeline.events.count >= 50 }
    try replace(.renamed, by: text(0..<50))
    let late = "late, to the old file\n"
    #expect(write(writer, late, late.utf8.count) == late.utf8.count)
    scratch.append(text(50..<60), to: "a.log")
    pipeline.run(within: .seconds(60)) { pipeline.events.count >= 61 }
    #expect(pipeline.events.sorted() == (events(0..<60) + ["\"late, to the old file\""]).sorted())
  }

  @Test(arguments: [Way.renamed, .removed, .inPlace]) func anotherFileIsReadFromItsStart(_ way: Way) throws {
    scratch.append(text(0..<50), to: "a.log")
    let pipeline = try pipeline()
    pipeline.run(within: .seconds(60)) { pipeline.events.count >= 50 }
    try replace(way, by: text(50..<80))
    pipeline.run(within: .seconds(60)) { pipeline.events.count >= 80 }
    #expect(pipeline.events == events(0..<80))
    #expect(!pipeline.log.contains { $0.contains("reading continues there") })
  }

  /// The header of a table belongs to the earlier content.
  @Test(arguments: Way.allCases) func aTable(_ way: Way) throws {
    let table = "name,what\n" + (0..<20).map { "n\($0),an entry\n" }.joined()
    scratch.append(table, to: "a.log")
    let pipeline = try pipeline(decode: "csv")
    pipeline.run(within: .seconds(60)) { pipeline.events.count >= 20 }
    try replace(way, by: table + "last,one\n")
    pipeline.run(within: .seconds(60)) { pipeline.events.count >= 21 }
    #expect(pipeline.events.dropFirst(20) == [#"{"name":"last","what":"one"}"#])
  }
}
