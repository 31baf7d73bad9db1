/// The type of a parameter.
public protocol ParameterValue: Sendable {
  /// The form of values in a file; `range` limits numbers.
  static func shape(range: ClosedRange<Int64>?) -> ParameterShape
  /// Decodes the value from YAML; nil after an error, which is reported.
  static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Self?
  /// The value as a pipeline file would write it, for showing defaults; nil: nothing to show.
  var defaultText: String? { get }
  /// Checks and compiles the expressions inside, if any.
  mutating func bind(_ binder: inout Binder, _ use: ExpressionUse)
  /// The signals and chains inside, after binding.
  var innerPlans: [SignalPlan] { get }
}

extension ParameterValue {
  public var defaultText: String? { nil }
  public mutating func bind(_ binder: inout Binder, _ use: ExpressionUse) {}
  public var innerPlans: [SignalPlan] { [] }
}

/// A format of a plugin that `decode` or `encode` can name.
package protocol OfferedFormat: AnyObject, Sendable {
  /// A decoder or an encoder.
  var kind: ComponentKind { get }
  var name: String { get }
  /// The format that decodes or encodes.
  var format: PluginFormat { get }
  /// The format with the parameters of a file; nil: with the defaults. Reports errors.
  func with(_ node: YAMLNode?, _ context: inout DecodingContext) -> any OfferedFormat
}

/// The context in which a YAML node is decoded.
public struct DecodingContext {
  package var diagnostics = Diagnostics()
  /// The component, for messages.
  package var component = ""
  package var parameter = ""
  package var location: SourceLocation
  package internal(set) var range: ClosedRange<Int64>?
  /// The names of the sources: an inline signal may start with one.
  var sources: Set<String> = []
  /// The parameters next to the component key.
  var beside: [OptionNode] = []
  /// Checks files that parameters name.
  var files = FileProbe.none
  /// The decoders and encoders of plugins.
  var codecs: [any OfferedFormat] = []
  /// The codecs that the parameters name, each occurrence with its own parameters.
  var usedCodecs: [any OfferedFormat] = []
  /// The parameters' values in the file, by path: `retry.delay`.
  private var nodes: [String: YAMLNode] = [:]
  private var path = ""

  package init(at location: SourceLocation) { self.location = location }

  /// The location of a parameter's value, by its path, such as `retry.delay`; the component's location if the file does
  /// not give the parameter.
  public func location(of path: String) -> SourceLocation { nodes[path]?.location ?? location }

  /// The value of a parameter in the file, by its path; nil: the file does not give it.
  func node(of path: String) -> YAMLNode? { nodes[path] }

  /// Decodes the value of a parameter, or of a field of one, at `node`.
  mutating func enter(_ name: String, at node: YAMLNode, _ body: (inout DecodingContext) -> Void) {
    let outer = path
    path = outer.isEmpty ? name : "\(outer).\(name)"
    nodes[path] = node
    body(&self)
    path = outer
  }

  /// Decodes the value of a parameter, unless it contains a secret that it must not contain. Contains the code that is
  /// the same for all types, so that it is compiled once.
  mutating func parameter(
    _ name: String, at node: YAMLNode, _ range: ClosedRange<Int64>?, shape: (ClosedRange<Int64>?) -> ParameterShape,
    _ body: (inout DecodingContext) -> Void
  ) {
    self.range = range
    parameter = name
    if refusesSecret(in: node, shape(range)) { return }
    enter(name, at: node, body)
    self.range = nil
  }

  /// Decodes the value of a field of a record likewise.
  mutating func field(
    _ name: String, at node: YAMLNode, _ range: ClosedRange<Int64>?, shape: (ClosedRange<Int64>?) -> ParameterShape,
    _ body: (inout DecodingContext) -> Void
  ) {
    let outer = (self.range, parameter)
    self.range = range
    parameter = name
    enter(name, at: node) { context in
      if !context.refusesSecret(in: node, shape(range)) { body(&context) }
    }
    (self.range, parameter) = outer
  }

