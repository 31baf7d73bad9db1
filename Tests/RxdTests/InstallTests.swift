import Foundation
import Testing

/// What `make install` puts in place.
@Suite(.timeLimit(.minutes(5)))
struct InstallTests {
  private static let hasMake = VerbTests.has("make", "--version")

  private func make(_ target: String, _ variables: [String]) throws -> (status: Int32, output: String) {
    try Program.run("/usr/bin/env", ["make", "-C", Rxd.root, target] + variables)
  }

  private func files(below path: String) -> [String] {
    let all = FileManager.default.enumerator(atPath: path)?.allObjects as? [String] ?? []
    return all.filter {
      (try? FileManager.default.attributesOfItem(atPath: "\(path)/\($0)"))?[.type] as? FileAttributeType == .typeRegular
    }
  }

  /// The examples find their data below the prefix, whatever the working directory is, and the units their program.
  @Test(.enabled(if: hasMake, "needs make")) func installedExamplesFindTheirData() throws {
    let folder = try Scratch()
    let prefix = folder.path + "/usr"
    // A script in place of the program, which is large.
    let program = try folder.write("program", "#!/bin/sh\nexec '\(Rxd.binary)' \"$@\"\n")
    let variables = ["RXD=\(program)", "DESTDIR=\(folder.path)/stage", "PREFIX=\(prefix)"]
    let installed = try make("install", variables)
    try #require(installed.status == 0, "\(installed.output)")
    let stage = folder.path + "/stage"
    for unit in ["rxd.service", "rxd@.service"] {
      let text = try String(contentsOfFile: "\(stage)/lib/systemd/system/\(unit)", encoding: .utf8)
      #expect(text.contains("\nExecStart=\(prefix)/bin/rxd run "), "\(unit)")
    }
    // As a package would unpack it.
    try FileManager.default.moveItem(atPath: stage + prefix, toPath: prefix)
    let examples = prefix + "/share/rxd/examples"
    let yaml = files(below: examples).filter { $0.hasSuffix(".yaml") }
    #expect(yaml.count > 10)
    var paths = 0
    for name in yaml {
      let text = try String(contentsOfFile: "\(examples)/\(name)", encoding: .utf8)
      #expect(!text.contains("pipelines/"), "\(name)")
      for match in text.matches(of: /:-(\/[^}]*)}/) {
        #expect(FileManager.default.fileExists(atPath: String(match.1)), "\(name): \(match.1)")
        paths += 1
      }
    }
    #expect(paths >= 2)
    for name in ["access-log.yaml", "nginx-status.yaml"] {
      let outcome = try Rxd.run("run", "\(examples)/\(name)", in: "/")
      #expect(outcome.status == 0, "\(name): \(outcome.errors)")
      #expect(!outcome.output.isEmpty, "\(name)")
    }
    try FileManager.default.moveItem(atPath: prefix, toPath: stage + prefix)
    let removed = try make("uninstall", variables)
    #expect(removed.status == 0, "\(removed.output)")
    #expect(files(below: stage) == [])
  }
}
