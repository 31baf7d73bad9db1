import ArgumentParser
import Glibc
import PipelineCore
import Transport

/// `rxd plugin new --language LANGUAGE NAME`
struct PluginNew: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "new", abstract: "Writes a working plugin to begin with, with a pipeline that tests it.",
    discussion: "Creates the directory NAME in the working directory; an existing one is not touched.")

  enum Language: String, CaseIterable, ExpressibleByArgument { case c, python, rust, shell, swift }

  @Option(help: ArgumentHelp("The language: c, python, rust, shell or swift.", valueName: "language"))
  var language: Language

  @Option(
    help: ArgumentHelp(
      "Of swift: the path or the URL of the package RxdPlugin; default is share/rxd/RxdPlugin of the installation.",
      valueName: "package"))
  var package: String?

  @Argument(
    help: ArgumentHelp("The name: letters, digits and '-', begins with a lower-case letter.", valueName: "name"))
  var name: String

  func validate() throws {
    let isFine = name.utf8.allSatisfy { (0x61...0x7A).contains($0 | 0x20) || (0x30...0x39).contains($0) || $0 == 0x2D }
    guard isFine, let first = name.utf8.first, (0x61...0x7A).contains(first), name.utf8.count <= 40 else {
      throw ValidationError(
        "'\(name)' cannot be the name of a plugin: use letters, digits and '-', beginning with a lower-case letter.")
    }
  }

  func run() throws {
    let template = PluginTemplate(name, package: try swiftPackage())
    guard mkdir(name, 0o755) == 0 else {
      Console.printError("'\(name)' cannot be made: \(PosixError.text(errno))")
      throw ExitStatus.inputOutput
    }
    for file in template.files(language) {
      let path = "\(name)/\(file.name)"
      // Creates the parent directories of the file.
      if let end = file.name.lastIndex(of: "/") {
        var folder = name
        for part in file.name[..<end].split(separator: "/") {
          folder += "/\(part)"
          mkdir(folder, 0o755)
        }
      }
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

  /// How the package of a Swift plugin refers to RxdPlugin; nil: the language is not Swift.
  private func swiftPackage() throws -> PluginTemplate.SwiftPackage? {
    guard language == .swift else {
      if package != nil { throw ValidationError("--package is for --language swift.") }
      return nil
    }
    if let package {
      guard !package.contains("://") else { return .url(package) }
      let path = PluginDirectories.absolute(package)
      guard access(path + "/Package.swift", R_OK) == 0 else {
        Console.printError("'\(package)' has no Package.swift")
        throw ExitStatus.noInput
      }
      return .path(path)
    }
    for directory in PluginDirectories.directories([]) where directory.hasSuffix("/lib/rxd/plugins") {
      let path = directory.dropLast("/lib/rxd/plugins".count) + "/share/rxd/RxdPlugin"
      if access(path + "/Package.swift", R_OK) == 0 { return .path(String(path)) }
    }
    throw ValidationError(
      "Where is the package RxdPlugin? Name it with --package: Plugins/RxdPlugin of rxd's repository, or a URL.")
  }
}
