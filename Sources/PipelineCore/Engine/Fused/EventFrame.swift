import Glibc

/// The state that the programs of one running node evaluate against.
public final class EventFrame {
  package let frame: EvaluationFrame
  private let segment: Segment
  /// The execution; nil off the pipeline thread, where there is no pipeline time and no origin of events.
  private unowned(unsafe) let execution: Execution?

  /// - Parameter knowsEvent: Whether the frame must know the event of its slots (``EvaluationFrame/State/filled``).
  init(_ segment: Segment, _ scope: Scope, _ execution: Execution, knowsEvent: Bool = false) {
    self.segment = segment
    self.execution = execution
    frame = EvaluationFrame(
      variables: segment.variableCount, slots: segment.projection.slotCount,
      bank: execution.slotBank(segment.projection.filling, evenAlone: knowsEvent), arena: execution.executor.arena,
      json: execution.json)
    frame[Variables.env] = segment.environment.value
    frame[Variables.outer] = scope.outer?.value ?? .absent
    frame[Variables.error] = scope.error?.value ?? .absent
    outer = scope.outer
    error = scope.error
    key = scope.key
    frame.state.pointee.tables = execution.tables.pointer
    usesMeta = segment.usesMeta
    read = Meta(segment.metaMembers)
    readsPaths = segment.projection.hasPaths
    projection = .passUnretained(segment.projection.filling)
    sharesReading = segment.projection.filling !== segment.projection
    state = frame.state
    time = UnsafePointer(execution.executor.time)
    timeOfNow = time.pointee
    frame.now = .timestamp(wallTime: timeOfNow)
  }

  /// Makes the frame of a decoding thread, for a segment that reads neither `meta` nor `now`.
  init(_ segment: Segment, arena: Arena, json: JSONParser, bank: SlotBank?) {
    self.segment = segment
    execution = nil
    frame = EvaluationFrame(
      variables: segment.variableCount, slots: segment.projection.slotCount, bank: bank, arena: arena, json: json)
    frame[Variables.env] = segment.environment.value
    outer = nil
    error = nil
    key = nil
    usesMeta = false
    read = Meta([])
    readsPaths = segment.projection.hasPaths
    projection = .passUnretained(segment.projection.filling)
    sharesReading = segment.projection.filling !== segment.projection
    state = frame.state
    time = Self.noTime
    timeOfNow = time.pointee
  }

  /// The time of frames off the pipeline thread; never written.
  nonisolated(unsafe) private static let noTime: UnsafePointer<Int64> = {
    let time = UnsafeMutablePointer<Int64>.allocate(capacity: 1)
    time.initialize(to: 0)
    return UnsafePointer(time)
  }()

  /// The evaluator's state.
  @inline(__always)
  var evaluation: UnsafeMutablePointer<EvaluationFrame.State> { state }

  // Copies of data that every event needs, so that reading it avoids retain and release.
  private let usesMeta: Bool
  private let read: Meta
  private let readsPaths: Bool
  private let projection: Unmanaged<Projection>
  /// Whether `projection` also serves other chains.
  private let sharesReading: Bool
  private let state: UnsafeMutablePointer<EvaluationFrame.State>
  private let time: UnsafePointer<Int64>
  /// The wall-clock time of the current value of `now`.
  @exclusivity(unchecked) private var timeOfNow: Int64

  /// Why the running pure step failed.
  var problem: PureProblem?
  /// Why the event of the last `load` cannot be read.
  private(set) var unreadable = Value.null

  private let outer: OwnedValue?
  private let error: OwnedValue?
  private let key: OwnedValue?

  /// Loads `event`. Returns nil, or the failure if the event is not valid JSON.
  @inline(__always)
  package func load(_ event: Event) -> Value? { withUnsafePointer(to: event) { load($0) } }

