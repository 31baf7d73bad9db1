import CJSON

/// The state of evaluations: slots, variables, memory. One per running node; not thread-safe.
///
/// Values that an evaluation returns live in the arena, in the event or in the program, so they are
/// valid until the end of the turn.
public final class EvaluationFrame {
  /// What evaluations read and write; in memory of its own, so that no access is checked or counted.
  struct State {
    var slots: UnsafeMutablePointer<Value>
    var variables: UnsafeMutablePointer<Value>
    var locals: UnsafeMutablePointer<Value>
    /// Set where an evaluation as a bool fails.
    var error: Value
    var now: Value
    var iterationsLeft: Int
    /// The same for loops that are in no other loop.
    var outerIterationsLeft: Int
    /// What ``Arena/allocated`` may reach in this evaluation.
    var allocationLimit: Int
    /// Where the tokens of raw JSON events are found that came by themselves; made when first needed.
    var scanner: OpaquePointer?
    /// Valid as long as the frame.
    let frame: Unmanaged<EvaluationFrame>
    var arena: Unmanaged<Arena>
    let json: Unmanaged<JSONParser>
    let scratch: Unmanaged<OutputBuffer>
    /// The document whose tokens are known, if any: ``JSONParser/indexed``.
    let indexed: UnsafePointer<rx_lines_row>
    /// For which document the slots were filled last, where several frames share them.
    let filled: UnsafeMutablePointer<SlotBank.Document>?
  }

  let state: UnsafeMutablePointer<State>
  private(set) public var arena: Arena
  public let json: JSONParser
  private let scratch = OutputBuffer(capacity: 256)
  private let slotCount: Int
  /// Owns the slots where others use them, too.
  private let bank: SlotBank?
  private let variableCount: Int
  private var localCount: Int
  /// Rounds that loops inside others may take in one evaluation, counted together.
  public var iterationLimit = ExpressionLimits.iterations
  /// The same for loops that are in no other loop: their time is in proportion to what they loop over.
  public var outerIterationLimit = ExpressionLimits.outerIterations
  /// Patterns that were computed while running, newest last; at most ``patternLimit``.
  private var patterns: [Pattern] = []
  private static let patternLimit = 32
  /// The same for grok patterns.
  private var grokPatterns:
    [(source: [UInt8], definitions: [GrokDefinitions], naming: GrokPattern.Naming, pattern: GrokPattern)] = []

  /// `variables`: how many the scopes of the programs declare. `slots`: ``Projection/slotCount``.
  public convenience init(variables: Int = 0, slots: Int = 0, arena: Arena, json: JSONParser) {
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
  public var slots: UnsafeMutablePointer<Value> { state.pointee.slots }

  /// The variables of the scope, by their index.
  public var variables: UnsafeMutablePointer<Value> { state.pointee.variables }

  /// The variable with this index in the scope. Setting is checked against the count of `init`.
  @inline(__always)
  public subscript(index: Int) -> Value {
    get { state.pointee.variables[index] }
    set {
      precondition(index < variableCount)
      state.pointee.variables[index] = newValue
    }
  }

  /// What the variable `now` is: a timestamp, fixed for the event.
  public var now: Value {
    get { state.pointee.now }
    set { state.pointee.now = newValue }
  }

  /// Hands another arena in; the values of the old one must no longer be used.
  public func use(_ arena: Arena) {
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

  /// The compiled form of a pattern that was computed while running.
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

/// Slots that several frames use for one document after the other.
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

  /// At the end of a turn: the same place may hold another document in the next.
  func forget() { document.pointee = Document() }
}

/// What a function works with: the frame of the evaluation, without reference counting.
struct Context {
  let state: UnsafeMutablePointer<EvaluationFrame.State>

  var arena: Arena { state.pointee.arena._withUnsafeGuaranteedRef { $0 } }
  var json: JSONParser { state.pointee.json._withUnsafeGuaranteedRef { $0 } }
  var frame: EvaluationFrame { state.pointee.frame._withUnsafeGuaranteedRef { $0 } }

  // MARK: Failures

  /// An error about `detail`; `note` is what the function adds. Neither becomes text before somebody asks.
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

  /// An error whose note is text made now: for rare failures that the user must see in full.
  func failure(_ reason: ExpressionFailure, _ detail: Value = .absent, text: String) -> Value {
    let block = arena.elements(2)
    block[0] = detail
    block[1] = arena.string(text)
    return Value(
      kind: .error, payload: UInt64(UInt(bitPattern: UnsafeRawPointer(block.baseAddress))),
      aux: reason.rawValue)
  }

  /// An operator or function was applied to kinds of values that it does not take.
  @inline(never)
  func noOverload(_ symbol: String, _ values: Value...) -> Value {
    let kinds = values.map(\.shortTypeName)
    var text = "'\(symbol)' is not defined for \(kinds.joined(separator: " and "))"
    if values.count == 2, let hint = Self.conversion(symbol, kinds) { text += "; \(hint)" }
    return failure(.noSuchOverload, .absent, text: text)
  }

  /// How the two sides of an operator are brought together.
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
    if has("optional") { return "write .orValue(...) behind the optional" }
    if kinds.allSatisfy({ ["int", "uint", "double"].contains($0) }), kinds[0] != kinds[1] {
      return "write double(...) around one side"
    }
    return nil
  }

  // MARK: Making values

  /// Whether this evaluation may take more memory.
  var hasRoom: Bool {
    state.pointee.arena._withUnsafeGuaranteedRef { $0.allocated } <= state.pointee.allocationLimit
  }

  func elements(_ count: Int) -> UnsafeMutableBufferPointer<Value> {
    state.pointee.arena._withUnsafeGuaranteedRef { $0.elements(count) }
  }

  func entries(_ count: Int) -> UnsafeMutableBufferPointer<Entry> {
    state.pointee.arena._withUnsafeGuaranteedRef { $0.entries(count) }
  }

  /// The value as an optional; none where it is absent.
  func optional(_ value: Value) -> Value {
    if value.isAbsent { return Value(kind: .optional) }
    let box = elements(1)
    box[0] = value
    return Value(kind: .optional, pointer: UnsafeRawPointer(box.baseAddress), length: 1)
  }

  /// Where the tokens of raw JSON events are found.
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

  /// Builds a string in the frame's scratch buffer; an error where it grows beyond the limit.
  func build(_ body: (OutputBuffer) -> Void) -> Value {
    let buffer = state.pointee.scratch._withUnsafeGuaranteedRef { $0 }
    buffer.clear()
    body(buffer)
    guard buffer.count <= ExpressionLimits.stringBytes, hasRoom else { return failure(.tooLarge) }
    return string(buffer.bytes)
  }

  // MARK: Reading values

  /// The string with its escapes resolved, where it comes raw from JSON; other values as they are.
  @inline(__always)
  func plain(_ value: Value) -> Value {
    JSONParser.unescape(value, into: arena)
  }

  /// The list or map as elements in memory, where it is still JSON text; containers inside may stay text.
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

  /// As functions want their arguments: strings without escapes, containers in memory.
  func argument(_ value: Value) -> Value {
    value.is(.string) ? plain(value) : expanded(value)
  }
}

extension Value {
  /// The name that the language gives the type of this value.
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

  /// On a string: it is the canonical text of an IP address (`net.IP`).
  static let ipFlag: UInt8 = 2
  /// On a string: it is the canonical text of a range of addresses (`net.CIDR`).
  static let cidrFlag: UInt8 = 4
  static let netFlags: UInt8 = 6
}
