#if canImport(Glibc)
  import Glibc
#endif

/// One operation of a compiled expression: 32 trivially copyable bytes.
///
/// `a`, `b` and `c` are indexes of other operations, slots or variables, depending on the code.
struct Operation {
  enum Code: UInt8 {
    /// `literal`.
    case literal
    /// Variable `a`; `literal` is its name.
    case variable
    case now
    /// Loop variable `a`.
    case local
    /// Slot `a`; if it is absent, evaluation fails because there is no key `literal`.
    case slot
    /// Slot `a` as an optional; slot `b`, if not -1, must be present.
    case optionalSlot
    /// Whether slot `a` is present; slot `b`, if not -1, must be.
    case hasSlot
    /// Slot `a`, or operation `c` if absent; slot `b`, if not -1, must be present.
    case slotOr
    /// Slot `a`, or null if absent; slot `b`, if not -1, must be present.
    case slotOrNull
    /// The value of `a` in the type that a schema declares; `detail` is a ``Declared``.
    case declared
    /// Field `literal` of `a`; `flags` 2: null if absent.
    case select, optionalSelect, has
    /// `a[b]`.
    case index, optionalIndex
    /// `b` pairs from child `a`: operation, whether optional.
    case list
    /// `b` triples from child `a`: key, value, whether optional.
    case map
    /// A `map` with distinct constant text keys and without optional members.
    case object
    /// `b` terms from child `a`.
    case and, or
    case not, negate
    /// `a ? b : c`.
    case conditional
    /// `a op b`; `detail` is the operator, `flags` 1 if ints and doubles may mix.
    case arithmetic
    /// The sum of `b` terms. One is a text, so probably all are. The children from `a` on are pairs of a term and the
    /// arithmetic operation that adds it to the terms before it; for the first term, the term itself.
    case sum
    /// `a relation b`; `detail` is the relation.
    case compare
    /// Slot `c` against `literal`; `a` and `b` are the same operands as operations. `detail` is the relation, `flags` 1
    /// if the operands are in the opposite order in the source.
    case compareSlot
    /// `a in b`.
    case contains
    /// `a in b` with a literal list `b`; `c` is its index.
    case containsIndexed
    /// The row with key `a` of table `b`, an optional, and whether there is one.
    case row, hasRow
    /// A loop over `a` with condition `b` (or -1) and body `c`; `detail` is the kind; `flags` has 1 for two variables
    /// and 2 inside another loop; the payload of `literal` is the first variable.
    case loop
    /// Loop variable `a` is `b` while `c` is evaluated. `flags` 1: if `b` fails, so does the whole, as for an argument
    /// of a call; 2: `c` does not read the variable either.
    case bind
    /// The value of `a` if its kind is in the bit set `b` or can be converted to the ``Declared`` in `detail`;
    /// `literal` is the start of the failure's message.
    case argument
    /// Like `bind`, if the optional `b` has a value; `detail` 1: `c` gives an optional itself.
    case optionalMap
    /// `b` arguments from child `a`; `c` is the call site.
    case call
    /// Whether the text of `a` matches pattern `c`; `b` is the same pattern as an operation.
    case matches
    /// The value of `a` as an optional; empty if `a` fails.
    case attempt
    /// `a.or(b)` and `a.orValue(b)`.
    case optionalOr, optionalOrValue
    /// Always fails; `detail` is unused, `flags` is the failure, `literal` its subject.
    case fail
  }

  var code: Code
  var detail: UInt8 = 0
  var flags: UInt16 = 0
  var a: Int32 = -1
  var b: Int32 = -1
  var c: Int32 = -1
  var literal: Value = .absent
}

/// A compiled expression: immutable, shared between threads; the frame has the mutable state.
public final class Program: @unchecked Sendable {
  /// One overload in the evaluator's layout.
  struct Candidate {
    /// The kinds of value that each parameter accepts, one bit per kind; parameters from the fifth on are not checked.
    var kinds: (UInt32, UInt32, UInt32, UInt32)
    /// Retained by `bodies` of the program, so that a call does not retain it.
    var body: Unmanaged<Body>
  }

  /// What an overload does.
  final class Body {
    let call: FunctionOverload.Body
    init(_ call: @escaping FunctionOverload.Body) { self.call = call }
  }

  /// A call with its possible overloads: `count` candidates from `first`.
  struct Site {
    var name: String
    var first: Int32
    var count: Int32
  }

