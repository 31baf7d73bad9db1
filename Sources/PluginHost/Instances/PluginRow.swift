import PipelineCore
import Synchronization

/// A pure function of an event that a plugin offers: one call in the turn of the event, on any thread.
struct PluginRow: FusableOperator, PluginComponent {
  let offered: PluginComponentSpec
  var arguments: PluginArguments
  private let function: RowFunction?

  /// The function is opened once for all executions.
  var sharedMeter: PluginMeter? { function?.meter }

  static var changesValue: Bool { true }
  static var isPure: Bool { true }

  init() {
    offered = PluginComponentSpec(kind: .operator, name: "plugin", summary: "")
    arguments = PluginArguments(of: offered)
    function = nil
  }

  init(_ offered: PluginComponentSpec, _ maker: any PluginMaker) {
    self.offered = offered
    arguments = PluginArguments(of: offered)
    function = RowFunction(maker)
  }

  func outputType(_ inputs: [EventType]) -> EventType { EventType(offered.output) }

  func startFailure(isDryRun: Bool) -> SignalFailure? {
    guard case .failure(let fault) = function?.open(offered, arguments) else { return nil }
    return SignalFailure(.plugin, "the plugin refuses: \(fault.message)", at: arguments.location(fault.path, offered))
  }

  func makeStep() -> FusedStep { Step(call()) }

  /// The function that a step calls.
  fileprivate func call() -> RowCall {
    RowCall(function?.open(offered, arguments) ?? .failure(PluginFault("it is not loaded")), self)
  }

  final class Step: PureStep {
    private var call: RowCall

    init(_ call: RowCall) { self.call = call }

    override var standardPolicy: ErrorPolicy { call.standardPolicy }

    override func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict {
      switch call(&value, frame) {
      case .pass: .pass
      case .drop: .drop
      case .failed(let message): refuse(call.failure, message, frame)
      case .last, .finish: refuse(.pluginRefusal, "the function ends its output, but its spec has no 'finishes'", frame)
      }
    }
  }

  /// The function used at one location of a pipeline file, opened once for all steps made from it.
  private final class RowFunction: Sendable {
    private let maker: any PluginMaker
    let meter = PluginMeter()
    private let opened = Mutex<Result<any PluginRowFunction, PluginFault>?>(nil)

    init(_ maker: any PluginMaker) { self.maker = maker }

    func open(
      _ offered: PluginComponentSpec, _ arguments: PluginArguments
    ) -> Result<any PluginRowFunction, PluginFault> {
      opened.withLock { opened in
        if let opened { return opened }
        let result: Result<any PluginRowFunction, PluginFault>
        do throws(PluginFault) {
          result = .success(
            try maker.openRow(of: offered, PluginOpening(step: offered.name, parameters: arguments), meter))
        } catch {
          result = .failure(error)
        }
        opened = result
        return result
      }
    }
  }
}

/// A pure function of a plugin that may end its output: in the turn of the event, in the order of the events.
struct PluginFinishingRow: FusableOperator, PluginComponent {
  private var row: PluginRow

  static var changesValue: Bool { true }

  init() { row = PluginRow() }
  init(_ row: PluginRow) { self.row = row }

  var offered: PluginComponentSpec { row.offered }
  var arguments: PluginArguments {
    get { row.arguments }
    set { row.arguments = newValue }
  }
  var sharedMeter: PluginMeter? { row.sharedMeter }

  func outputType(_ inputs: [EventType]) -> EventType { row.outputType(inputs) }
  func startFailure(isDryRun: Bool) -> SignalFailure? { row.startFailure(isDryRun: isDryRun) }
  func makeStep() -> FusedStep { Step(row.call()) }

  final class Step: FusedStep {
    private var call: RowCall
    private var isOver = false

    init(_ call: RowCall) { self.call = call }

    override var endsBeforeStart: Bool { call.endsAtOnce }
    override var standardPolicy: ErrorPolicy { call.standardPolicy }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      // A step downstream may have caused a further event while the last one was passed on.
      if isOver { return .finish }
      switch call(&event.value, frame) {
      case .pass: return .pass
      case .drop: return .drop
      case .failed(let message): return refused(event, call.failure, message, run)
      case .last:
        isOver = true
        return .passAndFinish
      case .finish:
        isOver = true
        return .finish
      }
    }
  }
}

/// Calls the function of a plugin, or its stub in a test.
struct RowCall {
  private var function: (any PluginRowFunction)?
  private let name: String
  /// Whether it has been determined if a test stubs the function.
  private var isSettled = false
  private let problem: String
  private let perEvent: PerEventArguments
  /// The reason of the last ``RowVerdict/failed(_:)``.
  private(set) var failure = Diagnostic.Code.pluginRefusal

  fileprivate init(_ opened: Result<any PluginRowFunction, PluginFault>, _ component: PluginRow) {
    perEvent = PerEventArguments(component.offered, component.arguments)
    name = component.offered.name
    switch opened {
    case .success(let function):
      self.function = function
      problem = ""
    case .failure(let fault):
      function = nil
      problem = "the plugin's '\(component.offered.name)' cannot be opened: \(fault.message)"
    }
  }

  /// A function that cannot be opened ends the pipeline before the first event; a test of a single step has no start.
  var standardPolicy: ErrorPolicy { function == nil ? .fail : .route }

  /// The function ended its output when it was opened.
  var endsAtOnce: Bool { function?.endsAtOnce ?? false }

  private mutating func settle(_ frame: EventFrame) {
    isSettled = true
    if let standIn = frame.standIn, standIn.stands(for: name) { function = StubbedRow(name, standIn) }
  }

  @inline(__always)
  mutating func callAsFunction(_ value: inout Value, _ frame: EventFrame) -> RowVerdict {
    if !isSettled { settle(frame) }
    guard let function else { return failed(.pluginRefusal, problem) }
    if perEvent.isEmpty { return noted(function.call(&value, nil, frame.frame.arena)) }
    let values = frame.frame.arena.elements(perEvent.count)
    if let message = perEvent.evaluate(frame, { values[$0] = $1 }) { return failed(.expressionFailed, message) }
    return noted(function.call(&value, UnsafePointer(values.baseAddress), frame.frame.arena))
  }

  @inline(__always)
  private mutating func noted(_ verdict: RowVerdict) -> RowVerdict {
    if case .failed = verdict { failure = .pluginRefusal }
    return verdict
  }

  private mutating func failed(_ code: Diagnostic.Code, _ message: String) -> RowVerdict {
    failure = code
    return .failed(message)
  }
}
