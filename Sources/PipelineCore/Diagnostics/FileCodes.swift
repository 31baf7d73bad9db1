extension Diagnostic.Code {
  package static let missingDirectory = Diagnostic.Code(
    "RX336", "The directory of a file that a sink writes does not exist.", severity: .warning)
  package static let sharedStandardInput = Diagnostic.Code(
    "RX337", "One source of a process can read standard input.", severity: .warning)
  package static let sharedName = Diagnostic.Code(
    "RX338", "Pipelines that run together have a name each.", severity: .warning)
  package static let pathTemplate = Diagnostic.Code(
    "RX350", "A path with {{ }} begins with a directory, and names a file below it.")
  package static let possibleFileCycle = Diagnostic.Code(
    "RX351", "What a sink writes, or a step asks for, may come back as an event of its own sources.", severity: .warning
  )
  package static let missingDatabase = Diagnostic.Code(
    "RX369", "A database that a source reads does not exist.", severity: .warning)
  static let files: [Diagnostic.Code] = [
    .missingDatabase, .missingDirectory, .sharedStandardInput, .sharedName, .pathTemplate, .possibleFileCycle,
  ]
}