  /// The text of a choice; nil if the node is not a text, which is reported.
  mutating func word(_ node: YAMLNode, among known: [String]) -> String? {
    if let text = node.string, node.scalar?.kind != .null || known.contains(text) { return text }
    wrongType(node, wanted: "one of " + known.joined(separator: ", "))
    return nil
  }

  /// Reports a word that a choice does not have.
  mutating func unknownWord(_ text: String, at node: YAMLNode, among known: [String]) {
    let near = Suggestion.nearest(to: text, among: known)
    diagnostics.report(
      Diagnostic(
        .unknownChoice, "'\(parameter)' of '\(component)' cannot be '\(node.shown)'", at: node.location,
        help: near.map { "Did you mean '\($0)'? It can be: " + known.joined(separator: ", ") }
          ?? "It can be: " + known.joined(separator: ", "),
        fixIts: near.map { [.init(node.location, $0)] } ?? []))
  }

  /// Decodes the fields of a record, each identified by its index in `fields`; returns false if `node` cannot be a
  /// record.
  mutating func record(
    _ node: YAMLNode, _ fields: [ParameterInfo], _ decode: (Int, YAMLNode, inout DecodingContext) -> Void
  ) -> Bool {
    guard let entries = node.entries else {
      guard let primary = fields.firstIndex(where: \.isPrimary) else {
        wrongType(node, wanted: "a mapping")
        return false
      }
      decode(primary, node, &self)
      return true
    }
    for entry in entries {
      guard let index = fields.firstIndex(where: { $0.name == entry.name }) else {
        unknownParameter(entry, "'\(parameter)' of '\(component)'", among: fields.map(\.name))
        continue
      }
      decode(index, entry.value, &self)
    }
    for field in fields where field.isRequired && node[field.name] == nil {
      diagnostics.report(
        Diagnostic(
          .missingParameter, "'\(parameter)' of '\(component)' needs '\(field.name)'", at: node.location,
          help: field.help))
    }
    return true
  }

  /// Warns that the file of the parameter at `path` cannot be read on this machine.
  package mutating func warn(ofUnreadable file: String, _ what: String, at path: String) {
    guard let problem = files.problem(file) else { return }
    diagnostics.report(
      Diagnostic(
        .unreadableParameterFile, "\(what) '\(Printable.cut(Array(file.utf8)))' cannot be read: \(problem)",
        at: location(of: path),
        help: "A relative path is resolved against the directory in which rxd is started"))
  }

  package mutating func wrongType(_ node: YAMLNode, wanted: String, help: String? = nil) {
    diagnostics.report(
      Diagnostic(
        .wrongType, "'\(parameter)' of '\(component)' must be \(wanted), not \(node.kindName)",
        at: node.location, help: help))
  }

  /// Reports that the value of `node` is of the right type and yet cannot be used.
  public mutating func badValue(
    at location: SourceLocation, _ message: String, _ code: Diagnostic.Code = .outOfRange,
    help: String? = nil
  ) {
    diagnostics.report(Diagnostic(code, message, at: location, help: help))
  }

  /// Reports a value that cannot be used, at its location.
  public mutating func badValue(
    _ node: YAMLNode, _ message: String, _ code: Diagnostic.Code = .outOfRange, help: String? = nil
  ) {
    diagnostics.report(Diagnostic(code, message, at: node.location, help: help))
  }
}

extension DecodingContext {
  /// Warns of a renamed key.
  mutating func renamed(_ entry: YAMLEntry, to name: String) {
    diagnostics.report(.renamed(entry.key, to: name, of: "'\(component)'"))
  }

