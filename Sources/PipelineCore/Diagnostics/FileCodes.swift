extension Diagnostic.Code {
  package static let missingDirectory = Diagnostic.Code(
    "RX336", "The directory of a file that a sink writes does not exist.", severity: .warning)
  package static let sharedStandardInput = Diagnostic.Code(
    "RX337", "One source of a process can read standard input.", severity: .warning)
  package static let sharedName = Diagnostic.Code(
    "RX338", "Pipelines that run together need different names.", severity: .warning)
  package static let pathTemplate = Diagnostic.Code(
    "RX350", "A path with {{ }} must begin with a directory and name a file below it.")
  package static let possibleFileCycle = Diagnostic.Code(
    "RX351", "The output of a sink, or the request of a step, may come back as input of the same pipeline.",
    severity: .warning
  )
  package static let missingDatabase = Diagnostic.Code(
    "RX369", "A database that a source reads does not exist.", severity: .warning)
  static let files: [Diagnostic.Code] = [
    .missingDatabase, .missingDirectory, .sharedStandardInput, .sharedName, .pathTemplate, .possibleFileCycle,
  ]
}
