/// The aggregates of one step of the plan; all of its chains share this form.
final class FiguresForm {
  struct Call {
    var function: AggregateFunction
    /// The index of the argument; -1 if there is none.
    var argument: Int
    var condition: Int
    /// For distinct values: the index of the set, and the bit of this figure in it.
    var set = -1
    var bit: UInt32 = 0
    /// The result if no value was counted, for sums.
    var zero = Value.null
  }

  let calls: [Call]
  fileprivate let arguments: [Program]
  fileprivate let conditions: [Program]
  /// The arguments of the sets of distinct values.
  fileprivate let sets: [Int]
  let builder: ValueBuilder
  /// The index of the first aggregate's variable.
  private let firstVariable: Int
  /// The maximum number of values in a set.
  let limit: Int
  /// Whether figures are sent once and then take no further events, so that their values need not be copied.
  let isSentOnce: Bool
  // The evaluated arguments of the current event.
  fileprivate let values: UnsafeMutablePointer<Value>
  fileprivate let holds: UnsafeMutablePointer<Bool>
  fileprivate let next: UnsafeMutablePointer<Value>
  fileprivate let buffer = OutputBuffer()

  init?(_ parameter: FiguresParameter, firstVariable: Int, limit: Int, isSentOnce: Bool = false) {
    guard let builder = parameter.makeBuilder() else { return nil }
    self.builder = builder
    self.firstVariable = firstVariable
    self.limit = limit
    self.isSentOnce = isSentOnce
    arguments = parameter.arguments.map(\.expression.required)
    conditions = parameter.conditions.map(\.expression.required)
    var sets: [(argument: Int, bits: UInt32)] = []
    calls = parameter.calls.map { call in
      var made = Call(function: call.function, argument: call.argument ?? -1, condition: call.condition ?? -1)
      made.zero = parameter.zero(of: call)
      guard call.function == .countDistinct else { return made }
      // Figures with the same argument share a set, in which each has a bit.
      if let at = sets.firstIndex(where: { $0.argument == made.argument && $0.bits < 1 << 31 }) {
        sets[at].bits <<= 1
        (made.set, made.bit) = (at, sets[at].bits)
      } else {
        sets.append((made.argument, 1))
        (made.set, made.bit) = (sets.count - 1, 1)
      }
      return made
    }
    self.sets = sets.map(\.argument)
    values = .allocate(capacity: max(1, arguments.count))
    values.initialize(repeating: .absent, count: max(1, arguments.count))
    holds = .allocate(capacity: max(1, conditions.count))
    holds.initialize(repeating: false, count: max(1, conditions.count))
    next = .allocate(capacity: max(1, calls.count))
    next.initialize(repeating: .absent, count: max(1, calls.count))
  }

  deinit {
    values.deallocate()
    holds.deallocate()
    next.deallocate()
  }

  /// The reason why an event cannot be counted.
  enum Refusal {
    case failed(Value, Program)
    case refused(Diagnostic.Code, String)
  }

  @inline(__always)
  fileprivate func counts(_ call: Call) -> Bool { call.condition < 0 || holds[call.condition] }

  /// Evaluates the arguments for the event that `frame` was loaded with.
  func evaluate(_ frame: EventFrame) -> Refusal? {
    for index in conditions.indices {
      switch conditions[index].evaluateBool(frame) {
      case .yes: holds[index] = true
      case .no: holds[index] = false
      case .failed: return .failed(frame.frame.lastError, conditions[index])
      }
    }
    for index in arguments.indices { values[index] = .error }
    for call in calls where call.argument >= 0 && values[call.argument].isError && counts(call) {
      var value = arguments[call.argument].evaluate(frame)
      if value.isError { return .failed(value, arguments[call.argument]) }
      if value.is(.optional) { value = value.wrapped ?? .null }
      values[call.argument] = value.isAbsent ? .null : value
    }
    return nil
  }

  /// The results of the expressions that contain the aggregates; an error if one of them fails.
  func build(_ figures: Figures, _ frame: EventFrame, _ failing: inout Unmanaged<Program>?) -> Value {
    for index in calls.indices { frame.set(firstVariable + index, figures.value(index)) }
    let value = builder.build(frame, &failing)
    return value.is(.optional) ? value.wrapped ?? .null : value
  }
}

