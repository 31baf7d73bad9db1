import ArgumentParser

/// `rxd completion`: scripts that let a shell complete verbs, options and files.
struct Completion: ParsableCommand {
  static let configuration = CommandConfiguration(
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
    Console.print(Rxd.completionScript(for: known))
  }
}
