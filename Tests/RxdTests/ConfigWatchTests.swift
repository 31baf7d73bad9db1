import Foundation
import Testing

/// `--watch-config`: changed files are loaded, however they are changed.
@Suite(.timeLimit(.minutes(10)))
struct ConfigWatchTests {
  private let folder: Scratch

  init() throws { folder = try Scratch() }

  private func start(_ arguments: String..., method: String = "inotify") throws -> RunningRxd {
    let process = try RunningRxd(
      ["--daemon", "--log-format", "text", "-w", "--watch-config-method", method] + arguments)
    #expect(try process.line() == "one")
    return process
  }

  private func end(_ process: RunningRxd) throws {
    process.send(SIGTERM)
    #expect(try process.line() == nil)
    #expect(try process.wait() == 0)
  }

  private func overwrite(_ path: String, _ text: String) {
    let file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
    defer { close(file) }
    // Written in pieces, as programs do.
    for piece in text.utf8.map({ $0 }).chunks(of: 16) { #expect(write(file, piece, piece.count) == piece.count) }
  }

  @Test(arguments: ["inotify", "poll"]) func editsAreLoaded(_ method: String) throws {
    let file = try folder.write("a.yaml", DaemonTests.saying("one"))
    let process = try start(file, method: method)
    // Replaced by another file, as editors do.
    try folder.write("a.yaml", DaemonTests.saying("two"))
    #expect(try process.line() == "two")
    // Overwritten in place.
    overwrite(file, DaemonTests.saying("three"))
    #expect(try process.line() == "three")
    // Deleted, so that the old pipeline keeps running; then created again.
    try FileManager.default.removeItem(atPath: file)
    try process.errorLine(with: "not reloaded")
    try folder.write("a.yaml", DaemonTests.saying("four"))
    #expect(try process.line() == "four")
    try end(process)
  }

  /// A link to a directory is replaced, as Kubernetes updates volumes.
  @Test func switchedLinksAreLoaded() throws {
    let files = FileManager.default
    for (name, text) in [("..1", "one"), ("..2", "two"), ("..3", "three")] {
      try files.createDirectory(atPath: "\(folder.path)/\(name)", withIntermediateDirectories: false)
      try folder.write("\(name)/a.yaml", DaemonTests.saying(text))
    }
    try files.createSymbolicLink(atPath: folder.path + "/..data", withDestinationPath: "..1")
    try files.createSymbolicLink(atPath: folder.path + "/a.yaml", withDestinationPath: "..data/a.yaml")
    let process = try start("-C", folder.path)
    for (name, text) in [("..2", "two"), ("..3", "three")] {
      try files.createSymbolicLink(atPath: folder.path + "/..new", withDestinationPath: name)
      #expect(rename(folder.path + "/..new", folder.path + "/..data") == 0)
      #expect(try process.line() == text)
    }
    try end(process)
  }

  @Test func filesOfDirectoriesComeAndGo() throws {
    let files = FileManager.default
    let pipelines = folder.path + "/p"
    try files.createDirectory(atPath: pipelines, withIntermediateDirectories: false)
    try folder.write("p/a.yaml", DaemonTests.saying("one"))
    let process = try start(pipelines + "/...")
    try folder.write("p/b.yaml", DaemonTests.saying("two"))
    #expect(try process.line() == "two")
    try process.errorLine(with: "2 pipelines running")
    try files.createDirectory(atPath: pipelines + "/inner", withIntermediateDirectories: false)
    try folder.write("p/inner/c.yaml", DaemonTests.saying("three"))
    #expect(try process.line() == "three")
    try process.errorLine(with: "3 pipelines running")
    try files.removeItem(atPath: pipelines + "/b.yaml")
    try process.errorLine(with: "2 pipelines running")
    // The directory is replaced by another one of the same name.
    #expect(rename(pipelines, folder.path + "/gone") == 0)
    try process.errorLine(with: "not reloaded")
    try files.createDirectory(atPath: pipelines, withIntermediateDirectories: false)
    try folder.write("p/d.yaml", DaemonTests.saying("four"))
    #expect(try process.line() == "four")
    try end(process)
  }

  /// A broken file is reported once, with the location of the error, and the old pipeline keeps running until the
  /// file is corrected.
  @Test func brokenFilesAreReportedOnce() throws {
    let file = try folder.write("a.yaml", DaemonTests.saying("one"))
    let process = try start(file)
    let broken = DaemonTests.saying("two").replacingOccurrences(of: "from: all", with: "from: nowhere")
    overwrite(file, broken)
    #expect(try process.errorLine(with: "nowhere").contains("\(file):3:"))
    try process.errorLine(with: "not reloaded")
    overwrite(file, DaemonTests.saying("three"))
    #expect(try process.line() == "three")
    var between: [String] = []
    while let line = try process.line(from: process.errors), !line.contains("reloaded in") {
      if line.contains("error") { between.append(line) }
    }
    #expect(between == [])
    try end(process)
  }

  /// A schema that a pipeline file names is watched too.
  @Test func filesThatAFileUsesAreWatched() throws {
    func schema(_ type: String) -> String { #"{"type": "object", "properties": {"n": {"type": "\#(type)"}}}"# }
    try folder.write("s.json", schema("integer"))
    let file = try folder.write(
      "a.yaml",
      """
      sources: { lines: { stdin: { decode: ndjson }, schema: s.json } }
      signals: { named: { from: lines, chain: [ { map: "event.n + 1" } ] } }
      sinks: { out: { from: named, stdout: json } }

      """)
    let process = try RunningRxd(["--daemon", "--log-format", "text", "-w", file])
    process.write("{\"n\":1}\n")
    #expect(try process.line() == "2")
    try folder.write("s.json", schema("string"))
    try process.errorLine(with: "not reloaded")
    try folder.write("s.json", schema("integer"))
    try process.errorLine(with: "reloaded in")
    try end(process)
  }
}

extension Array {
  fileprivate func chunks(of count: Int) -> [[Element]] {
    stride(from: 0, to: self.count, by: count).map { Array(self[$0..<Swift.min($0 + count, self.count)]) }
  }
}
