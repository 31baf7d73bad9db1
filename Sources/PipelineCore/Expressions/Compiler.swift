/// Compiles a checked tree to operations.
struct Compiler {
  let tree: SyntaxTree
  let resolutions: [Checker.Resolution]
  let types: [ExpressionType]
  private let scope: ExpressionScope
  let projection: Projection?

  private(set) var operations: [Operation] = []
  private var spans: [Program.Span] = []
  private var children: [Int32] = []
  private var sites: [Program.Site] = []
  private var candidates: [Program.Candidate] = []
  private var bodies: [Program.Body] = []
  private var patterns: [Pattern] = []
  private var sets: [KeyIndex] = []
  /// The frame in which constants are evaluated; reset after each.
  private let constants = EvaluationFrame(arena: Arena(), json: JSONParser())
  private var owned: [OwnedValue] = []
  /// The number of live loop variables here.
  var localDepth = 0
  /// Replacements of function parameters that are not locals themselves, by index among the live locals.
  var substitutes: [Int: Substitute] = [:]
  /// The number of enclosing loops here.
  private var loopDepth = 0

  static func compile(_ checked: CheckedExpression, _ projection: Projection?) -> Program {
    var compiler = Compiler(checked, projection)
    let root = compiler.compile(checked.syntax.tree.root)
    let tests = SlotTests(
      compiler.operations, compiler.children, root: root, Context(state: compiler.constants.state))
    return Program(
      operations: compiler.operations, children: compiler.children, sites: compiler.sites,
      candidates: compiler.candidates, bodies: compiler.bodies, patterns: compiler.patterns, sets: compiler.sets,
      tests: tests, root: root, localCount: compiler.hasLocals ? checked.localCount : 0, owned: compiler.owned,
      text: checked.syntax.text, inserted: checked.syntax.inserted, spans: compiler.spans,
      type: checked.type)
  }

  private init(_ checked: CheckedExpression, _ projection: Projection?) {
    tree = checked.syntax.tree
    resolutions = checked.resolutions
    types = checked.types
    scope = checked.scope
    self.projection = checked.scope.mode == .lenient ? projection : nil
    constants.isStrict = checked.scope.mode == .strict
  }

  private var isLenient: Bool { scope.mode == .lenient }

  /// Whether any operation writes locals: parameters that are substituted need none.
  private var hasLocals: Bool {
    operations.contains { [.bind, .optionalMap, .loop].contains($0.code) }
  }

  // MARK: Emitting

  mutating func emit(_ operation: Operation, _ id: SyntaxTree.ID) -> Int32 {
    operations.append(operation)
    spans.append(Program.Span(start: tree[id].start, end: tree[id].end, text: tree[id].text))
    return Int32(operations.count - 1)
  }

  private mutating func literal(_ value: Value, _ id: SyntaxTree.ID) -> Int32 {
    emit(Operation(code: .literal, literal: value), id)
  }

  /// A text that lives as long as the program.
  mutating func keep(_ bytes: [UInt8], _ kind: Value.Kind = .string) -> Value {
    bytes.withUnsafeBytes { keep(Value(kind: kind, pointer: $0.baseAddress, length: $0.count)) }
  }

  private mutating func keep(_ value: Value) -> Value {
    let owned = OwnedValue(value)
    self.owned.append(owned)
    return owned.value
  }

  func isLiteral(_ at: Int32) -> Bool { operations[Int(at)].code == .literal }

  /// Appends to the children and returns their start.
  private mutating func run(_ items: [Int32]) -> Int32 {
    let start = Int32(children.count)
    children += items
    return start
  }

