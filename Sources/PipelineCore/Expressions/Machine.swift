#if canImport(Glibc)
  import Glibc
#endif

/// Evaluates operations. Recursion is as deep as the expression, at most ``ExpressionLimits/depth``.
///
/// All members are pointers, so nothing is retained or released.
struct Machine {
  let operations: UnsafePointer<Operation>
  let code: UnsafePointer<Program.Code>
  let state: UnsafeMutablePointer<EvaluationFrame.State>

  var context: Context { Context(state: state) }

  // MARK: Bools

  /// Evaluates an operation as a bool: ``Truth``. On failure the error is in the state.
  func bool(_ at: Int32) -> UInt8 {
    let operation = operations + Int(at)
    switch operation.pointee.code {
    case .compareSlot:
      let outcome = Context.quick(
        operation.pointee.detail, state.pointee.slots[Int(operation.pointee.c)],
        operation.pointee.literal)
      return outcome < Context.undecided ? outcome : compare(at)
    case .and:
      let terms = code.pointee.children + Int(operation.pointee.a)
      for term in 0..<Int(operation.pointee.b) {
        let outcome = bool(terms[term])
        if outcome == Truth.yes { continue }
        if outcome == Truth.no { return Truth.no }
        return absorb(terms, from: term + 1, to: Int(operation.pointee.b), decisive: Truth.no)
      }
      return Truth.yes
    case .or:
      let terms = code.pointee.children + Int(operation.pointee.a)
      for term in 0..<Int(operation.pointee.b) {
        let outcome = bool(terms[term])
        if outcome == Truth.no { continue }
        if outcome == Truth.yes { return Truth.yes }
        return absorb(terms, from: term + 1, to: Int(operation.pointee.b), decisive: Truth.yes)
      }
      return Truth.no
    case .not:
      let outcome = bool(operation.pointee.a)
      return outcome == Truth.failed ? outcome : outcome ^ 1
    case .compare:
      return compare(at)
    case .hasSlot:
      let guardian = operation.pointee.b
      if guardian >= 0, state.pointee.slots[Int(guardian)].isAbsent { return fail(missing(at)) }
      return state.pointee.slots[Int(operation.pointee.a)].isAbsent ? Truth.no : Truth.yes
    case .slot:
      let value = state.pointee.slots[Int(operation.pointee.a)]
      if value.is(.bool) { return UInt8(truncatingIfNeeded: value.payload) }
      return truth(self.value(at), at)
    case .conditional:
      let condition = bool(operation.pointee.a)
      if condition == Truth.failed { return condition }
      return bool(condition == Truth.yes ? operation.pointee.b : operation.pointee.c)
    default:
      return truth(value(at), at)
    }
  }

  /// Continues after a failed term: a later term may still decide; otherwise the first error is the result.
  @inline(never)
  private func absorb(
    _ terms: UnsafePointer<Int32>, from: Int, to: Int, decisive: UInt8
  ) -> UInt8 {
    let error = state.pointee.error
    for term in from..<max(from, to) where bool(terms[term]) == decisive { return decisive }
    state.pointee.error = error
    return Truth.failed
  }

  @inline(__always)
  private func truth(_ value: Value, _ at: Int32) -> UInt8 {
    if value.is(.bool) { return UInt8(truncatingIfNeeded: value.payload) }
    return fail(value.isError ? value : located(notBoolean(value), at))
  }

  @inline(never)
  private func notBoolean(_ value: Value) -> Value {
    context.failure(.notBoolean, .absent, text: value.typeName)
  }

  @inline(__always)
  private func fail(_ error: Value) -> UInt8 {
    state.pointee.error = error
    return Truth.failed
  }

