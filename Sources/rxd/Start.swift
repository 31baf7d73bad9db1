import ArgumentParser
import CLinux
import Glibc
import PipelineCore
import PipelineRuntime

/// Runs the program `rxd` with the arguments of this process: all verbs, with the components of `catalogue` beside the built-in ones. The whole of a
/// `main.swift`.
///
/// ```swift
/// runRxd(adding: Catalogue([CatalogueEntry(sink: RedisStream.self)]))
/// ```
///
/// - Parameter catalogue: Components of your own; one with the kind and name of a built-in component takes its place.
public func runRxd(adding catalogue: Catalogue = Catalogue([])) {
  // Before anything else: a signal during start-up waits until its handling is set up, and a closed pipe or a file at
  // its size limit is an error of the write and does not end the process.
  Signals.hold()
  signal(SIGPIPE, SIG_IGN)
  signal(SIGXFSZ, SIG_IGN)
  // Who started this process may have ignored it: the system would then forget how programs have ended.
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
    // As the library does it, but for texts of the command line, which may come from elsewhere.
    let (text, status) = (Rxd.fullMessage(for: error), Rxd.exitCode(for: error))
    if !text.isEmpty { status.isSuccess ? Console.print(text) : Console.note(text) }
    exit(status.rawValue)
  }
}
