/// An event that an operator of a plugin is given.
package struct PluginCall: Sendable, Equatable {
  /// The name of the operator.
  package var component: String
  /// The event as JSON.
  package var event: [UInt8]

  package init(component: String, event: [UInt8]) {
    self.component = component
    self.event = event
  }
}

/// The events with which a plugin answers one event.
package struct PluginReply: Sendable {
  package var events: [OwnedValue]
  /// Whether the output completes behind them.
  package var finishes: Bool
  package init(_ events: [OwnedValue], finishes: Bool = false) {
    self.events = events
    self.finishes = finishes
  }
}

/// Why a plugin does not take an event.
package struct PluginRefusal: Error, Sendable {
  package var message: String
  package init(_ message: String) { self.message = message }
}

/// Stands for plugins, in tests.
package protocol PluginStandIn: Sendable {
  /// Whether it stands for the operator; otherwise the plugin runs.
  func stands(for component: String) -> Bool
  /// Answers later, in a turn.
  func run(
    _ call: PluginCall, _ completion: @escaping @Sendable (Result<PluginReply, PluginRefusal>) -> Void
  ) -> any Cancellable
  /// Answers a pure function, at once.
  func reply(to call: PluginCall) -> Result<PluginReply, PluginRefusal>
}