  @inline(never)
  func compare(_ at: Int32) -> UInt8 {
    let operation = operations + Int(at)
    var left = leaf(operation.pointee.a)
    if left.isAbsent { left = quickValue(operation.pointee.a) }
    if left.isError { return fail(left) }
    var right = leaf(operation.pointee.b)
    if right.isAbsent { right = value(operation.pointee.b) }
    if right.isError { return fail(right) }
    let quick = Context.quick(operation.pointee.detail, left, right)
    if quick < Context.undecided { return quick }
    let outcome = context.compare(
      Relation(rawValue: operation.pointee.detail).unsafelyUnwrapped, left, right)
    return outcome == Truth.failed ? fail(located(incomparable(at, left, right), at)) : outcome
  }

  @inline(never)
  private func incomparable(_ at: Int32, _ left: Value, _ right: Value) -> Value {
    let relation = Relation(rawValue: operations[Int(at)].detail) ?? .equal
    return operations[Int(at)].flags == 1
      ? context.noOverload(relation.flipped.symbol, right, left)
      : context.noOverload(relation.symbol, left, right)
  }

  // MARK: Values

  /// The error with the number of the failed operation, unless it already has one.
  @inline(__always)
  func located(_ value: Value, _ at: Int32) -> Value {
    guard value.isError, value.length == 0 else { return value }
    var value = value
    value.length = UInt32(truncatingIfNeeded: at + 1)
    return value
  }

  /// The error for a missing key; the operation's literal is the key.
  func missing(_ at: Int32) -> Value {
    let literal = UnsafeRawPointer(operations + Int(at)) + Self.literalOffset
    return Value(
      kind: .error, payload: UInt64(UInt(bitPattern: literal)), length: UInt32(truncatingIfNeeded: at + 1),
      aux: ExpressionFailure.noSuchKey.rawValue)
  }

  private static let literalOffset = MemoryLayout<Operation>.offset(of: \.literal) ?? 0

  @inline(__always)
  private func outcome(_ truth: UInt8) -> Value {
    truth == Truth.failed ? state.pointee.error : .bool(truth == Truth.yes)
  }

  /// Does the same as ``value(_:)``, with a fast path for operations that only read.
  @inline(__always)
  func quickValue(_ at: Int32) -> Value {
    let operation = operations + Int(at)
    if operation.pointee.code == .slot {
      let value = state.pointee.slots[Int(operation.pointee.a)]
      if !value.isAbsent { return value }
    } else if operation.pointee.code == .arithmetic {
      let left = leaf(operation.pointee.a)
      let right = leaf(operation.pointee.b)
      if left.is(.int), right.is(.int) {
        let (result, fails) = Self.quick(operation.pointee.detail, left.asInt, right.asInt)
        if !fails { return .int(result) }
      } else if left.is(.double), right.is(.double), operation.pointee.detail != Self.modulo {
        return .double(Self.quick(operation.pointee.detail, left.asDouble, right.asDouble))
      }
    }
    return value(at)
  }

  /// The value of an operation that only reads. Absent for all other operations, and if there is no value.
  @inline(__always)
  private func leaf(_ at: Int32) -> Value {
    let operation = operations + Int(at)
    switch operation.pointee.code {
    case .literal: return operation.pointee.literal
    case .variable: return state.pointee.variables[Int(operation.pointee.a)]
    case .slot: return state.pointee.slots[Int(operation.pointee.a)]
    case .local: return state.pointee.locals[Int(operation.pointee.a)]
    case .select: return field(operation)
    default: return .absent
    }
  }

  /// The field of a map in a variable, such as the accumulator of a fold.
  @inline(never)
  private func field(_ operation: UnsafePointer<Operation>) -> Value {
    let from = operations + Int(operation.pointee.a)
    guard from.pointee.code == .variable else { return .absent }
    let map = state.pointee.variables[Int(from.pointee.a)]
    guard map.is(.map) else { return .absent }
    let key = operation.pointee.literal
    let entries = map.entries
    for at in 0..<entries.count {
      let known = entries[at].key
      if known.length == key.length, known.is(.string), Context.equalBytes(known, key), known.flags == key.flags {
        return entries[at].value
      }
    }
    return .absent
  }

