extension ExpressionType {
  /// The common type of values of these types.
  static func either(_ types: [ExpressionType]) -> ExpressionType {
    let mayBeNull = types.contains(.null) || types.contains { $0 != $0.unwrapped }
    let others = types.filter { $0 != .null }.map(\.unwrapped)
    guard let first = others.first else { return types.isEmpty ? .dyn : .null }
    var joined = first
    for other in others.dropFirst() where other != joined {
      guard case .object(let fields, let open) = joined, case .object(let more, let moreOpen) = other else {
        return .dyn
      }
      joined = .object(fields: either(fields, more, open || moreOpen), open: open || moreOpen)
    }
    return mayBeNull ? joined.orNull : joined
  }

  private static func either(_ a: [Field], _ b: [Field], _ isOpen: Bool) -> [Field] {
    var fields: [Field] = []
    for field in a {
      var field = field
      if let other = b.first(where: { $0.name == field.name }) {
        field.mayBeAbsent = field.mayBeAbsent || other.mayBeAbsent
        if field.type != other.type || field.isDeclared != other.isDeclared {
          // A declared type converts what is read; a value that an expression made is not converted.
          field.type = field.isDeclared == other.isDeclared ? either([field.type, other.type]) : .dyn
          field.isDeclared = field.isDeclared && other.isDeclared
        }
        if field.choices != other.choices { field.choices = [] }
      } else {
        field.mayBeAbsent = true
        if isOpen { field.type = .dyn }
      }
      fields.append(field)
    }
    for field in b where !a.contains(where: { $0.name == field.name }) {
      var field = field
      field.mayBeAbsent = true
      if isOpen { field.type = .dyn }
      fields.append(field)
    }
    return fields
  }
}
