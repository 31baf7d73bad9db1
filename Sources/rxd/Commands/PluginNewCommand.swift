import ArgumentParser
import Glibc
import PipelineCore
import Transport

/// `rxd plugin new --language LANGUAGE NAME`
struct PluginNew: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "new", abstract: "Writes a working plugin to begin with, with a pipeline that tests it.",
    discussion: "Makes the directory NAME in the working directory; an existing one is not touched.")

  enum Language: String, CaseIterable, ExpressibleByArgument { case c, python, shell }

  @Option(help: ArgumentHelp("The language: c, python or shell.", valueName: "language"))
  var language: Language

  @Argument(help: ArgumentHelp("The name: letters, digits and '-', begins with a small letter.", valueName: "name"))
  var name: String

  func validate() throws {
    let isFine = name.utf8.allSatisfy { (0x61...0x7A).contains($0 | 0x20) || (0x30...0x39).contains($0) || $0 == 0x2D }
    guard isFine, let first = name.utf8.first, (0x61...0x7A).contains(first), name.utf8.count <= 40 else {
      throw ValidationError("'\(name)' is no name of a plugin: use letters, digits and '-', a small letter first.")
    }
  }

  func run() throws {
    guard mkdir(name, 0o755) == 0 else {
      Console.printError("'\(name)' cannot be made: \(PosixError.text(errno))")
      throw ExitStatus.inputOutput
    }
    let template = PluginTemplate(name)
    for file in template.files(language) {
      let path = "\(name)/\(file.name)"
      do throws(PosixError) {
        let result = file.text.utf8.withContiguousStorageIfAvailable { bytes -> PosixError? in
          do throws(PosixError) {
            try replaceFile(path, with: UnsafeRawBufferPointer(bytes), permissions: file.isProgram ? 0o755 : 0o644)
            return nil
          } catch { return error }
        }
        if let problem = result ?? nil { throw problem }
      } catch {
        Console.printError(error.message)
        throw ExitStatus.inputOutput
      }
    }
    Console.print("\(name)/ has " + template.files(language).map(\.name).joined(separator: ", "))
    Console.print("Try it: cd \(name) && \(template.trial(language))")
  }
}
