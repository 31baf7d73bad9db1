/// An event passed to an operator of a plugin.
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

/// The events that a plugin sends for one event.
package struct PluginReply: Sendable {
  package var events: [OwnedValue]
  /// Whether the output completes after them.
  package var finishes: Bool
  package init(_ events: [OwnedValue], finishes: Bool = false) {
    self.events = events
    self.finishes = finishes
  }
}

/// The reason why a plugin refuses an event.
package struct PluginRefusal: Error, Sendable {
  package var message: String
  package init(_ message: String) { self.message = message }
}

/// Replaces plugins in tests.
package protocol PluginStandIn: Sendable {
  /// Whether it replaces this operator; otherwise the plugin runs.
  func stands(for component: String) -> Bool
  /// Answers later, in a turn.
  func run(
    _ call: PluginCall, _ completion: @escaping @Sendable (Result<PluginReply, PluginRefusal>) -> Void
  ) -> any Cancellable
  /// Answers for a pure function, immediately.
  func reply(to call: PluginCall) -> Result<PluginReply, PluginRefusal>
}
