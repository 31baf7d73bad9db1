import Foundation
import Testing

/// The completion scripts, in their shells.
@Suite(.timeLimit(.minutes(5)))
struct CompletionTests {
  private static let hasZsh = FileManager.default.isExecutableFile(atPath: "/usr/bin/zsh")
  private static let hasFish = FileManager.default.isExecutableFile(atPath: "/usr/bin/fish")

  /// A home directory with the program on its path and, in `work`, two pipeline files and another file.
  private static func home(_ shell: String, _ script: String) throws -> (Scratch, environment: [String: String]) {
    let folder = try Scratch()
    let files = FileManager.default
    for name in ["bin", "work", "work/inner"] {
      try files.createDirectory(atPath: "\(folder.path)/\(name)", withIntermediateDirectories: false)
    }
    try files.createSymbolicLink(atPath: folder.path + "/bin/rxd", withDestinationPath: Rxd.binary)
    try folder.write(script, try Rxd.run("completion", shell).output)
    for name in ["a.yaml", "c.yml", "b.txt"] { try folder.write("work/" + name, "") }
    let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
    return (folder, ["HOME": folder.path, "PATH": "\(folder.path)/bin:\(path)", "ZDOTDIR": folder.path])
  }

  @Test(
    .enabled(if: hasFish, "needs the package fish"),
    arguments: [
      ("rxd ch", ["check"]), ("rxd a", ["a.yaml"]), ("rxd c", ["c.yml", "check", "completion"]), ("rxd b.", []),
      ("rxd check ", ["a.yaml", "c.yml", "inner/"]), ("rxd run a", ["a.yaml"]), ("rxd describe thrott", ["throttle"]),
      ("rxd run --log-form", ["--log-format"]), ("rxd run --log-format ", ["json", "text"]),
      ("rxd completion ", ["bash", "fish", "zsh"]),
    ])
  func fishOffers(_ line: String, _ expected: [String]) throws {
    let (folder, environment) = try Self.home("fish", "rxd.fish")
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/fish")
    process.arguments = ["--no-config", "-c", "source ../rxd.fish; complete -C '\(line)'"]
    process.environment = environment.merging(["LC_ALL": "C.UTF-8"]) { $1 }
    process.currentDirectoryURL = URL(fileURLWithPath: folder.path + "/work")
    let output = Pipe()
    let errors = Pipe()
    process.standardOutput = output
    process.standardError = errors
    process.standardInput = FileHandle.nullDevice
    try process.run()
    let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    let complaints = String(decoding: errors.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    process.waitUntilExit()
    let offered = text.split(separator: "\n").compactMap { $0.split(separator: "\t").first.map(String.init) }
    #expect(Set(offered) == Set(expected), "\(text)")
    #expect(complaints == "")
  }

  /// The line after a press of the tab key; a further key prints the line.
  @Test(.enabled(if: hasZsh, "needs the package zsh"))
  func zshCompletes() throws {
    let (folder, environment) = try Self.home("zsh", "_rxd")
    let terminal = try Terminal("-f", "-i", program: "/usr/bin/zsh", environment: environment)
    try terminal.type(
      "PS1='% '; cd \(folder.path)/work; fpath=(\(folder.path) $fpath); autoload -Uz compinit; "
        + "compinit -u -d \(folder.path)/dump; show() { BUFFER=\"print -r -- '<$BUFFER>'\"; zle accept-line }; "
        + "zle -N show; bindkey '^X' show; bindkey '^I' complete-word; unsetopt automenu; print REA''DY\r",
      expecting: "READY")
    for (line, completed) in [
      ("rxd che", "rxd check "), ("rxd a", "rxd a.yaml "), ("rxd check c", "rxd check c.yml "),
      ("rxd describe thrott", "rxd describe throttle "), ("rxd run --log-form", "rxd run --log-format "),
      ("rxd run --log-format j", "rxd run --log-format json "), ("rxd completion z", "rxd completion zsh "),
    ] {
      try terminal.type("\(line)\t\u{18}", expecting: "<\(completed)>")
    }
    // Ambiguous completions are listed.
    try terminal.type("rxd check \t", expecting: "a.yaml")
    try terminal.expect("c.yml")
  }

  /// A home directory as above, with a plugin and its spec file; the plugin must not be started.
  private static func homeWithPlugin(_ shell: String, _ script: String) throws -> (Scratch, [String: String]) {
    let (folder, given) = try home(shell, script)
    var environment = given
    environment["RXD_PLUGIN_DIR"] = folder.path + "/plugins"
    environment["LC_ALL"] = "C.UTF-8"
    mkdir(folder.path + "/plugins", 0o755)
    _ = try Rxd.run("plugin", "new", "--language", "python", "greet", in: folder.path)
    let plugin = folder.path + "/plugins/greet.py"
    try FileManager.default.moveItem(atPath: folder.path + "/greet/greet.py", toPath: plugin)
    #expect(try Rxd.run("plugin", "check", "--write", plugin, environment: environment).status == 0)
    return (folder, environment)
  }

  private static let inBash = """
    source ../rxd.bash
    COMP_WORDS=(rxd describe gree); COMP_CWORD=2; COMP_LINE='rxd describe gree'; COMP_POINT=17; COMP_TYPE=9; COMP_KEY=9
    _rxd rxd gree describe; printf '%s\\n' "${COMPREPLY[@]}"
    """

  @Test(arguments: [
    ("bash", "rxd.bash", inBash), ("fish", "rxd.fish", "source ../rxd.fish; complete -C 'rxd describe gree'"),
  ])
  func componentsOfPluginsAreOffered(_ shell: String, _ script: String, _ words: String) throws {
    guard shell != "fish" || Self.hasFish else { return }
    let (folder, environment) = try Self.homeWithPlugin(shell, script)
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = [shell, shell == "fish" ? "--no-config" : "--norc", "-c", words]
    process.environment = environment
    process.currentDirectoryURL = URL(fileURLWithPath: folder.path + "/work")
    let output = Pipe()
    process.standardOutput = output
    process.standardInput = FileHandle.nullDevice
    try process.run()
    let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    process.waitUntilExit()
    let offered = text.split(separator: "\n").compactMap { $0.split(separator: "\t").first.map(String.init) }
    #expect(offered == ["greet"], "\(text)")
  }

  @Test(.enabled(if: hasZsh, "needs the package zsh")) func zshOffersComponentsOfPlugins() throws {
    let (folder, environment) = try Self.homeWithPlugin("zsh", "_rxd")
    let terminal = try Terminal("-f", "-i", program: "/usr/bin/zsh", environment: environment)
    try terminal.type(
      "PS1='% '; cd \(folder.path)/work; fpath=(\(folder.path) $fpath); autoload -Uz compinit; "
        + "compinit -u -d \(folder.path)/dump; show() { BUFFER=\"print -r -- '<$BUFFER>'\"; zle accept-line }; "
        + "zle -N show; bindkey '^X' show; bindkey '^I' complete-word; unsetopt automenu; print REA''DY\r",
      expecting: "READY")
    try terminal.type("rxd describe gree\t\u{18}", expecting: "<rxd describe greet >")
  }
}