/// The aggregates of one chain, or of one window.
final class Figures {
  private struct Cell {
    /// The sum, or the value kept.
    var value = OwnedValue()
    /// The number of values.
    var count: Int64 = 0
    /// The position in the order of the first or last value.
    var at: Int64 = 0
  }

  let form: FiguresForm
  @exclusivity(unchecked) private var cells: [Cell]
  private let sets: [DistinctValues]
  /// The number of events.
  private(set) var events = 0
  /// The size of its values in bytes. `keys`: the number of distinct values that it stores.
  private(set) var bytes: Int
  private(set) var keys = 0

  init(_ form: FiguresForm) {
    self.form = form
    cells = [Cell](repeating: Cell(), count: form.calls.count)
    bytes = form.calls.count &* MemoryLayout<Cell>.stride
    sets = form.sets.map { _ in DistinctValues() }
  }

  /// Why the event that the form has evaluated cannot be counted; nil: it can.
  @inline(__always)
  func refusal(_ frame: EventFrame) -> FiguresForm.Refusal? {
    let context = Context(state: frame.evaluation)
    for (index, call) in form.calls.enumerated() where call.argument >= 0 && form.counts(call) {
      let value = form.values[call.argument]
      if value.is(.null) { continue }
      switch call.function {
      case .sum, .avg:
        guard value.isNumber || value.is(.duration) else {
          return .refused(
            .unexpectedValue, "'\(call.function.rawValue)' takes numbers or durations, not \(value.kindName)")
        }
        let next = Self.sum(call.function, cells[index].value.value, cells[index].count, value, context)
        guard !next.isError else {
          return .refused(
            .unexpectedValue,
            value.is(.duration) != cells[index].value.value.is(.duration)
              ? "'\(call.function.rawValue)' cannot add numbers and durations" : "a sum is beyond 64 bits")
        }
        form.next[index] = next
      case .min, .max:
        guard cells[index].count > 0 else { continue }
        let order = context.compare(call.function == .min ? .less : .greater, value, cells[index].value.value)
        guard order != Truth.failed else {
          return .refused(
            .unexpectedValue,
            "'\(call.function.rawValue)' cannot compare \(value.kindName) with \(cells[index].value.value.kindName)")
        }
        form.next[index] = .bool(order == Truth.yes)
      case .countDistinct:
        guard sets[call.set].count < form.limit || sets[call.set].contains(value, form.buffer, context) else {
          return .refused(.limitReached, "'countDistinct' has reached its limit of \(form.limit) values")
        }
      case .count, .first, .last: break
      }
    }
    return nil
  }

  /// Adds the event that the form has evaluated: either all figures count it, or none does. `at`: its position in the
  /// order of `first` and `last`.
  func add(_ frame: EventFrame, at: Int64) -> FiguresForm.Refusal? {
    if let refusal = refusal(frame) { return refusal }
    let context = Context(state: frame.evaluation)
    events += 1
    for (index, call) in form.calls.enumerated() where form.counts(call) {
      if call.function == .count {
        cells[index].count &+= 1
        continue
      }
      let value = form.values[call.argument]
      if value.is(.null) { continue }
      switch call.function {
      case .sum, .avg: cells[index].value.assign(form.next[index])
      case .min, .max: if cells[index].count == 0 || form.next[index].asBool { keep(value, index) }
      case .first:
        if cells[index].count == 0 || at < cells[index].at {
          keep(value, index)
          cells[index].at = at
        }
      case .last:
        if cells[index].count == 0 || at >= cells[index].at {
          keep(value, index)
          cells[index].at = at
        }
      case .countDistinct: break
      case .count: break
      }
      cells[index].count &+= 1
    }
    for (index, argument) in form.sets.enumerated() {
      let value = form.values[argument]
      if value.isError || value.is(.null) { continue }
      var bits: UInt32 = 0
      for call in form.calls where call.set == index && form.counts(call) { bits |= call.bit }
      if bits != 0 { changing(index) { $0.insert(value, bits, form.buffer, context) } }
    }
    return nil
  }

