import PipelineCore

/// A connector whose connection continues over a reload, with the batches under way there: a connection to a receiver,
/// a running program, an instance of a plugin. Its sink hands everything over (``DeliveryTraits/handsOver``), and is
/// opened only when it has taken over what the previous version has left.
package protocol LastingConnector: DeliveryConnector {
  /// Continues with the connection of a version with the same settings. False: that is impossible.
  func goOn(with former: any LastingConnector) -> Bool
  /// Lets the connection finish its deliveries while a version with other settings runs, whose turns receive its
  /// reports. Default: it needs no turns.
  func finishBeside(_ nodeContext: NodeContext)
  /// Closes the connection cleanly when everything that it was given is sent. The caller does not wait for that.
  func retire()
  /// Ends the connection. Returns how many outstanding messages will still arrive, and a closure that waits for the end of
  /// the connection, for a limited time.
  func end() -> (accepted: Int, wait: @Sendable () -> Void)
}

extension LastingConnector {
  package func finishBeside(_ nodeContext: NodeContext) {}
}

/// The connection of an earlier version, with other settings: it has some time to send what it was given.
struct Farewell {
  let connector: any LastingConnector
  let answer: DeliveryAnswer
}