  /// Reports a key that `what` does not have, with a suggestion.
  package mutating func unknownParameter(_ entry: YAMLEntry, _ what: String, among names: [String]) {
    if let problem = entry.missingSpace(among: names) {
      diagnostics.report(problem)
      return
    }
    let correction = names.isEmpty ? nil : Suggestion.correction(for: entry.name, among: names)
    diagnostics.report(
      Diagnostic(
        .unknownParameter, "\(what) has no parameter '\(Printable.cut(entry.name))'", at: entry.key.location,
        help: correction?.help
          ?? (names.isEmpty ? "It takes none" : "It has: " + names.joined(separator: ", ")),
        fixIts: correction.map { [.init(entry.key.location, $0.name)] } ?? []))
  }

  /// Reports a secret in a value of a shape that must not contain one; returns whether there is one.
  mutating func refusesSecret(in node: YAMLNode, _ shape: ParameterShape) -> Bool {
    guard let found = shape.misplacedSecret(in: node) else { return false }
    diagnostics.report(
      Diagnostic(
        .misplacedSecret, "'\(parameter)' of '\(component)' must not contain a secret", at: found.location,
        help: "It would be printed in messages and drawings; read it from the environment: ${NAME}"))
    return true
  }

  /// Reports an error unless exactly one of two parameters is given.
  package mutating func requireOne(_ first: String, _ hasFirst: Bool, or second: String, _ hasSecond: Bool) {
    guard hasFirst == hasSecond else { return }
    diagnostics.report(
      Diagnostic(
        .conflictingParameters,
        hasFirst
          ? "'\(component)' has both '\(first)' and '\(second)'"
          : "'\(component)' needs '\(first)' or '\(second)'", at: location,
        help: "Write '\(component): { \(first): ... }' or '\(component): { \(second): ... }'"))
  }
}

extension Bool: ParameterValue {
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .bool }
  public var defaultText: String? { self ? "true" : "false" }
  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Bool? {
    if let value = node.bool { return value }
    if node.scalar?.isPlaceholder == true { return false }
    if case .failure(let problem) = node.decodeBool("'\(context.parameter)' of '\(context.component)'") {
      context.diagnostics.report(problem)
    }
    return nil
  }
}

extension Int: ParameterValue {
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .int(range) }
  public var defaultText: String? { String(self) }
  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Int? {
    if node.scalar?.isPlaceholder == true { return Int(context.range?.lowerBound ?? 1) }
    guard let value = node.int else {
      // A number in quotes is a text.
      let meant = node.scalar.flatMap { YAMLCoreSchema.int($0.text.text) }
      context.diagnostics.report(
        Diagnostic(
          .wrongType, "'\(context.parameter)' of '\(context.component)' must be a whole number, not \(node.kindName)",
          at: node.location,
          help: meant.map { node.withoutQuotes("\($0)") }
            ?? "Write digits, such as '\(context.parameter): \(Swift.max(context.range?.lowerBound ?? 1, 1))'",
          fixIts: meant.map { [.init(node.location, "\($0)")] } ?? []))
      return nil
    }
    if let range = context.range, !range.contains(value) {
      let wanted =
        range.upperBound == .max
        ? "at least \(range.lowerBound)" : "between \(range.lowerBound) and \(range.upperBound)"
      context.badValue(node, "'\(context.parameter)' of '\(context.component)' is \(value), but must be \(wanted)")
      return nil
    }
    return Int(value)
  }
}

extension Double: ParameterValue {
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .number }
  public var defaultText: String? {
    self == rounded() && magnitude < 1e15 ? String(Int64(self)) : description
  }
  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Double? {
    if node.scalar?.isPlaceholder == true { return Double(context.range?.lowerBound ?? 1) }
    guard let value = node.double, value.isFinite else {
      context.wrongType(node, wanted: "a number")
      return nil
    }
    if let range = context.range,
      value < Double(range.lowerBound) || value > Double(range.upperBound)
    {
      context.badValue(
        node,
        "'\(context.parameter)' of '\(context.component)' is \(node.shown), but must be between \(range.lowerBound) and \(range.upperBound)"
      )
      return nil
    }
    return value
  }
}