  /// Replaces an operation on literals by its value, unless it fails.
  mutating func folded(_ at: Int32, _ parts: [Int32]) -> Int32 {
    guard parts.allSatisfy(isLiteral) else { return at }
    let frame = constants
    frame.state.pointee.iterationsLeft = ExpressionLimits.iterations
    frame.state.pointee.outerIterationsLeft = ExpressionLimits.outerIterations
    frame.state.pointee.allocationLimit = frame.arena.allocated &+ ExpressionLimits.foldedBytes
    defer { frame.arena.reset() }
    // Constant folding uses the operations so far, in arrays that still grow.
    let value = operations.withUnsafeBufferPointer { operations -> Value in
      children.withUnsafeBufferPointer { children in
        sites.withUnsafeBufferPointer { sites in
          candidates.withUnsafeBufferPointer { candidates in
            patterns.withUnsafeBufferPointer { patterns in
              sets.withUnsafeBufferPointer { sets in
                guard let start = operations.baseAddress else { return .absent }
                var code = Program.Code(
                  operations: start, children: Self.pointer(children), sites: Self.pointer(sites),
                  candidates: Self.pointer(candidates), patterns: Self.pointer(patterns),
                  sets: Self.pointer(sets))
                return withUnsafePointer(to: &code) {
                  Machine(operations: start, code: $0, state: frame.state).value(at)
                }
              }
            }
          }
        }
      }
    }
    guard !value.isError, !value.isAbsent else { return at }
    let owned = OwnedValue(value)
    guard owned.byteCount <= ExpressionLimits.foldedBytes else { return at }
    self.owned.append(owned)
    operations[Int(at)] = Operation(code: .literal, literal: owned.value)
    return at
  }

  /// The start of the buffer; for an empty buffer, an aligned address that is never read.
  private static func pointer<T>(_ buffer: UnsafeBufferPointer<T>) -> UnsafePointer<T> {
    buffer.baseAddress ?? UnsafePointer(bitPattern: MemoryLayout<T>.alignment).unsafelyUnwrapped
  }

  // MARK: Parts

  mutating func compile(_ id: SyntaxTree.ID) -> Int32 {
    switch resolutions[Int(id)] {
    case .variable(let index):
      let variable = scope.variables[index]
      if isLenient, variable.name == "now" { return emit(Operation(code: .now), id) }
      return emit(
        Operation(code: .variable, a: Int32(index), literal: keep(Array(variable.name.utf8))), id)
    case .local(let slot):
      switch substitutes[slot] {
      case .operation(let at): return at
      case .argument(let argument): return compile(argument)
      case .compared(let argument, let type, let what): return checked(compile(argument), type, what, argument)
      case nil: return emit(Operation(code: .local, a: Int32(slot)), id)
      }
    case .typeName(let name):
      return literal(keep(Array(name.utf8), .type), id)
    case .failing(let reason, let name):
      return emit(
        Operation(code: .fail, flags: reason.rawValue, literal: keep(Array(name.utf8))), id)
    case .function(let spec, let overloads, let passesTarget):
      return call(id, spec, overloads, passesTarget: passesTarget)
    case .application(let first): return application(id, from: first)
    case .table(let index):
      switch tree[id].kind {
      case .index(_, let key, _): return emit(Operation(code: .row, a: compile(key), b: Int32(index)), id)
      case .binary(_, let key, _): return emit(Operation(code: .hasRow, a: compile(key), b: Int32(index)), id)
      default: preconditionFailure("a table is read by key")
      }
    case .none:
      break
    }
    switch tree[id].kind {
    case .literal(let value): return literal(self.value(of: value), id)
    case .identifier(let name, _):
      return emit(
        Operation(
          code: .fail, flags: ExpressionFailure.unknownName.rawValue, literal: keep(Array(name.utf8))), id)
    case .select, .index, .has: return selection(id)
    case .call(_, let function, _, _):
      return emit(
        Operation(
          code: .fail, flags: ExpressionFailure.unknownFunction.rawValue,
          literal: keep(Array(function.utf8))), id)
    case .list(let elements):
      var items: [Int32] = []
      for element in elements {
        items.append(compile(element.value))
        items.append(element.optional ? 1 : 0)
      }
      let at = emit(
        Operation(code: .list, a: run(items), b: Int32(elements.count)), id)
      return folded(at, stride(from: 0, to: items.count, by: 2).map { items[$0] })
    case .map(let members):
      var items: [Int32] = []
      for member in members {
        items += [compile(member.key), compile(member.value), member.optional ? 1 : 0]
      }
      let isObject =
        members.allSatisfy { !$0.optional }
        && areDistinctTexts(stride(from: 0, to: items.count, by: 3).map { items[$0] })
      let at = emit(
        Operation(code: isObject ? .object : .map, a: run(items), b: Int32(members.count)), id)
      return folded(
        at, items.indices.filter { $0 % 3 != 2 }.map { items[$0] })
    case .logic(let terms, let isAnd):
      let parts = terms.map { compile($0) }
      let at = emit(
        Operation(code: isAnd ? .and : .or, a: run(parts), b: Int32(parts.count)), id)
      return folded(at, parts)
    case .conditional(let condition, let yes, let no):
      let parts = [compile(condition), compile(yes), compile(no)]
      let at = emit(Operation(code: .conditional, a: parts[0], b: parts[1], c: parts[2]), id)
      return folded(at, parts)
    case .not(let operand):
      let part = compile(operand)
      return folded(emit(Operation(code: .not, a: part), id), [part])
    case .negate(let operand):
      let part = compile(operand)
      return folded(emit(Operation(code: .negate, a: part), id), [part])
    case .binary(let op, let left, let right): return binary(id, op, left, right)
    case .loop(let loop): return self.loop(id, loop)
    case .bind(_, let value, let body):
      let bound = compile(value)
      let slot = localDepth
      localDepth += 1
      let inner = compile(body)
      localDepth -= 1
      return emit(Operation(code: .bind, a: Int32(slot), b: bound, c: inner), id)
    case .optionalMap(let target, _, let body, let flat):
      let operand = compile(target)
      let slot = localDepth
      localDepth += 1
      let inner = compile(body)
      localDepth -= 1
      return emit(
        Operation(code: .optionalMap, detail: flat ? 1 : 0, a: Int32(slot), b: operand, c: inner), id)
    case .apply: return literal(.null, id)
    }
  }

