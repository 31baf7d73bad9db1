extension Diagnostic.Code {
  public static let sectionWithoutEngine = Diagnostic.Code(
    "RX320", "A section of the file is known, but this version cannot run it.")
  public static let signalsTooDeep = Diagnostic.Code(
    "RX321", "Inner signals may be nested 16 levels deep.")
  static let compile: [Diagnostic.Code] = [.sectionWithoutEngine, .signalsTooDeep]
}
