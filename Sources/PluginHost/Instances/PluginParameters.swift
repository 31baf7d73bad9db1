import PipelineCore

extension PluginArguments {
  /// The parameters for the plugin as a value: those that are set or have a default, except expressions and templates. Durations are
  /// whole nanoseconds if `plain`, sizes bytes.
  func value(_ spec: PluginComponentSpec, plain: Bool, in arena: Arena) -> Value {
    var members: [(key: Value, value: Value)] = []
    for (parameter, value) in zip(spec.parameters, values) where !parameter.type.isPerEvent {
      guard let value else { continue }
      members.append((arena.string(parameter.name), value.value(plain: plain, in: arena)))
    }
    return arena.map(members)
  }

  /// For each expression and template, in the order of the spec: 1 if the file gives it.
  func given(_ spec: PluginComponentSpec) -> [UInt8] {
    zip(spec.parameters, values).filter { $0.0.type.isPerEvent }.map { $0.1 == nil ? 0 : 1 }
  }

  /// The location in the file of the parameter at a path such as `server.port`.
  func location(_ path: String, _ spec: PluginComponentSpec) -> SourceLocation? {
    let name = path.prefix { $0 != "." && $0 != "[" }
    guard let index = spec.parameters.firstIndex(where: { $0.name == name }) else { return nil }
    return locations[index]
  }
}

extension PluginValue {
  fileprivate func value(plain: Bool, in arena: Arena) -> Value {
    switch self {
    case .boolean(let value): .bool(value)
    case .integer(let value): .int(value)
    case .number(let value): .double(value)
    case .text(let value): arena.string(value)
    case .secret(let value): arena.string(value.revealed)
    case .duration(let span): plain ? .int(span.nanoseconds) : .duration(nanoseconds: span.nanoseconds)
    case .size(let size): .int(size.bytes)
    case .json(let literal): arena.copy(literal.value.value)
    case .list(let values): arena.list(values.map { $0.value(plain: plain, in: arena) })
    case .table(let entries):
      arena.map(entries.map { (key: arena.string($0.name), value: $0.value.value(plain: plain, in: arena)) })
    case .expression, .template: .null
    }
  }
}

/// Evaluates the parameters that are sent with each event.
struct PerEventArguments {
  private enum Part {
    case none
    case expression(Program, named: String, of: ExpressionType?)
    case template(TemplateParameter)
  }
  private let parts: [Part]
  private let buffer = OutputBuffer()
  var isEmpty: Bool { parts.isEmpty }
  var count: Int { parts.count }

  init(_ spec: PluginComponentSpec, _ arguments: PluginArguments) {
    parts = zip(spec.parameters, arguments.values).filter { $0.0.type.isPerEvent }.map { parameter, value in
      switch value {
      case .expression(let expression):
        var result: ExpressionType?
        if case .expression(let wanted) = parameter.type { result = wanted }
        return expression.program.map { .expression($0, named: parameter.name, of: result) } ?? .none
      case .template(let template): return .template(template)
      default: return .none
      }
    }
  }

  /// Whether a value can be of the type, judged by its kind only.
  private static func fits(_ value: Value, _ type: ExpressionType) -> Bool {
    switch type {
    case .bool: value.is(.bool)
    case .int: value.is(.int)
    case .uint: value.is(.uint) || value.is(.int) && value.asInt >= 0
    case .double: value.is(.double) || value.is(.int) || value.is(.uint)
    case .string: value.is(.string)
    case .bytes: value.is(.bytes)
    case .timestamp: value.is(.timestamp)
    case .duration: value.is(.duration)
    case .null: value.isNull
    case .list: value.isAnyList
    case .map, .object: value.isAnyMap
    case .optional(let inner), .wrapper(let inner): value.isNull || value.isAbsent || fits(value, inner)
    default: true
    }
  }

  /// The reason why there are no arguments for an event.
  enum Failure: Error {
    case unreadable(String)
    case failed(String)

    var message: String {
      switch self {
      case .unreadable(let message), .failed(let message): message
      }
    }
  }

  /// Evaluates all for an event and copies them. `frame`: loaded with the event where there is something to evaluate.
  func values(_ event: Event, _ frame: @autoclosure () -> EventFrame) throws(Failure) -> [OwnedValue] {
    if isEmpty { return [] }
    let frame = frame()
    if let failure = frame.load(event) { throw .unreadable(EventFrame.message(of: failure)) }
    var values: [OwnedValue] = []
    values.reserveCapacity(count)
    if let problem = evaluate(frame, { values.append(OwnedValue($1)) }) { throw .failed(problem) }
    return values
  }

  /// Evaluates all for the event that is loaded into `frame`. Returns why it failed, or nil. `store`: receives
  /// each result, which is valid in this turn.
  func evaluate(_ frame: EventFrame, _ store: (Int, Value) -> Void) -> String? {
    for (index, part) in parts.enumerated() {
      switch part {
      case .none: store(index, .absent)
      case .expression(let program, let name, let type):
        let value = program.evaluate(frame.frame)
        if value.isError { return program.failureMessage(value, frame.frame) }
        if let type, !Self.fits(value, type) { return "'\(name)' is \(value.kindName), but must be \(type.inWords)" }
        store(index, value)
      case .template(let template):
        buffer.clear()
        if let error = template.render(frame, into: buffer) {
          return template.program?.failureMessage(error, frame.frame) ?? "a template cannot be rendered"
        }
        store(index, .string(frame.frame.arena.copy(buffer.bytes)))
      }
    }
    return nil
  }
}
