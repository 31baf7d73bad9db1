import CJSON

/// The state of evaluations: slots, variables, memory. One for each running node; not thread-safe.
///
/// Result values live in the arena, in the event or in the program, so they are valid until the end of the turn.
package final class EvaluationFrame {
  /// The state that evaluations read and write, in raw memory: access needs neither checks nor retain and release.
  struct State {
    var slots: UnsafeMutablePointer<Value>
    var variables: UnsafeMutablePointer<Value>
    var locals: UnsafeMutablePointer<Value>
    /// The error of the last evaluation that ended as ``Program/Tri/failed``.
    var error: Value
    var now: Value
    var iterationsLeft: Int
    /// The remaining iterations of outermost loops.
    var outerIterationsLeft: Int
    /// The limit of ``Arena/allocated`` in this evaluation.
    var allocationLimit: Int
    /// The tokenizer for single raw JSON events; made when first needed.
    var scanner: OpaquePointer?
    /// Valid as long as the frame lives.
    let frame: Unmanaged<EvaluationFrame>
    var arena: Unmanaged<Arena>
    let json: Unmanaged<JSONParser>
    let scratch: Unmanaged<OutputBuffer>
    /// The document with known tokens, if any: ``JSONParser/indexed``.
    let indexed: UnsafePointer<rx_lines_row>
    /// The document for which the slots were last filled, if several frames share them.
    let filled: UnsafeMutablePointer<SlotBank.Document>?
    /// The tables of the pipeline, by their indexes; nil: expressions see none.
    var tables: UnsafePointer<Unmanaged<RunningTable>>?
    /// See ``EvaluationFrame/isStrict``.
    var isStrict = false
  }

  /// Whether functions follow the CEL specification where they otherwise accept more: in strict mode an IPv4 address
  /// mapped to IPv6 (`::ffff:10.0.0.1`) is not an address.
  package var isStrict: Bool {
    get { state.pointee.isStrict }
    set { state.pointee.isStrict = newValue }
  }

  let state: UnsafeMutablePointer<State>
  private(set) package var arena: Arena
  package let json: JSONParser
  private let scratch = OutputBuffer(capacity: 256)
  private let slotCount: Int
  /// Owns the slots if other frames share them.
  private let bank: SlotBank?
  private let variableCount: Int
  private var localCount: Int
  /// The limit on the iterations of all inner loops in one evaluation.
  package var iterationLimit = ExpressionLimits.iterations
  /// The limit on the iterations of outermost loops, whose time is proportional to their input.
  package var outerIterationLimit = ExpressionLimits.outerIterations
  /// Patterns computed at run time, newest last; at most ``patternLimit``.
  private var patterns: [Pattern] = []
  private static let patternLimit = 32
  /// Grok patterns computed at run time.
  private var grokPatterns:
    [(source: [UInt8], definitions: [GrokDefinitions], naming: GrokPattern.Naming, pattern: GrokPattern)] = []

  /// `variables`: the number of variables that the programs' scopes declare. `slots`: ``Projection/slotCount``.
  package convenience init(variables: Int = 0, slots: Int = 0, arena: Arena, json: JSONParser) {
    self.init(variables: variables, slots: slots, bank: nil, arena: arena, json: json)
  }

  init(variables: Int, slots: Int, bank: SlotBank?, arena: Arena, json: JSONParser) {
    self.bank = bank
    self.arena = arena
    self.json = json
    slotCount = max(slots, 1)
    variableCount = max(variables, 1)
    localCount = 16
    let slotMemory = bank?.slots ?? .allocate(capacity: slotCount)
    if bank == nil { slotMemory.initialize(repeating: .absent, count: slotCount) }
    let variableMemory = UnsafeMutablePointer<Value>.allocate(capacity: variableCount)
    variableMemory.initialize(repeating: .absent, count: variableCount)
    let localMemory = UnsafeMutablePointer<Value>.allocate(capacity: localCount)
    localMemory.initialize(repeating: .absent, count: localCount)
    state = .allocate(capacity: 1)
    state.initialize(
      to: State(
        slots: slotMemory, variables: variableMemory, locals: localMemory, error: .absent,
        now: .timestamp(seconds: 0, nanoseconds: 0), iterationsLeft: ExpressionLimits.iterations,
        outerIterationsLeft: ExpressionLimits.outerIterations,
        allocationLimit: .max, scanner: nil,
        frame: .passUnretained(self), arena: .passUnretained(arena), json: .passUnretained(json),
        scratch: .passUnretained(scratch), indexed: UnsafePointer(json.indexed),
        filled: bank?.document))
  }

  deinit {
    if bank == nil { state.pointee.slots.deallocate() }
    state.pointee.variables.deallocate()
    state.pointee.locals.deallocate()
    if let scanner = state.pointee.scanner { rx_lines_free(scanner) }
    state.deallocate()
  }

  /// The paths of the projection, filled for the current event by ``Projection/fill(_:_:)``.
  package var slots: UnsafeMutablePointer<Value> { state.pointee.slots }

  /// The variables of the scope by index.
  package var variables: UnsafeMutablePointer<Value> { state.pointee.variables }

  /// The variable with this index in the scope. Setting checks the index against the count in `init`.
  @inline(__always)
  package subscript(index: Int) -> Value {
    get { state.pointee.variables[index] }
    set {
      precondition(index < variableCount)
      state.pointee.variables[index] = newValue
    }
  }

  /// The variable `now`: a timestamp, fixed for the event.
  package var now: Value {
    get { state.pointee.now }
    set { state.pointee.now = newValue }
  }

  /// Changes the arena; values of the old one must no longer be used.
  package func use(_ arena: Arena) {
    self.arena = arena
    state.pointee.arena = .passUnretained(arena)
  }

  /// Makes room for `count` loop variables.
  func reserveLocals(_ count: Int) {
    guard count > localCount else { return }
    state.pointee.locals.deallocate()
    let memory = UnsafeMutablePointer<Value>.allocate(capacity: count)
    memory.initialize(repeating: .absent, count: count)
    state.pointee.locals = memory
    localCount = count
  }

  /// The compiled form of a pattern computed at run time.
  func pattern(_ bytes: UnsafeRawBufferPointer) -> Pattern {
    for at in patterns.indices.reversed() where patterns[at].matches(source: bytes) {
      return patterns[at]
    }
    let new = Pattern(bytes)
    if patterns.count >= Self.patternLimit { patterns.removeFirst() }
    patterns.append(new)
    return new
  }

  func grokPattern(
    _ source: UnsafeRawBufferPointer, _ definitions: [GrokDefinitions], _ naming: GrokPattern.Naming
  ) throws(GrokPattern.Fault) -> GrokPattern {
    for known in grokPatterns.reversed()
    where known.source.elementsEqual(source) && known.naming == naming && known.definitions == definitions {
      return known.pattern
    }
    let new = try GrokPattern(source, definitions, naming)
    if grokPatterns.count >= Self.patternLimit { grokPatterns.removeFirst() }
    grokPatterns.append((Array(source), definitions, naming, new))
    return new
  }
}

