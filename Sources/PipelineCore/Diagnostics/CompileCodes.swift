extension Diagnostic.Code {
  package static let sectionWithoutEngine = Diagnostic.Code(
    "RX320", "This version of rxd knows a section of the file but cannot run it.")
  package static let signalsTooDeep = Diagnostic.Code(
    "RX321", "Inner signals may be nested 16 levels deep.")
  // RX322 is retired and must not be reused.
  package static let schemaType = Diagnostic.Code(
    "RX323", "A schema gives the type of each field of the events, and a function that of each parameter.")
  package static let schemaFile = Diagnostic.Code(
    "RX324", "A schema file cannot be read, or is not a JSON Schema.")
  package static let schemaPart = Diagnostic.Code(
    "RX325", "A part of a JSON Schema cannot be turned into a type.", severity: .warning)
  package static let addressInUseTwice = Diagnostic.Code(
    "RX326",
    "Only one source or sink of a process can listen on an address, or serve a path and method there over HTTP.")
  package static let unansweredRequests = Diagnostic.Code(
    "RX327", "A server accepts requests that nothing answers.", severity: .warning)
  package static let limitTooSmall = Diagnostic.Code(
    "RX329", "A limit is smaller than the number of events that arrive within its time.", severity: .warning)
  package static let aggregateMisplaced = Diagnostic.Code(
    "RX331",
    """
    Figures consist of aggregates, such as count() and sum(event.x); 'event' exists only inside of aggregates.
    """)
  package static let raisedDelivery = Diagnostic.Code(
    "RX339", "A source or sink can leave its pipeline's delivery guarantee, but not choose one of its own.")
  package static let lateWithoutMeaning = Diagnostic.Code(
    "RX340", "A source or step does not support the value of 'whenLate'.")
  package static let noOutbox = Diagnostic.Code(
    "RX341", "Only a sink whose pipeline keeps events on disk can have a policy for too many waiting events.")
  package static let stateWithoutEffect = Diagnostic.Code(
    "RX342", "'state' concerns keys that a pipeline with a store keeps on the disk.")
  package static let schemaMismatch = Diagnostic.Code(
    "RX343", "A schema gives a field a type that the source's values never have.")
  package static let unknownTemplate = Diagnostic.Code(
    "RX352", "'use' names a template of the file, of an included file, or a preset.")
  package static let templateForm = Diagnostic.Code(
    "RX353", "A template is one of chain, signal, source or sink, with parameters that each have a type.")
  package static let templateArgument = Diagnostic.Code(
    "RX354", "The parameters given to a template are those that it declares, with values of their types.")
  package static let templateKind = Diagnostic.Code(
    "RX355", "A template is used where its kind is allowed: a chain in a chain, a sink in 'sinks'.")
  package static let insertion = Diagnostic.Code(
    "RX356", "$(NAME) inserts the value of a parameter into a template, or that of 'each' into a repeated part.")
  package static let templateTooLarge = Diagnostic.Code(
    "RX357", "A template must not use itself, and templates may make at most 100,000 values.")
  package static let foreachForm = Diagnostic.Code(
    "RX358", "'foreach' needs 'each' (the name of a variable), 'in' (a list) and the sections to repeat.")
  package static let include = Diagnostic.Code(
    "RX359", "'include' names files in the directory of the file, or below it, that do not include it.")
  package static let includedKey = Diagnostic.Code(
    "RX365", "An included file has parts of a pipeline, but no settings of a whole pipeline.")
  package static let functionCircle = Diagnostic.Code(
    "RX367", "A function must not call itself, directly or through others.")
  package static let functionExample = Diagnostic.Code(
    "RX368", "An example of a function is a condition that calls it and holds.")
  package static let eventTimeEnded = Diagnostic.Code(
    "RX643", "A window or join goes by the clock after a step that keeps no event time.", severity: .warning)
  package static let asOfWithoutTime = Diagnostic.Code(
    "RX644", "'join' with 'asOf' needs the event time of both signals.")
  package static let joinByClock = Diagnostic.Code(
    "RX645", "A join goes by the clock, although events of one of its signals have a time.", severity: .warning)
  package static let changesMistaken = Diagnostic.Code(
    "RX646", "A step treats changes of earlier rows as new events.", severity: .warning)
  package static let cannotTakeBack = Diagnostic.Code(
    "RX647", "Only count, sum and avg can subtract the value of a retracted row.")
  package static let notInFlink = Diagnostic.Code(
    "RX650", "A part of the file has no exact equal in Flink SQL.")
  static let compile: [Diagnostic.Code] = [
    .sectionWithoutEngine, .signalsTooDeep, .schemaType, .schemaFile, .schemaPart,
    .addressInUseTwice, .unansweredRequests, .limitTooSmall, .aggregateMisplaced, .raisedDelivery,
    .lateWithoutMeaning, .noOutbox, .stateWithoutEffect, .schemaMismatch,
    .unknownTemplate, .templateForm, .templateArgument, .templateKind, .insertion,
    .templateTooLarge, .foreachForm, .include, .includedKey,
    .functionCircle, .functionExample, .eventTimeEnded, .asOfWithoutTime, .joinByClock, .changesMistaken,
    .cannotTakeBack, .notInFlink,
  ]
}