  /// Subtracts an event that was counted, and that the form has evaluated again.
  func takeBack(_ frame: EventFrame) -> FiguresForm.Refusal? {
    let context = Context(state: frame.evaluation)
    for (index, call) in form.calls.enumerated() where form.counts(call) {
      guard call.argument >= 0 else { continue }
      let value = form.values[call.argument]
      if value.is(.null) { continue }
      guard call.function.takesBack else {
        return .refused(.unexpectedValue, "'\(call.function.rawValue)' cannot subtract a retracted value")
      }
      guard cells[index].count > 0, value.isNumber || value.is(.duration) else {
        return .refused(.unexpectedValue, "a value is retracted that was not counted")
      }
      let taken = call.function == .avg && value.isNumber || value.is(.double) ? .double(value.asNumber) : value
      let next = context.arithmetic(.subtract, cells[index].value.value, taken, mixes: true)
      guard !next.isError else { return .refused(.unexpectedValue, "a sum is beyond 64 bits") }
      form.next[index] = next
    }
    events -= 1
    for (index, call) in form.calls.enumerated() where form.counts(call) {
      if call.argument >= 0, call.function != .count {
        if form.values[call.argument].is(.null) { continue }
        // Without values, no rounding error of doubles may remain.
        cells[index].value.assign(cells[index].count == 1 ? .null : form.next[index])
      }
      cells[index].count &-= 1
    }
    return nil
  }

  /// Keeps a value of the input, and adds its bytes to the size.
  @inline(__always)
  private func keep(_ value: Value, _ index: Int) {
    let before = cells[index].value.byteCount
    cells[index].value.assign(value)
    bytes &+= cells[index].value.byteCount &- before
  }

  /// Changes a set, and updates the counts of its contents.
  private func changing(_ index: Int, _ body: (DistinctValues) -> Void) {
    let before = (keys: sets[index].count, bytes: sets[index].bytes)
    body(sets[index])
    keys &+= sets[index].count &- before.keys
    bytes &+= sets[index].bytes &- before.bytes
  }

  private static func sum(
    _ function: AggregateFunction, _ total: Value, _ count: Int64, _ value: Value, _ context: Context
  ) -> Value {
    // Averages and doubles are computed as doubles.
    let value = value.isNumber && function == .avg || value.is(.double) ? .double(value.asNumber) : value
    if count == 0 { return value }
    if value.is(.int), total.is(.int) {
      let (sum, overflow) = total.asInt.addingReportingOverflow(value.asInt)
      return overflow ? .error : .int(sum)
    }
    if value.is(.double), total.is(.double) { return .double(total.asDouble + value.asDouble) }
    return context.arithmetic(.add, total, value, mixes: true)
  }

  /// The value of a figure; null if there is none.
  func value(_ index: Int) -> Value {
    let cell = cells[index]
    let call = form.calls[index]
    switch call.function {
    case .count: return .int(cell.count)
    case .countDistinct: return .int(sets[call.set].count(call.bit))
    case .sum: return cell.count == 0 ? call.zero : cell.value.value
    case .avg:
      guard cell.count > 0 else { return .null }
      return cell.value.value.is(.duration)
        ? .duration(nanoseconds: cell.value.value.asInt / cell.count)
        : .double(cell.value.value.asNumber / Double(cell.count))
    case .min, .max, .first, .last: return cell.count == 0 ? .null : cell.value.value
    }
  }

  /// Keeps values that were returned valid until the end of the turn.
  func keep(in arena: Arena) { arena.keep(self) }

