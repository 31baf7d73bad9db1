import PipelineCore

/// Writes the events of one edge of one execution for a tap. Used in turns, or between two.
final class TapObserver: EdgeObserver, @unchecked Sendable {
  let edge: EdgeID
  private let session: TapSession
  private unowned let execution: Execution
  /// The executor outlives the execution, which outlives the observer.
  private let executor: Unmanaged<Executor>
  private let condition: TapCondition?
  /// The start of each line: `{"pipeline":"tail","from":"lines","to":"large/filter",`.
  private let head: [UInt8]
  /// Whether the signal is an inner one, which ends for each event.
  private let isInner: Bool
  private let output = OutputBuffer()
  /// The lines of events without a verdict, innermost last; nil: the event is not shown.
  private var undecided: [Shown?] = []
  /// The newest events that have been shown as kept: one of them may be superseded.
  private var kept: [Shown] = []

  /// The line of an event, without the verdict, and the data that distinguish the event from others.
  private struct Shown {
    var line: [UInt8]
    var position: Int64
    var digest: Int
    var nanoseconds: Int64
  }
  private static let mostKept = 256

  /// The maximum number of bytes of an event that are encoded for a tap.
  private static let mostEncoded = 64 << 10

  /// The number of the edge in the session, and the maximum number of its events shown per second.
  private let edgeIndex: Int
  private let share: Int

  init(_ session: TapSession, _ execution: Execution, _ edge: EdgeID, edgeIndex: Int, share: Int) {
    self.edgeIndex = edgeIndex
    self.share = share
    self.session = session
    self.execution = execution
    executor = .passUnretained(execution.executor)
    self.edge = edge
    condition = session.request.condition.map { TapCondition($0, json: execution.json) }
    let plan = execution.plan
    let ends = plan.edges[edge.number]
    isInner = if case .step = ends.to { ends.input == nil } else { false }
    let names = JSONText.object([
      ("pipeline", .string(plan.name)), ("from", .string(plan.id(of: ends.from))),
      ("to", .string(plan.id(of: ends.to))),
    ]).text
    head = Array(names.utf8.dropLast()) + Array(", ".utf8)
  }

  /// The verdict of the condition for the next event.
  private var known: TapSession.ConditionVerdict?

  override func ignores(_ event: Event) -> Bool {
    guard let condition else { return false }
    let verdict = condition.verdict(on: event, at: executor._withUnsafeGuaranteedRef(\.wallTime))
    guard verdict == .notFulfilled else {
      known = verdict
      return false
    }
    session.looked(at: 1)
    return true
  }

  override func receive(_ event: Event) {
    let verdict =
      known.take() ?? condition?.verdict(on: event, at: executor._withUnsafeGuaranteedRef(\.wallTime)) ?? .fulfilled
    guard session.admits(at: execution.executor.now, verdict, edgeIndex: edgeIndex, share: share) else {
      undecided.append(nil)
      return
    }
    undecided.append(shown(event))
  }

  override func decided(_ verdict: Verdict) {
    guard let last = undecided.popLast(), var last else { return }
    session.show(last.line + Array("\"verdict\": \"\(verdict.rawValue)\"}\n".utf8))
    guard verdict == .kept else { return }
    last.line = []
    if kept.count >= Self.mostKept { kept.removeFirst(Self.mostKept / 2) }
    kept.append(last)
  }

  /// Sends a second line for an event that was shown as kept.
  override func superseded(_ event: Event) {
    guard kept.contains(where: { $0.position == event.position }), !isSated else { return }
    let now = shown(event)
    // Of several equal events a step keeps the newest.
    guard let index = kept.lastIndex(where: { $0.position == now.position && $0.digest == now.digest }) else { return }
    let since = kept.remove(at: index).nanoseconds
    guard session.admitsChange(at: execution.executor.now, edgeIndex: edgeIndex, share: share) else { return }
    session.send(now.line + Array("\"verdict\": \"\(Verdict.superseded.rawValue)\", \"since\": \(since)}\n".utf8))
  }

  // A condition may select one event among millions, so it is evaluated for all of them.
  override var isSated: Bool {
    condition == nil && session.isSated(at: execution.executor.now, edgeIndex: edgeIndex, share: share)
  }
  /// An event for which the condition fails is wanted, because it must be counted.
  override func wants(_ event: Event) -> Bool {
    condition?.verdict(on: event, at: execution.executor.wallTime) != .notFulfilled
  }
  override func missed(_ events: Int) {
    if condition == nil { session.missed(events) } else { session.looked(at: events) }
  }