extension String: ParameterValue {
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .text }
  public var defaultText: String? { isEmpty ? nil : self }
  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> String? {
    guard let scalar = node.scalar, scalar.kind != .null else {
      context.wrongType(node, wanted: "a text")
      return nil
    }
    return scalar.string
  }
}

extension Secret: ParameterValue {
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .secret }
  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Secret? {
    String.decode(node, &context).map(Secret.init)
  }
}

extension TimeSpan: ParameterValue {
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .duration }
  public var defaultText: String? { description }
  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> TimeSpan? {
    guard let scalar = node.scalar, scalar.kind != .null else {
      context.wrongType(node, wanted: "a duration such as 300ms or 1h30m")
      return nil
    }
    if scalar.isPlaceholder { return .seconds(1) }
    switch Units.duration(scalar.text) {
    case .success(let span):
      let low = context.range?.lowerBound ?? 0
      if span.nanoseconds < low {
        context.badValue(
          node,
          "'\(context.parameter)' of '\(context.component)' is \(scalar.shown), but must be at least \(TimeSpan(nanoseconds: low))"
        )
        return nil
      }
      return span
    case .failure(let diagnostic):
      context.diagnostics.report(diagnostic)
      return nil
    }
  }
}

/// A number of bytes: `64KiB`, `10MB`.
public struct ByteSize: ParameterValue, Equatable {
  /// The number of bytes.
  public var bytes: Int
  /// A size of `bytes`.
  public init(_ bytes: Int) { self.bytes = bytes }
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .size }
  public var defaultText: String? {
    for (unit, size) in [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]
    where bytes >= size && bytes % size == 0 {
      return "\(bytes / size)\(unit)"
    }
    return "\(bytes)B"
  }
  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> ByteSize? {
    guard let scalar = node.scalar, scalar.kind != .null else {
      context.wrongType(node, wanted: "a size such as 64KiB")
      return nil
    }
    if scalar.isPlaceholder { return ByteSize(1 << 16) }
    switch Units.size(scalar.text) {
    case .success(let bytes): return ByteSize(Int(bytes))
    case .failure(let diagnostic):
      context.diagnostics.report(diagnostic)
      return nil
    }
  }
}

extension Optional: ParameterValue where Wrapped: ParameterValue {
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { Wrapped.shape(range: range) }
  public var defaultText: String? { flatMap(\.defaultText) }
  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Wrapped?? {
    Wrapped.decode(node, &context).map { .some($0) }
  }
  public mutating func bind(_ binder: inout Binder, _ use: ExpressionUse) {
    if var value = self {
      value.bind(&binder, use)
      self = value
    }
  }
  public var innerPlans: [SignalPlan] { self?.innerPlans ?? [] }
}

extension Array: ParameterValue where Element: ParameterValue {
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape {
    .list(Element.shape(range: range))
  }
  public var defaultText: String? {
    isEmpty ? nil : "[" + compactMap(\.defaultText).joined(separator: ", ") + "]"
  }
  /// A single value counts as a list with one element.
  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> [Element]? {
    guard let items = node.items else {
      return Element.decode(node, &context).map { [$0] }
    }
    return items.compactMap { Element.decode($0, &context) }
  }
  public mutating func bind(_ binder: inout Binder, _ use: ExpressionUse) {
    for index in indices { self[index].bind(&binder, use) }
  }
  public var innerPlans: [SignalPlan] { flatMap(\.innerPlans) }
}

/// Names with values, in the order of the file.
package struct Table<Element: ParameterValue>: ParameterValue {
  /// `location`: the location of the name.
  package var entries: [(name: String, value: Element, location: SourceLocation)] = []
  package init() {}
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape {
    .table(Element.shape(range: range))
  }
  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Table? {
    guard let entries = node.entries else {
      context.wrongType(node, wanted: "a mapping")
      return nil
    }
    var table = Table()
    for entry in entries {
      if let value = Element.decode(entry.value, &context) {
        table.entries.append((entry.name, value, entry.key.location))
      }
    }
    return table
  }
  public mutating func bind(_ binder: inout Binder, _ use: ExpressionUse) {
    for index in entries.indices { entries[index].value.bind(&binder, use) }
  }
  public var innerPlans: [SignalPlan] { entries.flatMap(\.value.innerPlans) }
}