  /// The operations in the evaluator's layout.
  struct Code {
    var operations: UnsafePointer<Operation>
    var children: UnsafePointer<Int32>
    var sites: UnsafePointer<Site>
    var candidates: UnsafePointer<Candidate>
    var patterns: UnsafePointer<Pattern>
    var sets: UnsafePointer<KeyIndex>
  }

  let code: UnsafePointer<Code>
  private let bodies: [Body]
  let root: Int32
  private let localCount: Int
  private let operationCount: Int
  private let childCount: Int
  private let siteCount: Int
  private let candidateCount: Int
  private let patternCount: Int
  private let setCount: Int
  /// The condition as slot tests, if any.
  private let tests: UnsafePointer<SlotTest>
  private let testCount: Int
  private let lastTruth: UInt8
  /// The limits that must be reset before each evaluation.
  private enum Limits: UInt8 {
    /// None: time and memory are bounded by the length of the expression.
    case none
    /// The memory limit.
    case memory
    /// The memory limit and the iterations of loops.
    case rounds
  }
  private let limits: Limits
  /// Literals: lists, maps and texts.
  private let owned: [OwnedValue]
  let text: LocatedText
  /// The bodies of the functions that it contains.
  private let inserted: [LocatedText]

  /// The byte range of an operation's source, in the text with this number: 0 is the expression itself.
  struct Span {
    var start: Int32
    var end: Int32
    var text: Int32
  }
  private let spans: [Span]
  /// The static type of the result.
  package let type: ExpressionType

  init(
    operations: [Operation], children: [Int32], sites: [Site], candidates: [Candidate], bodies: [Body],
    patterns: [Pattern], sets: [KeyIndex], tests: SlotTests?, root: Int32, localCount: Int, owned: [OwnedValue],
    text: LocatedText, inserted: [LocatedText], spans: [Span],
    type: ExpressionType
  ) {
    let code = UnsafeMutablePointer<Code>.allocate(capacity: 1)
    code.initialize(
      to: Code(
        operations: Self.copy(operations), children: Self.copy(children), sites: Self.copy(sites),
        candidates: Self.copy(candidates), patterns: Self.copy(patterns), sets: Self.copy(sets)))
    self.code = UnsafePointer(code)
    self.bodies = bodies
    self.root = root
    self.localCount = localCount
    operationCount = operations.count
    childCount = children.count
    siteCount = sites.count
    candidateCount = candidates.count
    patternCount = patterns.count
    setCount = sets.count
    self.tests = Self.copy(tests?.tests ?? [])
    testCount = tests?.tests.count ?? 0
    lastTruth = tests?.last ?? Truth.failed
    limits =
      localCount > 0 || !sites.isEmpty
      ? .rounds : operations.contains { $0.code == .arithmetic || $0.code == .sum } ? .memory : .none
    self.owned = owned
    self.text = text
    self.inserted = inserted
    self.spans = spans
    self.type = type
  }

  private static func copy<T>(_ all: [T]) -> UnsafePointer<T> {
    let memory = UnsafeMutablePointer<T>.allocate(capacity: max(all.count, 1))
    memory.initialize(from: all, count: all.count)
    return UnsafePointer(memory)
  }

  private static func free<T>(_ memory: UnsafePointer<T>, _ count: Int) {
    let memory = UnsafeMutablePointer(mutating: memory)
    memory.deinitialize(count: count)
    memory.deallocate()
  }

  deinit {
    Self.free(code.pointee.operations, operationCount)
    Self.free(code.pointee.children, childCount)
    Self.free(code.pointee.sites, siteCount)
    Self.free(code.pointee.candidates, candidateCount)
    Self.free(code.pointee.patterns, patternCount)
    Self.free(code.pointee.sets, setCount)
    Self.free(tests, testCount)
    code.deallocate()
  }

  /// The value, if the expression is constant.
  package var constant: Value? {
    let operation = code.pointee.operations[Int(root)]
    return operation.code == .literal ? operation.literal : nil
  }

  // MARK: Evaluating

  /// The outcome of a condition.
  public enum Tri: UInt8, Sendable {
    case no = 0
    case yes = 1
    /// The error is in ``EvaluationFrame/lastError``.
    case failed = 2
  }