  /// Evaluates an operation; on failure the result is an error value.
  func value(_ at: Int32) -> Value {
    let operation = operations + Int(at)
    switch operation.pointee.code {
    case .literal:
      return operation.pointee.literal
    case .slot:
      let value = state.pointee.slots[Int(operation.pointee.a)]
      return value.isAbsent ? missing(at) : value
    case .variable:
      let value = state.pointee.variables[Int(operation.pointee.a)]
      return value.isAbsent ? unset(at) : value
    case .local:
      return state.pointee.locals[Int(operation.pointee.a)]
    case .now:
      return state.pointee.now
    case .and, .or, .not, .compare, .compareSlot, .hasSlot:
      return outcome(bool(at))
    case .conditional:
      let condition = bool(operation.pointee.a)
      if condition == Truth.failed { return state.pointee.error }
      return value(condition == Truth.yes ? operation.pointee.b : operation.pointee.c)
    case .slotOr:
      let guardian = operation.pointee.b
      if guardian >= 0, state.pointee.slots[Int(guardian)].isAbsent { return missing(at) }
      let value = state.pointee.slots[Int(operation.pointee.a)]
      return value.isAbsent ? self.value(operation.pointee.c) : value
    case .slotOrNull:
      let guardian = operation.pointee.b
      if guardian >= 0, state.pointee.slots[Int(guardian)].isAbsent { return missing(at) }
      let value = state.pointee.slots[Int(operation.pointee.a)]
      return value.isAbsent ? .null : value
    case .declared:
      return declared(at, value(operation.pointee.a))
    case .optionalSlot:
      let guardian = operation.pointee.b
      if guardian >= 0, state.pointee.slots[Int(guardian)].isAbsent { return missing(at) }
      let value = state.pointee.slots[Int(operation.pointee.a)]
      return context.optional(value)
    case .select:
      let operand = value(operation.pointee.a)
      return operand.isError ? operand : select(at, operand)
    case .optionalSelect:
      let operand = value(operation.pointee.a)
      return operand.isError ? operand : optionalSelect(at, operand)
    case .has:
      let operand = value(operation.pointee.a)
      return operand.isError ? operand : has(at, operand)
    case .index, .optionalIndex:
      let operand = value(operation.pointee.a)
      if operand.isError { return operand }
      let key = value(operation.pointee.b)
      if key.isError { return key }
      return located(
        index(
          operand, key, optional: operation.pointee.code == .optionalIndex,
          isLenient: operation.pointee.flags != 0), at)
    case .arithmetic:
      var left = leaf(operation.pointee.a)
      if left.isAbsent { left = value(operation.pointee.a) }
      if left.isError { return left }
      var right = leaf(operation.pointee.b)
      if right.isAbsent { right = value(operation.pointee.b) }
      if right.isError { return right }
      if left.is(.int), right.is(.int) {
        let (result, overflow) = Self.quick(operation.pointee.detail, left.asInt, right.asInt)
        if !overflow { return .int(result) }
      } else if left.is(.double), right.is(.double), operation.pointee.detail != Self.modulo {
        return .double(Self.quick(operation.pointee.detail, left.asDouble, right.asDouble))
      }
      return located(
        context.arithmetic(
          SyntaxTree.Operator(rawValue: operation.pointee.detail).unsafelyUnwrapped, left, right,
          mixes: operation.pointee.flags != 0), at)
    case .sum: return sum(at)
    case .negate:
      let operand = value(operation.pointee.a)
      return operand.isError ? operand : located(context.negated(operand), at)
    case .contains:
      let element = value(operation.pointee.a)
      if element.isError { return element }
      let container = value(operation.pointee.b)
      if container.isError { return container }
      return located(contains(element, container), at)
    case .containsIndexed:
      let element = value(operation.pointee.a)
      if element.isError { return element }
      let set = code.pointee.sets + Int(operation.pointee.c)
      return .bool(set.pointee.index(of: context.plain(element), context) != nil)
    case .row, .hasRow: return row(operation)
    case .bind:
      let bound = value(operation.pointee.b)
      // The error of a binding counts only when its name is used; the error of an argument always counts.
      if operation.pointee.flags != 0, bound.isError { return bound }
      state.pointee.locals[Int(operation.pointee.a)] = bound
      return value(operation.pointee.c)
    case .argument:
      return argument(at, value(operation.pointee.a))
    case .attempt:
      let attempted = value(operation.pointee.a)
      guard attempted.isError else { return context.optional(attempted) }
      return Self.isLimit(attempted) ? attempted : Value(kind: .optional)
    case .fail:
      return failing(at)
    case .list: return list(at)
    case .map: return map(at)
    case .object: return object(at)
    case .loop: return loop(at)
    case .optionalMap: return optionalMap(at)
    case .optionalOr, .optionalOrValue: return optionalOr(at)
    case .call: return call(at)
    case .matches: return matches(at)
    }
  }

