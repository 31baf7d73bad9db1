import CRxdPlugin

/// The reason why a call fails, and the path in the parameters.
struct Failure: Error {
  var message: String
  var path = ""
}

/// The settings with which an instance is opened. Valid until it is open.
struct Opening {
  private let raw: rxd_opening
  let scope: OpaquePointer?

  /// An older rxd passes a shorter table, so only its own size is copied.
  init(_ opening: UnsafePointer<rxd_opening>) {
    var raw = rxd_opening()
    let size = min(Int(opening.pointee.size), MemoryLayout<rxd_opening>.size)
    withUnsafeMutableBytes(of: &raw) { $0.copyMemory(from: UnsafeRawBufferPointer(start: opening, count: size)) }
    self.raw = raw
    scope = raw.scope
  }

  var kind: String = ""
  var component: String { raw.component.string }
  var state: [UInt8]? { raw.state.bytes == nil ? nil : Array(raw.state.buffer) }
  var stateVersion: Int { Int(raw.state_version) }
  var position: [UInt8]? { raw.position.bytes == nil ? nil : Array(raw.position.buffer) }

  var nodeContext: NodeContext {
    NodeContext(
      execution: Execution(Services(instance: raw.instance, isImmediate: raw.is_test != 0)), label: raw.step.string,
      pipeline: raw.pipeline.string)
  }

  /// The component with the parameters of the file.
  func component<C: Component>(_ type: C.Type) throws -> C {
    var component = C()
    var context = DecodingContext()
    var binder = Binder(raw.given.map { Array(UnsafeBufferPointer(start: $0, count: raw.given_count)).map { $0 != 0 } })
    let parameters = Value(raw.parameters, scope)
    for parameter in C.spec.parameters {
      if parameter.shape.isPerEvent {
        parameter.bind(&component, &binder)
        continue
      }
      let value = parameters[parameter.name]
      if !value.isAbsent { parameter.decode(value, &component, &context) }
    }
    context.parameter = ""
    if context.problem == nil { component.validate(&context) }
    if let problem = context.problem { throw Failure(message: problem.message, path: problem.path) }
    return component
  }
}

/// An opened instance. Each kind of component overrides the functions that it needs.
class Instance {
  static func fail(_ scope: OpaquePointer?, _ failure: Failure, _ status: Int32 = 2) -> Int32 {
    failure.message.withText { message in failure.path.withText { host.fail(scope, message, $0) } }
    return status
  }

  static func fail(_ scope: OpaquePointer?, _ failure: SignalFailure) -> Int32 {
    fail(scope, Failure(message: failure.message, path: failure.location?.path ?? ""))
  }

  func row(
    _ scope: OpaquePointer?, _ slot: Int, _ event: UnsafeMutablePointer<rxd_value>,
    _ arguments: UnsafePointer<rxd_value>?
  ) -> Int32 { 2 }
  func process(_ scope: OpaquePointer?, _ batch: UnsafePointer<rxd_batch>, _ output: OpaquePointer?) -> Int32 { 2 }
  func save(_ scope: OpaquePointer?) -> [UInt8] { [] }
  func run(_ scope: OpaquePointer?, _ source: OpaquePointer?) -> Int32 { 2 }
  func write(_ scope: OpaquePointer?, _ batch: UnsafePointer<rxd_batch>, _ verdicts: OpaquePointer?) -> Int32 { 2 }
  func close() {}
  /// Whether the output completed while the instance was opened.
  var hasFinished: Bool { false }
}

/// A pure function: called on any thread, several at once, so each thread has its own step.
final class RowInstance: Instance {
  private final class Slot {
    let step: PureStep
    let frame = EventFrame()
    init(_ step: PureStep) { self.step = step }
  }
  private let make: @Sendable () -> FusedStep
  /// One step per thread, made on the thread's first call; no two threads share a step.
  private let slots: UnsafeMutablePointer<Unmanaged<Slot>?>

  init(_ make: @escaping @Sendable () -> FusedStep) {
    self.make = make
    slots = .allocate(capacity: Int(RXD_SWIFT_SLOTS))
    slots.initialize(repeating: nil, count: Int(RXD_SWIFT_SLOTS))
  }

  deinit {
    for index in 0..<Int(RXD_SWIFT_SLOTS) { slots[index]?.release() }
    slots.deallocate()
  }

  @inline(never)
  private func makeSlot() -> Unmanaged<Slot> {
    guard let step = make() as? PureStep else { preconditionFailure("a pure operator makes pure steps") }
    return .passRetained(Slot(step))
  }

