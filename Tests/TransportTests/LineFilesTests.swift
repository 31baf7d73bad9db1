import Foundation
import Glibc
import PipelineCore
import Synchronization
import Testing

@testable import Transport

@Suite struct LineFilesTests {
  private let scratch = ScratchDirectory()

  private final class Reports: Sendable {
    struct State {
      var written: [String: Int] = [:]
      var dropped = 0
      var failed: [String] = []
      var errors: [String] = []
    }
    let state = Mutex(State())
    /// Signalled once for each report.
    let reported = DispatchSemaphore(value: 0)

    func add(_ report: LineFiles.Report) {
      state.withLock {
        switch report {
        case .written(let name, let lines, let dropped):
          $0.written[name, default: 0] += lines
          $0.dropped += dropped
        case .failed(_, let lines, let error):
          $0.failed += lines.map { String(decoding: $0, as: UTF8.self) }
          $0.errors.append(error.message)
        }
      }
      reported.signal()
    }
  }
  private let reports = Reports()

  private func files(bound: Int = 1 << 20, queue: Int = 1 << 20) -> LineFiles {
    let number = open(scratch.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    let reports = reports
    return LineFiles(in: FileDescriptor(number, name: scratch.path), bound: bound, queueBytes: queue) {
      reports.add($0)
    }
  }

  private func add(_ lines: [String], to name: String, _ files: LineFiles) {
    for line in lines { #expect(files.offer(Array((line + "\n").utf8), to: name)) }
  }

  @Test func eachFileHasItsLinesInOrder() {
    let files = files()
    for number in 0..<1000 { add(["\(number)"], to: "file\(number % 3)", files) }
    files.close(within: .seconds(60))
    for index in 0..<3 {
      let expected = stride(from: index, to: 1000, by: 3).map { "\($0)\n" }.joined()
      #expect(scratch.read("file\(index)") == expected)
    }
    #expect(reports.state.withLock { $0.written.values.reduce(0, +) } == 1000)
    let status = FileDescriptor.Status(path: scratch("file0"))
    #expect(status?.size == Int64(scratch.read("file0").utf8.count))
    var raw = stat()
    #expect(stat(scratch("file0"), &raw) == 0 && raw.st_mode & 0o777 == 0o600)
  }

  @Test func addsToWhatIsThere() {
    scratch.append("old\ntorn", to: "x")
    let files = files()
    add(["new"], to: "x", files)
    files.close(within: .seconds(60))
    #expect(scratch.read("x") == "old\ntorn\nnew\n")
  }

  @Test func nothingToWriteMakesNoFileAndNoThread() throws {
    let files = files()
    files.close(within: .seconds(60))
    #expect(try FileManager.default.contentsOfDirectory(atPath: scratch.path) == [])
    #expect(!files.offer([10], to: "x"))
  }

  /// The newest lines are kept, between one and two limits of them.
  @Test(arguments: [1, 3, 100, 250])
  func filesAreBounded(_ length: Int) {
    let files = files(bound: 1000)
    let lines = (0..<500).map { number in "\(number) " + String(repeating: "x", count: length) }
    for line in lines {
      add([line], to: "x", files)
      reports.reported.wait()
      #expect(FileDescriptor.Status(path: scratch("x")).map { $0.size <= 1000 } == true)
    }
    files.close(within: .seconds(60))
    let newer = scratch.read("x")
    let older = scratch.read("x.1")
    #expect(newer.utf8.count <= 1000 && older.utf8.count <= 1000)
    #expect(newer.utf8.count + older.utf8.count > 1000 - length)
    let kept = (older + newer).split(separator: "\n").map(String.init)
    #expect(kept == Array(lines.suffix(kept.count)))
    #expect(reports.state.withLock { $0.dropped } > 0)
  }

  @Test func aLinkIsNotFollowed() {
    scratch.append("precious\n", to: "target")
    symlink("target", scratch("x"))
    mkfifo(scratch("pipe"), 0o600)
    let files = files()
    add(["one", "two"], to: "x", files)
    add(["three"], to: "pipe", files)
    add(["four"], to: "y", files)
    files.close(within: .seconds(60))
    #expect(scratch.read("target") == "precious\n")
    #expect(Set(reports.state.withLock { $0.failed }) == ["one\n", "two\n", "three\n"])
    #expect(scratch.read("y") == "four\n", "others are written")
  }

  /// A producer does not wait for a device that hangs.
  @Test func whatFindsTooMuchWaitingIsRefused() {
    let number = open(scratch.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    let hang = DispatchSemaphore(value: 0)
    let files = LineFiles(in: FileDescriptor(number, name: scratch.path), bound: 1 << 20, queueBytes: 100) { _ in
      hang.wait()
    }
    var taken = 0
    for _ in 0..<1000 where files.offer(Array("0123456789\n".utf8), to: "x") { taken += 1 }
    #expect(taken < 100)
    files.close(within: .milliseconds(1))
    for _ in 0..<200 { hang.signal() }
    files.close(within: .seconds(60))
    #expect(scratch.read("x").split(separator: "\n").count == taken)
  }

  /// A line larger than the limit on waiting data is written alone.
  @Test func aLargeLineGoesAlone() {
    let files = files(bound: 1000, queue: 10)
    let line = String(repeating: "x", count: 5000)
    add([line], to: "x", files)
    files.close(within: .seconds(60))
    #expect(scratch.read("x") == line + "\n")
  }
}