  /// Loads an event as it was seen at an earlier time of day, `wallTime`, which becomes `now`.
  package func load(_ event: Event, wallTime: Int64) -> Value? {
    let failure = load(event)
    timeOfNow = wallTime
    state.pointee.now = .timestamp(wallTime: wallTime)
    return failure
  }

  /// Loads an event in memory, of which little more than the value is read.
  @inline(__always)
  func load(_ event: UnsafePointer<Event>) -> Value? {
    let value = event.pointee.value
    state.pointee.variables[Variables.event] = value
    if time.pointee != timeOfNow { loadNow() }
    if usesMeta { loadMeta(of: event) }
    guard readsPaths else { return nil }
    let outcome = projection._withUnsafeGuaranteedRef { $0.fill(value, state) }
    return outcome.isError ? unreadable(value, outcome) : nil
  }

  /// Reads only the slots of an event. False: they cannot be read; ``load(_:)`` gives the reason.
  @inline(__always)
  func readSlots(_ event: Value) -> Bool { !projection._withUnsafeGuaranteedRef { $0.fill(event, state) }.isError }

  // Out of line, so that an event without `now` or `meta` executes less code.
  @inline(never)
  private func loadNow() {
    timeOfNow = time.pointee
    state.pointee.now = .timestamp(wallTime: timeOfNow)
  }

  @inline(never)
  private func loadMeta(of event: UnsafePointer<Event>) { frame[Variables.meta] = meta(of: event.pointee) }

  @inline(never)
  private func unreadable(_ value: Value, _ failure: Value) -> Value? {
    guard sharesReading else { return failure }
    let own = segment.projection.fillAlone(value, state)
    return own.isError ? own : nil
  }

  /// Loads an event; false if it cannot be read, see ``unreadable``.
  @inline(__always)
  func isLoaded(with event: UnsafePointer<Event>) -> Bool {
    guard let failure = load(event) else { return true }
    unreadable = failure
    return false
  }

  /// The text of a failure of `load`: one sentence.
  package static func message(of failure: Value) -> String {
    JSONFailure(failure).map { "the event is not JSON: \($0)" } ?? "the event cannot be read"
  }

  /// Prepares for an evaluation without an event: a source's parameters, the end of a signal.
  package func loadNothing(position: Value = .absent) {
    _ = load(Event(frame[Variables.outer].isAbsent ? .null : frame[Variables.outer], key: key?.value ?? .absent))
  }

  /// The stubs of plugins; nil: the plugins run.
  package var standIn: (any PluginStandIn)? { execution?.services.plugins }

  /// Makes `value` the `outer` of expressions. It must live as long as the evaluation.
  @inline(__always)
  func setOuter(_ value: Value) { state.pointee.variables[Variables.outer] = value }

  /// Sets the operator's own variable `index`.
  @inline(__always)
  package func set(_ index: Int, _ value: Value) { frame[Variables.firstOwn + index] = value }

  /// The `outer` of expressions; absent: there is none.
  var outerEvent: Value { frame[Variables.outer] }

  /// Whether two values are equal by content, as `==` in expressions says.
  @inline(__always)
  public func areEqual(_ a: Value, _ b: Value) -> Bool {
    if a.kind == b.kind, a.length == b.length, a.flags == b.flags {
      if a.payload == b.payload, !a.is(.double) { return true }
      if a.is(.int) { return false }
      if a.is(.string) || a.is(.jsonMap) || a.is(.jsonList), let x = a.pointer, let y = b.pointer,
        memcmp(x, y, Int(a.length)) == 0
      {
        return true
      }
    }
    return frame.areEqual(a, b)
  }

  /// The variable `meta` of expressions, with the members that are read.
  private struct Meta {
    let source, time, path, offset, key, id: Bool
    /// The number of fields that are read.
    let count: Int

    init(_ members: Set<String>?) {
      func isRead(_ name: String) -> Bool { members?.contains(name) ?? true }
      source = isRead("source")
      time = isRead("time")
      path = isRead("path")
      offset = isRead("offset")
      key = isRead("key")
      id = isRead("id")
      count = members?.count ?? .max
    }
  }