  private func areDistinctTexts(_ keys: [Int32]) -> Bool {
    var seen: Set<[UInt8]> = []
    return keys.allSatisfy { key in
      let literal = operations[Int(key)].literal
      return isLiteral(key) && literal.is(.string) && literal.flags == 0
        && seen.insert(Array(literal.rawBytes)).inserted
    }
  }

  private mutating func value(of literal: SyntaxTree.Literal) -> Value {
    switch literal {
    case .null: return .null
    case .bool(let value): return .bool(value)
    case .int(let value): return .int(value)
    case .uint(let value): return .uint(value)
    case .double(let value): return .double(value)
    case .string(let bytes): return keep(bytes).markedPlain()
    case .bytes(let bytes): return keep(bytes, .bytes)
    }
  }

  private mutating func binary(
    _ id: SyntaxTree.ID, _ op: SyntaxTree.Operator, _ left: SyntaxTree.ID, _ right: SyntaxTree.ID
  ) -> Int32 {
    let (a, b) = (compile(left), compile(right))
    var operation = Operation(code: .arithmetic, detail: op.rawValue, a: a, b: b)
    switch op {
    case .add, .subtract, .multiply, .divide, .modulo:
      // Also if both types are known: data may violate its schema.
      operation.flags = !isLenient ? 0 : types[Int(left)].isDyn || types[Int(right)].isDyn ? 1 : 2
      if op == .add { return folded(sum(folded(emit(operation, id), [a, b]), id), [a, b]) }
    case .in:
      operation.code = .contains
      if isLiteral(b), let index = index(of: operations[Int(b)].literal) {
        operation.code = .containsIndexed
        operation.c = index
      }
    default:
      let relation = Self.relation(op)
      operation.code = .compare
      operation.detail = relation.rawValue
      // The slot goes left, so that one operation serves both orders.
      if let slot = slot(read: a), isLiteral(b) {
        operation.code = .compareSlot
        operation.c = slot
        operation.literal = operations[Int(b)].literal
      } else if let slot = slot(read: b), isLiteral(a) {
        operation.code = .compareSlot
        operation.detail = relation.flipped.rawValue
        operation.flags = 1
        operation.c = slot
        operation.literal = operations[Int(a)].literal
        (operation.a, operation.b) = (b, a)
      }
    }
    return folded(emit(operation, id), [a, b])
  }

