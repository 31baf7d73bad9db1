import ArgumentParser

struct VersionVerb: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "version", abstract: "Prints the version, and the licences of what the program consists of.")

  @Flag(
    help: """
      Print the licences of everything that is linked into the program, with their texts, and of the libraries that it \
      loads, with the files where their texts are.
      """)
  var licenses = false

  func run() { Console.print(licenses ? Components.report() : Version.line, terminator: licenses ? "" : "\n") }
}
