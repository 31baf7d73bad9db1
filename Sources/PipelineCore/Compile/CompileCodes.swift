extension Diagnostic.Code {
  public static let sectionWithoutEngine = Diagnostic.Code(
    "RX320", "A section of the file is known, but this version cannot run it.")
  public static let signalsTooDeep = Diagnostic.Code(
    "RX321", "Inner signals may be nested 16 levels deep.")
  public static let misplacedExecute = Diagnostic.Code(
    "RX322", "Commands are executed in the chains of named signals and sinks.")
  static let compile: [Diagnostic.Code] = [.sectionWithoutEngine, .signalsTooDeep, .misplacedExecute]
}