  private func meta(of event: Event) -> Value {
    guard let execution else { return .absent }
    return event.origin._withUnsafeGuaranteedRef { origin in
      let arena = execution.executor.arena
      var members = arena.entries(6)
      var count = 0
      func add(_ key: StaticString, _ value: Value) {
        members[count] = Entry(key: .literal(key), value: value)
        count &+= 1
      }
      if read.source { add("source", arena.string(origin.source)) }
      if read.time {
        add("time", .timestamp(wallTime: origin.receivedAt == 0 ? execution.executor.wallTime : origin.receivedAt))
      }
      if read.path, let path = origin.path { add("path", arena.string(path)) }
      if read.offset, event.position >= 0 { add("offset", .int(event.position)) }
      if read.key, !event.key.isAbsent { add("key", event.key) }
      if read.id, let id = event.id { add("id", arena.string(id)) }
      // A source has few fields, so all of them are added if a member that is read is still missing.
      if count < read.count {
        let fields = origin.fields.value
        if fields.is(.map), fields.length > 0 {
          let known = members
          members = arena.entries(count &+ Int(fields.length))
          for index in 0..<count { members[index] = known[index] }
          for entry in fields.entries {
            members[count] = entry
            count &+= 1
          }
        }
      }
      return Value(kind: .map, pointer: members.baseAddress, length: count)
    }
  }
}

extension EvaluationFrame {
  /// Whether two values are equal by content, as `==` in expressions says.
  func areEqual(_ a: Value, _ b: Value) -> Bool { Context(state: state).equal(a, b) }
}

extension Value {
  /// A wall-clock time in nanoseconds since 1970 as a timestamp.
  package static func timestamp(wallTime: Int64) -> Value {
    let (seconds, rest) = wallTime.quotientAndRemainder(dividingBy: 1_000_000_000)
    return rest < 0
      ? .timestamp(seconds: seconds - 1, nanoseconds: UInt32(rest + 1_000_000_000))
      : .timestamp(seconds: seconds, nanoseconds: UInt32(rest))
  }
}

/// The frames of chains that differ only in their steps' state, such as the groups of `groupBy`: one for each segment
/// instead of one for each group, so that many groups stay within the processor's cache.
///
/// The chains see the same `outer` and `error` (an ``ImmediateSignal`` sets `outer` before each event), and no chain
/// receives an event while another one evaluates: a fused step evaluates for the current event only, and emits or
/// rejects after its last evaluation. The same holds for a node with a ``OperatorNode/sharedFrame()``.
final class SharedFrames {
  private var frames: [ObjectIdentifier: EventFrame] = [:]

  func frame(_ segment: Segment, _ scope: Scope, _ execution: Execution) -> EventFrame {
    if let known = frames[ObjectIdentifier(segment)] { return known }
    let new = EventFrame(segment, scope, execution)
    frames[ObjectIdentifier(segment)] = new
    return new
  }
}

extension EventFrame {
  /// A frame for a component that evaluates parameters outside of a node.
  public static func make(_ nodeContext: NodeContext) -> EventFrame {
    EventFrame(nodeContext.segment, nodeContext.scope, nodeContext.execution)
  }
}

extension OperatorNode {
  /// The frame for this node's expressions that the groups of a `groupBy` share; outside of groups, the node's own
  /// frame.
  ///
  /// For a node that evaluates a loaded event at once, before it emits anything, and sets its variables each time.
  package final func sharedFrame() -> EventFrame {
    nodeContext.scope.frames?.frame(nodeContext.segment, nodeContext.scope, execution) ?? makeFrame()
  }

  /// A frame for this node's expressions.
  package final func makeFrame() -> EventFrame {
    EventFrame(nodeContext.segment, nodeContext.scope, execution)
  }
}
