extension Diagnostic.Code {
  /// RX501: input could not be decoded into an event.
  public static let inputNotDecodable = Diagnostic.Code(
    "RX501", "Input could not be decoded into an event.")
  package static let eventNotReadable = Diagnostic.Code(
    "RX502", "An event is not valid JSON.")
  /// RX503: an expression failed for an event.
  public static let expressionFailed = Diagnostic.Code(
    "RX503", "An expression failed for an event.")
  /// RX504: a sink rejected an event.
  public static let eventNotDeliverable = Diagnostic.Code(
    "RX504", "A sink rejected an event.")
  /// RX505: a step cannot use a value.
  public static let unexpectedValue = Diagnostic.Code(
    "RX505", "The operator cannot use the value of an expression.")
  /// RX506: a step's limit was reached.
  public static let limitReached = Diagnostic.Code(
    "RX506", "An operator reached its limit.")
  package static let stateRefused = Diagnostic.Code(
    "RX507", "The saved state of a step cannot be used.", severity: .warning)
  package static let eventRefused = Diagnostic.Code(
    "RX520", "An event does not meet the condition of 'try', or 'tryMap' has no value for it.")
  package static let eventTooLate = Diagnostic.Code(
    "RX521", "An event came after its window was closed, or is earlier than the watermark of its signal at a join.")
  package static let innerSignalFailed = Diagnostic.Code(
    "RX522", "The inner signal that an event started has failed.")
  package static let circuitOpen = Diagnostic.Code(
    "RX523", "An event came while the circuit breaker was open.")
  package static let commandBusy = Diagnostic.Code(
    "RX508", "The command was already running.")
  package static let commandDisabled = Diagnostic.Code(
    "RX509", "The command was not enabled.")
  package static let executionFailed = Diagnostic.Code(
    "RX510", "An execution of a command failed.")
  package static let requestRefused = Diagnostic.Code(
    "RX524", "The event would change the request in a way that is not allowed.")
  package static let pollFailed = Diagnostic.Code(
    "RX525", "A periodic request of a source failed.")
  package static let programRefused = Diagnostic.Code(
    "RX526", "The event would change the arguments of a program in a way that is not allowed.")
  package static let runFailed = Diagnostic.Code(
    "RX527", "A periodic run of a program failed.")
  package static let queryFailed = Diagnostic.Code(
    "RX528", "A periodic query of a database failed.")
  package static let pluginRefusal = Diagnostic.Code(
    "RX511", "A plugin rejected an event, or ended three times while it handled the event.")
  package static let eventEndsProcess = Diagnostic.Code(
    "RX550", "The process ended three times while it handled this event, so the event is skipped.")
  package static let notAnswered = Diagnostic.Code(
    "RX551", "The program that answers events line by line has not answered this one.")
  package static let keysUnreadable = Diagnostic.Code(
    "RX552", "The keys that a step keeps on the disk cannot be read.")
  package static let eventsLeftBehind = Diagnostic.Code(
    "RX534", "A state directory holds events that none of the pipelines delivers.", severity: .warning)
  static let runtime: [Diagnostic.Code] = [
    .inputNotDecodable, .eventNotReadable, .expressionFailed, .eventNotDeliverable, .unexpectedValue,
    .limitReached, .stateRefused, .commandBusy, .commandDisabled, .executionFailed, .eventRefused, .eventTooLate,
    .innerSignalFailed, .circuitOpen, .requestRefused, .pollFailed, .programRefused, .runFailed, .queryFailed,
    .pluginRefusal,
    .eventEndsProcess, .notAnswered, .keysUnreadable, .eventsLeftBehind,
  ]
}
