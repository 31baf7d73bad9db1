import Foundation
import Testing

/// The release build neither allocates nor counts references per event.
@Suite struct ReleaseAllocationTests {
  /// `make test` builds it; without it this test is skipped.
  private static let program = URL(fileURLWithPath: Rxd.root + "/.build/release/measure")

  @Test(
    .enabled(
      if: FileManager.default.isExecutableFile(atPath: program.path),
      "needs a release build of 'measure': swift build -c release --product measure"))
  func hotPathsAllocateAndRetainNothing() throws {
    let process = Process()
    process.executableURL = Self.program
    process.arguments = ["--count"]
    let pipe = Pipe()
    process.standardOutput = pipe
    try process.run()
    let output = String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    process.waitUntilExit()
    #expect(process.terminationStatus == 0, "\(output)")
    #if arch(x86_64)
      #expect(!output.contains("uncounted"), "\(output)")
    #endif
  }
}
