import ArgumentParser

struct VersionVerb: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "version", abstract: "Prints the version.")

  func run() { Console.print(Version.line) }
}
