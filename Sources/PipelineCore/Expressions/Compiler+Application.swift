// Calls of functions that the pipeline file defines.

extension Compiler {
  /// The replacement of a parameter in the body.
  enum Substitute {
    /// The value of an operation with a single use, or a constant.
    case operation(Int32)
    /// The argument itself, because it is only a read: fields of it are then paths of the event.
    case argument(SyntaxTree.ID)
    /// A number, as the type of the parameter, that is only compared with constants: the comparison can read the slot.
    case compared(SyntaxTree.ID, ExpressionType, String)
  }

  /// Compiles the body with the arguments in place of the parameters. Each argument is evaluated at most once; an
  /// argument that fails makes the call fail.
  mutating func application(_ id: SyntaxTree.ID, from first: Int) -> Int32 {
    guard case .apply(let application) = tree[id].kind else { return compile(id) }
    let (outer, depth) = (substitutes, localDepth)
    var bound: [(slot: Int, value: Int32)] = []
    var guards: Set<Int> = []
    for (index, argument) in application.arguments.enumerated() {
      let slot = first + index
      localDepth = slot
      substitutes[slot] = nil
      let value = place(argument, slot, application, index)
      if let value { bound.append((slot, value)) }
      // The call must fail if the argument does, even though the body reads the value in another way.
      if value != nil, substitutes[slot] != nil { guards.insert(slot) }
    }
    localDepth = first + application.arguments.count
    var result = compile(application.body)
    if let returns = application.function.returns, types[Int(application.body)] != returns {
      result = checked(
        result, returns, "'\(application.function.name)' returns \(returns.withArticle)", application.body)
    }
    (substitutes, localDepth) = (outer, depth)
    for (slot, value) in bound.reversed() {
      result = emit(
        Operation(code: .bind, flags: guards.contains(slot) ? 3 : 1, a: Int32(slot), b: value, c: result), id)
    }
    return result
  }

  /// Chooses what replaces a parameter; returns the operation that must be evaluated before the body, if any.
  private mutating func place(
    _ argument: SyntaxTree.ID, _ slot: Int, _ application: SyntaxTree.Application, _ index: Int
  ) -> Int32? {
    let parameter = application.function.parameters[index]
    let what = "'\(application.function.name)' needs \(parameter.type.withArticle) for '\(parameter.name)'"
    let converts = Declared(parameter.type.unwrapped) != nil
    if !converts, isRead(argument) {
      substitutes[slot] = .argument(argument)
      if parameter.type.isDyn, isNeeded(slot, application.body) { return nil }
      return checked(presence(argument), parameter.type, what, argument)
    }
    let checked = checked(compile(argument), parameter.type, what, argument)
    if self.slot(read: checked) != nil, isOnlyCompared(slot, application.body) {
      substitutes[slot] = .compared(argument, parameter.type, what)
      return checked
    }
    if isLiteral(checked) {
      substitutes[slot] = .operation(checked)
      return nil
    }
    if uses(slot, application.body) == 1, isNeeded(slot, application.body) {
      substitutes[slot] = .operation(checked)
      return nil
    }
    return checked
  }

  /// The value of an operation as `type`; fails at run time if the value is of another kind.
  mutating func checked(_ at: Int32, _ type: ExpressionType, _ what: String, _ id: SyntaxTree.ID) -> Int32 {
    let kinds = KindSet.of(type)
    guard kinds != KindSet.all else { return at }
    let operation = emit(
      Operation(
        code: .argument, detail: Declared(type.unwrapped)?.rawValue ?? UInt8.max, a: at, b: Int32(bitPattern: kinds),
        literal: keep(Array(what.utf8))), id)
    return folded(operation, [at])
  }

  /// Whether the node is a path of the event, or a local: reading it again costs nothing.
  private func isRead(_ id: SyntaxTree.ID) -> Bool {
    if let path = path(id) { return path.optionalFrom == nil }
    if case .local(let slot) = resolutions[Int(id)] { return substitutes[slot] == nil }
    return false
  }

  /// Reads whether the value of a path is present, and its kind.
  private mutating func presence(_ id: SyntaxTree.ID) -> Int32 {
    guard let projection, let path = path(id), let last = path.fields.last, declaredField(id) == nil else {
      return compile(id)
    }
    let slot = projection.slot(for: path.fields, needs: .presence)
    return emit(Operation(code: .slot, a: Int32(slot), literal: keep(last)), id)
  }

  /// Whether every successful evaluation of the node reads the local.
  private func isNeeded(_ slot: Int, _ id: SyntaxTree.ID) -> Bool {
    if case .local(slot) = resolutions[Int(id)] { return true }
    switch tree[id].kind {
    case .literal, .identifier, .logic: return false
    case .select(let operand, _, _, _), .has(let operand, _, _, _), .not(let operand), .negate(let operand),
      .optionalMap(let operand, _, _, _):
      return isNeeded(slot, operand)
    case .conditional(let condition, _, _): return isNeeded(slot, condition)
    case .loop(let loop): return isNeeded(slot, loop.range)
    case .bind(_, _, let body): return isNeeded(slot, body)
    case .call(let target, _, _, let arguments):
      guard case .function(let spec, _, let passesTarget) = resolutions[Int(id)] else { return false }
      let parts = (passesTarget ? target.map { [$0] } ?? [] : []) + arguments
      switch spec.name {
      case "optional.try": return false
      case "orValue", "or": return parts.first.map { isNeeded(slot, $0) } ?? false
      default: return parts.contains { isNeeded(slot, $0) }
      }
    case .index, .binary, .list, .map, .apply: return tree.children(of: id).contains { isNeeded(slot, $0) }
    }
  }

  /// Whether the local is read only where it is compared with a constant.
  private func isOnlyCompared(_ slot: Int, _ id: SyntaxTree.ID) -> Bool {
    func isLocal(_ id: SyntaxTree.ID) -> Bool {
      if case .local(slot) = resolutions[Int(id)] { true } else { false }
    }
    func isConstant(_ id: SyntaxTree.ID) -> Bool {
      if case .literal = tree[id].kind { true } else { false }
    }
    if isLocal(id) { return false }
    if case .binary(let op, let left, let right) = tree[id].kind, op == .equal || op == .notEqual || op.flipped != nil,
      isLocal(left) && isConstant(right) || isLocal(right) && isConstant(left)
    {
      return true
    }
    return tree.children(of: id).allSatisfy { isOnlyCompared(slot, $0) }
  }

  /// How often one evaluation may read the local; a read in a loop counts as more than one.
  private func uses(_ slot: Int, _ id: SyntaxTree.ID) -> Int {
    if case .local(slot) = resolutions[Int(id)] { return 1 }
    if case .loop(let loop) = tree[id].kind {
      let inner = uses(slot, loop.body) + (loop.condition.map { uses(slot, $0) } ?? 0)
      return uses(slot, loop.range) + 2 * inner
    }
    return tree.children(of: id).reduce(0) { $0 + uses(slot, $1) }
  }
}
