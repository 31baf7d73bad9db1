// How steps change the types of events.

extension ExpressionType {
  /// The type of an object after the field at `path` has been set to `type`; missing objects on the path are created.
  func setting(_ path: ArraySlice<String>, _ type: ExpressionType) -> ExpressionType {
    guard let name = path.first else { return type }
    var fields: [Field] = []
    var isOpen = true
    if case .object(let known, let open) = unwrapped { (fields, isOpen) = (known, open) }
    let rest = path.dropFirst()
    let at = fields.firstIndex { $0.name == name }
    let old = at.map { fields[$0].type } ?? (isOpen ? .dyn : .object(fields: [], open: false))
    var field = Field(name, .dyn)
    if !rest.isEmpty {
      field.type = old.setting(rest, type)
    } else if case .optional(let inner) = type {
      // If the new value may be absent, the field keeps its old one.
      field.type = at == nil || old == inner ? inner : .dyn
      field.mayBeAbsent = at.map { fields[$0].mayBeAbsent } ?? true
    } else {
      field.type = type
    }
    if let at { fields[at] = field } else { fields.append(field) }
    return .object(fields: fields, open: isOpen)
  }

  /// The type after the field at `path` has been removed.
  func removing(_ path: ArraySlice<String>) -> ExpressionType {
    guard let name = path.first, case .object(var fields, let open) = unwrapped,
      let at = fields.firstIndex(where: { $0.name == name })
    else { return self }
    let rest = path.dropFirst()
    if rest.isEmpty {
      fields.remove(at: at)
    } else {
      fields[at].type = fields[at].type.removing(rest)
    }
    let changed = ExpressionType.object(fields: fields, open: open)
    return self == unwrapped ? changed : .wrapper(changed)
  }

  /// The type of a value that is written in the pipeline file.
  package static func of(_ value: Value) -> ExpressionType {
    switch value.what {
    case .null: return .null
    case .bool: return .bool
    case .int: return .int
    case .uint: return .uint
    case .double: return .double
    case .string: return .string
    case .bytes: return .bytes
    case .timestamp: return .timestamp
    case .duration: return .duration
    case .list: return .list(value.elements.isEmpty ? .dyn : either(value.elements.map(of)))
    case .map:
      var fields: [Field] = []
      for entry in value.entries {
        guard entry.key.is(.string) else { return .map(.dyn, .dyn) }
        fields.append(Field(String(decoding: entry.key.rawBytes, as: UTF8.self), of(entry.value)))
      }
      return .object(fields: fields, open: false)
    default: return .dyn
    }
  }
}

extension DecoderOptions {
  /// The type that the options guarantee for every event, with the field names if the options list them. `dyn` if the
  /// fields depend on the input.
  package var eventType: EventType {
    if let plugin { return EventType(plugin.output) }
    switch format {
    case .csv:
      let field: ExpressionType = csv.types == .string ? csv.emptyIsNull == true ? .string.orNull : .string : .dyn
      guard case .names(let names) = csv.header, Set(names).count == names.count else {
        return EventType(field == .dyn ? .dyn : .map(.string, field))
      }
      return EventType(.object(fields: names.map { .init($0, field) }, open: false))
    case .regex:
      guard let fields = regexFields else { return .dyn }
      return EventType(.object(fields: fields, open: false))
    case .text, .lines, .whole, .bytes: return .text
    default: return format.fields.map { EventType(.object(fields: $0, open: false)) } ?? .dyn
    }
  }

  private var regexFields: [ExpressionType.Field]? {
    if regex.pattern == RegexDecoding.combined {
      return CombinedLogDecoder.fields(regex.types).map { name, type in
        // `-` becomes null in every field, and only some lines have fields after the agent.
        .init(name, type.expressionType.orNull, mayBeAbsent: name == "extra")
      }
    }
    guard let pattern = try? RegexDecoder(self) else { return nil }
    return pattern.fields.map { .init($0.name, $0.type.expressionType.orNull) }
  }
}

extension FieldType {
  /// The corresponding type of the expression checker.
  var expressionType: ExpressionType {
    switch self {
    case .string: return .string
    case .int: return .wrapper(.int)
    case .double: return .wrapper(.double)
    case .bool: return .wrapper(.bool)
    case .timestamp: return .wrapper(.timestamp)
    case .infer: return .dyn
    }
  }
}
