/// Fields, parts and elements.
extension Checker {
  // MARK: Selection

  mutating func select(
    _ id: SyntaxTree.ID, _ operand: ExpressionType, _ field: String, _ at: Int32, optional: Bool,
    tests: Bool = false
  ) -> ExpressionType {
    var target = inference.resolve(operand)
    var wraps = optional
    if case .optional(let inner) = target {
      target = inner
      wraps = true
    }
    let result: ExpressionType
    switch target {
    case .map(let key, let value):
      if !fits(.string, key) {
        report(
          .expressionUnknownField, "this map has keys of type \(key), so no field '\(field)'", at,
          tree[id].end, help: "Use [...] with a key of that type.")
      }
      result = value
    case .object(let fields, let open):
      if let known = fields.first(where: { $0.name == field }) {
        result = known.type
      } else {
        result = .dyn
        // The presence of any field may be tested.
        if !open, !tests, !optional {
          let near = NearestName.of(field, among: fields.map(\.name))
          report(
            .expressionUnknownField, "there is no field '\(field)'", at,
            at + Int32(field.utf8.count),
            help: near.map { "Did you mean '\($0)'?" }
              ?? (fields.isEmpty ? nil : "Fields: \(fields.map(\.name).joined(separator: ", "))."),
            fix: near)
        }
      }
    case .dyn:
      result = .dyn
      // The presence of any field may be tested.
      if !optional, !tests { refuseField(ofText: id) }
    case .param:
      _ = inference.isAssignable(.dyn, target)
      result = .dyn
    case .wrapper(let inner) where inner == .dyn:
      result = .dyn
    case .wrapper(let inner) where inner.hasFields:
      let type = select(id, inner, field, at, optional: false)
      return wraps && !tests ? .optional(type) : type
    case .list where parts(of: id) != nil:
      result = .dyn
      refusePart(field, at, of: id, tests: tests || optional)
    default:
      result = .dyn
      report(
        .expressionUnknownField, "\(target.withArticle) has no fields", at, at + Int32(field.utf8.count),
        help: FunctionRegistry.function(named: field) != nil
          ? "'\(field)' is a method: write .\(field)()." : nil)
    }
    return wraps && !tests ? .optional(result) : result
  }

  /// The variable and form of the event, if the operand of a selection or an index is that variable itself.
  private func event(of id: SyntaxTree.ID) -> (name: String, form: ExpressionScope.EventForm)? {
    let operand: SyntaxTree.ID
    switch tree[id].kind {
    case .select(let target, _, _, _), .has(let target, _, _, _), .index(let target, _, _): operand = target
    default: return nil
    }
    guard case .identifier(let name, _) = tree[operand].kind, !visibleLocals.contains(where: { $0.name == name }) else {
      return nil
    }
    switch name {
    case "event": return (name, scope.event)
    case "outer": return (name, scope.outer)
    default: return nil
    }
  }

  /// The names of the parts of a `combineLatest` or `zip` event, if `id` is that event.
  private func parts(of id: SyntaxTree.ID) -> [String]? {
    guard case .parts(let names)? = event(of: id)?.form else { return nil }
    return names
  }

  /// Reports `event.field` if the source reads texts: its events have no fields, whatever the input.
  private mutating func refuseField(ofText id: SyntaxTree.ID) {
    guard scope.checksTypes, let event = event(of: id), case .text(let origin) = event.form else { return }
    diagnostics.append(
      Diagnostic(
        .expressionUnknownField,
        event.name == "event"
          ? "the event is a text here, which has no fields" : "'\(event.name)' is a text here, which has no fields",
        at: text.location(Int(tree[id].start), Int(tree[id].end)),
        notes: origin.location.map { [.init("the source reads texts", at: $0)] } ?? [],
        help: "Give the source 'decode: json' if its input is JSON; parts of a text come from functions such as grok()",
        fixIts: origin.remedies))
  }