  private func row(_ operation: UnsafePointer<Operation>) -> Value {
    var key = value(operation.pointee.a)
    if key.isError { return key }
    if key.is(.optional) { key = key.wrapped ?? .absent }
    guard let tables = state.pointee.tables else { preconditionFailure("tables are read in turns only") }
    let row = tables[Int(operation.pointee.b)]._withUnsafeGuaranteedRef { table in
      table.key.clear()
      if !key.isAbsent { KeyText.append(key, to: table.key, context) }
      return table.row
    }
    return operation.pointee.code == .hasRow ? .bool(!row.isAbsent) : context.optional(row)
  }

  /// Whether the failure is that a limit was exceeded.
  private static func isLimit(_ error: Value) -> Bool {
    error.aux == ExpressionFailure.tooManyIterations.rawValue || error.aux == ExpressionFailure.tooLarge.rawValue
  }

  /// The operators on two ints; true: overflow or a rare case, which the general path decides.
  @inline(__always)
  private static func quick(_ op: UInt8, _ a: Int64, _ b: Int64) -> (Int64, Bool) {
    switch op {
    case SyntaxTree.Operator.add.rawValue: return a.addingReportingOverflow(b)
    case SyntaxTree.Operator.subtract.rawValue: return a.subtractingReportingOverflow(b)
    case SyntaxTree.Operator.multiply.rawValue: return a.multipliedReportingOverflow(by: b)
    case SyntaxTree.Operator.modulo.rawValue:
      // Division by 0 fails, and dividing the least int by -1 traps on the processor.
      return b > 0 ? (a % b, false) : (0, true)
    default: return (0, true)
    }
  }

  @inline(__always) private static var modulo: UInt8 { SyntaxTree.Operator.modulo.rawValue }

  /// The operators on two doubles; doubles have no remainder.
  @inline(__always)
  private static func quick(_ op: UInt8, _ a: Double, _ b: Double) -> Double {
    switch op {
    case SyntaxTree.Operator.add.rawValue: return a + b
    case SyntaxTree.Operator.subtract.rawValue: return a - b
    case SyntaxTree.Operator.multiply.rawValue: return a * b
    default: return a / b
    }
  }

  @inline(never)
  private func unset(_ at: Int32) -> Value {
    located(context.failure(.unknownName, operations[Int(at)].literal), at)
  }

  @inline(never)
  private func failing(_ at: Int32) -> Value {
    let operation = operations[Int(at)]
    let reason = ExpressionFailure(rawValue: operation.flags) ?? .unknownName
    return located(context.failure(reason, operation.literal), at)
  }

  // MARK: Selection

  /// The member of a map, or absent; an error if the JSON is malformed.
  @inline(__always)
  private func member(_ map: Value, _ key: Value) -> Value {
    if map.is(.map) { return context.member(of: map, key) }
    let found = JSONParser.lookup(map, key: key.rawBytes)
    return found.isError ? context.failure(.malformedJSON) : found
  }

  @inline(never)
  private func select(_ at: Int32, _ operand: Value) -> Value {
    let operation = operations + Int(at)
    if operand.isAnyMap {
      let value = member(operand, operation.pointee.literal)
      if value.isAbsent { return operation.pointee.flags & 2 != 0 ? .null : missing(at) }
      return located(value, at)
    }
    if operand.is(.optional) { return optionalSelect(at, operand) }
    return located(context.failure(.notSelectable, .absent, text: operand.typeName), at)
  }