  /// Merges an addition to a sum or to another addition into one concatenation, if one of the terms is a constant text.
  private mutating func sum(_ addition: Int32, _ id: SyntaxTree.ID) -> Int32 {
    let operation = operations[Int(addition)]
    guard operation.code == .arithmetic else { return addition }
    let before = operations[Int(operation.a)]
    var terms: [Int32]
    switch before.code {
    case .sum: terms = Array(children[Int(before.a)..<Int(before.a + 2 * before.b)])
    case .arithmetic where before.detail == operation.detail: terms = [before.a, before.a, before.b, operation.a]
    default: return addition
    }
    terms += [operation.b, addition]
    let hasText = stride(from: 0, to: terms.count, by: 2).contains {
      isLiteral(terms[$0]) && operations[Int(terms[$0])].literal.is(.string)
    }
    guard hasText, terms.count <= 2 * Machine.sumLimit else { return addition }
    let start = Int32(children.count)
    children += terms
    return emit(Operation(code: .sum, a: start, b: Int32(terms.count / 2)), id)
  }

  /// The slot that an operation reads, unchanged or as its declared number type; nil if it does anything else. The
  /// operation that compares handles an absent slot.
  func slot(read at: Int32) -> Int32? {
    let operation = operations[Int(at)]
    switch operation.code {
    case .slot, .slotOrNull: return operation.a
    case .declared, .argument:
      switch Declared(rawValue: operation.detail) {
      case .int, .uint, .double: return slot(read: operation.a)
      default: return nil
      }
    default: return nil
    }
  }

  /// The index of a long literal list, for `in`.
  private mutating func index(of list: Value) -> Int32? {
    guard list.is(.list), list.length > 8 else { return nil }
    let entries = keep(
      constants.arena.map(list.elements.map { (key: $0, value: Value.null) }))
    sets.append(KeyIndex(entries, Context(state: constants.state)))
    return Int32(sets.count - 1)
  }

  private static func relation(_ op: SyntaxTree.Operator) -> Relation {
    switch op {
    case .less: return .less
    case .lessOrEqual: return .lessOrEqual
    case .greater: return .greater
    case .greaterOrEqual: return .greaterOrEqual
    case .equal: return .equal
    default: return .notEqual
    }
  }

  private mutating func loop(_ id: SyntaxTree.ID, _ loop: SyntaxTree.Loop) -> Int32 {
    let range = compile(loop.range)
    let slot = localDepth
    localDepth += loop.second == nil ? 1 : 2
    loopDepth += 1
    let condition = loop.condition.map { compile($0) } ?? -1
    let body = compile(loop.body)
    loopDepth -= 1
    localDepth = slot
    return emit(
      Operation(
        code: .loop, detail: loop.kind.rawValue, flags: (loop.second == nil ? 0 : 1) | (loopDepth > 0 ? 2 : 0),
        a: range,
        b: condition, c: body, literal: .int(slot)), id)
  }

  // MARK: Calls

