/// The path of a file that a sink writes: a literal path or, with `{{ }}`, a path for each event, below a directory
/// that the pipeline file gives literally.
package struct FilePathTemplate: ParameterValue {
  /// The literal path; for a template, a pattern for the checker.
  package private(set) var literal = FilePathParameter()
  /// The path with expressions; nil: the path is literal.
  package private(set) var template: TemplateParameter?
  /// The length of the directory in the text, with its slash, in bytes. The rest names a file below it.
  package private(set) var directoryBytes = 0

  package init() {}

  package static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .template }
  package var defaultText: String? { literal.defaultText }
  /// The directory that the pipeline file gives literally; `.` if it names none.
  package var directory: String { literal.fixedDirectory ?? "." }

  package mutating func bind(_ binder: inout Binder, _ use: ExpressionUse) { template?.bind(&binder, use) }

  package static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> FilePathTemplate? {
    // Paths are printed in messages, so they must not contain secrets.
    if context.refusesSecret(in: node, .text) { return nil }
    var path = FilePathTemplate()
    guard let scalar = node.scalar, scalar.kind != .null, scalar.text.text.hasOpeningBraces else {
      guard let literal = FilePathParameter.decode(node, &context) else { return nil }
      path.literal = literal
      return path
    }
    guard let parameter = TemplateParameter.decode(node, &context), let template = parameter.template else {
      return nil
    }
    path.template = parameter
    let prefix = Array(template.literalPrefix.utf8)
    path.directoryBytes = prefix.lastIndex(of: UInt8(ascii: "/")).map { $0 + 1 } ?? 0
    let directory = String(decoding: prefix[..<max(0, path.directoryBytes - 1)], as: UTF8.self)
    var pattern: [UInt8] = []
    for part in template.parts {
      switch part {
      case .text(let bytes, _): pattern += bytes
      case .expression: pattern.append(UInt8(ascii: "*"))
      }
    }
    path.literal = FilePathParameter(
      pattern: String(decoding: pattern, as: UTF8.self), below: path.directoryBytes == 0 ? "." : directory, scalar)
    guard !scalar.isPlaceholder, let problem = path.problem(of: pattern, template) else { return path }
    context.badValue(
      node, "'\(context.parameter)' of '\(context.component)' \(problem.message)", .pathTemplate, help: problem.help)
    return nil
  }

  /// The error in the text outside the expressions; nil: there is none.
  private func problem(of pattern: [UInt8], _ template: ExpressionTemplate) -> (message: String, help: String)? {
    if pattern.contains(where: { $0 < 0x20 || $0 == 0x7F }) {
      return ("holds a control character", "Remove it from the file name")
    }
    if directoryBytes > 0, literal.fixedDirectory?.utf8.allSatisfy({ $0 == UInt8(ascii: "/") }) == true {
      return (
        "would let events name a file anywhere", "Write the directory before the first {{ }}: /var/log/out/{{ ... }}"
      )
    }
    let names = pattern[directoryBytes...].split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
    if names.last?.isEmpty == true { return ("ends with '/', and names no file", "Write a file name after it") }
    if names.contains(where: { $0.isEmpty }) { return ("has '//' after the first {{ }}", "Write one slash") }
    if names.contains(where: { Self.isDots($0) }) {
      return ("has '.' or '..' after the first {{ }}", "Write the directory that is meant before the first {{ }}")
    }
    return nil
  }

  private static func isDots(_ name: some Collection<UInt8>) -> Bool {
    (1...2).contains(name.count) && name.allSatisfy { $0 == UInt8(ascii: ".") }
  }

  /// Why the path of an event cannot be used, one sentence; nil: it names a file below the directory.
  ///
  /// - Parameter inserted: The ranges of `path` that expressions have filled, in order.
  package func problem(_ path: UnsafeRawBufferPointer, inserted: [Range<Int>]) -> String? {
    for range in inserted {
      if range.isEmpty { return "a value in the path of its file is empty" }
      for byte in path[range] where byte == UInt8(ascii: "/") || byte < 0x20 || byte == 0x7F {
        let what = byte == UInt8(ascii: "/") ? "a slash" : byte == 0 ? "a NUL character" : "a control character"
        return "a value in the path of its file has \(what): '\(Printable.cut(path[range]))'"
      }
    }
    var start = directoryBytes
    while start <= path.count {
      let end = path[start...].firstIndex(of: UInt8(ascii: "/")) ?? path.count
      if Self.isDots(path[start..<end]) {
        return "the path of its file would have the name '\(Printable.cut(path[start..<end]))'"
      }
      start = end + 1
    }
    return nil
  }
}
