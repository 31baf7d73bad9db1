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
    return SignalFailure(.plugin, "the plugin refuses: \(fault.message)", at: arguments.location(fault.place, offered))
  }

  func makeStep() -> FusedStep {
    Step(function?.open(offered, arguments) ?? .failure(PluginFault("it is not loaded")), self)
  }

  final class Step: PureStep {
    private var function: (any PluginRowFunction)?
    private let name: String
    /// Whether it has been determined if a test replaces the function.
    private var isSettled = false
    private let problem: String
    private let perEvent: PerEventArguments

    init(_ opened: Result<any PluginRowFunction, PluginFault>, _ component: PluginRow) {
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

    /// A function that cannot be opened ends the pipeline before there is an event; a test of a step alone has no start.
    override var standardPolicy: ErrorPolicy { function == nil ? .fail : .route }

    private func settle(_ frame: EventFrame) {
      isSettled = true
      if let standIn = frame.standIn, standIn.stands(for: name) { function = StubbedRow(name, standIn) }
    }

    override func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict {
      if !isSettled { settle(frame) }
      guard let function else { return refuse(.pluginRefusal, problem, frame) }
      if perEvent.isEmpty {
        switch function.call(&value, nil, frame.frame.arena) {
        case .pass: return .pass
        case .drop: return .drop
        case .failed(let message): return refuse(.pluginRefusal, message, frame)
        }
      }
      let places = frame.frame.arena.elements(perEvent.count)
      if let message = perEvent.evaluate(frame, { places[$0] = $1 }) {
        return refuse(.expressionFailed, message, frame)
      }
      switch function.call(&value, UnsafePointer(places.baseAddress), frame.frame.arena) {
      case .pass: return .pass
      case .drop: return .drop
      case .failed(let message): return refuse(.pluginRefusal, message, frame)
      }
    }
  }

  /// The function of one place in a pipeline file, opened once for all of its steps.
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

/// An opened pure function. May be called on several threads at once.
protocol PluginRowFunction: AnyObject, Sendable {
  func call(_ value: inout Value, _ arguments: UnsafePointer<Value>?, _ arena: Arena) -> RowVerdict
}

enum RowVerdict {
  case pass, drop
  case failed(String)
}
