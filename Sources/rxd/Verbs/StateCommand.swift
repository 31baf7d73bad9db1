import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import Storage
import Transport

/// `rxd state`: the stored state of pipelines.
struct StateVerb: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "state", abstract: "Shows, saves, restores and resets what pipelines keep in a state directory.",
    discussion: """
      'ls', 'show' and 'export' read, also while rxd runs, and change nothing. The others need the directory for \
      themselves: while rxd runs they end with 75.
      """,
    subcommands: [
      Listing.self, Show.self, Export.self, Import.self, Reset.self, Rename.self, Delete.self,
    ])

  struct Listing: ParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "ls", abstract: "Lists the pipelines of a state directory.", aliases: ["list"])

    @OptionGroup var directory: StateDirectoryOptions
    @Option(help: ArgumentHelp("The format: text or json.", valueName: "form"))
    var format = List.Format.text

    func run() throws {
      let folder = try directory.folder()
      var found: [PipelineState] = []
      var hasFailed = false
      for pipeline in try folder.pipelines() {
        do throws(StoreRefusal) { found.append(try PipelineState(pipeline, folder)) } catch {
          Console.printError(error.message)
          hasFailed = true
        }
      }
      let user = folder.user
      switch format {
      case .text:
        var table = TextTable(
          "PIPELINE", "COMMITTED", "STATE BYTES", "TO DELIVER", "DEAD LETTERS", numbers: [2, 4])
        for state in found {
          table.add(
            state.name, StoredTime.text(state.committedAt), "\(state.stateBytes)", state.toDeliver,
            "\(state.deadLetters)")
        }
        Console.print(table.text)
        Console.print("\n\(user.map { "In use by \($0)." } ?? "No process uses the directory.")")
        if let takers = folder.takers {
          let removed = found.map(\.name).filter { takers[$0] == nil }
          if !removed.isEmpty {
            Console.print(
              "Not in the files of the last start: \(removed.joined(separator: ", ")). What they keep stays until "
                + "'rxd state delete'.")
          }
          for left in found.flatMap({ Self.left($0, takers) }) { Console.print("Left behind: \(left.line).") }
        }
      case .json:
        let takers = folder.takers
        Console.print(
          JSONText.array(
            found.map { state in
              state.json(
                user, hasFile: takers.map { $0[state.name] != nil }, left: takers.map { Self.left(state, $0) } ?? [])
            }
          ).text)
      }
      if hasFailed { throw ExitStatus.inputOutput }
    }

    /// The stored events that nothing delivers, as far as that is known.
    private static func left(_ state: PipelineState, _ takers: [String: Set<String>?]) -> [LeftBehind] {
      let sinks: Set<String>?
      switch takers[state.name] {
      case .none: sinks = nil
      case .some(.none): return []
      case .some(.some(let known)): sinks = known
      }
      return LeftBehind.find(state.name, Dictionary(state.backlogs.map { ($0.sink, $0.backlog) }) { $1 }, sinks)
    }
  }

  struct Show: ParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "show",
      abstract: "Shows what one pipeline keeps: positions, steps, events to deliver.",
      discussion: """
        The names of steps are those that 'rxd state reset --step' takes. Timers are inside the bytes of their steps.
        """)

    @Argument(help: "The pipeline.")
    var name: String
    @OptionGroup var directory: StateDirectoryOptions
    @Option(help: ArgumentHelp("The format: text or json.", valueName: "form"))
    var format = List.Format.text

    func run() throws {
      let folder = try directory.folder()
      try folder.checkExistence(name)
      let state = try StateFolder.exits { () throws(StoreRefusal) in try PipelineState(name, folder) }
      let report: SavedStateReport?
      do throws(StateFault) {
        report = try state.bytes.map { bytes throws(StateFault) in
          try SavedStateReport(bytes, catalogue: .installed(), clock: SystemClock.shared)
        }
      } catch {
        Console.printError("the state of '\(name)' cannot be read: \(error.message)")
        throw ExitStatus.inputOutput
      }
      switch format {
      case .text: Console.print(state.text(report, folder.user))
      case .json: Console.print(state.json(folder.user, report).text)
      }
    }
  }

  struct Export: ParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "export",
      abstract: "Prints the stored data of one pipeline as a JSON document, for 'rxd state import'.",
      discussion:
        "State, rows to deliver and dead letters are base64. Whoever can read the document can read the events.")

    @Argument(help: "The pipeline.")
    var name: String
    @OptionGroup var directory: StateDirectoryOptions

    func run() throws {
      let folder = try directory.folder()
      let reader = try folder.read(name)
      if let bytes = folder.keyBytes(name) {
        Console.printError(
          "a document cannot have the keys that '\(name)' keeps on the disk, \(Printable.count(bytes, "byte")): stop rxd and copy "
            + "\(folder.store(name)) and \(folder.keys(name))")
        throw ExitStatus.failure
      }
      try StateFolder.exits { () throws(StoreRefusal) in
        let document = ExportedState(pipeline: name, try reader.contents())
        document.write { Console.write($0) }
      }
    }
  }

  struct Import: ParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "import",
      abstract: "Replaces all that one pipeline keeps by an exported document.",
      discussion: "The state directory is created if it does not exist.")

    @Argument(help: "The pipeline.")
    var name: String
    @Argument(help: "The document, or - for standard input.", completion: .file(extensions: ["json"]))
    var file: String
    @Flag(help: "Replace the present state without asking.")
    var yes = false
    @OptionGroup var directory: StateDirectoryOptions

    func run() throws {
      guard ExportedState.isName(name) else { throw ValidationError("'\(name)' cannot be the name of a pipeline.") }
      let text: [UInt8]
      do throws(PosixError) { text = try ExportedState.read(file) } catch {
        Console.printError(error.message)
        throw ExitStatus.noInput
      }
      let document: ExportedState
      do throws(ExportedState.Fault) { document = try ExportedState(text) } catch {
        Console.printError("\(file) is not an exported state: \(error.message)")
        throw ExitStatus.data
      }
      let path = try directory.path(mayBeMissing: true)
      try StateFolder.locked(path, makesStores: true) {
        let folder = StateFolder(path: path)
        if access(folder.store(name), F_OK) == 0 {
          let old = try StateFolder.exits { () throws(StoreRefusal) in try PipelineState(name, folder) }
          if old.isWorthAsking {
            try StateFolder.confirm("This replaces what '\(name)' keeps: \(old.summary).", yes)
          }
        }
        try folder.edit(name) { try $0.replaceAll(with: document.contents) }
        // The keys on the disk belonged to the state that was replaced.
        for path in folder.keyFiles(name).reversed() { _ = remove(path) }
      }
      let contents = document.contents
      Console.print(
        "'\(name)' now has \(contents.state.map { "a state of \(Printable.count($0.count, "byte"))" } ?? "no state"), "
          + "\(Printable.count(contents.rows.reduce(0) { $0 + $1.events }, "event")) to deliver and "
          + Printable.count(contents.deadLetters.count, "dead letter"))
    }
  }

  struct Reset: ParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "reset",
      abstract: "Resets a pipeline, or one step of it, to its initial state.",
      discussion: """
        Without --step and --outbox the whole state goes, with the positions of sources: files are read again from their \
        starts. Events to deliver and dead letters stay.
        """)

    @Argument(help: "The pipeline.")
    var name: String
    @Option(help: ArgumentHelp("Only this step, as 'rxd state show' names it.", valueName: "step"))
    var step: String?
    @Option(help: ArgumentHelp("Only the events that this sink has to deliver; they are lost.", valueName: "sink"))
    var outbox: String?
    @Flag(help: "Do it without a question.")
    var yes = false
    @OptionGroup var directory: StateDirectoryOptions

    func validate() throws {
      if step != nil, outbox != nil { throw ValidationError("--step and --outbox cannot be combined.") }
    }

    func run() throws {
      let folder = try directory.folder()
      try folder.checkExistence(name)
      try StateFolder.locked(folder.path) {
        if let outbox {
          try removeRows(of: outbox, folder)
        } else if let step {
          try remove(step, folder)
        } else {
          try removeState(folder)
        }
      }
    }

    private func removeRows(of sink: String, _ folder: StateFolder) throws {
      let backlogs = try StateFolder.exits { () throws(StoreRefusal) in
        try StoreReader(folder.store(name)).backlogs()
      }
      guard let backlog = backlogs[sink], backlog.rows > 0 else {
        let known = backlogs.keys.sorted().joined(separator: ", ")
        Console.printError(
          "nothing is to be delivered to '\(sink)'"
            + (known.isEmpty ? "" : "; events wait for: \(known)"))
        throw ExitStatus.noInput
      }
      let what = "\(Printable.count(backlog.events, "event")) that '\(sink)' has to deliver"
      try StateFolder.confirm("This drops \(what).", yes)
      try folder.edit(name) { try $0.removeRows(of: sink) }
      Console.print("removed from '\(name)': \(what)")
    }

    private func remove(_ step: String, _ folder: StateFolder) throws {
      let bytes = try StateFolder.exits { () throws(StoreRefusal) in try StoreReader(folder.store(name)).state() }
      let left: (state: [UInt8], removed: Int)?
      let report: SavedStateReport?
      do throws(StateFault) {
        left = try bytes.flatMap { bytes throws(StateFault) in
          try SavedStateReport.removing(step, from: bytes, clock: SystemClock.shared)
        }
        report = try bytes.map { bytes throws(StateFault) in
          try SavedStateReport(bytes, catalogue: .installed(), clock: SystemClock.shared)
        }
      } catch {
        Console.printError("the state of '\(name)' cannot be read: \(error.message)")
        throw ExitStatus.inputOutput
      }
      guard let left else {
        let known = report?.steps.map(\.name).joined(separator: ", ") ?? ""
        Console.printError(
          "'\(name)' has no state of a step '\(step)'" + (known.isEmpty ? "" : "; it has state of: \(known)"))
        throw ExitStatus.noInput
      }
      try StateFolder.confirm("This removes what '\(step)' keeps.", yes)
      try folder.edit(name) { try $0.replaceState(left.state) }
      Console.print("removed from '\(name)': what '\(step)' kept, \(Printable.count(left.removed, "byte"))")
    }

    private func removeState(_ folder: StateFolder) throws {
      let old = try StateFolder.exits { () throws(StoreRefusal) in try PipelineState(name, folder) }
      guard old.stateBytes > 0 else {
        Console.print("'\(name)' has no state to reset")
        return
      }
      try StateFolder.confirm("This removes the state of '\(name)', with the positions of its sources.", yes)
      try folder.edit(name) { try $0.replaceState(nil) }
      Console.print("removed from '\(name)': the state, \(Printable.count(old.stateBytes, "byte"))")
      if old.events > 0 {
        Console.print(
          "\(Printable.count(old.events, "event")) to deliver stay: '--outbox SINK' removes those of a sink")
      }
    }
  }
}
