extension Diagnostic.Code {
  public static let sectionWithoutEngine = Diagnostic.Code(
    "RX320", "A section of the file is known, but this version cannot run it.")
  public static let signalsTooDeep = Diagnostic.Code(
    "RX321", "Inner signals may be nested 16 levels deep.")
  // RX322 is retired and must not be reused.
  public static let schemaType = Diagnostic.Code(
    "RX323", "A schema gives the type of each field of the events.")
  public static let schemaFile = Diagnostic.Code(
    "RX324", "A schema file cannot be read, or is no JSON Schema.")
  public static let schemaPart = Diagnostic.Code(
    "RX325", "A part of a JSON Schema cannot be turned into a type.", severity: .warning)
  public static let addressInUseTwice = Diagnostic.Code(
    "RX326", "Only one source of a process can listen on an address.")
  public static let unansweredRequests = Diagnostic.Code(
    "RX327", "A server takes requests that nothing answers.", severity: .warning)
  public static let limitTooSmall = Diagnostic.Code(
    "RX329", "A limit is smaller than the number of events that come in its time.", severity: .warning)
  public static let aggregateMisplaced = Diagnostic.Code(
    "RX331",
    """
    Figures consist of aggregates, such as count() and sum(event.x); 'event' exists only inside of aggregates.
    """)
  public static let raisedDelivery = Diagnostic.Code(
    "RX339", "A source or sink can leave its pipeline's delivery guarantee, but not choose one of its own.")
  public static let lateWithoutMeaning = Diagnostic.Code(
    "RX340", "A source or step cannot do what 'whenLate' says.")
  public static let noOutbox = Diagnostic.Code(
    "RX341", "Only a sink whose pipeline keeps events on disk can say what happens when too many wait for it.")
  static let compile: [Diagnostic.Code] = [
    .sectionWithoutEngine, .signalsTooDeep, .schemaType, .schemaFile, .schemaPart,
    .addressInUseTwice, .unansweredRequests, .limitTooSmall, .aggregateMisplaced, .raisedDelivery,
    .lateWithoutMeaning, .noOutbox,
  ]
}