  /// Reports `event.field` of a `combineLatest` or `zip` list. Its parts have names in `reduce` only.
  ///
  /// `tests`: whether only the presence of the field is tested.
  private mutating func refusePart(_ field: String, _ at: Int32, of id: SyntaxTree.ID, tests: Bool) {
    guard let event = event(of: id), case .parts(let names) = event.form else { return }
    let end = at + Int32(field.utf8.count)
    let subject = event.name == "event" ? "the event" : "'\(event.name)'"
    let message = "\(subject) is a list of \(Printable.count(names.count, "part")) here, which has no fields"
    if event.name == "event", scope.index(of: field) != nil, names.contains(field) {
      report(
        .expressionUnknownField, message, tree[id].start, tree[id].end,
        help: "In 'reduce' its parts are variables: write '\(field)'.",
        fix: tests ? nil : Fix(start: tree[id].start, end: end, text: field))
      return
    }
    let number = names.firstIndex(of: field)
    report(
      .expressionUnknownField, message, tree[id].start, tree[id].end, help: Self.partsHelp(event.name, names, number),
      fix: tests ? nil : number.map { Fix(start: tree[id].start, end: end, text: "\(event.name)[\($0)]") })
  }

  /// Help on reading the parts of a `combineLatest` or `zip` list; `number`: the part that was probably meant.
  static func partsHelp(_ event: String, _ names: [String], _ number: Int?) -> String {
    guard !names.contains(where: { $0.utf8.first == UInt8(ascii: "@") }) else {
      return number.map { "Write \(event)[\($0)]." } ?? "The first part is \(event)[0]."
    }
    let step = "'reduce: { \(names.map { "\($0): \($0)" }.joined(separator: ", ")) }'"
    let first = number.map { "Write \(event)[\($0)], or put" } ?? "Put"
    return "\(first) \(step) before this step, which makes fields of the parts."
  }

  mutating func index(
    _ id: SyntaxTree.ID, _ operand: SyntaxTree.ID, _ key: SyntaxTree.ID, optional: Bool
  ) -> ExpressionType {
    if let table = table(operand) { return row(id, of: table, key) }
    var target = check(operand)
    let keyType = check(key)
    var wraps = optional
    if case .optional(let inner) = target {
      target = inference.resolve(inner)
      wraps = true
    }
    adviseNegativeIndex(operand, key, target)
    if !optional, target == .dyn, case .literal(.string) = tree[key].kind { refuseField(ofText: id) }
    let result: ExpressionType
    switch target {
    case .dyn, .param, .wrapper(.dyn): result = .dyn
    case .wrapper(let inner) where inner.hasFields: return indexed(id, inner, key, keyType, wraps)
    default: return indexed(id, target, key, keyType, wraps)
    }
    return wraps ? .optional(result) : result
  }

  /// `items[-1]`: other languages count from the end.
  private mutating func adviseNegativeIndex(_ operand: SyntaxTree.ID, _ key: SyntaxTree.ID, _ type: ExpressionType) {
    guard !isStrict, case .literal(.int(let index)) = tree[key].kind, index < 0 else { return }
    switch type {
    case .dyn, .list, .wrapper: break
    default: return
    }
    report(
      .expressionFormat, "indexes begin at 0, so there is no element \(index)", at: key,
      help: index == -1
        ? "The last element is .last(), an optional, or the one with the index size - 1."
        : "Count from the end with size().",
      fix: Fix(start: tree[key].start, end: tree[key].end, text: "size(\(written(operand))) - \(index.magnitude)"))
  }

  private mutating func indexed(
    _ id: SyntaxTree.ID, _ target: ExpressionType, _ key: SyntaxTree.ID, _ keyType: ExpressionType, _ wraps: Bool
  ) -> ExpressionType {
    let result: ExpressionType
    switch target {
    case .list(let element):
      result = element
      if !fits(keyType, .int) {
        report(.expressionNoOverload, "a list is indexed with an int, not \(keyType.withArticle)", at: key)
      }
    case .map(let expected, let value):
      result = value
      if !fits(keyType, expected) {
        report(
          .expressionNoOverload, "this map has keys of type \(expected), not \(keyType)", at: key)
      }
    case .object(let fields, _):
      if case .literal(.string(let bytes)) = tree[key].kind {
        let name = String(decoding: bytes, as: UTF8.self)
        result = select(id, .object(fields: fields, open: true), name, tree[key].start, optional: false)
      } else {
        result = .dyn
      }
    default:
      result = .dyn
      report(
        .expressionNoOverload, "\(target.withArticle) cannot be indexed", at: id,
        help: target == .string ? "Use charAt(i) or substring(i, j)." : nil)
    }
    return wraps ? .optional(result) : result
  }
}
