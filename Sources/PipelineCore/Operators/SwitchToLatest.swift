/// `switchToLatest`: a signal for each event; only the newest one runs.
struct SwitchToLatest: OperatorComponent, TimedOperator {
  var signal = SignalParameter()

  static let spec = ComponentSpec<SwitchToLatest>(
    "switchToLatest",
    summary: "Creates a signal for each event and sends the events of the newest of these signals.",
    details: """
      It is `flattenMap` with `policy: latest`: an event ends the inner signal of the event before, whose resources \
      are freed before the new one is subscribed. It completes when its input and the last inner signal have; an \
      error of the inner signal ends everything.
      """,
    parameters: [
      .init(
        "signal", \.signal, primary: true, required: true,
        "The inner signal; it sees the event as `outer` (and, in the parameters of its source, as `event`).")
    ],
    examples: [
      .marble(
        "only the newest", "switchToLatest: { values: [p, q], chain: [ { delay: 3ms } ] }",
        in: "-x-y------|", out: "------(pq)---|"),
      .marble(
        "it ends with both", "switchToLatest: { values: [p], chain: [ { delay: 3ms } ] }",
        in: "-x-y|", out: "------(p|)"),
    ],
    edges: EdgeCases(
      error: "Passed on at once; an error of the running inner signal too.",
      completion: "Completes when the running inner signal has.",
      disposal: "Unsubscribes from the input and the running inner signal."),
    memory: "The running inner signal.", persistence: .state(version: 1),
    knownAs: ["RxJS switchMap, switchAll", "Combine switchToLatest"],
    useCases: [
      .init(
        .asking, "show only responses to the newest request",
        "switchToLatest: { from: { http: { url: \"http://127.0.0.1:8080/?q={{ event }}\" } } }")
    ],
    seeAlso: ["flattenMap", "then"])

  func outputType(_ inputs: [EventType]) -> EventType { signal.plan?.type ?? .dyn }

  var timing: Timing { .passes }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    var parameters = FlattenMap()
    parameters.signal = signal
    parameters.policy = .latest
    return FlattenMap.Node(parameters, nodeContext, downstream)
  }
}