  override func row(
    _ scope: OpaquePointer?, _ index: Int, _ event: UnsafeMutablePointer<rxd_value>,
    _ arguments: UnsafePointer<rxd_value>?
  ) -> Int32 {
    // More threads than slots: makes a step for this event alone.
    guard index < Int(RXD_SWIFT_SLOTS) else {
      let own = makeSlot()
      defer { own.release() }
      return own._withUnsafeGuaranteedRef { Self.row($0, scope, event, arguments) }
    }
    let slot: Unmanaged<Slot>
    if let known = slots[index] {
      slot = known
    } else {
      slot = makeSlot()
      slots[index] = slot
    }
    return slot._withUnsafeGuaranteedRef { Self.row($0, scope, event, arguments) }
  }

  @inline(__always)
  private static func row(
    _ slot: Slot, _ scope: OpaquePointer?, _ event: UnsafeMutablePointer<rxd_value>,
    _ arguments: UnsafePointer<rxd_value>?
  ) -> Int32 {
    let frame = slot.frame
    frame.scope = scope
    frame.arguments = arguments
    var value = Value(event.pointee, scope)
    switch slot.step.transform(&value, frame) {
    case .pass:
      event.pointee = value.raw
      return 0
    case .drop: return 1
    case .failed:
      defer { frame.problem = nil }
      return fail(scope, Failure(message: frame.problem ?? "the step failed without a reason"))
    }
  }
}

final class StreamInstance: Instance {
  private let node: OperatorNode

  init(_ component: some OperatorComponent, _ opening: Opening) throws {
    node = component.makeNode(opening.nodeContext, downstream: Downstream())
    super.init()
    if let state = opening.state {
      do throws(StateFault) {
        try node.restore(record: state, version: opening.stateVersion)
      } catch { throw Failure(message: "its saved state cannot be used: \(error.message)") }
    } else {
      node.start()
    }
    if let failure = node.failure { throw Failure(message: failure.message, path: failure.location?.path ?? "") }
  }

  override func process(_ scope: OpaquePointer?, _ batch: UnsafePointer<rxd_batch>, _ output: OpaquePointer?) -> Int32 {
    node.execution.times = (batch.pointee.wall_time, batch.pointee.monotonic_time)
    node.output = output
    node.frame.scope = scope
    defer {
      node.output = nil
      node.flushCounts()
    }
    for index in 0..<Int(batch.pointee.count) {
      let input = batch.input(index)
      node.index = index
      if index == 0 { node.tellUntold() }
      guard !node.isClosed else { break }
      switch input.kind {
      case 0:
        node.frame.arguments = input.arguments
        node.receive(Event(Value(input.event, scope)))
        node.frame.arguments = nil
      case 1: if let wake = Wake(name: input.name.string), node.timers.remove(wake) { node.woke(wake.token) }
      case 2: node.complete()
      default: break
      }
      if let failure = node.failure { return Self.fail(scope, failure) }
    }
    return 0
  }

  override func save(_ scope: OpaquePointer?) -> [UInt8] { node.record() }

  override func close() { node.close() }

  override var hasFinished: Bool { node.isClosed }
}

final class SourceInstance: Instance {
  private let node: RunningSource
  private let isRestored: Bool

  init<C: SourceComponent>(_ component: C, _ opening: Opening) throws {
    node = component.makeSource(opening.nodeContext, downstream: Downstream())
    isRestored = opening.position != nil
    super.init()
    switch C.spec.persistence {
    case .state(let version), .position(let version):
      if component.recovery == .position { node.keepPositions(version: version) }
    case .nothing: break
    }
    if let position = opening.position {
      do throws(StateFault) {
        try node.restore(position: position)
      } catch { throw Failure(message: "its saved position cannot be used: \(error.message)") }
    } else {
      node.start()
    }
    if let failure = node.failure { throw Failure(message: failure.message, path: failure.location?.path ?? "") }
  }

  override func run(_ scope: OpaquePointer?, _ source: OpaquePointer?) -> Int32 {
    _ = rxd_swift_enter(host.source_scope(source))
    node.run(source, isRestored: isRestored)
    node.flushCounts()
    if let failure = node.failure { return Self.fail(scope, failure) }
    return 0
  }

  override func close() { node.close() }
}

final class SinkInstance: Instance {
  private let node: RunningSink

  init(_ component: some SinkComponent, _ opening: Opening) throws {
    node = component.makeSink(opening.nodeContext)
    super.init()
    node.open()
    if let failure = node.failure { throw Failure(message: failure.message, path: failure.location?.path ?? "") }
  }

  override func write(_ scope: OpaquePointer?, _ batch: UnsafePointer<rxd_batch>, _ verdicts: OpaquePointer?) -> Int32 {
    node.execution.times = (batch.pointee.wall_time, batch.pointee.monotonic_time)
    switch node.write(batch, verdicts, scope) {
    case .written: return 0
    case .again(let message): return Self.fail(scope, Failure(message: message), 3)
    case .failed(let failure): return Self.fail(scope, failure)
    }
  }

  override func close() { node.finish() }
}
