/// The path of a file, or a pattern of paths, taken literally from the pipeline file.
public struct FilePathParameter: ParameterValue {
  package private(set) var text = ""
  /// The location in the file; nil: not given.
  package private(set) var location: SourceLocation?
  /// The text, in quotes, as messages may print it.
  package private(set) var shown = "''"
  /// Whether the text is a placeholder and not the path, because the environment was not read.
  package private(set) var isPlaceholder = false
  /// The constant directory of a template, whose `text` is a pattern with `*` for each expression; nil: the path is not
  /// a template.
  package private(set) var fixedDirectory: String?

  public init() {}

  /// A pattern that matches the paths of a template.
  init(pattern: String, below directory: String, _ scalar: YAMLScalar) {
    text = pattern
    location = scalar.location
    shown = "'\(scalar.shown)'"
    isPlaceholder = scalar.isPlaceholder
    fixedDirectory = directory
  }

  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .text }
  public var defaultText: String? { text.isEmpty ? nil : text }

  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> FilePathParameter? {
    guard let text = String.decode(node, &context), let scalar = node.scalar else { return nil }
    var path = FilePathParameter()
    path.text = text
    path.location = node.location
    path.shown = "'\(scalar.shown)'"
    path.isPlaceholder = scalar.isPlaceholder
    guard !scalar.isPlaceholder else { return path }
    let name = "'\(context.parameter)' of '\(context.component)'"
    if text.isEmpty {
      context.badValue(node, "\(name) is empty")
      return nil
    }
    if let byte = text.utf8.first(where: { $0 < 0x20 || $0 == 0x7F }) {
      let isFeed = byte == 0x0A
      context.badValue(
        node, "\(name) holds \(isFeed ? "a line feed" : byte == 0 ? "a NUL character" : "a control character")",
        help: isFeed && (scalar.style == .literal || scalar.style == .folded)
          ? "A text after | or > ends with a line feed: write |- or >-, or put it on the line of the key"
          : "Remove it from the file name")
      return nil
    }
    if text.utf8.hasOpeningBraces, let open = text.utf8.firstRange(of: "{{".utf8),
      text.utf8[open.upperBound...].firstRange(of: "}}".utf8) != nil
    {
      context.diagnostics.report(
        Diagnostic(
          .templateInLiteral, "\(name) is used literally, so \(path.shown) is not a template", at: node.location,
          severity: .error, help: "Write the path; '*' stands for any part of a name"))
      return nil
    }
    return path
  }
}

extension DecodingContext {
  /// Refuses a text that cannot be the path of a Unix socket. Accepts a placeholder for a variable that was not read.
  package mutating func checkSocketPath(_ path: String, at parameter: String) {
    if path.contains("${") { return }
    let what = "the path of a Unix socket"
    let fault: String
    if path.isEmpty {
      fault = "a Unix socket needs a path"
    } else if let byte = path.utf8.first(where: { $0 < 0x20 || $0 == 0x7F }) {
      fault = "\(what) holds \(byte == 0x0A ? "a line feed" : byte == 0 ? "a NUL character" : "a control character")"
    } else if path.utf8.count > 107 {
      fault = "\(what) has at most 107 bytes, and this one \(path.utf8.count)"
    } else {
      return
    }
    badValue(at: location(of: parameter), fault, help: "Write a path such as /run/rxd/events.sock")
  }
}