  /// Adds the figures of `other`, which must not be used afterwards. Figures that cannot be added or compared stay
  /// unchanged.
  func merge(_ other: Figures, _ context: Context) {
    events += other.events
    for (index, call) in form.calls.enumerated() where other.cells[index].count > 0 {
      let value = other.cells[index].value.value
      let isFirst = cells[index].count == 0
      switch call.function {
      case .count, .countDistinct: break
      case .sum, .avg:
        let sum = isFirst ? value : Self.sum(call.function, cells[index].value.value, 1, value, context)
        // If the sum of whole numbers overflows, a double approximates it.
        cells[index].value.assign(
          !sum.isError ? sum : .double(cells[index].value.value.asNumber + value.asNumber))
      case .min, .max:
        if isFirst
          || context.compare(call.function == .min ? .less : .greater, value, cells[index].value.value) == Truth.yes
        {
          keep(value, index)
        }
      case .first:
        if isFirst || other.cells[index].at < cells[index].at {
          keep(value, index)
          cells[index].at = other.cells[index].at
        }
      case .last:
        if isFirst || other.cells[index].at >= cells[index].at {
          keep(value, index)
          cells[index].at = other.cells[index].at
        }
      }
      cells[index].count &+= other.cells[index].count
    }
    for index in sets.indices { changing(index) { $0.formUnion(other.sets[index]) } }
  }

  // MARK: State

  func save(_ state: inout StateWriter) {
    state.write(events)
    for cell in cells {
      state.write(cell.value)
      state.write(cell.count)
      state.write(cell.at)
    }
    for set in sets { set.save(&state) }
  }

  func restore(_ state: inout StateReader) throws(StateFault) {
    events = try state.read(in: 0...(1 << 62))
    for (index, call) in form.calls.enumerated() {
      bytes &-= cells[index].value.byteCount
      cells[index].value = try state.read()
      bytes &+= cells[index].value.byteCount
      cells[index].count = Int64(try state.read(in: 0...(1 << 62)))
      cells[index].at = try state.read()
      let value = cells[index].value.value
      if call.function == .sum || call.function == .avg, cells[index].count > 0 {
        guard value.isNumber || value.is(.duration) else { throw StateFault("a sum is not a number") }
      }
    }
    for set in sets {
      try set.restore(&state)
      keys &+= set.count
      bytes &+= set.bytes
    }
  }
}

extension Value {
  /// An error value without a failure: not evaluated, or not computable.
  fileprivate static var error: Value { Value(kind: .error, payload: 0) }
}

/// A set of values in which each figure has a bit for the values that it has counted. Exact; a whole number takes
/// sixteen to thirty-two bytes.
final class DistinctValues {
  /// Open addressing with a seeded hash; an entry without bits is free.
  private var numbers: UnsafeMutablePointer<Int64>?
  private var bits: UnsafeMutablePointer<UInt32>?
  private var mask = -1
  private var numberCount = 0
  /// All values that are not whole numbers, as ``KeyText``.
  private var texts: KeyTable?
  private var textBits: [UInt32] = []
  /// The number of values that each figure has counted, by its bit.
  private var counts: [Int64] = []
  /// Random, so that senders of values cannot predict collisions.
  private static let seed = UInt64.random(in: 0...UInt64.max) | 1

  deinit {
    numbers?.deallocate()
    bits?.deallocate()
  }

  var count: Int { numberCount + (texts?.count ?? 0) }
  /// The size of the values in bytes.
  var bytes: Int { numberCount &* MemoryLayout<Int64>.stride &+ (texts?.textBytes ?? 0) }

  func count(_ bit: UInt32) -> Int64 {
    let index = bit.trailingZeroBitCount
    return index < counts.count ? counts[index] : 0
  }

  /// The whole number that a value is; nil for any other value.
  @inline(__always)
  private static func number(_ value: Value) -> Int64? {
    value.is(.int) || value.is(.uint) && value.payload >> 63 == 0 ? Int64(bitPattern: value.payload) : nil
  }

  @inline(__always)
  private func slot(_ number: Int64) -> Int {
    var hash = (UInt64(bitPattern: number) ^ Self.seed) &* 0x9E37_79B9_7F4A_7C15
    hash ^= hash >> 32
    hash = hash &* Self.seed
    return Int(truncatingIfNeeded: hash >> 20) & mask
  }

  func contains(_ value: Value, _ buffer: OutputBuffer, _ context: Context) -> Bool {
    if let number = Self.number(value) {
      guard let numbers, let bits else { return false }
      var at = slot(number)
      while bits[at] != 0 {
        if numbers[at] == number { return true }
        at = (at &+ 1) & mask
      }
      return false
    }
    guard let texts else { return false }
    buffer.clear()
    KeyText.append(value, to: buffer, context)
    return texts.find(buffer.bytes, texts.hash(buffer.bytes)) != nil
  }

