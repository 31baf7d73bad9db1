extension Diagnostic.Code {
  public static let inputNotDecodable = Diagnostic.Code(
    "RX501", "Input could not be decoded into an event.")
  public static let eventNotReadable = Diagnostic.Code(
    "RX502", "An event is not the JSON that its decoder took it for.")
  public static let expressionFailed = Diagnostic.Code(
    "RX503", "An expression failed for an event.")
  public static let eventNotDeliverable = Diagnostic.Code(
    "RX504", "A sink rejected an event for good.")
  public static let unexpectedValue = Diagnostic.Code(
    "RX505", "An expression gave a value of a kind that the operator cannot use.")
  public static let limitReached = Diagnostic.Code(
    "RX506", "An operator's bound was reached.")
  public static let stateRefused = Diagnostic.Code(
    "RX507", "What a step kept when its state was saved cannot be used any more.", severity: .warning)
  public static let eventRefused = Diagnostic.Code(
    "RX520", "An event does not fulfil the condition of try, or tryMap has no value for it.")
  public static let eventTooLate = Diagnostic.Code(
    "RX521", "An event came after the window that it belongs to was closed.")
  public static let innerSignalFailed = Diagnostic.Code(
    "RX522", "The inner signal that an event started has failed.")
  public static let circuitOpen = Diagnostic.Code(
    "RX523", "An event came while the circuit breaker was open.")
  public static let commandBusy = Diagnostic.Code(
    "RX508", "An event found a command being executed.")
  public static let commandDisabled = Diagnostic.Code(
    "RX509", "An event found a command that was not enabled.")
  public static let executionFailed = Diagnostic.Code(
    "RX510", "An execution of a command failed.")
  public static let requestRefused = Diagnostic.Code(
    "RX524", "The request that an event asks for is not allowed.")
  public static let pollFailed = Diagnostic.Code(
    "RX525", "One of the requests that a source makes again and again has failed.")
  static let runtime: [Diagnostic.Code] = [
    .inputNotDecodable, .eventNotReadable, .expressionFailed, .eventNotDeliverable, .unexpectedValue,
    .limitReached, .stateRefused, .commandBusy, .commandDisabled, .executionFailed, .eventRefused, .eventTooLate,
    .innerSignalFailed, .circuitOpen, .requestRefused, .pollFailed,
  ]
}
