/// The type parameters that are known so far in the check of one expression.
struct TypeInference {
  /// The type of each parameter.
  var bound: [String: ExpressionType] = [:]
  private var fresh = 0

  /// A new type parameter.
  mutating func parameter() -> ExpressionType {
    fresh += 1
    return .param("_\(fresh)")
  }

  /// The types with each of their parameters replaced by a fresh one; equal names share one.
  mutating func instantiate(_ types: [ExpressionType]) -> [ExpressionType] {
    guard types.contains(where: Self.hasParameter) else { return types }
    var names: [String: ExpressionType] = [:]
    return types.map { rename($0, &names) }
  }

  private static func hasParameter(_ type: ExpressionType) -> Bool {
    switch type {
    case .param: return true
    case .list(let a), .type(let a), .optional(let a), .wrapper(let a): return hasParameter(a)
    case .map(let a, let b): return hasParameter(a) || hasParameter(b)
    case .abstract(_, let all): return all.contains(where: hasParameter)
    default: return false
    }
  }

  private mutating func rename(
    _ type: ExpressionType, _ names: inout [String: ExpressionType]
  ) -> ExpressionType {
    switch type {
    case .param(let name):
      if let known = names[name] { return known }
      let new = parameter()
      names[name] = new
      return new
    case .list(let a): return .list(rename(a, &names))
    case .type(let a): return .type(rename(a, &names))
    case .optional(let a): return .optional(rename(a, &names))
    case .wrapper(let a): return .wrapper(rename(a, &names))
    case .map(let a, let b): return .map(rename(a, &names), rename(b, &names))
    case .abstract(let name, let all): return .abstract(name, all.map { rename($0, &names) })
    default: return type
    }
  }

  /// The type with known parameters inserted; `final` replaces unknown parameters by dyn.
  func resolve(_ type: ExpressionType, final: Bool = false) -> ExpressionType {
    switch type {
    case .param(let name):
      if let known = bound[name] { return resolve(known, final: final) }
      return final ? .dyn : type
    case .list(let a): return .list(resolve(a, final: final))
    case .type(let a): return .type(resolve(a, final: final))
    case .optional(let a): return .optional(resolve(a, final: final))
    case .wrapper(let a): return .wrapper(resolve(a, final: final))
    case .map(let a, let b): return .map(resolve(a, final: final), resolve(b, final: final))
    case .abstract(let name, let all):
      return .abstract(name, all.map { resolve($0, final: final) })
    case .object(let fields, let open):
      return .object(
        fields: fields.map {
          var field = $0
          field.type = resolve(field.type, final: final)
          return field
        }, open: open)
    default: return type
    }
  }

  /// Whether a value of type `a` is accepted as `b`; parameters are bound only if it is.
  mutating func isAssignable(_ a: ExpressionType, _ b: ExpressionType) -> Bool {
    isAssignable([a], [b])
  }

  mutating func isAssignable(_ a: [ExpressionType], _ b: [ExpressionType]) -> Bool {
    guard a.count == b.count else { return false }
    let before = bound
    for (left, right) in zip(a, b) where !fits(left, right) {
      bound = before
      return false
    }
    return true
  }