  private mutating func call(
    _ id: SyntaxTree.ID, _ spec: FunctionSpec, _ overloads: [FunctionOverload], passesTarget: Bool
  ) -> Int32 {
    guard case .call(let target, _, _, var arguments) = tree[id].kind else {
      return literal(.null, id)
    }
    if passesTarget, let target { arguments.insert(target, at: 0) }
    if spec.name == "orValue" || spec.name == "or", arguments.count == 2 {
      let operand = compile(arguments[0])
      let other = compile(arguments[1])
      if spec.name == "orValue", operations[Int(operand)].code == .optionalSlot {
        var operation = operations[Int(operand)]
        operation.code = .slotOr
        operation.c = other
        return declared(emit(operation, id), arguments[0], id)
      }
      return emit(
        Operation(
          code: spec.name == "or" ? .optionalOr : .optionalOrValue, a: operand, b: other), id)
    }
    if spec.name == "optional.try", arguments.count == 1 {
      return emit(Operation(code: .attempt, a: compile(arguments[0])), id)
    }
    if spec.name == "hasValue", arguments.count == 1 {
      let operand = compile(arguments[0])
      if operations[Int(operand)].code == .optionalSlot {
        var operation = operations[Int(operand)]
        operation.code = .hasSlot
        return emit(operation, id)
      }
      return callOperation(id, spec, overloads, [operand])
    }
    let parts = arguments.map { compile($0) }
    if spec.name == "matches", parts.count == 2, isLiteral(parts[1]) {
      let source = operations[Int(parts[1])].literal
      let pattern = Pattern(source.rawBytes)
      if source.is(.string), pattern.failure == nil {
        patterns.append(pattern)
        let at = emit(
          Operation(code: .matches, a: parts[0], b: parts[1], c: Int32(patterns.count - 1)), id)
        return folded(at, parts)
      }
    }
    return callOperation(id, spec, overloads, parts)
  }

  private mutating func callOperation(
    _ id: SyntaxTree.ID, _ spec: FunctionSpec, _ overloads: [FunctionOverload], _ parts: [Int32]
  ) -> Int32 {
    sites.append(
      Program.Site(
        name: spec.name, first: Int32(candidates.count), count: Int32(overloads.count)))
    for overload in overloads {
      func kinds(_ index: Int) -> UInt32 {
        overload.kinds.isEmpty ? KindSet.all : overload.kinds[min(index, overload.kinds.count - 1)]
      }
      var body = overload.body
      if let prepare = overload.prepare {
        let constants = parts.map { isLiteral($0) ? operations[Int($0)].literal : nil }
        if case .body(let prepared) = prepare(.init(arguments: constants, patterns: scope.patterns)) { body = prepared }
      }
      let held = Program.Body(body)
      bodies.append(held)
      candidates.append(
        Program.Candidate(kinds: (kinds(0), kinds(1), kinds(2), kinds(3)), body: .passUnretained(held)))
    }
    let at = emit(
      Operation(code: .call, a: run(parts), b: Int32(parts.count), c: Int32(sites.count - 1)), id)
    // Compiling runs no code of plugins.
    return spec.plugin == nil ? folded(at, parts) : at
  }

  // MARK: Selection

  /// A selection of constant fields from the projected variable, as a path.
  struct Path {
    var fields: [[UInt8]] = []
    /// The first optional step, if any; all later steps are optional too.
    var optionalFrom: Int?
  }

  func path(_ id: SyntaxTree.ID) -> Path? {
    guard let projection else { return nil }
    if case .local(let slot) = resolutions[Int(id)] {
      guard case .argument(let argument)? = substitutes[slot] else { return nil }
      return path(argument)
    }
    if case .variable(let index) = resolutions[Int(id)] {
      return scope.variables[index].name == projection.variable ? Path() : nil
    }
    guard case .none = resolutions[Int(id)] else { return nil }
    let operand: SyntaxTree.ID
    let field: [UInt8]
    let optional: Bool
    switch tree[id].kind {
    case .select(let target, let name, _, let isOptional):
      (operand, field, optional) = (target, Array(name.utf8), isOptional)
    case .index(let target, let key, let isOptional):
      guard case .literal(.string(let name)) = tree[key].kind else { return nil }
      (operand, field, optional) = (target, name, isOptional)
    default: return nil
    }
    guard var path = path(operand) else { return nil }
    if optional, path.optionalFrom == nil { path.optionalFrom = path.fields.count }
    path.fields.append(field)
    return path
  }

  /// The slot that must be present before the first optional step, or -1.
  private func guardian(_ path: Path, _ optionalFrom: Int) -> Int32 {
    guard let projection, optionalFrom > 0 else { return -1 }
    return Int32(projection.slot(for: Array(path.fields[..<optionalFrom]), needs: .presence))
  }

