/// An event that an operator of a plugin is given.
public struct PluginCall: Sendable, Equatable {
  /// The name of the operator.
  public var component: String
  /// The event as JSON.
  public var event: [UInt8]

  public init(component: String, event: [UInt8]) {
    self.component = component
    self.event = event
  }
}

/// The events with which a plugin answers one event.
public struct PluginReply: Sendable {
  public var events: [OwnedValue]
  /// Whether the output completes behind them.
  public var finishes: Bool
  public init(_ events: [OwnedValue], finishes: Bool = false) {
    self.events = events
    self.finishes = finishes
  }
}

/// Why a plugin does not take an event.
public struct PluginRefusal: Error, Sendable {
  public var message: String
  public init(_ message: String) { self.message = message }
}

/// Stands for plugins, in tests.
public protocol PluginStandIn: Sendable {
  /// Whether it stands for the operator; otherwise the plugin runs.
  func stands(for component: String) -> Bool
  /// Answers later, in a turn.
  func run(
    _ call: PluginCall, _ completion: @escaping @Sendable (Result<PluginReply, PluginRefusal>) -> Void
  ) -> any Cancellable
  /// Answers a pure function, at once.
  func reply(to call: PluginCall) -> Result<PluginReply, PluginRefusal>
}
