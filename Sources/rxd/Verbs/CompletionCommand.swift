import ArgumentParser

/// `rxd completion`: scripts with which a shell completes verbs, options and files.
struct Completion: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "completion",
    abstract: "Prints a completion script for bash, zsh or fish.",
    discussion: """
      bash: rxd completion bash > ~/.local/share/bash-completion/completions/rxd
      zsh:  rxd completion zsh > "${fpath[1]}/_rxd"
      fish: rxd completion fish > ~/.config/fish/completions/rxd.fish
      """)

  enum Shell: String, CaseIterable, ExpressibleByArgument { case bash, zsh, fish }

  @Argument(help: "bash, zsh or fish.")
  var shell: Shell

  func run() {
    let known: CompletionShell =
      switch shell {
      case .bash: .bash
      case .zsh: .zsh
      case .fish: .fish
      }
    Console.print(Self.offeringFiles(Rxd.completionScript(for: known), shell))
  }

  /// The script, extended to offer pipeline files where a verb can stand: `rxd FILE` runs one.
  private static func offeringFiles(_ script: String, _ shell: Shell) -> String {
    func insert(_ text: String, below mark: String) -> String {
      let bytes = Array(script.utf8)
      guard let range = bytes.firstRange(of: Array(mark.utf8)),
        let end = bytes[range.upperBound...].firstIndex(of: 0x0A)
      else { preconditionFailure("the completion script of \(shell) has another form") }
      return String(decoding: bytes[..<end], as: UTF8.self) + "\n" + text
        + String(decoding: bytes[end...], as: UTF8.self)
    }
    switch shell {
    case .bash:
      return insert(
        "        __rxd_add_completions -o plusdirs -fX '!*.@(yaml|yml)'", below: "COMPREPLY+=($(compgen -W 'run ")
    case .zsh:
      return insert("        _files -g '*.(yaml|yml)' && ret=0", below: "_describe -V subcommand subcommands && ret=0")
    case .fish:
      // The same code as the argument parser writes for the files of a verb.
      let files =
        #"(for p in (string match -e -- \'*/\' (commandline -t);or printf \n)*.{yaml,yml};printf %s\n $p;end;"#
        + #"__fish_complete_directories (commandline -t) \'\')"#
      return script
        + "\ncomplete -c 'rxd' -n '__rxd_should_offer_completions_for_positional \"rxd\" -eq 1' -fka '\(files)'"
    }
  }
}
