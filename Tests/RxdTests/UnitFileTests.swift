import Foundation
import Testing

private let hasTestRun = ["/lib/systemd/systemd", "/usr/bin/setpriv"].allSatisfy(
  FileManager.default.isExecutableFile(atPath:))
private let hasSystemd = FileManager.default.isExecutableFile(atPath: "/usr/bin/systemd-analyze")

/// The systemd units are well formed, and expose little of the machine.
@Suite(.enabled(if: hasSystemd, "needs systemd-analyze, of the package systemd"))
struct UnitFileTests {
  /// The maximum exposure level of the units.
  static let bar = 1.3

  private func analyze(_ arguments: String...) throws -> (status: Int32, output: String) {
    try Program.run("/usr/bin/systemd-analyze", arguments)
  }

  @Test(arguments: ["rxd.service", "rxd@.service", "rxd-standby.service"])
  func unitIsSoundAndTight(_ name: String) throws {
    let folder = try Scratch()
    let text = try String(contentsOfFile: "\(Rxd.root)/systemd/\(name)", encoding: .utf8)
    // An instance of a template, with the existing binary.
    let unit = try folder.write(
      name.replacingOccurrences(of: "@.", with: "@search."),
      text.replacingOccurrences(of: "/usr/bin/rxd", with: Rxd.binary))
    let verified = try analyze("verify", unit)
    #expect(verified.status == 0, "\(verified.output)")
    #expect(verified.output == "")
    let security = try analyze("security", "--offline=true", unit)
    let level = security.output.split(separator: "\n").last { $0.contains("Overall exposure") }?
      .split(separator: ":").last?.split(separator: " ").first.flatMap { Double($0) }
    #expect(try #require(level) <= Self.bar)
  }

  /// A boot that wants the unit of the directory and those of single files starts only one kind, so that no pipeline runs
  /// twice. systemd itself plans the boot, but only for users other than root.
  @Test(.enabled(if: hasTestRun, "needs systemd and setpriv")) func bothUnitsNeverRunTogether() throws {
    let folder = try Scratch()
    let files = FileManager.default
    for name in ["units", "units/both.target.wants", "runtime"] {
      try files.createDirectory(atPath: "\(folder.path)/\(name)", withIntermediateDirectories: false)
    }
    for (name, mode) in [("", 0o755), ("/units", 0o755), ("/units/both.target.wants", 0o755), ("/runtime", 0o777)] {
      try files.setAttributes([.posixPermissions: mode], ofItemAtPath: folder.path + name)
    }
    try folder.write("units/both.target", "[Unit]\nDescription=Both\n")
    for (name, instances) in [("rxd.service", [""]), ("rxd@.service", ["a", "b"])] {
      let text = try String(contentsOfFile: "\(Rxd.root)/systemd/\(name)", encoding: .utf8)
      let unit = try folder.write("units/" + name, text.replacingOccurrences(of: "/usr/bin/rxd", with: "/bin/true"))
      try files.setAttributes([.posixPermissions: 0o644], ofItemAtPath: unit)
      for instance in instances {
        let link = name.replacingOccurrences(of: "@.", with: "@\(instance).")
        try files.createSymbolicLink(
          atPath: "\(folder.path)/units/both.target.wants/\(link)", withDestinationPath: "../" + name)
      }
    }
    func started(_ unit: String) throws -> Set<String> {
      let user = geteuid() == 0 ? ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] : []
      let text = try Program.run(
        "/usr/bin/env", user + ["timeout", "60", "/lib/systemd/systemd", "--test", "--user", "--unit=\(unit)"],
        environment: [
          "PATH": "/usr/bin:/bin", "HOME": folder.path, "XDG_RUNTIME_DIR": folder.path + "/runtime",
          "SYSTEMD_UNIT_PATH": folder.path + "/units:", "SYSTEMD_LOG_LEVEL": "info",
        ]
      ).output
      return Set(text.matches(of: /Action: (rxd[^ ]*\.service) -> start/).map { String($0.1) })
    }
    let both = try started("both.target")
    #expect(both == ["rxd@a.service", "rxd@b.service"] || both == ["rxd.service"], "\(both)")
    #expect(try started("rxd.service") == ["rxd.service"])
    #expect(try started("rxd@b.service") == ["rxd@b.service"])
  }

  @Test func aBadFileIsNotTriedAgain() throws {
    for name in ["rxd.service", "rxd@.service"] {
      let text = try String(contentsOfFile: "\(Rxd.root)/systemd/\(name)", encoding: .utf8)
      for line in ["Type=notify", "RestartPreventExitStatus=64 66 78", "ExecReload=/usr/bin/rxd reload --wait"] {
        #expect(text.contains("\n\(line)\n"), "\(name): \(line)")
      }
    }
  }
}