  @inline(never)
  private func optionalSelect(_ at: Int32, _ operand: Value) -> Value {
    let operation = operations + Int(at)
    var target = operand
    if operand.is(.optional) {
      guard let wrapped = operand.wrapped else { return operand }
      target = wrapped
    }
    if target.isAnyMap {
      let value = member(target, operation.pointee.literal)
      if value.isError { return located(value, at) }
      return context.optional(value)
    }
    if operation.pointee.flags != 0 { return Value(kind: .optional) }
    // In strict mode: `.f` on an optional whose value has no fields, or `x.?f` on such a value.
    return operand.is(.optional)
      ? missing(at) : located(context.failure(.notSelectable, .absent, text: target.typeName), at)
  }

  @inline(never)
  private func has(_ at: Int32, _ operand: Value) -> Value {
    let operation = operations + Int(at)
    var target = operand
    if operand.is(.optional) {
      guard let wrapped = operand.wrapped else { return .bool(false) }
      target = wrapped
    }
    if target.isAnyMap {
      let value = member(target, operation.pointee.literal)
      return value.isError ? located(value, at) : .bool(!value.isAbsent)
    }
    if operation.pointee.flags != 0 { return .bool(false) }
    return located(context.failure(.notSelectable, .absent, text: target.typeName), at)
  }

  @inline(never)
  private func index(_ operand: Value, _ key: Value, optional: Bool, isLenient: Bool) -> Value {
    var target = operand
    var wraps = optional
    if operand.is(.optional) {
      guard let wrapped = operand.wrapped else { return operand }
      target = wrapped
      wraps = true
    }
    let value = element(of: target, key)
    guard wraps else { return value }
    if value.isError {
      let reason = ExpressionFailure(rawValue: value.aux)
      if reason == .noSuchKey || reason == .indexOutOfRange { return Value(kind: .optional) }
      if isLenient, reason == .noSuchOverload { return Value(kind: .optional) }
      return value
    }
    return context.optional(value)
  }

  private func element(of target: Value, _ key: Value) -> Value {
    // One element of JSON text is found without parsing the others.
    if target.is(.jsonList), key.is(.int), key.asInt >= 0 {
      let found = JSONParser.element(target, at: Int(key.asInt))
      if found.isError { return context.failure(.malformedJSON) }
      return found.isAbsent ? context.failure(.indexOutOfRange, key) : found
    }
    if target.is(.jsonMap), key.is(.string) {
      let found = member(target, context.plain(key))
      return found.isAbsent ? context.failure(.noSuchKey, key) : found
    }
    let target = context.expanded(target)
    if target.is(.map) {
      let found = context.member(of: target, context.plain(key))
      return found.isAbsent ? context.failure(.noSuchKey, key) : found
    }
    guard target.is(.list) else { return target.isError ? target : context.noOverload("[]", target, key) }
    var at: Int64
    switch key.what {
    case .int: at = key.asInt
    case .uint: at = Int64(exactly: key.asUInt) ?? -1
    case .double:
      guard let whole = Int64(exactly: key.asDouble) else { return context.failure(.badIndex, key) }
      at = whole
    default: return context.failure(.badIndex, key)
    }
    guard at >= 0, at < Int64(target.length) else { return context.failure(.indexOutOfRange, key) }
    return target.elements[Int(at)]
  }

  @inline(never)
  private func contains(_ element: Value, _ container: Value) -> Value {
    let container = context.expanded(container)
    if container.is(.list) {
      if element.is(.string) {
        let text = context.plain(element)
        for other in container.elements where other.is(.string) {
          if context.equalStrings(text, other) { return .bool(true) }
        }
        return .bool(false)
      }
      for other in container.elements {
        if context.equal(element, other) { return .bool(true) }
      }
      return .bool(false)
    }
    if container.is(.map) {
      return .bool(!context.member(of: container, context.plain(element)).isAbsent)
    }
    return container.isError ? container : context.noOverload("in", element, container)
  }

