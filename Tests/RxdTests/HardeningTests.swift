import Foundation
import Testing

private let hasReadelf = VerbTests.has("readelf", "--version")
/// Whether this is the release program, which `make test` names.
private let isRelease = Rxd.binary.contains("/release/")

/// How the release program is linked.
@Suite(
  .enabled(if: hasReadelf, "needs readelf, of the package binutils"), .enabled(if: isRelease, "needs a release build"))
struct HardeningTests {
  private func readelf(_ option: String) throws -> String {
    let found = try Program.run("/usr/bin/env", ["readelf", "--wide", option, Rxd.binary])
    try #require(found.status == 0, "\(found.output)")
    return found.output
  }

  /// All addresses are resolved at the start, and their tables are read-only then; no page is both writable and
  /// executable.
  @Test func tablesOfAddressesAreReadOnly() throws {
    let segments = try readelf("--segments").split(separator: "\n").map { $0.split(separator: " ") }
    #expect(segments.contains { $0.first == "GNU_RELRO" })
    let stack = try #require(segments.first { $0.first == "GNU_STACK" })
    #expect(!stack.contains("RWE"))
    #expect(!segments.contains { $0.first == "LOAD" && $0.contains("RWE") })
    let dynamic = try readelf("--dynamic")
    #expect(dynamic.contains("BIND_NOW") || dynamic.contains("Flags: NOW"), "\(dynamic)")
    #expect(dynamic.contains("PIE"), "\(dynamic)")
    #expect(!dynamic.contains("TEXTREL"))
  }

  /// C sources use the C library functions that know the sizes of buffers.
  @Test func buffersAreChecked() throws {
    let symbols = try readelf("--dyn-syms")
    #expect(symbols.split(separator: "\n").contains { $0.contains("_chk@GLIBC") && $0.contains("UND") })
  }
}
