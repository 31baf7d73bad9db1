/// The treatment of an event for which a step fails.
public enum ErrorPolicy: String, Sendable, CaseIterable {
  /// The event is dropped and counted; the first of each kind is logged.
  case drop
  /// The event passes the step unchanged.
  case keep
  /// The signal ends with the error.
  case fail
  /// The event goes to the errors output, with the reason.
  case route
}
