#if canImport(Glibc)
  import Glibc
#endif

/// One operation of a compiled expression: 32 trivially copyable bytes.
///
/// `a`, `b` and `c` are numbers of other operations, slots or variables; each code says which.
struct Operation {
  enum Code: UInt8 {
    /// `literal`.
    case literal
    /// Variable `a`; `literal` is its name.
    case variable
    case now
    /// Loop variable `a`.
    case local
    /// Slot `a`, never absent: else no such key `literal`.
    case slot
    /// Slot `a` as an optional; slot `b`, if not -1, must be present.
    case optionalSlot
    /// Whether slot `a` is present; slot `b`, if not -1, must be.
    case hasSlot
    /// Slot `a`, or operation `c` where absent; slot `b`, if not -1, must be present.
    case slotOr
    /// Slot `a`, or null where absent; slot `b`, if not -1, must be present.
    case slotOrNull
    /// What `a` yields as the type that a schema declares; `detail` is a ``Declared``.
    case declared
    /// Field `literal` of `a`; `flags` 2: null where absent.
    case select, optionalSelect, has
    /// `a[b]`.
    case index, optionalIndex
    /// `b` pairs from child `a`: operation, whether optional.
    case list
    /// `b` triples from child `a`: key, value, whether optional.
    case map
    /// The same where the keys are constant texts that differ and no member is optional.
    case object
    /// `b` terms from child `a`.
    case and, or
    case not, negate
    /// `a ? b : c`.
    case conditional
    /// `a op b`; `detail` is the operator, `flags` 1 where ints and doubles may meet.
    case arithmetic
    /// The sum of `b` terms, of which one is a text, so that most likely all are: from child `a` pairs of a term and
    /// the arithmetic that adds it to those before (of the first term: itself).
    case sum
    /// `a relation b`; `detail` is the relation.
    case compare
    /// Slot `c` against `literal`; `a` and `b` are the same as operations. `detail` is the relation,
    /// `flags` 1 where it was written the other way round.
    case compareSlot
    /// `a in b`.
    case contains
    /// `a in b` where `b` is a literal list; `c` is its index.
    case containsIndexed
    /// Loop over `a` with condition `b` (or -1) and body `c`; `detail` is the kind, `flags` 1 with two
    /// variables and 2 inside another loop, the payload of `literal` the first variable.
    case loop
    /// Loop variable `a` is `b` while `c` is evaluated.
    case bind
    /// The same if the optional `b` holds something; `detail` 1: flat.
    case optionalMap
    /// `b` arguments from child `a`; `c` is the call site.
    case call
    /// Whether the text of `a` matches pattern `c`; `b` is the pattern as an operation.
    case matches
    /// What `a` yields as an optional, which is empty where it fails.
    case attempt
    /// `a.or(b)` and `a.orValue(b)`.
    case optionalOr, optionalOrValue
    /// Fails; `detail` is unused, `flags` the failure, `literal` what about.
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

/// A compiled expression: immutable, shared between threads; what changes is in the frame.
public final class Program: @unchecked Sendable {
  /// One overload, laid out for the evaluator.
  struct Candidate {
    /// The kinds of value that each parameter takes, one bit a kind; a fifth parameter on is not looked at.
    var kinds: (UInt32, UInt32, UInt32, UInt32)
    let body: FunctionOverload.Body
  }

  /// A call with the overloads that may be meant: `count` candidates from `first`.
  struct Site {
    var name: String
    var first: Int32
    var count: Int32
  }

  /// The operations as the evaluator reads them.
  struct Code {
    var operations: UnsafePointer<Operation>
    var children: UnsafePointer<Int32>
    var sites: UnsafePointer<Site>
    var candidates: UnsafePointer<Candidate>
    var patterns: UnsafePointer<Pattern>
    var sets: UnsafePointer<KeyIndex>
  }

  let code: UnsafePointer<Code>
  let root: Int32
  private let localCount: Int
  private let operationCount: Int
  private let childCount: Int
  private let siteCount: Int
  private let candidateCount: Int
  private let patternCount: Int
  private let setCount: Int
  /// The condition as tests of slots, or none.
  private let tests: UnsafePointer<SlotTest>
  private let testCount: Int
  private let lastTruth: UInt8
  /// What must be set anew before each evaluation.
  private enum Limits: UInt8 {
    /// Nothing: an evaluation takes no more than the expression is long.
    case none
    /// How much memory it may take.
    case memory
    /// And how many rounds its loops may.
    case rounds
  }
  private let limits: Limits
  /// Literals that are lists, maps and texts.
  private let owned: [OwnedValue]
  let text: LocatedText
  /// The bytes of the expression that each operation stands for.
  private let spans: [(start: Int32, end: Int32)]
  /// The static type of the result.
  public let type: ExpressionType