  func insert(_ value: Value, _ new: UInt32, _ buffer: OutputBuffer, _ context: Context) {
    if let number = Self.number(value) {
      insert(number, new)
      return
    }
    buffer.clear()
    KeyText.append(value, to: buffer, context)
    insert(text: buffer.bytes, new)
  }

  private func insert(_ number: Int64, _ new: UInt32) {
    if (numberCount &+ 1) &* 4 > (mask &+ 1) &* 3 { grow() }
    guard let numbers, let bits else { return }
    var at = slot(number)
    while bits[at] != 0, numbers[at] != number { at = (at &+ 1) & mask }
    if bits[at] == 0 {
      numbers[at] = number
      numberCount &+= 1
    }
    mark(new & ~bits[at])
    bits[at] |= new
  }

  private func insert(text: UnsafeRawBufferPointer, _ new: UInt32) {
    let texts = texts ?? KeyTable()
    self.texts = texts
    let hash = texts.hash(text)
    let number = texts.find(text, hash) ?? texts.insert(text, hash)
    while textBits.count <= number { textBits.append(0) }
    mark(new & ~textBits[number])
    textBits[number] |= new
  }

  private func mark(_ new: UInt32) {
    var left = new
    while left != 0 {
      let index = left.trailingZeroBitCount
      while counts.count <= index { counts.append(0) }
      counts[index] &+= 1
      left &= left &- 1
    }
  }

  private func grow() {
    let (oldNumbers, oldBits, oldMask) = (numbers, bits, mask)
    mask = oldMask < 0 ? 3 : oldMask &* 2 &+ 1
    let newNumbers = UnsafeMutablePointer<Int64>.allocate(capacity: mask + 1)
    let newBits = UnsafeMutablePointer<UInt32>.allocate(capacity: mask + 1)
    newNumbers.initialize(repeating: 0, count: mask + 1)
    newBits.initialize(repeating: 0, count: mask + 1)
    numbers = newNumbers
    bits = newBits
    guard let oldNumbers, let oldBits else { return }
    for old in 0...oldMask where oldBits[old] != 0 {
      var at = slot(oldNumbers[old])
      while newBits[at] != 0 { at = (at &+ 1) & mask }
      newNumbers[at] = oldNumbers[old]
      newBits[at] = oldBits[old]
    }
    oldNumbers.deallocate()
    oldBits.deallocate()
  }

  func formUnion(_ other: DistinctValues) {
    if let numbers = other.numbers, let bits = other.bits {
      for at in 0...other.mask where bits[at] != 0 { insert(numbers[at], bits[at]) }
    }
    guard let texts = other.texts else { return }
    for number in other.textBits.indices where other.textBits[number] != 0 {
      insert(text: texts.text(number), other.textBits[number])
    }
  }

  // MARK: State

  func save(_ state: inout StateWriter) {
    state.write(UInt64(numberCount))
    if let numbers, let bits {
      for at in 0...mask where bits[at] != 0 {
        state.write(numbers[at])
        state.write(UInt64(bits[at]))
      }
    }
    state.write(each: textBits.indices.filter { textBits[$0] != 0 }) { state, number in
      state.append(counted: texts?.text(number) ?? UnsafeRawBufferPointer(start: nil, count: 0))
      state.write(UInt64(textBits[number]))
    }
  }

  func restore(_ state: inout StateReader) throws(StateFault) {
    for _ in 0..<(try state.count()) {
      let number: Int64 = try state.read()
      insert(number, try Self.bits(&state))
    }
    for _ in 0..<(try state.count()) {
      let text = try state.counted()
      let bits = try Self.bits(&state)
      text.withUnsafeBytes { insert(text: $0, bits) }
    }
  }

  private static func bits(_ state: inout StateReader) throws(StateFault) -> UInt32 {
    guard let bits = UInt32(exactly: try state.read(UInt64.self)), bits != 0 else {
      throw StateFault("a value belongs to no figure")
    }
    return bits
  }
}
