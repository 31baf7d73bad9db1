// Keeps the values of environment variables out of fixes.

extension YAMLNode? {
  /// The diagnostic without fixes that would write a value of the environment into the file.
  func keepingEnvironment(outOf diagnostic: Diagnostic) -> Diagnostic {
    guard let self, !diagnostic.fixIts.isEmpty else { return diagnostic }
    var result = diagnostic
    result.fixIts.removeAll { fix in self.hasInterpolated(at: fix.location) }
    return result
  }
}

extension YAMLNode {
  /// Whether the location is within a value that contains an environment variable's text.
  fileprivate func hasInterpolated(at place: SourceLocation) -> Bool {
    switch content {
    case .scalar(let scalar):
      return scalar.isInterpolated && location.offset <= place.offset
        && place.offset + place.length <= location.offset + location.length
    case .sequence(let items): return items.contains { $0.hasInterpolated(at: place) }
    case .mapping(let entries): return entries.contains { $0.value.hasInterpolated(at: place) }
    }
  }
}