  // MARK: Optionals

  @inline(never)
  private func optionalOr(_ at: Int32) -> Value {
    let operation = operations + Int(at)
    let operand = value(operation.pointee.a)
    if operand.isError { return operand }
    guard operand.is(.optional) else {
      return located(context.failure(.notOptional, .absent, text: operand.typeName), at)
    }
    guard let wrapped = operand.wrapped else {
      let other = value(operation.pointee.b)
      if operation.pointee.code == .optionalOr, !other.is(.optional), !other.isError {
        return located(context.failure(.notOptional, .absent, text: other.typeName), at)
      }
      return other
    }
    return operation.pointee.code == .optionalOr ? operand : wrapped
  }

  @inline(never)
  private func optionalMap(_ at: Int32) -> Value {
    let operation = operations + Int(at)
    let operand = value(operation.pointee.b)
    if operand.isError { return operand }
    guard operand.is(.optional) else {
      return located(context.failure(.notOptional, .absent, text: operand.typeName), at)
    }
    guard let wrapped = operand.wrapped else { return operand }
    state.pointee.locals[Int(operation.pointee.a)] = wrapped
    let result = value(operation.pointee.c)
    if result.isError { return result }
    if operation.pointee.detail == 1 {
      return result.is(.optional)
        ? result : located(context.failure(.notOptional, .absent, text: result.typeName), at)
    }
    return context.optional(result)
  }

  // MARK: Calls

  @inline(never)
  private func call(_ at: Int32) -> Value {
    let operation = operations + Int(at)
    let count = Int(operation.pointee.b)
    let children = code.pointee.children + Int(operation.pointee.a)
    return withUnsafeTemporaryAllocation(of: Value.self, capacity: max(count, 1)) { buffer in
      guard let values = buffer.baseAddress else { return .absent }
      for index in 0..<count {
        let argument = context.argument(value(children[index]))
        if argument.isError { return located(argument, at) }
        values[index] = argument
      }
      return located(dispatch(code.pointee.sites + Int(operation.pointee.c), values, count), at)
    }
  }

  private func dispatch(
    _ site: UnsafePointer<Program.Site>, _ values: UnsafeMutablePointer<Value>, _ count: Int
  ) -> Value {
    let candidates = code.pointee.candidates + Int(site.pointee.first)
    for index in 0..<Int(site.pointee.count) {
      let kinds = candidates[index].kinds
      if count > 0, kinds.0 & KindSet.of(values[0]) == 0 { continue }
      if count > 1, kinds.1 & KindSet.of(values[1]) == 0 { continue }
      if count > 2, kinds.2 & KindSet.of(values[2]) == 0 { continue }
      if count > 3, kinds.3 & KindSet.of(values[3]) == 0 { continue }
      let arguments = Arguments(values: values, count: count, context: context)
      return candidates[index].body._withUnsafeGuaranteedRef { $0.call(arguments) }
    }
    return mismatch(site, values, count)
  }

  @inline(never)
  private func mismatch(
    _ site: UnsafePointer<Program.Site>, _ values: UnsafeMutablePointer<Value>, _ count: Int
  ) -> Value {
    let kinds = (0..<count).map { values[$0].shortTypeName }
    return context.failure(
      .noSuchOverload, .absent,
      text: "'\(site.pointee.name)' is not defined for \(count == 1 ? kinds[0] : "(\(kinds.joined(separator: ", ")))")")
  }

  @inline(never)
  private func matches(_ at: Int32) -> Value {
    let operation = operations + Int(at)
    let text = context.argument(value(operation.pointee.a))
    if text.isError { return located(text, at) }
    guard text.is(.string), text.flags == 0 else {
      return located(context.noOverload("matches", text), at)
    }
    return .bool(code.pointee.patterns[Int(operation.pointee.c)].matches(text.rawBytes))
  }
}
