/// A fused step whose result depends only on the value and on the frame, and that changes nothing else.
///
/// It may run on any thread, serve many chains, and be replaced by a new one between any two events.
open class PureStep: FusedStep {
  /// Processes one value, which it may change unless it returns `.failed`.
  ///
  /// On failure it first calls ``fail(_:_:_:)`` or ``refuse(_:_:_:)``.
  open func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict { .pass }

  public final override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
    preconditionFailure("a pure step has no turns")
  }

  /// Reports that `program` gave `error` for the value.
  @inline(never)
  public final func fail(_ error: Value, _ program: Program, _ frame: EventFrame) -> PureVerdict {
    frame.problem = .expression(error, program)
    return .failed
  }

  /// Reports that the step does not accept the value.
  @inline(never)
  public final func refuse(_ code: Diagnostic.Code, _ message: String, _ frame: EventFrame) -> PureVerdict {
    frame.problem = .refused(code, message)
    return .failed
  }

  /// The problem that the step reported.
  final func problem(_ frame: EventFrame) -> EventProblem {
    defer { frame.problem = nil }
    return switch frame.problem {
    case .expression(let error, let program): .expression(error, program, frame, standard: standardPolicy)
    case .refused(let code, let message): EventProblem(code: code, message: message)
    case nil: preconditionFailure("a step failed without a reason")
    }
  }
}

/// The decision of a pure step about one value.
public enum PureVerdict {
  /// The value passes, perhaps changed.
  case pass
  /// The event ends here.
  case drop
  /// The step cannot process the event: its error policy decides.
  case failed
}

/// The reason why a pure step failed.
enum PureProblem {
  case expression(Value, Program)
  case refused(Diagnostic.Code, String)
}

/// A fusable operator whose steps are ``PureStep``s.
public protocol PureOperator: FusableOperator {
  /// Creates the running step. It may be replaced by a new one between any two events, and run on any thread.
  func makePureStep() -> PureStep
  /// The condition that the steps decide, if they drop each value for which the condition is false and do nothing else.
  /// The engine may decide it before it calls a step. Nil by default.
  var passCondition: Program? { get }
}

extension PureOperator {
  public var passCondition: Program? { nil }
  public static var isPure: Bool { true }
  public func makeStep() -> FusedStep { makePureStep() }
}
