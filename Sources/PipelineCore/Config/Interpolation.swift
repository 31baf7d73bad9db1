/// Inserts environment values and secrets into scalar values.
///
/// `${NAME}`, `${NAME:-default}` (also for an empty value), `${NAME:?message}`, `${secret:NAME}`, and `$$` for a dollar
/// sign.
/// Works on parsed values, so inserted text cannot change the structure: a plain value may become a number, never a
/// mapping. `$NAME` without braces is plain text.
package struct Interpolation: Sendable {
  /// The result of looking up a variable or a secret.
  package enum Lookup: Sendable {
    case found([UInt8])
    case missing
    /// The value exists but must not be used; the reason completes "the secret NAME ...", without the value.
    case refused(String)
  }

  /// Nil where the environment must not be read (`rxd check --no-environment`).
  private let variable: (@Sendable (String) -> Lookup)?
  private let secret: (@Sendable (String) -> Lookup)?
  private let limits: YAMLLimits

  /// `variable` and `secret` are called with well-formed names: letters, digits and `_`; a secret's name may contain
  /// `-` and `.` but neither a slash nor a leading dot.
  package init(
    variable: @escaping @Sendable (String) -> Lookup,
    secret: @escaping @Sendable (String) -> Lookup,
    limits: YAMLLimits = .standard
  ) {
    self.variable = variable
    self.secret = secret
    self.limits = limits
  }

  /// Fixed values; every other name is missing.
  package init(variables: [String: String], secrets: [String: String] = [:]) {
    func lookup(_ values: [String: String]) -> @Sendable (String) -> Lookup {
      { name in values[name].map { .found(Array($0.utf8)) } ?? .missing }
    }
    self.init(variable: lookup(variables), secret: lookup(secrets))
  }

  private init(limits: YAMLLimits) {
    variable = nil
    secret = nil
    self.limits = limits
  }

  /// Reads nothing: defaults are used, and a value without a default becomes a placeholder
  /// (``YAMLScalar/isPlaceholder``).
  package static let noEnvironment = Interpolation(limits: .standard)

  /// The node with every scalar value interpolated; keys are unchanged.
  package func apply(to node: YAMLNode, into diagnostics: inout Diagnostics) -> YAMLNode {
    var result = node
    switch node.content {
    case .scalar(let scalar):
      result.content = .scalar(apply(to: scalar, into: &diagnostics))
    case .sequence(let items):
      result.content = .sequence(items.map { apply(to: $0, into: &diagnostics) })
    case .mapping(let entries):
      result.content = .mapping(
        entries.map { entry in
          warn(of: entry.key, into: &diagnostics)
          return YAMLEntry(key: entry.key, value: apply(to: entry.value, into: &diagnostics))
        })
    }
    return result
  }

  package func apply(to scalar: YAMLScalar, into diagnostics: inout Diagnostics) -> YAMLScalar {
    guard scalar.text.text.contains(UInt8(ascii: "$")) else { return scalar }
    var expansion = Expansion(scalar: scalar, interpolation: self)
    expansion.run()
    diagnostics.report(contentsOf: expansion.diagnostics)
    return expansion.result
  }

  private func warn(of key: YAMLScalar, into diagnostics: inout Diagnostics) {
    let text = key.text.text
    guard let dollar = text.firstIndex(of: UInt8(ascii: "$")), dollar + 1 < text.count,
      text[dollar + 1] == UInt8(ascii: "{")
    else { return }
    diagnostics.report(
      Diagnostic(
        .interpolationInKey, "${...} in a key is not replaced", at: key.location,
        help: "Only values are; the structure of a file never depends on the environment"))
  }

  /// The text between `${` and `}`.
  private struct Reference {
    enum Fallback {
      case none
      case whenEmpty(Range<Int>)
      case required(Range<Int>)
    }
    var name: String
    var isSecret: Bool
    var fallback: Fallback
  }

  private struct Expansion {
    let scalar: YAMLScalar
    let interpolation: Interpolation
    var text: [UInt8] = []
    var offsets: [Int32] = []
    var insertions: [Range<Int>] = []
    var secrets: [Range<Int>] = []
    var containsSecret: Bool
    var isPlaceholder: Bool
    var isInterpolated = false
    var diagnostics: [Diagnostic] = []

    init(scalar: YAMLScalar, interpolation: Interpolation) {
      self.scalar = scalar
      self.interpolation = interpolation
      containsSecret = scalar.containsSecret
      isPlaceholder = scalar.isPlaceholder
    }

    private var input: [UInt8] { scalar.text.text }

    var result: YAMLScalar {
      var result = scalar
      result.text = LocatedText(
        text: text, source: scalar.text.source, offsets: offsets + scalar.text.offsets.suffix(1))
      // A fix must not write an inserted value back into the file.
      result.text.quoting =
        scalar.text.quoting == .plain && !insertions.isEmpty ? .none : scalar.text.quoting
      result.text.secrets = secrets
      result.text.insertions = insertions
      result.containsSecret = containsSecret
      result.isPlaceholder = isPlaceholder
      result.isInterpolated = result.isInterpolated || isInterpolated
      if scalar.style == .plain, !scalar.isTagged {
        result.kind = isPlaceholder ? .string : YAMLCoreSchema.kind(of: text)
      }
      return result
    }

    mutating func run() {
      var index = 0
      while index < input.count {
        let byte = input[index]
        let next = index + 1 < input.count ? input[index + 1] : 0
        if byte == UInt8(ascii: "$"), next == UInt8(ascii: "$") {
          copy(index..<index + 1)
          index += 2
        } else if byte == UInt8(ascii: "$"), next == UInt8(ascii: "{") {
          index = reference(at: index)
        } else {
          copy(index..<index + 1)
          index += 1
        }
      }
    }

    private mutating func copy(_ range: Range<Int>) {
      text += input[range]
      offsets += scalar.text.offsets[range]
    }

    /// Keeps the reference as text, because its value is unknown.
    private mutating func leave(_ range: Range<Int>) {
      copy(range)
      isPlaceholder = true
    }

    private mutating func report(
      _ code: Diagnostic.Code, _ message: String, _ range: Range<Int>, help: String? = nil,
      fixIts: [Diagnostic.FixIt] = []
    ) {
      diagnostics.append(
        Diagnostic(
          code, message, at: scalar.text.location(range.lowerBound, range.upperBound), help: help,
          fixIts: fixIts))
    }

    /// Returns the index after the reference that starts at `start`.
    private mutating func reference(at start: Int) -> Int {
      isInterpolated = true
      var end = start + 2
      while end < input.count, input[end] != UInt8(ascii: "}") {
        if input[end] == UInt8(ascii: "$"), end + 1 < input.count,
          input[end + 1] == UInt8(ascii: "{")
        {
          report(
            .interpolationNesting, "a ${...} may not contain another", end..<end + 2,
            help: "Give the inner variable its default where it is set")
          leave(start..<input.count)
          return input.count
        }
        end += 1
      }
      guard end < input.count else {
        report(
          .interpolationSyntax, "this ${ has no closing }", start..<start + 2,
          help: "Close it, or write $${ for the characters themselves")
        leave(start..<input.count)
        return input.count
      }
      let whole = start..<end + 1
      if let reference = parse(start + 2..<end, whole) {
        insert(reference, whole)
      } else {
        leave(whole)
      }
      return end + 1
    }

    private mutating func parse(_ inner: Range<Int>, _ whole: Range<Int>) -> Reference? {
      var index = inner.lowerBound
      let isSecret = input[inner].starts(with: "secret:".utf8)
      if isSecret { index += 7 }
      let start = index
      while index < inner.upperBound, isName(input[index], first: index == start, secret: isSecret) {
        index += 1
      }
      let name = String(decoding: input[start..<index], as: UTF8.self)
      let rest = input[index..<inner.upperBound]
      var fallback = Reference.Fallback.none
      if name.isEmpty {
        let shown = Printable.cut(input[inner], limit: 40)
        report(
          .interpolationSyntax,
          shown.isEmpty ? "${} names no variable" : "'\(shown)' does not begin with a name", whole,
          help: "Write ${NAME}, or $${ for the characters themselves")
        return nil
      }
      if isSecret, !rest.isEmpty {
        report(
          .interpolationSyntax, "a secret is written ${secret:NAME}, with nothing after the name",
          whole, help: "A name has letters, digits, dots, _ and -")
        return nil
      }
      if rest.starts(with: ":-".utf8) {
        fallback = .whenEmpty(index + 2..<inner.upperBound)
      } else if rest.starts(with: "-".utf8) {
        let written = "${\(Printable.cut(name)):-\(Printable.cut(rest.dropFirst()))}"
        report(
          .interpolationSyntax, "a default follows ':-', not '-'", whole,
          help: "Write \(written), which also uses the default if the variable is empty",
          fixIts: [.init(scalar.text.location(index, index), ":")])
        return nil
      } else if rest.starts(with: ":?".utf8) {
        fallback = .required(index + 2..<inner.upperBound)
      } else if !rest.isEmpty {
        report(
          .interpolationSyntax,
          "'\(Printable.cut(rest, limit: 40))' cannot follow the name \(Printable.cut(name))",
          whole,
          help: "Write ${\(Printable.cut(name))}, ${\(Printable.cut(name)):-default} or "
            + "${\(Printable.cut(name)):?message}")
        return nil
      }
      return Reference(name: name, isSecret: isSecret, fallback: fallback)
    }

    private func isName(_ byte: UInt8, first: Bool, secret: Bool) -> Bool {
      switch byte {
      case 0x41...0x5A, 0x61...0x7A, 0x5F: true
      case 0x30...0x39: !first || secret
      case UInt8(ascii: "-"), UInt8(ascii: "."): secret && !first
      default: false
      }
    }

    private mutating func insert(_ reference: Reference, _ whole: Range<Int>) {
      let name = Printable.cut(reference.name)
      if reference.isSecret {
        containsSecret = true
        let start = text.count
        defer { if text.count > start { secrets.append(start..<text.count) } }
        switch interpolation.secret?(reference.name) {
        case nil: leave(whole)
        case .found(let value): put(value, whole, "the secret \(name)")
        case .missing:
          report(
            .undefinedSecret, "there is no secret \(name)", whole,
            help: "Its value is a file of this name: a credential of systemd, in a --secrets-dir, or in /run/secrets")
          leave(whole)
        case .refused(let reason):
          report(.undefinedSecret, "the secret \(name) \(reason)", whole)
          leave(whole)
        }
        return
      }
      var value: [UInt8]?
      switch interpolation.variable?(reference.name) {
      case .found(let found): value = found
      case .refused(let reason):
        report(.unusableVariable, "the variable \(name) \(reason)", whole)
        leave(whole)
        return
      case .missing, nil: value = nil
      }
      switch (reference.fallback, value) {
      case (.whenEmpty(let range), nil): copyDefault(range)
      case (.whenEmpty(let range), let value?) where value.isEmpty: copyDefault(range)
      case (_, nil) where interpolation.variable == nil: leave(whole)
      case (.required(let range), let value) where value?.isEmpty ?? true:
        let message = Printable.cut(input[range])
        report(
          .requiredVariable,
          "the variable \(name) is required" + (message.isEmpty ? "" : ": \(message)"), whole)
        leave(whole)
      case (_, let value?): put(value, whole, "the variable \(name)")
      case (_, nil):
        report(
          .undefinedVariable, "the variable \(name) is not defined", whole,
          help: "Define it, or write a default: ${\(name):-default}")
        leave(whole)
      }
    }

    private mutating func copyDefault(_ range: Range<Int>) {
      var index = range.lowerBound
      while index < range.upperBound {
        copy(index..<index + 1)
        let isDoubled =
          input[index] == UInt8(ascii: "$") && index + 1 < range.upperBound
          && input[index + 1] == UInt8(ascii: "$")
        index += isDoubled ? 2 : 1
      }
    }

    private mutating func put(_ value: [UInt8], _ whole: Range<Int>, _ what: String) {
      let isBlock = scalar.style == .literal || scalar.style == .folded
      let limits = interpolation.limits
      let limit = isBlock ? limits.blockScalarBytes : limits.scalarBytes
      guard value.count <= limit - min(text.count, limit) else {
        report(
          .unusableVariable, "\(what) makes the value longer than \(limit) bytes", whole)
        leave(whole)
        return
      }
      guard String(validating: value, as: UTF8.self) != nil else {
        report(.unusableVariable, "\(what) is not UTF-8", whole)
        leave(whole)
        return
      }
      let start = text.count
      text += value
      let offset = scalar.text.offsets[whole.lowerBound]
      offsets += repeatElement(offset, count: value.count)
      if !value.isEmpty { insertions.append(start..<text.count) }
    }
  }
}