  @inline(__always)
  private func machine(_ state: UnsafeMutablePointer<EvaluationFrame.State>) -> Machine {
    prepare(state)
    return Machine(operations: code.pointee.operations, code: code, state: state)
  }

  @inline(__always)
  private func prepare(_ state: UnsafeMutablePointer<EvaluationFrame.State>) {
    guard limits != .none else { return }
    let allocated = state.pointee.arena._withUnsafeGuaranteedRef { $0.allocated }
    state.pointee.allocationLimit = allocated &+ ExpressionLimits.evaluationBytes
    if limits == .rounds { state.pointee.frame._withUnsafeGuaranteedRef { prepareLoops($0) } }
  }

  @inline(never)
  private func prepareLoops(_ frame: EvaluationFrame) {
    frame.reserveLocals(localCount)
    frame.state.pointee.iterationsLeft = frame.iterationLimit
    frame.state.pointee.outerIterationsLeft = frame.outerIterationLimit
  }

  /// The value; of kind `.error` if the evaluation failed. It may be raw: a string with the flag ``Value/isEscaped``,
  /// or a list or map of JSON text.
  package func evaluate(_ frame: EvaluationFrame) -> Value { evaluate(frame.state) }

  @inline(__always)
  func evaluate(_ state: UnsafeMutablePointer<EvaluationFrame.State>) -> Value {
    machine(state).quickValue(root)
  }

  /// The number of members if the expression is `{'a': ..., 'b': ...}` with up to eight members; otherwise 0.
  var memberCount: Int {
    let operation = code.pointee.operations[Int(root)]
    return operation.code == .object && operation.b <= Self.memberLimit ? Int(operation.b) : 0
  }
  static let memberLimit = 8

  /// Evaluates the members of such an expression, in source order, without building the map. False: a member failed or
  /// is not a scalar; `target` is then invalid.
  @inline(__always)
  func evaluateMembers(
    _ state: UnsafeMutablePointer<EvaluationFrame.State>, into target: UnsafeMutablePointer<Value>
  ) -> Bool {
    let machine = machine(state)
    let operation = code.pointee.operations + Int(root)
    let children = code.pointee.children + Int(operation.pointee.a)
    for index in 0..<Int(operation.pointee.b) {
      let member = machine.quickValue(children[3 &* index &+ 1])
      guard member.isScalar else { return false }
      target[index] = member
    }
    return true
  }

  /// Evaluates the elements of a list expression without optional elements, in order, without building the list.
  /// `begin` receives their number. False if the program is not such an expression or an element failed.
  @inline(__always)
  func evaluateElements(
    _ state: UnsafeMutablePointer<EvaluationFrame.State>, begin: (Int) -> Void, each: (Value) -> Void
  ) -> Bool {
    let operation = code.pointee.operations + Int(root)
    guard operation.pointee.code == .list else { return false }
    let machine = machine(state)
    let children = code.pointee.children + Int(operation.pointee.a)
    let count = Int(operation.pointee.b)
    begin(count)
    for index in 0..<count {
      let element = machine.quickValue(children[2 &* index])
      guard !element.isError, children[2 &* index &+ 1] == 0 else { return false }
      each(element)
    }
    return true
  }

  /// The outcome of a condition; anything but a bool counts as failed.
  package func evaluateBool(_ frame: EvaluationFrame) -> Tri { evaluateBool(frame.state) }

  @inline(__always)
  func evaluateBool(_ state: UnsafeMutablePointer<EvaluationFrame.State>) -> Tri {
    if testCount > 0 {
      prepare(state)
      let outcome = SlotTest.run(tests, testCount, last: lastTruth, code, state)
      if outcome != Truth.failed { return outcome == Truth.yes ? .yes : .no }
    }
    if code.pointee.operations[Int(root)].code == .compare {
      let outcome = machine(state).compare(root)
      return outcome == Truth.yes ? .yes : outcome == Truth.no ? .no : .failed
    }
    return evaluateOperations(state)
  }

  /// The condition as comparisons of slots; nil if it has other terms.
  var comparisons: (tests: UnsafePointer<SlotTest>, count: Int, last: UInt8)? {
    guard testCount > 0, UnsafeBufferPointer(start: tests, count: testCount).allSatisfy(\.isComparison) else {
      return nil
    }
    return (tests, testCount, lastTruth)
  }