  private mutating func fits(_ a: ExpressionType, _ b: ExpressionType) -> Bool {
    if case .param(let name) = b {
      let (valid, known) = bind(name, to: a)
      if valid { return true }
      if known { return false }
    }
    if case .param(let name) = a { return bind(name, to: b).valid }
    if a == .dyn || b == .dyn { return true }
    if a == .null { return Self.isNullable(b) }
    if b == .null { return Self.isNullable(a) }
    switch (a, b) {
    case (.wrapper(let left), .wrapper(let right)): return fits(left, right)
    case (.wrapper(let left), _): return fits(left, b)
    case (_, .wrapper(let right)): return fits(a, right)
    case (.list(let left), .list(let right)): return fits(left, right)
    case (.optional(let left), .optional(let right)): return fits(left, right)
    case (.map(let key, let value), .map(let otherKey, let otherValue)):
      return fits(key, otherKey) && fits(value, otherValue)
    case (.object(let fields, _), .map(let key, let value)),
      (.map(let key, let value), .object(let fields, _)):
      guard fits(.string, key) else { return false }
      // A map of fields with several types has dyn values.
      let common = fields.first?.type ?? .dyn
      return fits(fields.allSatisfy { $0.type == common } ? common : .dyn, value)
    case (.object(let fields, _), .object(let others, _)):
      for field in fields {
        guard let other = others.first(where: { $0.name == field.name }) else { continue }
        if !fits(field.type, other.type) { return false }
      }
      return true
    case (.type, .type): return true
    case (.abstract(let name, let left), .abstract(let other, let right)):
      guard name == other, left.count == right.count else { return false }
      for (one, two) in zip(left, right) where !fits(one, two) { return false }
      return true
    default: return a == b
    }
  }

  private static func isNullable(_ type: ExpressionType) -> Bool {
    switch type {
    case .null, .wrapper, .optional, .abstract, .timestamp, .duration, .dyn: return true
    default: return false
    }
  }

  /// Whether `type` can be the parameter's type, and whether the parameter was known before.
  private mutating func bind(
    _ name: String, to type: ExpressionType
  ) -> (valid: Bool, known: Bool) {
    if case .param(name) = type { return (true, true) }
    if let known = bound[name] {
      if known == type { return (true, true) }
      guard fits(type, known) else { return (false, true) }
      let general = Self.mostGeneral(type, bound[name] ?? known)
      if !mentions(name, general) { bound[name] = general }
      return (true, true)
    }
    guard !mentions(name, type) else { return (false, false) }
    bound[name] = type
    return (true, false)
  }

  private func mentions(_ name: String, _ type: ExpressionType) -> Bool {
    switch type {
    case .param(let other):
      if other == name { return true }
      return bound[other].map { mentions(name, $0) } ?? false
    case .list(let a), .type(let a), .optional(let a), .wrapper(let a): return mentions(name, a)
    case .map(let a, let b): return mentions(name, a) || mentions(name, b)
    case .abstract(_, let all): return all.contains { mentions(name, $0) }
    default: return false
    }
  }

  /// The more general of two compatible types.
  static func mostGeneral(_ a: ExpressionType, _ b: ExpressionType) -> ExpressionType {
    if b == .null { return a }
    if a == .null { return b }
    // All that two different object types share is text keys.
    if case .object = a, case .object = b, a != b { return .map(.string, .dyn) }
    return isEqualOrLessSpecific(a, b) ? a : b
  }

  private static func isEqualOrLessSpecific(_ a: ExpressionType, _ b: ExpressionType) -> Bool {
    if a == .dyn || a.isParam { return true }
    if b == .dyn || b.isParam { return false }
    switch (a, b) {
    case (.list(let left), .list(let right)): return isEqualOrLessSpecific(left, right)
    case (.optional(let left), .optional(let right)): return isEqualOrLessSpecific(left, right)
    case (.wrapper(let left), .wrapper(let right)): return isEqualOrLessSpecific(left, right)
    case (.wrapper(let left), _): return isEqualOrLessSpecific(left, b)
    case (.map(let key, let value), .map(let otherKey, let otherValue)):
      return isEqualOrLessSpecific(key, otherKey) && isEqualOrLessSpecific(value, otherValue)
    case (.map, .object): return true
    case (.type, .type): return true
    case (.abstract(let name, let left), .abstract(let other, let right)):
      return name == other && left.count == right.count
        && zip(left, right).allSatisfy { isEqualOrLessSpecific($0, $1) }
    default: return a == b
    }
  }

  /// The element type of a list or map whose elements have these types; dyn if they are incompatible.
  mutating func join(_ a: ExpressionType?, _ b: ExpressionType) -> ExpressionType {
    guard let a else { return b }
    if isAssignable(a, b) { return resolve(Self.mostGeneral(a, b)) }
    return .dyn
  }
}
