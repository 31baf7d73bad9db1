// The running side of components; a plan knows only their declarations.

/// A component that starts a signal.
public protocol SourceComponent: SourceDeclaration {
  /// The source that sends the existing input once and then completes: a file up to its current end, or the answer to
  /// one request. Nil: the source waits for events from others and has no end.
  var once: (any SourceComponent)? { get }
  /// The positions up to which the source had read in a saved state, decoded from the output of `save` of its nodes.
  /// Empty: the source has no position, or the position is unknown.
  static func savedPositions(_ state: inout StateReader) throws(StateFault) -> [SavedPosition]
  /// Makes the running source for one subscription; it starts with ``RunningSource/begin()``.
  func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource
}

extension SourceComponent {
  public var once: (any SourceComponent)? { nil }
  public static func savedPositions(_ state: inout StateReader) throws(StateFault) -> [SavedPosition] { [] }
}

/// A step of a chain, or a combination of signals.
public protocol OperatorComponent: OperatorDeclaration {
  /// Makes the running step for one subscription, whose events go to `downstream`.
  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode
}

/// A step that answers each event at once with at most one event, and needs nothing but the event: consecutive steps of
/// this kind are fused. A ``LateStep`` also sends later or at the end.
public protocol FusableOperator: OperatorComponent, FusableDeclaration {
  /// Makes the running step for one subscription.
  func makeStep() -> FusedStep
  /// Creates the step of another chain equal to the one that contains `first`: the two may share immutable data.
  func makeStep(beside first: FusedStep) -> FusedStep
}

extension FusableOperator {
  public func makeStep(beside first: FusedStep) -> FusedStep { makeStep() }
}

/// A component of `commands:`, which works on demand.
package protocol CommandComponent: OperatorComponent {
  /// The index of the command in ``Plan/named``.
  var index: Int { get set }
}

/// Combines the signals that its key lists, and starts a signal instead of being a step: `merge: [a, b]`.
package protocol CombiningOperator: OperatorComponent, CombiningDeclaration {}

/// A component that ends a signal.
public protocol SinkComponent: SinkDeclaration {
  /// Makes the running sink.
  func makeSink(_ nodeContext: NodeContext) -> RunningSink
}