  @inline(never)
  private func evaluateOperations(_ state: UnsafeMutablePointer<EvaluationFrame.State>) -> Tri {
    let outcome = machine(state).bool(root)
    return outcome == Truth.yes ? .yes : outcome == Truth.no ? .no : .failed
  }

  // MARK: Failures

  /// Why an evaluation failed, one sentence without a full stop: `no such key: 'status' (event.status)`. The frame and
  /// the event must be unchanged.
  package func failureMessage(_ error: Value, _ frame: EvaluationFrame) -> String {
    guard let reason = ExpressionFailure(rawValue: error.aux), error.isError else {
      return JSONFailureText.message(error)
    }
    let details = error.pointer?.assumingMemoryBound(to: Value.self)
    var detail: String?
    var note: String?
    // The result of an expression that contains a secret may be that secret.
    if let details, !isSecret {
      detail = details[0].isAbsent ? nil : Self.quoted(details[0], frame)
      if reason.hasNote, details[1].is(.string) {
        note = String(decoding: details[1].rawBytes, as: UTF8.self)
      }
    }
    if reason == .noSuchKey, !isSecret, error.length > 0, let key = firstMissing(Int32(error.length) - 1, frame) {
      detail = "'\(key)'"
    }
    let message = reason.message(detail, note)
    guard error.length > 0, Int(error.length) <= spans.count else { return message }
    let source = source(Int32(error.length) - 1)
    return source.utf8.count <= 80 ? "\(message) (\(source))" : message
  }

  /// The first missing field of a path such as `event.user.address.city`, which is read at once; nil if the operation
  /// is not such a path.
  private func firstMissing(_ at: Int32, _ frame: EvaluationFrame) -> String? {
    let operation = code.pointee.operations[Int(at)]
    guard operation.code == .slot || operation.code == .declared || operation.code == .compareSlot else { return nil }
    let names = source(at).split(separator: ".")
    guard names.count > 2, names[0] == "event",
      names.allSatisfy({ $0.utf8.allSatisfy { ASCII.isLetterOrUnderscore($0) || ASCII.isDigit($0) } })
    else { return nil }
    let context = Context(state: frame.state)
    var value = frame[Variables.event]
    for name in names.dropFirst() {
      let key = frame.arena.string(String(name))
      let found =
        value.is(.map)
        ? context.member(of: value, key)
        : value.is(.jsonMap) ? JSONParser.lookup(value, key: key.rawBytes) : .absent
      if found.isAbsent || found.isError { return String(name) }
      value = found
    }
    return nil
  }

  /// Whether the expression, or a function that it calls, contains a secret.
  var isSecret: Bool { text.isSecret || inserted.contains(where: \.isSecret) }

  private func text(of span: Span) -> LocatedText { span.text == 0 ? text : inserted[Int(span.text) - 1] }

  /// The source text of an operation.
  func source(_ at: Int32) -> String {
    guard Int(at) < spans.count else { return "" }
    let text = text(of: spans[Int(at)])
    return String(decoding: text.shown(Int(spans[Int(at)].start), Int(spans[Int(at)].end)), as: UTF8.self)
  }

  /// The location of the failed part of the expression.
  package func failureLocation(_ error: Value) -> SourceLocation {
    guard error.isError, error.length > 0, Int(error.length) <= spans.count else { return text.location }
    let span = spans[Int(error.length) - 1]
    return text(of: span).location(Int(span.start), Int(span.end))
  }

  /// A number that is equal for failures of the same part for the same reason, so that failures are counted without
  /// formatting text.
  package func failureKey(_ error: Value) -> UInt64 {
    UInt64(error.length) << 16 | UInt64(error.aux)
  }

  /// A value as a person would write it, cut to 60 bytes.
  private static func quoted(_ value: Value, _ frame: EvaluationFrame) -> String {
    let context = Context(state: frame.state)
    let buffer = OutputBuffer()
    ValueText.describe(value, into: buffer, context)
    guard buffer.count > 60 else { return String(decoding: buffer.bytes, as: UTF8.self) }
    return String(decoding: buffer.bytes.prefix(57), as: UTF8.self) + "..."
  }
}

extension ExpressionFailure {
  /// Whether the second detail is text; a missing key has only the key.
  var hasNote: Bool { self != .noSuchKey && self != .unknownName && self != .unknownFunction }
}

extension EvaluationFrame {
  /// The error of the last failed evaluation as a bool.
  package var lastError: Value { state.pointee.error }
}
