/// A row-wise step whose answer depends on nothing but the value and what its frame says of it, and that changes nothing else.
///
/// It may run on any thread, serve many chains, and be given up and made anew between any two events.
open class PureStep: FusedStep {
  /// What becomes of one value, which it may change unless it returns `.failed`.
  ///
  /// Where it fails it says why first: ``fail(_:_:_:)``, ``refuse(_:_:_:)``.
  open func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict { .pass }

  public final override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
    preconditionFailure("a pure step has no turns")
  }

  /// `program` gave `error`.
  @inline(never)
  final func fail(_ error: Value, _ program: Program, _ frame: EventFrame) -> PureVerdict {
    frame.problem = .expression(error, program)
    return .failed
  }

  /// The step cannot or will not take the value.
  @inline(never)
  final func refuse(_ code: Diagnostic.Code, _ message: String, _ frame: EventFrame) -> PureVerdict {
    frame.problem = .refused(code, message)
    return .failed
  }

  /// What it has said.
  final func problem(_ frame: EventFrame) -> EventProblem {
    defer { frame.problem = nil }
    return switch frame.problem {
    case .expression(let error, let program): .expression(error, program, frame, standard: standardPolicy)
    case .refused(let code, let message): EventProblem(code: code, message: message)
    case nil: preconditionFailure("a step failed without a reason")
    }
  }
}

/// What a pure step says of one value.
public enum PureVerdict {
  /// The value, perhaps another one, goes on.
  case pass
  /// The event ends here.
  case drop
  /// The step cannot deal with it: its error policy decides.
  case failed
}

/// Why a pure step failed.
enum PureProblem {
  case expression(Value, Program)
  case refused(Diagnostic.Code, String)
}

/// A row-wise operator whose steps are a ``PureStep``.
protocol PureOperator: FusableOperator {
  func makePureStep() -> PureStep
}

extension PureOperator {
  static var isPure: Bool { true }
  func makeStep() -> FusedStep { makePureStep() }
}
