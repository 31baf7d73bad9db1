import Glibc

/// A violation of the contract by a plugin.
package struct ContractBreach: Error, Sendable {
  /// Sentences without a full stop.
  package var expected: String
  package var came: String
  /// Advice for its author.
  package var help: String
  /// Whether the process has ended by itself.
  var isEnd = false

  init(expected: String, came: String, help: String, isEnd: Bool = false) {
    self.expected = expected
    self.came = came
    self.help = help
    self.isEnd = isEnd
  }
}

extension ContractBreach {
  /// Advice about a process that has ended, by the status of `waitpid`.
  static func helpOnEnd(_ status: Int32) -> String {
    switch status & 0x7F {
    case 0: "It may end only when its standard input ends; answer what cannot be done with 'error'"
    case SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE:
      "It crashed: build it with -g and -fsanitize=address,undefined, and run it under a debugger with the same input"
    case SIGXCPU: "It used more processor time than 'cpu' allows"
    case SIGKILL: "Something has killed it, perhaps for its memory"
    default: "It may end only when its standard input ends"
    }
  }
}