/// Slots that several frames use for the same documents.
final class SlotBank {
  struct Document {
    var payload: UInt64 = 0
    var length: UInt32 = 0
  }
  let slots: UnsafeMutablePointer<Value>
  let document: UnsafeMutablePointer<Document>

  init(_ count: Int) {
    slots = .allocate(capacity: max(count, 1))
    slots.initialize(repeating: .absent, count: max(count, 1))
    document = .allocate(capacity: 1)
    document.initialize(to: Document())
  }

  deinit {
    slots.deallocate()
    document.deallocate()
  }

  /// Call at the end of each turn: in the next one the same address may hold another document.
  func forget() { document.pointee = Document() }
}

/// The context of a function: the frame of the evaluation, without reference counting.
struct Context {
  let state: UnsafeMutablePointer<EvaluationFrame.State>

  var arena: Arena { state.pointee.arena._withUnsafeGuaranteedRef { $0 } }
  var json: JSONParser { state.pointee.json._withUnsafeGuaranteedRef { $0 } }
  var frame: EvaluationFrame { state.pointee.frame._withUnsafeGuaranteedRef { $0 } }
  var isStrict: Bool { state.pointee.isStrict }

  // MARK: Failures

  /// An error about `detail`; `note` is the function's explanation. Neither is formatted before it is needed.
  @inline(never)
  func failure(
    _ reason: ExpressionFailure, _ detail: Value = .absent, _ note: StaticString? = nil
  ) -> Value {
    let block = arena.elements(2)
    block[0] = detail
    block[1] = note.map { Value.literal($0) } ?? .absent
    return Value(
      kind: .error, payload: UInt64(UInt(bitPattern: UnsafeRawPointer(block.baseAddress))),
      aux: reason.rawValue)
  }

  /// An error with a note that is formatted now: for rare failures that users must see in full.
  func failure(_ reason: ExpressionFailure, _ detail: Value = .absent, text: String) -> Value {
    let block = arena.elements(2)
    block[0] = detail
    block[1] = arena.string(text)
    return Value(
      kind: .error, payload: UInt64(UInt(bitPattern: UnsafeRawPointer(block.baseAddress))),
      aux: reason.rawValue)
  }

  /// The error of an operator or function applied to kinds of values that it does not accept.
  @inline(never)
  func noOverload(_ symbol: String, _ values: Value...) -> Value {
    let kinds = values.map(\.shortTypeName)
    var text = "'\(symbol)' is not defined for \(kinds.joined(separator: " and "))"
    if values.count == 2, let hint = Self.conversion(symbol, kinds) { text += "; \(hint)" }
    return failure(.noSuchOverload, .absent, text: text)
  }

