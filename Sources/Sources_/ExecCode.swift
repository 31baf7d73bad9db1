import PipelineCore

extension Exec {
  /// For each program, the options whose next argument is code: `sh -c`, `perl -e`.
  private static let codeOptions: [String: CodeOption] = {
    let shell = CodeOption(flags: "c", help: "in the text as \"$1\", followed by the arguments NAME and \"{{ }}\"")
    let perl = CodeOption(flags: "eE", help: "in the text as $ARGV[0], followed by the argument \"{{ }}\"")
    let argument = CodeOption(flags: "cerp", help: "as an argument after the text")
    var all: [String: CodeOption] = [:]
    for name in ["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "busybox", "su", "runuser"] {
      all[name] = shell
    }
    all["perl"] = perl
    for name in ["python", "python3", "ruby", "node", "nodejs", "php", "lua", "Rscript", "guile"] {
      all[name] = argument
    }
    return all
  }()

  private struct CodeOption: Sendable {
    /// The letters of options that take code: `e` and `E` stand for `-e`, `-E` and `-ne`.
    var flags: String
    /// How to pass data to the code instead, as a continuation of "write it".
    var help: String
  }

  /// Warns if event data becomes a program's code, which the sender of the event can then choose: `[sh, -c, "{{ event.p }}"]`.
  func warnOfCode(_ context: inout DecodingContext) {
    var program: (name: String, option: CodeOption)?
    var takesCode = false
    for argument in command {
      if takesCode, !argument.isConstant, let program {
        context.badValue(
          at: argument.location ?? context.location,
          "event data becomes a part of the text that '\(program.name)' runs", .doubtfulValue,
          help: "Pass it as an argument: write it \(program.option.help)")
        return
      }
      takesCode = false
      guard argument.isConstant else { continue }
      let text = argument.shownPrefix
      let name = String(text.split(separator: "/").last ?? "")
      // A program may be started by another one, as in [env, sh, -c, ...].
      if program == nil, let found = Self.codeOptions[name] {
        program = (name, found)
      } else if let program, text.hasPrefix("-"), !text.hasPrefix("--"),
        text.utf8.dropFirst().contains(where: program.option.flags.utf8.contains)
      {
        takesCode = true
      }
    }
  }
}
