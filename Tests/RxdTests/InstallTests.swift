import Foundation
import Testing

/// The files that `make install` installs.
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

  /// The examples find their data below the prefix, whatever the working directory, and the units find their program.
  @Test(.enabled(if: hasMake, "needs make")) func installedExamplesFindTheirData() throws {
    let folder = try Scratch()
    let prefix = folder.path + "/usr"
    // A script replaces the program, which is large.
    let program = try folder.write("program", "#!/bin/sh\nexec '\(Rxd.binary)' \"$@\"\n")
    let variables = ["RXD=\(program)", "DESTDIR=\(folder.path)/stage", "PREFIX=\(prefix)"]
    let installed = try make("install", variables)
    try #require(installed.status == 0, "\(installed.output)")
    let stage = folder.path + "/stage"
    for unit in ["rxd.service", "rxd@.service"] {
      let text = try String(contentsOfFile: "\(stage)\(prefix)/lib/systemd/system/\(unit)", encoding: .utf8)
      #expect(text.contains("\nExecStart=\(prefix)/bin/rxd run "), "\(unit)")
      #expect(text.contains("\(prefix)/etc/rxd/pipelines") && !text.contains("=/etc/"), "\(unit)")
    }
    // Moved, as a package would unpack it.
    try FileManager.default.moveItem(atPath: stage + prefix, toPath: prefix)
    let examples = prefix + "/share/rxd/examples"
    let yaml = files(below: examples).filter { $0.hasSuffix(".yaml") }
    #expect(yaml.count > 10)
    var paths = 0
    for name in yaml {
      let text = try String(contentsOfFile: "\(examples)/\(name)", encoding: .utf8)
      #expect(!text.contains("pipelines/"), "\(name)")
      // Others are on the machine that an example is for.
      for match in text.matches(of: /:-(\/[^}*]*)\*?}/) where match.1.hasPrefix(prefix) {
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
    // The stage itself belongs to its creator.
    #expect(try FileManager.default.contentsOfDirectory(atPath: stage) == [])
  }

  /// Without privileges, below one directory: which files are installed, and that uninstalling leaves none.
  @Test(
    .enabled(if: hasMake, "needs make"),
    arguments: [
      ("", "/home/ada/x", "/home/ada/x/etc", "/home/ada/x/lib/systemd/system"),
      ("/stage", "/usr", "/etc", "/usr/lib/systemd/system"),
      ("/stage", "/usr/local", "/etc", "/usr/local/lib/systemd/system"),
    ]) func everythingLiesBelowThePrefix(_ stage: String, _ prefix: String, _ etc: String, _ units: String) throws
  {
    let folder = try Scratch()
    let program = try folder.write("program", "#!/bin/sh\n")
    // Without a stage, the prefix itself is in the folder.
    let outside = stage.isEmpty ? folder.path : ""
    var variables = ["RXD=\(program)", "PREFIX=\(outside)\(prefix)"]
    if !stage.isEmpty { variables.append("DESTDIR=\(folder.path)\(stage)") }
    let installed = try make("install", variables)
    try #require(installed.status == 0, "\(installed.output)")
    let root = folder.path + stage
    let found = files(below: root).filter { $0 != "program" }.map { "/" + $0 }
    for path in found { #expect(path.hasPrefix(prefix + "/") || path.hasPrefix(etc + "/"), "\(path)") }
    for path in ["\(prefix)/bin/rxd", "\(units)/rxd.service", "\(units)/rxd@.service"] {
      #expect(found.contains(path), "\(path)")
    }
    let unit = try String(contentsOfFile: "\(root)\(units)/rxd.service", encoding: .utf8)
    #expect(unit.contains("\nConditionDirectoryNotEmpty=\(outside)\(etc)/rxd/pipelines\n"))
    #expect(unit.contains(" --config-dir \(outside)\(etc)/rxd/pipelines\n"))
    // The user's own files stay.
    let own = "\(root)\(etc)/rxd/pipelines/own.yaml"
    try "name: own\n".write(toFile: own, atomically: true, encoding: .utf8)
    #expect(try make("uninstall", variables).status == 0)
    #expect(files(below: root).filter { $0 != "program" } == [String("\(etc)/rxd/pipelines/own.yaml".dropFirst())])
    try FileManager.default.removeItem(atPath: own)
    #expect(try make("uninstall", variables).status == 0)
    // Nothing is left below the stage or the prefix; these and all directories above them stay.
    let left = FileManager.default.enumerator(atPath: root)?.allObjects as? [String] ?? []
    #expect(
      left.filter { $0 != "program" }.sorted() == (stage.isEmpty ? ["home", "home/ada", "home/ada/x"] : []), "\(left)")
    #expect(FileManager.default.fileExists(atPath: root))
  }

  /// Names with spaces are not split, and a relative stage is relative to the working directory of make.
  @Test(.enabled(if: hasMake, "needs make")) func aStageMayHaveSpaces() throws {
    let folder = try Scratch()
    let program = try folder.write("program", "#!/bin/sh\n")
    // The path that a split name would remove or write to.
    try FileManager.default.createDirectory(atPath: folder.path + "/a", withIntermediateDirectories: true)
    _ = try folder.write("a/own", "")
    let variables = ["RXD=\(program)", "DESTDIR=\(folder.path)/a stage", "PREFIX=/usr"]
    let installed = try make("install", variables)
    try #require(installed.status == 0, "\(installed.output)")
    #expect(files(below: folder.path + "/a stage").contains("usr/share/rxd/RxdPlugin/Package.swift"))
    let removed = try make("uninstall", variables)
    #expect(removed.status == 0, "\(removed.output)")
    #expect(files(below: folder.path).sorted() == ["a/own", "program"])
    #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path + "/a stage") == [])
  }

  /// The pages of compiled plugins name all packages of their Makefiles.
  @Test func pluginsNameTheirPackages() throws {
    let packages = [
      "libmosquitto": "libmosquitto-dev", "openssl": "libssl-dev", "hiredis": "libhiredis-dev", "libpq": "libpq-dev",
      "rdkafka": "librdkafka-dev", "libnats": "libnats-dev", "librabbitmq": "librabbitmq-dev",
      "libcurl": "libcurl4-openssl-dev", "libcrypto": "libssl-dev",
      "expat": "libexpat1-dev", "zlib": "zlib1g-dev", "libzstd": "libzstd-dev",
      "msgpack": "libmsgpack-dev", "libcbor": "libcbor-dev", "protobuf": "libprotobuf-dev", "snappy": "libsnappy-dev",
      "libmaxminddb": "libmaxminddb-dev",
    ]
    let plugins = "\(Rxd.root)/Plugins"
    var seen = 0
    for name in try FileManager.default.contentsOfDirectory(atPath: plugins).sorted() {
      guard let makefile = try? String(contentsOfFile: "\(plugins)/\(name)/Makefile", encoding: .utf8),
        makefile.contains("pkg-config --libs") || makefile.contains("\nPACKAGES := ")
      else { continue }
      seen += 1
      let page = try String(contentsOfFile: "\(plugins)/\(name)/README.md", encoding: .utf8)
      let line = page.split(separator: "\n").first { $0.hasPrefix("apt-get install ") } ?? ""
      let named = Set(line.prefix { $0 != "#" }.split(separator: " ").map(String.init))
      var needed = ["pkg-config", "make", makefile.contains("$(CXX)") ? "g++" : "gcc"]
      for match in makefile.matches(of: /(?:pkg-config --libs|PACKAGES :=) ([a-z ]+)[)\n]/) {
        needed += match.1.split(separator: " ").map { packages[String($0)] ?? String($0) }
      }
      #expect(named.isSuperset(of: needed), "\(name): \(needed.filter { !named.contains($0) })")
    }
    #expect(seen == 16)
  }
}
