import Testing

@testable import PipelineCore

/// Patterns of paths.
struct PathPatternTests {
  /// A part is `**` alone: between slashes, or at an end.
  @Test func levelsAreWholeParts() {
    var random = SystemRandomNumberGenerator()
    let signs: [Character] = ["*", "*", "/", "a", "."]
    for _ in 0..<5000 {
      let length = Int.random(in: 0...8, using: &random)
      let pattern = String((0..<length).map { _ in signs.randomElement(using: &random)! })
      let parts = pattern.split(separator: "/", omittingEmptySubsequences: true)
      #expect(PathPattern.hasLevels(pattern) == parts.contains("**"), "\(pattern)")
    }
  }
}