  /// Advice on converting the operands to one type.
  private static func conversion(_ symbol: String, _ kinds: [String]) -> String? {
    func has(_ kind: String) -> Bool { kinds.contains(kind) }
    let number = kinds.first { $0 == "int" || $0 == "uint" || $0 == "double" }
    if symbol == "in" { return kinds[1] == "string" ? "write text.contains(part)" : nil }
    if has("null") { return "write optional.ofNonNull(...).orValue(...) for what may be null" }
    if symbol == "+", has("string"), let other = kinds.first(where: { $0 != "string" }) {
      return ["list", "map", "optional"].contains(other) ? nil : "write string(...) around the \(other)"
    }
    if has("string"), let number { return "write \(number)(...) around the string" }
    if has("string"), has("timestamp") { return "write timestamp(...) around the string" }
    if has("string"), has("duration") { return "write duration(...) around the string" }
    if has("optional") { return "write .orValue(...) after the optional" }
    if kinds.allSatisfy({ ["int", "uint", "double"].contains($0) }), kinds[0] != kinds[1] {
      return "write double(...) around one side"
    }
    return nil
  }

  // MARK: Making values

  /// Whether this evaluation may allocate more.
  var hasRoom: Bool {
    state.pointee.arena._withUnsafeGuaranteedRef { $0.allocated } <= state.pointee.allocationLimit
  }

  func elements(_ count: Int) -> UnsafeMutableBufferPointer<Value> {
    state.pointee.arena._withUnsafeGuaranteedRef { $0.elements(count) }
  }

  func entries(_ count: Int) -> UnsafeMutableBufferPointer<Entry> {
    state.pointee.arena._withUnsafeGuaranteedRef { $0.entries(count) }
  }

  /// The value as an optional; none if absent.
  func optional(_ value: Value) -> Value {
    if value.isAbsent { return Value(kind: .optional) }
    let box = elements(1)
    box[0] = value
    return Value(kind: .optional, pointer: UnsafeRawPointer(box.baseAddress), length: 1)
  }

  /// The tokenizer for raw JSON events.
  @inline(__always)
  var scanner: OpaquePointer {
    if let known = state.pointee.scanner { return known }
    return makeScanner()
  }

  @inline(never)
  private func makeScanner() -> OpaquePointer {
    let new: OpaquePointer = rx_lines_new()
    state.pointee.scanner = new
    return new
  }

  func string(_ bytes: UnsafeRawBufferPointer) -> Value {
    .string(arena.copy(bytes))
  }

  func string(_ bytes: [UInt8]) -> Value { bytes.withUnsafeBytes { string($0) } }

  /// A part of a string or of bytes, without copying.
  func slice(_ value: Value, _ range: Range<Int>) -> Value {
    var result = value
    result.payload = value.payload &+ UInt64(range.lowerBound)
    result.length = UInt32(truncatingIfNeeded: range.count)
    return result
  }

  /// Builds a string in the frame's scratch buffer; an error beyond the limit.
  func build(_ body: (OutputBuffer) -> Void) -> Value {
    let buffer = state.pointee.scratch._withUnsafeGuaranteedRef { $0 }
    buffer.clear()
    body(buffer)
    guard buffer.count <= ExpressionLimits.stringBytes, hasRoom else { return failure(.tooLarge) }
    return string(buffer.bytes)
  }

  // MARK: Reading values

  /// A raw JSON string with its escapes resolved; other values unchanged.
  @inline(__always)
  func plain(_ value: Value) -> Value {
    JSONParser.unescape(value, into: arena)
  }

  /// A list or map of JSON text as elements in memory; nested ones may stay text.
  @inline(__always)
  func expanded(_ value: Value) -> Value {
    value.is(.jsonMap) || value.is(.jsonList) ? expandedSlow(value) : value
  }

  @inline(never)
  private func expandedSlow(_ value: Value) -> Value {
    let result = json.expand(value, into: arena)
    guard result.isError else { return result }
    return failure(.malformedJSON, .absent, text: JSONFailureText.message(result))
  }

  /// The value in the form that functions take: strings without escapes, containers in memory.
  func argument(_ value: Value) -> Value {
    value.is(.string) ? plain(value) : expanded(value)
  }
}

extension Value {
  /// The language's name for the type of this value.
  var typeName: String {
    switch what {
    case .absent: return "nothing"
    case .null: return "null_type"
    case .bool: return "bool"
    case .int: return "int"
    case .uint: return "uint"
    case .double: return "double"
    case .string: return flags & Value.ipFlag != 0 ? "net.IP" : flags & Value.cidrFlag != 0 ? "net.CIDR" : "string"
    case .bytes: return "bytes"
    case .list, .jsonList: return "list"
    case .map, .jsonMap: return "map"
    case .timestamp: return "google.protobuf.Timestamp"
    case .duration: return "google.protobuf.Duration"
    case .type: return "type"
    case .optional: return "optional_type"
    case .error: return "error"
    }
  }

  /// The name of the kind in messages.
  var shortTypeName: String {
    switch what {
    case .null: return "null"
    case .timestamp: return "timestamp"
    case .duration: return "duration"
    case .optional: return "optional"
    default: return typeName
    }
  }

  /// Marks a string as the canonical text of an IP address (`net.IP`).
  static let ipFlag: UInt8 = 2
  /// Marks a string as the canonical text of an address range (`net.CIDR`).
  static let cidrFlag: UInt8 = 4
  static let netFlags: UInt8 = 6
}
