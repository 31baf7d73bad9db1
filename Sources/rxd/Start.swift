import ArgumentParser
import CLinux
import Glibc
import PipelineCore
import PipelineRuntime

/// Runs the program `rxd` with the arguments of this process: all verbs, with the components of `catalogue` in addition
/// to the built-in ones. A `main.swift` needs only this call.
///
/// ```swift
/// runRxd(adding: Catalogue([CatalogueEntry(sink: RedisStream.self)]))
/// ```
///
/// - Parameter catalogue: Your own components; one with the kind and name of a built-in component replaces it.
public func runRxd(adding catalogue: Catalogue = Catalogue([])) {
  // Must come first: a signal during start-up waits until its handling is set up, and a closed pipe or a file at its
  // size limit is an error of the write and does not end the process.
  Signals.hold()
  signal(SIGPIPE, SIG_IGN)
  signal(SIGXFSZ, SIG_IGN)
  // The parent process may have ignored the signal: the system would then discard the exit statuses of programs.
  signal(SIGCHLD, SIG_DFL)
  Catalogue.linked = catalogue
  rx_explain_exhaustion(ExitStatus.system.rawValue)
  do {
    if let plain = PlainArguments(CommandLine.arguments.dropFirst()) {
      if !plain.isRun { Signals.release() }
      try plain.perform()
    } else {
      var command = try Rxd.parseAsRoot()
      if !(command is Run) { Signals.release() }
      try command.run()
    }
  } catch {
    // Like the library's own exit, but escapes texts of the command line, which may come from untrusted input.
    let (text, status) = (Rxd.fullMessage(for: error), Rxd.exitCode(for: error))
    if !text.isEmpty { status.isSuccess ? Console.print(text) : Console.note(text) }
    exit(status.rawValue)
  }
}
