/// A signal in the plan: a reference, or steps with the signals that they receive.
///
/// Every walk over a plan sees signals in this form, whatever their kind. The kind is how the steps run together
/// (``SignalWork``).
public final class SignalPlan: Sendable {
  /// The target of a signal that is a reference.
  package enum Origin: Hashable, Sendable {
    /// The named source or signal with this index in `Plan.named`.
    case named(Int)
    case errors(ErrorsOwner)
    /// The input that the enclosing node feeds: the origin of a chain parameter.
    case input
  }

  /// A step of a signal: a source or an operator.
  package struct Step: Sendable {
    package let id: StepID
    package let component: any Component
    /// The signals and chains in the step's parameters, in their order.
    package let inner: [SignalPlan]
    /// The number, from 0, of the projection of the event that the step shares with adjacent steps.
    let reading: Int

    init(_ id: StepID, _ component: any Component, reading: Int = 0) {
      self.id = id
      self.component = component
      self.reading = reading
      inner = component.innerPlans
    }
  }

  /// The target of a reference; nil: the signal has steps.
  package let origin: Origin?
  /// How the signal's steps run; nil: it is a reference.
  let work: (any SignalWork)?
  /// The signal's steps in the order in which an event passes them.
  package let steps: [Step]
  /// The signals that the first step receives; the first is the chain's.
  package let inputs: [SignalPlan]
  /// The step, if it is a source.
  package let source: (any SourceDeclaration)?
  /// The signal's first step; for a reference, that of the signal it names.
  package let step: StepID
  package let type: EventType
  /// Whether the signal's events have event time.
  let isTimed: Bool
  /// The edge of the plan over which the signal's events go. Set when the plan is made, never after.
  nonisolated(unsafe) var edge = EdgeID.none
  /// The key of a reference in a saved state; unique in the plan.
  let reference: String
  /// The number of consecutive nodes with `settle` up to this one.
  let settling: Int

  /// A placeholder for a missing signal.
  static let nothing = SignalPlan(.input, step: StepID(0), type: .dyn)

  init(_ origin: Origin, step: StepID, type: EventType, reference: String = "", settling: Int = 0) {
    self.origin = origin
    work = nil
    steps = []
    inputs = []
    source = nil
    self.step = step
    self.type = type
    isTimed = type.isTimed
    self.reference = reference
    self.settling = settling
  }

  init(_ work: any SignalWork, inputs: [SignalPlan] = [], step: StepID, type: EventType) {
    origin = nil
    self.work = work
    steps = work.steps(from: step)
    self.inputs = inputs
    source = work.source
    self.step = step
    self.type = type
    isTimed = type.isTimed
    reference = ""
    let upstream = (inputs + steps.flatMap(\.inner)).map(\.settling).max() ?? 0
    settling = upstream + (work.settles ? 1 : 0)
  }
}

extension SignalPlan {
  /// The signals and chains in the parameters of the signal's steps.
  package var inner: [SignalPlan] { steps.flatMap(\.inner) }

  private var firstOperator: (any OperatorDeclaration.Type)? {
    steps.first.flatMap { Swift.type(of: $0.component) as? any OperatorDeclaration.Type }
  }

  /// Whether the signal's step is not in any file: drawings show its first input instead.
  package var isHidden: Bool { firstOperator?.isHidden ?? false }
  /// Whether the signal only subscribes to inputs that other signals run.
  var onlyListens: Bool { firstOperator?.onlyListens ?? false }
  /// Whether the signal may subscribe its inputs after its own start, or repeatedly.
  var subscribesAgain: Bool { firstOperator?.subscribesAgain ?? false }

  /// The inputs that the signal's events come from.
  var feeding: ArraySlice<SignalPlan> { isHidden ? inputs.prefix(1) : inputs[...] }

  /// Whether the signal begins with the input that the node around a chain feeds.
  var isFed: Bool { origin == .input || inputs.count == 1 && inputs[0].isFed }

  /// Whether the signal's events are made outside of the scope in which it is read.
  var isShared: Bool { origin != nil && origin != .input }

  /// The source itself, or the source that the signal starts with if it defines one in place.
  var ownSource: SignalPlan? { source != nil ? self : inputs.first?.ownSource }

  /// Visits the references among the signal, its inputs and its inner signals. `isLate`: they may be subscribed after
  /// the start of the part that the signal belongs to, or repeatedly.
  func forEachReference(isLate: Bool = false, _ body: (Origin, _ isLate: Bool) -> Void) {
    if let origin { return body(origin, isLate) }
    if onlyListens { return }
    let isLater = isLate || subscribesAgain
    for input in inputs { input.forEachReference(isLate: isLater, body) }
    for signal in inner { signal.forEachReference(isLate: true, body) }
  }
}

/// The owner of an errors output, by its index in the plan: a source, a signal, a command, or a sink.
package enum ErrorsOwner: Hashable, Sendable {
  case named(Int)
  case sink(Int)
}

/// How the steps of a signal run. Each kind of signal is one type of the engine (``RunnableWork``); no other code knows
/// the kinds.
protocol SignalWork: AnyObject, Sendable {
  /// The steps, at least one. `first`: the ID of the first step.
  func steps(from first: StepID) -> [SignalPlan.Step]
  /// The step, if it is a source. Stored, because casting a component costs a quarter of a million instructions at the
  /// start.
  var source: (any SourceDeclaration)? { get }
  /// Whether a step waits until everything upstream has handled the event (`settle`).
  var settles: Bool { get }
  /// The environment shared by the expressions of its only step; empty for several steps.
  var segment: Segment { get }
  /// The state of the node that outlives the process. Fused steps save their own state.
  var persistence: Persistence { get }
  /// Whether the signal's steps are fused into one pass.
  var isFused: Bool { get }
  /// Whether the output of its steps depends only on the event's value.
  var isPure: Bool { get }
}

/// The running side of a sink, known only to the engine (``RunnableSink``).
protocol SinkWork: AnyObject, Sendable {
  var component: any SinkDeclaration { get }
}
