extension Diagnostic.Code {
  public static let inputNotDecodable = Diagnostic.Code(
    "RX501", "Input could not be decoded into an event.")
  public static let eventNotReadable = Diagnostic.Code(
    "RX502", "An event is not valid JSON.")
  public static let expressionFailed = Diagnostic.Code(
    "RX503", "An expression failed for an event.")
  public static let eventNotDeliverable = Diagnostic.Code(
    "RX504", "A sink rejected an event.")
  public static let unexpectedValue = Diagnostic.Code(
    "RX505", "The operator cannot use the value of an expression.")
  public static let limitReached = Diagnostic.Code(
    "RX506", "An operator's limit was reached.")
  public static let stateRefused = Diagnostic.Code(
    "RX507", "The saved state of a step cannot be used.", severity: .warning)
  public static let eventRefused = Diagnostic.Code(
    "RX520", "An event does not fulfil the condition of try, or tryMap has no value for it.")
  public static let eventTooLate = Diagnostic.Code(
    "RX521", "An event came after its window was closed.")
  public static let innerSignalFailed = Diagnostic.Code(
    "RX522", "The inner signal that an event started has failed.")
  public static let circuitOpen = Diagnostic.Code(
    "RX523", "An event came while the circuit breaker was open.")
  public static let commandBusy = Diagnostic.Code(
    "RX508", "The command was already running.")
  public static let commandDisabled = Diagnostic.Code(
    "RX509", "The command was not enabled.")
  public static let executionFailed = Diagnostic.Code(
    "RX510", "An execution of a command failed.")
  public static let requestRefused = Diagnostic.Code(
    "RX524", "The event would change the request in a way that is not allowed.")
  public static let pollFailed = Diagnostic.Code(
    "RX525", "A periodic request of a source failed.")
  public static let programRefused = Diagnostic.Code(
    "RX526", "The event would change the arguments of a program in a way that is not allowed.")
  public static let runFailed = Diagnostic.Code(
    "RX527", "A periodic run of a program failed.")
  public static let queryFailed = Diagnostic.Code(
    "RX528", "A periodic query of a database failed.")
  public static let pluginRefusal = Diagnostic.Code(
    "RX511", "A plugin rejected an event, or ended three times when it was given it.")
  public static let eventEndsProcess = Diagnostic.Code(
    "RX550", "The process ended three times while it had this event in hand, so the event is left out.")
  public static let notAnswered = Diagnostic.Code(
    "RX551", "The program that answers events line by line has not answered this one.")
  static let runtime: [Diagnostic.Code] = [
    .inputNotDecodable, .eventNotReadable, .expressionFailed, .eventNotDeliverable, .unexpectedValue,
    .limitReached, .stateRefused, .commandBusy, .commandDisabled, .executionFailed, .eventRefused, .eventTooLate,
    .innerSignalFailed, .circuitOpen, .requestRefused, .pollFailed, .programRefused, .runFailed, .queryFailed,
    .pluginRefusal,
    .eventEndsProcess, .notAnswered,
  ]
}
