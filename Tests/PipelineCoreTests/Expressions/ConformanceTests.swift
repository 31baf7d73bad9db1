import Foundation
import PipelineTestSupport
import Testing

/// The public test suite of the expression language, in `shared/conformance/cel` next to the repository.
@Suite struct ConformanceTests {
  /// The minimum number of applicable vectors that must pass; raised whenever more do.
  static let floor = 1735

  private static let path = "../shared/conformance/cel/vectors.json"
  private static let isThere = FileManager.default.fileExists(atPath: path)

  @Test(
    .enabled(
      if: isThere,
      "needs the language's public conformance suite as ../shared/conformance/cel, which is not part of the repository")
  )
  func vectorsPass() throws {
    var passed = 0
    var failures: [String] = []
    for vector in try ConformanceVector.read(Self.path) where vector.applies {
      if let reason = vector.run() {
        failures.append("\(vector.name): \(vector.expression)\n  \(reason)")
      } else {
        passed += 1
      }
    }
    #expect(
      passed >= Self.floor,
      "\(passed) passed, \(failures.count) failed:\n\(failures.joined(separator: "\n"))")
  }
}
