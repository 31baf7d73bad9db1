import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import PluginHost
import Transport

/// `rxd plugin pack FILE`
struct PluginPack: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "pack", abstract: "Makes a package of a plugin, which 'rxd plugin install' installs.",
    discussion: """
      First runs the checks of the contract, as 'rxd plugin test' does: a plugin that fails one is not packed. The package, \
      NAME-VERSION-MACHINE.rxdplugin, is an archive (tar, gzip) of the plugin's file, the files that its spec names, the spec itself \
      and the files of --add, with the digests of all in manifest.json. The same files give the same bytes. Sign it with 'minisign -Sm FILE'.
      """)

  @OptionGroup var argument: PluginArgument
  @OptionGroup var trial: ContractTrialOptions

  @Option(help: ArgumentHelp("The licence, by its SPDX identifier, such as Apache-2.0.", valueName: "name"))
  var licence: String?

  @Option(
    help: ArgumentHelp("A file to add, such as the text of the licence; may be repeated.", valueName: "file"),
    completion: .file())
  var add: [String] = []

  @Option(
    help: ArgumentHelp("Where to write the package; default is the working directory.", valueName: "dir"),
    completion: .directory)
  var output = "."

  @Option(
    help: ArgumentHelp(
      "An index beside the package, in which it is entered; a new one is made.", valueName: "file"), completion: .file()
  )
  var index: String?

  func run() throws {
    let file = try argument.plugin()
    let plugin = try LoadedPlugin.asked(file, anew: true)
    let problems = plugin.problems()
    guard problems.isEmpty else {
      for problem in problems { Console.printError("\(plugin.file.label): \(problem)") }
      throw ExitStatus.failure
    }
    try test(file)
    try Packages.reporting { () throws(PackageFault) in
      let others = try add.map { path throws(PackageFault) in
        PluginPackage.Member(
          name: String(path.split(separator: "/").last ?? ""), content: try Packages.content(path),
          isExecutable: access(path, X_OK) == 0)
      }
      let package = try PluginPackage.make(of: plugin, licence: licence, besides: others, in: output)
      Console.print("\(package.path): \(Printable.count(package.size, "byte")), sha256 \(package.sha256)")
      guard let index else { return }
      var list = access(index, F_OK) == 0 ? try PluginIndex(Packages.content(index), from: index) : PluginIndex()
      list.add(package)
      try PackageFile.write(Array((list.document.text + "\n").utf8), to: index)
      Console.print("\(index): \(Printable.count(list.entries.count, "package"))")
    }
  }

  /// Runs the checks of the contract, and prints those that fail.
  private func test(_ file: PluginFile) throws {
    let suite = try trial.suite(file)
    var report = ContractReport(file.label, isText: true)
    var ok = 0
    suite.run { finding in
      if case .failed = finding.verdict { report.take(finding) } else { ok += 1 }
    }
    guard report.failed == 0 else {
      Console.printError(
        "\(file.label) is not packed: it fails \(Printable.count(report.failed, "check")) of the contract")
      throw ExitStatus.failure
    }
    guard ok > 0 else {
      Console.printError("\(file.label) is not packed: nothing was checked; see --component")
      throw ExitStatus.failure
    }
  }
}

/// What the verbs for packages have in common.
enum Packages {
  /// Runs the body, and reports a fault.
  static func reporting<Result>(_ body: () throws(PackageFault) -> Result) throws -> Result {
    do throws(PackageFault) { return try body() } catch {
      Console.printError(error.message + (error.help.map { "\n  \($0)" } ?? ""))
      throw ExitStatus.failure
    }
  }

  /// The content of a local file.
  static func content(_ path: String) throws(PackageFault) -> [UInt8] {
    do throws(PosixError) {
      let file = try FileDescriptor.openForReading(path)
      let size = try file.status().size
      guard size <= Int64(PluginPackage.mostBytes) else { throw PosixError("read", path, code: EFBIG) }
      var bytes: [UInt8] = []
      bytes.reserveCapacity(Int(size))
      var block = [UInt8](repeating: 0, count: 256 << 10)
      while true {
        var count = 0
        let problem = block.withUnsafeMutableBytes { block -> PosixError? in
          do throws(PosixError) {
            count = try file.read(into: block) ?? 0
            return nil
          } catch { return error }
        }
        if let problem { throw problem }
        if count == 0 { return bytes }
        bytes += block[..<count]
      }
    } catch { throw PackageFault(error.message) }
  }

  static func isURL(_ text: String) -> Bool { text.hasPrefix("https://") || text.hasPrefix("http://") }

  /// The content of a file or of what a URL names; nil: the server has nothing there, or there is no such file.
  static func fetch(_ place: String, most: Int) throws(PackageFault) -> [UInt8]? {
    guard isURL(place) else { return access(place, F_OK) == 0 ? try content(place) : nil }
    var request = HTTPRequest(url: place)
    request.options.timeout = .seconds(300)
    request.options.allowPrivate = true
    request.options.maxRedirects = 5
    request.options.maxResponseBytes = most
    let answer = Guarded<Result<HTTPResponse, HTTPFailure>?>(nil)
    let client = CurlClient()
    let call = client.send(request) { result in
      answer.withLock { $0 = result }
      answer.notify()
    }
    let result = withExtendedLifetime((client, call)) { answer.wait(until: nil) { $0 } }
    switch result {
    case .success(let response) where response.status == 200: return response.body
    case .success(let response) where response.status == 404: return nil
    case .success(let response):
      throw PackageFault("'\(Printable.cut(place))' cannot be fetched: the server answered \(response.status)")
    case .failure(let failure): throw PackageFault("'\(Printable.cut(place))' cannot be fetched: \(failure.message)")
    case nil: throw PackageFault("'\(Printable.cut(place))' cannot be fetched")
    }
  }

  /// What a name in an index stands for: a file or a URL beside it.
  static func beside(_ index: String, _ file: String) -> String {
    guard let slash = index.lastIndex(of: "/") else { return file }
    return String(index[...slash]) + file
  }

  /// The index that is named on the command line or by RXD_PLUGIN_INDEX.
  static func index(_ given: String?) throws(PackageFault) -> (place: String, list: PluginIndex) {
    guard let place = given ?? ProcessEnvironment["RXD_PLUGIN_INDEX"], !place.isEmpty else {
      throw PackageFault(
        "no index of packages is named", help: "Name one with --index, or by the variable RXD_PLUGIN_INDEX")
    }
    guard let bytes = try fetch(place, most: PluginIndex.mostBytes) else {
      throw PackageFault("there is no index '\(Printable.cut(place))'")
    }
    return (place, try PluginIndex(bytes, from: place))
  }
}
