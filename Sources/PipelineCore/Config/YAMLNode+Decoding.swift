// Decodes the values of parameters. Each function returns the value, or a diagnostic for the node. A placeholder has no
// value yet: callers must check `isPlaceholder` first.

extension YAMLNode {
  /// Whether the value is unknown because the environment was not read.
  package var isPlaceholder: Bool { scalar?.isPlaceholder ?? false }

  /// `true` or `false`. The other boolean words of YAML 1.1 get their own message.
  package func decodeBool(_ what: String) -> Result<Bool, Diagnostic> {
    guard let scalar else { return .failure(wrongType(what, "true or false")) }
    if let bool = scalar.bool { return .success(bool) }
    let word = String(decoding: scalar.text.text.map { $0 | 0x20 }, as: UTF8.self)
    let meant: Bool? =
      switch word {
      case "yes", "on", "y", "true": true
      case "no", "off", "n", "false": false
      default: nil
      }
    guard let meant, !scalar.containsSecret else {
      return .failure(wrongType(what, "true or false"))
    }
    return .failure(
      Diagnostic(
        .yamlBoolean, "\(what) takes true or false, but '\(scalar.shown)' is a text", at: location,
        help: scalar.style == .plain
          ? "Write \(meant): in YAML 1.2, \(scalar.shown) without quotes is a text, too" : withoutQuotes("\(meant)"),
        fixIts: [.init(location, "\(meant)")]))
  }

  /// The advice to write a value without its quotes.
  func withoutQuotes(_ value: String) -> String {
    scalar?.isInterpolated == true
      ? "Write it without quotes: only then is a value of the environment a number or a boolean"
      : "Write \(value) without quotes"
  }

  /// A whole number in `range`.
  package func decodeInt(
    _ what: String, in range: ClosedRange<Int64> = .min ... .max
  ) -> Result<Int64, Diagnostic> {
    guard let scalar, scalar.kind == .int else {
      return .failure(wrongType(what, "a whole number"))
    }
    guard let int = scalar.int, range.contains(int) else {
      return .failure(
        outOfRange(what, "\(range.lowerBound)", "\(range.upperBound)", range == .min ... .max))
    }
    return .success(int)
  }

  /// A number in `range`; infinities and NaN are errors.
  package func decodeDouble(
    _ what: String,
    in range: ClosedRange<Double> = -.greatestFiniteMagnitude ... .greatestFiniteMagnitude
  ) -> Result<Double, Diagnostic> {
    guard let scalar, scalar.kind == .int || scalar.kind == .float, let double = scalar.double
    else {
      return .failure(wrongType(what, "a number"))
    }
    guard double.isFinite, range.contains(double) else {
      return .failure(
        outOfRange(
          what, "\(range.lowerBound)", "\(range.upperBound)",
          range.upperBound == .greatestFiniteMagnitude))
    }
    return .success(double)
  }

  /// A duration such as `300ms`; see ``Units/duration(_:)``.
  package func decodeDuration(_ what: String) -> Result<TimeSpan, Diagnostic> {
    guard let scalar, scalar.kind != .null, scalar.kind != .bool else {
      return .failure(wrongType(what, "a duration such as 300ms or 5s"))
    }
    return Units.duration(scalar.text).mapError(scalar.text.concealing)
  }

  /// A number of bytes such as `64KiB`; see ``Units/size(_:)``.
  package func decodeSize(_ what: String) -> Result<Int, Diagnostic> {
    guard let scalar, scalar.kind != .null, scalar.kind != .bool else {
      return .failure(wrongType(what, "a size such as 64KiB or 10MB"))
    }
    return Units.size(scalar.text).mapError(scalar.text.concealing)
  }

  /// Any scalar but null, as written.
  package func decodeText(_ what: String) -> Result<LocatedText, Diagnostic> {
    guard let scalar, scalar.kind != .null else { return .failure(wrongType(what, "a text")) }
    return .success(scalar.text)
  }

  /// One of `choices`.
  package func decodeChoice(_ what: String, _ choices: [String]) -> Result<String, Diagnostic> {
    guard let scalar, scalar.kind != .null else {
      return .failure(wrongType(what, "one of \(Suggestion.list(choices))"))
    }
    if choices.contains(scalar.string) { return .success(scalar.string) }
    let correction =
      scalar.containsSecret ? nil : Suggestion.correction(for: scalar.string, among: choices)
    return .failure(
      Diagnostic(
        .unknownChoice, "\(what) cannot be '\(scalar.shown)'", at: location,
        notes: correction == nil ? [] : [.init("the choices are \(Suggestion.list(choices))")],
        help: correction?.help ?? "The choices are \(Suggestion.list(choices))",
        fixIts: correction.map { [.init(location, $0.name)] } ?? []))
  }

  /// The diagnostic for a value of the wrong kind.
  package func wrongType(_ what: String, _ expected: String) -> Diagnostic {
    let written = scalar.map { $0.kind == .null ? "" : " '\($0.shown)'" } ?? ""
    return Diagnostic(
      .wrongType, "\(what) takes \(expected), not \(kindName)\(written)", at: location)
  }

  private func outOfRange(
    _ what: String, _ low: String, _ high: String, _ isUnbounded: Bool
  ) -> Diagnostic {
    Diagnostic(
      .outOfRange, "\(shown) is out of the range of \(what)", at: location,
      help: isUnbounded ? "Write a smaller number" : "Write a number from \(low) to \(high)")
  }
}