  private mutating func selection(_ id: SyntaxTree.ID) -> Int32 {
    if case .has(let operand, let field, _, let optional) = tree[id].kind {
      if let projection, var path = path(operand) {
        let from = path.optionalFrom ?? path.fields.count
        path.fields.append(Array(field.utf8))
        let slot = projection.slot(for: path.fields, needs: .presence)
        return emit(
          Operation(
            code: .hasSlot, a: Int32(slot), b: guardian(path, from),
            literal: keep(path.fields[max(from - 1, 0)])), id)
      }
      let part = compile(operand)
      _ = optional
      return folded(
        emit(
          Operation(
            code: .has, flags: isLenient ? 1 : 0, a: part, literal: keep(Array(field.utf8))), id),
        [part])
    }
    if let projection, let path = path(id), let last = path.fields.last {
      let slot = Int32(projection.slot(for: path.fields, needs: .value))
      guard let from = path.optionalFrom else {
        var operation = Operation(code: .slot, a: slot, literal: keep(last))
        if readsNull(id) {
          operation.code = .slotOrNull
          operation.b = guardian(path, path.fields.count - 1)
        }
        return declared(emit(operation, id), id, id)
      }
      return emit(
        Operation(
          code: .optionalSlot, a: slot, b: guardian(path, from),
          literal: keep(path.fields[max(from - 1, 0)])), id)
    }
    switch tree[id].kind {
    case .select(let operand, let field, _, let optional):
      let part = compile(operand)
      let at = emit(
        Operation(
          code: optional ? .optionalSelect : .select,
          flags: (isLenient ? 1 : 0) | (!optional && readsNull(id) ? 2 : 0), a: part,
          literal: keep(Array(field.utf8))), id)
      return declared(folded(at, [part]), optional ? -1 : id, id)
    case .index(let operand, let key, false) where declaredField(id) != nil:
      guard case .literal(.string(let name)) = tree[key].kind else { return literal(.null, id) }
      let part = compile(operand)
      let at = emit(
        Operation(code: .select, flags: 1 | (readsNull(id) ? 2 : 0), a: part, literal: keep(name)), id)
      return declared(at, id, id)
    case .index(let operand, let key, let optional):
      let parts = [compile(operand), compile(key)]
      let at = emit(
        Operation(
          code: optional ? .optionalIndex : .index, flags: isLenient ? 1 : 0, a: parts[0], b: parts[1]),
        id)
      return folded(at, parts)
    default:
      return literal(.null, id)
    }
  }

  // MARK: Declared fields

  /// The schema's declaration of the selected field.
  func declaredField(_ id: SyntaxTree.ID) -> ExpressionType.Field? {
    guard isLenient, id >= 0 else { return nil }
    let (target, name): (SyntaxTree.ID, String)
    switch tree[id].kind {
    case .select(let operand, let field, _, _): (target, name) = (operand, field)
    case .index(let operand, let key, _):
      guard case .literal(.string(let bytes)) = tree[key].kind else { return nil }
      (target, name) = (operand, String(decoding: bytes, as: UTF8.self))
    default: return nil
    }
    var type = types[Int(target)]
    if case .optional(let inner) = type { type = inner }
    guard let field = type.field(name), field.isDeclared else { return nil }
    return field
  }

  /// Whether an absent field reads as null.
  private func readsNull(_ id: SyntaxTree.ID) -> Bool {
    guard case .wrapper = declaredField(id)?.type else { return false }
    return true
  }

  /// Converts the value to the declared type of the field selected by `field`.
  private mutating func declared(_ at: Int32, _ field: SyntaxTree.ID, _ id: SyntaxTree.ID) -> Int32 {
    guard let type = declaredField(field)?.type, let wanted = Declared(type.unwrapped) else { return at }
    return emit(Operation(code: .declared, detail: wanted.rawValue, a: at), id)
  }
}