/// An enum whose cases are the words of the file.
public protocol ChoiceParameter: ParameterValue, CaseIterable, RawRepresentable where RawValue == String {
  /// The meaning of the word, a phrase.
  var help: String { get }
}

extension ChoiceParameter {
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape {
    .choice(allCases.map { .init($0.rawValue, $0.help) })
  }
  public var defaultText: String? { rawValue }
  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Self? {
    let known = allCases.map(\.rawValue)
    guard let text = context.word(node, among: known) else { return nil }
    if let value = Self(rawValue: text) { return value }
    if node.scalar?.isPlaceholder == true { return allCases.first }
    context.unknownWord(text, at: node, among: known)
    return nil
  }
}

/// A mapping with its own parameters: `auth: { basic: {...} }`.
public protocol RecordParameter: ParameterValue {
  /// The defaults.
  init()
  /// Its fields, in the order of the reference.
  static var fields: [RecordField<Self>] { get }
  /// Checks fields against each other, and how they are written; `node` is the mapping.
  func validate(_ node: YAMLNode, _ context: inout DecodingContext)
}

extension RecordParameter {
  public func validate(_ node: YAMLNode, _ context: inout DecodingContext) {}
}

/// A field of a record parameter.
public struct RecordField<R: RecordParameter>: Sendable {
  package var info: ParameterInfo
  let decode: @Sendable (YAMLNode, inout R, inout DecodingContext) -> Void
  let bind: @Sendable (inout R, inout Binder, ExpressionUse) -> Void
  /// The signals and chains in the field's value; nil: it can have none.
  let inner: (@Sendable (R) -> [SignalPlan])?

  /// A field, as ``Parameter`` describes a parameter of a component.
  public init<Value: ParameterValue>(
    _ name: String, _ path: WritableKeyPath<R, Value> & Sendable, primary: Bool = false,
    required: Bool = false, range: ClosedRange<Int64>? = nil, expecting: ExpressionType? = nil,
    applies: Applicability? = nil, _ help: String
  ) {
    let initial = R()[keyPath: path]
    info = ParameterInfo(
      name: name, help: help, isPrimary: primary, isRequired: required, isWhole: false,
      shape: Value.shape(range: range), defaultText: required ? nil : initial.defaultText, range: range,
      variables: [], applies: applies)
    decode = { node, record, context in
      context.field(name, at: node, range, shape: Value.shape) { context in
        if let value = Value.decode(node, &context) { record[keyPath: path] = value }
      }
    }
    bind = { record, binder, use in
      var use = use
      if let expecting { use.expecting = expecting }
      record[keyPath: path].bind(&binder, use)
    }
    let plans: @Sendable (R) -> [SignalPlan] = { $0[keyPath: path].innerPlans }
    inner = info.shape.holdsSignals ? plans : nil
  }
}

extension RecordParameter {
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape {
    let record = ParameterShape.record(fields.map(\.info))
    guard let primary = fields.first(where: \.info.isPrimary) else { return record }
    return .oneOf([primary.info.shape, record])
  }

  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Self? {
    var record = Self()
    let fields = Self.fields
    let isRecord = context.record(node, fields.map(\.info)) { index, node, context in
      fields[index].decode(node, &record, &context)
    }
    guard isRecord else { return nil }
    if node.entries != nil { record.validate(node, &context) }
    return record
  }

  public mutating func bind(_ binder: inout Binder, _ use: ExpressionUse) {
    for field in Self.fields { field.bind(&self, &binder, use) }
  }

  public var innerPlans: [SignalPlan] { Self.fields.flatMap { $0.inner?(self) ?? [] } }
}
