import PipelineCore

/// A connector whose connection goes on over a reload, with what is under way there: a connection to a receiver, a running program, an instance of a
/// plugin. Its sink hands everything over (``DeliveryTraits/handsOver``), and is opened only when it has taken over what the version before has left.
package protocol LastingConnector: DeliveryConnector {
  /// Goes on with the connection of a version with the same settings. False: it cannot.
  func goOn(with former: any LastingConnector) -> Bool
  /// The connection finishes what it was given beside a version with other settings, in whose turns it is heard. Default: it needs no turns.
  func finishBeside(_ nodeContext: NodeContext)
  /// Ends the connection in good order when all that it was given is sent. Nobody waits for that.
  func retire()
  /// Ends the connection. Returns how many messages of those under way are on their way all the same, and waits in the closure until it has ended,
  /// for a while.
  func end() -> (accepted: Int, wait: @Sendable () -> Void)
}

extension LastingConnector {
  package func finishBeside(_ nodeContext: NodeContext) {}
}

/// The connection of an earlier version, with other settings: it has a while for what it was given.
struct Farewell {
  let connector: any LastingConnector
  let answer: DeliveryAnswer
}