  init(
    operations: [Operation], children: [Int32], sites: [Site], candidates: [Candidate],
    patterns: [Pattern], sets: [KeyIndex], tests: SlotTests?, root: Int32, localCount: Int, owned: [OwnedValue],
    text: LocatedText,
    spans: [(start: Int32, end: Int32)],
    type: ExpressionType
  ) {
    let code = UnsafeMutablePointer<Code>.allocate(capacity: 1)
    code.initialize(
      to: Code(
        operations: Self.copy(operations), children: Self.copy(children), sites: Self.copy(sites),
        candidates: Self.copy(candidates), patterns: Self.copy(patterns), sets: Self.copy(sets)))
    self.code = UnsafePointer(code)
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

  /// The value without evaluating anything, where the expression is constant.
  public var constant: Value? {
    let operation = code.pointee.operations[Int(root)]
    return operation.code == .literal ? operation.literal : nil
  }

  // MARK: Evaluating

  /// What came of a condition.
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

  /// The value; of kind `.error` where the evaluation failed. It may be raw: a string with the flag
  /// ``Value/isEscaped``, a list or map that is still JSON text.
  public func evaluate(_ frame: EvaluationFrame) -> Value { evaluate(frame.state) }

  @inline(__always)
  func evaluate(_ state: UnsafeMutablePointer<EvaluationFrame.State>) -> Value {
    machine(state).quickValue(root)
  }

  /// How many members the value has: of an expression that is `{'a': ..., 'b': ...}` with up to eight of them; else 0.
  var memberCount: Int {
    let operation = code.pointee.operations[Int(root)]
    return operation.code == .object && operation.b <= Self.memberLimit ? Int(operation.b) : 0
  }
  static let memberLimit = 8

  /// Evaluates the members of such a value, in the order in which they are written, without making it. False: one of
  /// them failed or is no scalar, and what is in `target` means nothing.
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

  /// Evaluates the elements of a value that is written as a list without optional elements, in their order, without
  /// making it: `begin` is told how many there are. False: it is written otherwise, or an element failed.
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
  public func evaluateBool(_ frame: EvaluationFrame) -> Tri { evaluateBool(frame.state) }

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

  @inline(never)
  private func evaluateOperations(_ state: UnsafeMutablePointer<EvaluationFrame.State>) -> Tri {
    let outcome = machine(state).bool(root)
    return outcome == Truth.yes ? .yes : outcome == Truth.no ? .no : .failed
  }

  // MARK: Failures

  /// Why an evaluation failed, one sentence without a full stop: `no such key: 'status' (event.status)`.
  /// The frame and the event must be as they were.
  public func failureMessage(_ error: Value, _ frame: EvaluationFrame) -> String {
    guard let reason = ExpressionFailure(rawValue: error.aux), error.isError else {
      return JSONFailureText.message(error)
    }
    let details = error.pointer?.assumingMemoryBound(to: Value.self)
    var detail: String?
    var note: String?
    // What an expression with a secret in it computes may be that secret.
    if let details, !text.isSecret {
      detail = details[0].isAbsent ? nil : Self.quoted(details[0], frame)
      if reason.hasNote, details[1].is(.string) {
        note = String(decoding: details[1].rawBytes, as: UTF8.self)
      }
    }
    if reason == .noSuchKey, !text.isSecret, error.length > 0, let key = firstMissing(Int32(error.length) - 1, frame) {
      detail = "'\(key)'"
    }
    let message = reason.message(detail, note)
    guard error.length > 0, Int(error.length) <= spans.count else { return message }
    let span = spans[Int(error.length) - 1]
    let source = source(Int32(error.length) - 1)
    return source.utf8.count <= 80 ? "\(message) (\(source))" : message
  }

  /// Of a path such as `event.user.address.city`, which is looked up at once, the first field that is not there; nil
  /// where the operation is no such path.
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

  /// What the user wrote for an operation.
  func source(_ at: Int32) -> String {
    guard Int(at) < spans.count else { return "" }
    return String(decoding: text.shown(Int(spans[Int(at)].start), Int(spans[Int(at)].end)), as: UTF8.self)
  }

  /// Where the part of the expression stands that failed.
  public func failureLocation(_ error: Value) -> SourceLocation {
    guard error.isError, error.length > 0, Int(error.length) <= spans.count else { return text.location }
    let span = spans[Int(error.length) - 1]
    return text.location(Int(span.start), Int(span.end))
  }

  /// A number that is the same for all failures of one part of the expression for one reason, for
  /// counting without making text.
  public func failureKey(_ error: Value) -> UInt64 {
    UInt64(error.length) << 16 | UInt64(error.aux)
  }

  /// At most 60 bytes of a value, as a person would write it.
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
  /// The error of the last evaluation as a bool that failed.
  public var lastError: Value { state.pointee.error }
}