  override func complete() { if !isInner { end("complete", nil) } }
  override func fail(_ failure: SignalFailure) { end("error", failure.message) }

  private func end(_ kind: String, _ message: String?) {
    output.clear()
    beginLine()
    output.append("\"end\": \"\(kind)\"")
    if let message {
      output.append(", \"message\": ")
      append(text: SecretMask.process.masked(message))
    }
    output.append("}\n")
    session.send(Array(output.bytes))
  }

  /// The line of an event, without the verdict.
  private func shown(_ event: Event) -> Shown {
    output.clear()
    let failure = JSONWriter.appendShown(event.value, to: output)
    let size = output.count
    var shown = Array(output.bytes.prefix(Self.mostEncoded))
    let isWhole = failure == nil && size <= session.request.eventBytes
    if isWhole {
      shown = SecretMask.process.masked(json: shown)
    } else {
      let text = SecretMask.process.masked(String(decoding: shown, as: UTF8.self))
      shown = Array(text.utf8.prefix(session.request.eventBytes))
    }
    var hasher = Hasher()
    shown.withUnsafeBytes { hasher.combine(bytes: $0) }
    output.clear()
    beginLine()
    output.append("\"event\": ")
    if isWhole {
      shown.withUnsafeBytes { output.append($0) }
    } else {
      append(text: String(decoding: shown, as: UTF8.self))
      output.append(", \"cut\": true, \"bytes\": \(size)")
    }
    output.append(", ")
    return Shown(
      line: Array(output.bytes), position: event.position, digest: hasher.finalize(),
      nanoseconds: execution.executor.now.nanoseconds)
  }

  private func beginLine() {
    output.append(head)
    output.append("\"time\": \"\(StoredTime.text(execution.executor.wallTime))\", ")
    output.append("\"nanoseconds\": \(execution.executor.now.nanoseconds), ")
  }

  private func append(text: String) {
    Array(text.utf8).withUnsafeBytes { bytes in _ = JSONWriter.append(.string(bytes), to: output) }
  }
}

/// The condition of a tap, for the turns of one execution.
final class TapCondition {
  private let expression: StandaloneExpression
  private let arena = Arena()
  /// Whether the condition reads metadata: nothing is computed for an event that the condition does not read.
  private let readsMeta: Bool

  /// Checks a condition, which sees the event, `meta` and `now`, and may call the functions of the pipeline.
  static func check(
    _ text: String, _ functions: UserFunctions, into diagnostics: inout Diagnostics
  ) -> CheckedExpression? {
    var scope = ExpressionScope([.init("event", .dyn), .init("meta"), .init("now", .timestamp)])
    scope.functions = functions
    return ExpressionSyntax.parse(LocatedText(text), into: &diagnostics)?.check(in: scope, into: &diagnostics)
  }

  /// - Parameter json: The parser of the execution whose events the condition sees, which has the tokens of their
  ///   texts.
  init(_ checked: CheckedExpression, json: JSONParser = JSONParser()) {
    expression = StandaloneExpression(checked, arena: arena, json: json)
    readsMeta = checked.reads.contains { $0.variable == "meta" }
  }

  /// - Parameter time: The value of `now`, in nanoseconds since 1970.
  func verdict(on event: Event, at time: Int64) -> TapSession.ConditionVerdict {
    defer { arena.reset() }
    if readsMeta { expression.frame[Variables.meta] = meta(of: event) }
    expression.frame.now = .timestamp(wallTime: time)
    return switch expression.evaluateBool(event.value) {
    case .yes: .fulfilled
    case .no: .notFulfilled
    case .failed: .failed
    }
  }

  private func meta(of event: Event) -> Value {
    let origin = event.origin.takeUnretainedValue()
    var members: [(key: Value, value: Value)] = [(.literal("source"), arena.string(origin.source))]
    if let path = origin.path { members.append((.literal("path"), arena.string(path))) }
    if event.position >= 0 { members.append((.literal("offset"), .int(event.position))) }
    if !event.key.isAbsent { members.append((.literal("key"), event.key)) }
    if let id = event.id { members.append((.literal("id"), arena.string(id))) }
    return arena.map(members.map { (key: $0.key, value: $0.value) })
  }
}
