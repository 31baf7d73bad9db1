import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import Storage
import Transport

/// `rxd deadletters`: rejected events that nothing read.
struct DeadLettersVerb: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "deadletters", abstract: "Lists, shows, replays and drops rejected events that nothing read.",
    discussion: """
      'list' and 'show' read, also while rxd runs. 'replay' and 'drop' need the state directory for themselves: while \
      rxd runs they end with 75.
      """,
    subcommands: [Listing.self, Show.self, Replay.self, Drop.self])

  struct Listing: ParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "list", abstract: "Counts dead letters by pipeline, step and code.", aliases: ["ls"])

    @Argument(help: "The pipeline; all by default.")
    var name: String?
    @OptionGroup var directory: StateDirectoryOptions
    @Option(help: ArgumentHelp("The format: text or json.", valueName: "form"))
    var format = List.Format.text

    func run() throws {
      let folder = try directory.folder()
      let pipelines = try Self.pipelines(name, folder)
      var counts: [Count] = []
      for pipeline in pipelines {
        counts += Self.inFiles(pipeline, folder)
        if access(folder.store(pipeline), F_OK) == 0 {
          counts += try StateFolder.exits { () throws(StoreRefusal) in
            try StoreReader(folder.store(pipeline)).letterCounts().map { Count(pipeline: pipeline, $0) }
          }
        }
      }
      switch format {
      case .text:
        if counts.isEmpty { return Console.print("no dead letters") }
        var table = TextTable("PIPELINE", "STEP", "CODE", "COUNT", "FIRST", "LAST", "KEPT IN", numbers: [3])
        for count in counts {
          table.add(
            count.pipeline, count.step, count.code, "\(count.count)", count.first, count.last,
            count.isInFile ? "file" : "store")
        }
        Console.print(table.text)
      case .json:
        Console.print(
          JSONText.array(
            counts.map {
              .object([
                ("pipeline", .string($0.pipeline)), ("step", .string($0.step)), ("code", .string($0.code)),
                ("count", .int($0.count)), ("first", .string($0.first)), ("last", .string($0.last)),
                ("kept_in", .string($0.isInFile ? "file" : "store")),
              ])
            }
          ).text)
      }
    }

    private struct Count {
      var pipeline: String
      var step: String
      var code: String
      var count: Int
      var first: String
      var last: String
      var isInFile: Bool

      init(pipeline: String, _ counted: DeadLetterCount) {
        self.init(
          pipeline: pipeline, step: counted.step, code: counted.code, count: counted.count,
          first: StoredTime.text(counted.first), last: StoredTime.text(counted.last))
      }

      init(
        pipeline: String, step: String, code: String, count: Int, first: String, last: String, isInFile: Bool = false
      ) {
        self.pipeline = pipeline
        self.step = step
        self.code = code
        self.count = count
        self.first = first
        self.last = last
        self.isInFile = isInFile
      }
    }

    private static func pipelines(_ name: String?, _ folder: StateFolder) throws -> [String] {
      if let name {
        if folder.files(name).isEmpty { try folder.checkExistence(name) }
        return [name]
      }
      return Array(Set(try folder.pipelines() + folder.pipelinesWithFiles())).sorted()
    }

    private static func inFiles(_ pipeline: String, _ folder: StateFolder) -> [Count] {
      var counts: [Count] = []
      DeadLetterFiles.lines(pipeline, folder) { line in
        guard let letter = DeadLetterDocument(line) else { return }
        let time = letter.time ?? ""
        if let at = counts.firstIndex(where: { $0.step == letter.step && $0.code == letter.code }) {
          counts[at].count += 1
          counts[at].last = time
        } else {
          counts.append(
            Count(
              pipeline: pipeline, step: letter.step, code: letter.code, count: 1, first: time, last: time,
              isInFile: true))
        }
      }
      return counts
    }
  }

  struct Show: ParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "show",
      abstract: "Prints the dead letters of a pipeline, one JSON object a line, the oldest first.",
      discussion: """
        Each has the time, the pipeline, the id for 'replay' and 'drop', and the members of an errors event. Those in \
        files of 'dead-letters' come first and have no id.
        """)

    @Argument(help: "The pipeline.")
    var name: String
    @Option(help: ArgumentHelp("Only the newest dead letters, at most this many.", valueName: "count"))
    var limit: Int?
    @Option(help: ArgumentHelp("Those of this code only: RX504.", valueName: "code"))
    var code: String?
    @Option(help: ArgumentHelp("Those of this step only, as 'list' names it.", valueName: "step"))
    var step: String?
    @OptionGroup var directory: StateDirectoryOptions

    func validate() throws {
      if let limit, limit < 1 { throw ValidationError("--limit is at least 1.") }
    }

    func run() throws {
      let folder = try directory.folder()
      var shown: [[UInt8]] = []
      func show(_ line: [UInt8]) {
        guard let limit else { return Self.print(line) }
        // Collects up to twice the limit before half is dropped, so that dropping costs little.
        if shown.count >= 2 * limit { shown.removeFirst(shown.count - limit) }
        shown.append(line)
      }
      let hasFiles = !folder.files(name).isEmpty
      DeadLetterFiles.lines(name, folder) { line in
        if code != nil || step != nil {
          guard let letter = DeadLetterDocument(line), fits(letter.code, letter.step) else { return }
        }
        show(line)
      }
      if !hasFiles || access(folder.store(name), F_OK) == 0 {
        let reader = try folder.read(name)
        let damaged = try StateFolder.exits { () throws(StoreRefusal) in
          try reader.letters { letter in
            if fits(letter.letter.code, letter.letter.step) { show(line(of: letter)) }
            return true
          }
        }
        if damaged > 0 { Console.printError("\(Printable.count(damaged, "dead letter")) are damaged and left out") }
      }
      if let limit { shown.suffix(limit).forEach(Self.print) }
    }

    private func fits(_ code: String, _ step: String) -> Bool {
      (self.code ?? code) == code && (self.step ?? step) == step
    }

    private func line(of letter: NumberedDeadLetter) -> [UInt8] {
      let line = OutputBuffer()
      line.append("{\"time\":\"\(StoredTime.text(letter.letter.time))\",\"pipeline\":")
      line.append(JSONText.string(name).text)
      line.append(",\"id\":\(letter.number)")
      let document = letter.letter.document.dropFirst()
      line.append(document.isEmpty ? "}" : ",")
      line.append(Array(document))
      return Array(line.bytes)
    }

    private static let isTerminal = isatty(1) == 1

    private static func print(_ line: [UInt8]) {
      guard isTerminal else { return Console.write(line + [0x0A]) }
      let output = OutputBuffer()
      line.withUnsafeBytes { ControlEscaping.append($0, to: output) }
      output.append(0x0A)
      Console.write(Array(output.bytes))
    }
  }

  struct Replay: ParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "replay",
      abstract: "Gives events that a sink could not deliver to that sink once more.",
      discussion: """
        They are delivered when the pipeline starts, in their order, and are no longer dead letters. Other steps cannot be \
        given an event: --print writes theirs to standard output, one JSON value a line, to be fed to a source.
        Values without a form in JSON (bytes, times, durations) are text in a dead letter, and of the metadata only source, \
        path and offset are kept.
        """)

    @Argument(help: "The pipeline.")
    var name: String
    @Option(parsing: .upToNextOption, help: ArgumentHelp("Only these ids, as 'show' prints them.", valueName: "id"))
    var id: [Int64] = []
    @Flag(help: "Print and remove letters that no sink can receive.")
    var print = false
    @OptionGroup var directory: StateDirectoryOptions

    func run() throws {
      let folder = try directory.folder()
      try folder.checkExistence(name)
      try StateFolder.locked(folder.path) {
        let (letters, damaged) = try DeadLetterFiles.letters(of: name, id, folder)
        var plan = ReplayPlan(prints: print)
        try folder.edit(name) { editor in
          for letter in letters { plan.add(letter, after: editor.lastRow) }
          // Printed before they are removed: a reader that goes away loses nothing.
          for event in plan.printed { Console.write(event + [0x0A]) }
          if !plan.removed.isEmpty { try editor.removeLetters(plan.removed, adding: plan.rows) }
        }
        report(plan, damaged)
      }
    }

    private func report(_ plan: ReplayPlan, _ damaged: Int) {
      for (sink, count) in plan.sinks.sorted(by: { $0.key < $1.key }) {
        Console.note(
          "\(Printable.count(count, "event")) \(count == 1 ? "goes" : "go") to '\(sink)' when '\(name)' starts")
      }
      if !plan.printed.isEmpty {
        Console.note(
          "\(Printable.count(plan.printed.count, "event")) printed: feed them to a source, since no step can be given one"
        )
      }
      if plan.unassigned > 0 {
        Console.note(
          "\(Printable.count(plan.unassigned, "dead letter")) \(plan.unassigned == 1 ? "stays" : "stay"): no sink had the event, and no other step can be given "
            + "one; --print prints the events, to be fed to a source")
      }
      for (number, why) in plan.kept.prefix(20) { Console.note("dead letter \(number) stays: \(why)") }
      if plan.kept.count > 20 { Console.note("\(plan.kept.count - 20) more stay for such reasons") }
      if damaged > 0 { Console.note("\(Printable.count(damaged, "dead letter")) are damaged and stay") }
      if plan.sinks.isEmpty, plan.printed.isEmpty, plan.unassigned == 0, plan.kept.isEmpty {
        Console.note("there are no dead letters to replay")
      }
    }
  }

  struct Drop: ParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "drop",
      abstract: "Removes dead letters.", discussion: "With --all also those in files of 'dead-letters'.")

    @Argument(help: "The pipeline.")
    var name: String
    @Option(parsing: .upToNextOption, help: ArgumentHelp("These, as 'show' prints them.", valueName: "id"))
    var id: [Int64] = []
    @Flag(help: "All of them.")
    var all = false
    @Flag(help: "Do it without a question.")
    var yes = false
    @OptionGroup var directory: StateDirectoryOptions

    func validate() throws {
      if all != id.isEmpty { throw ValidationError("Say which: --id ID ..., or --all.") }
    }

    func run() throws {
      let folder = try directory.folder()
      let files = all ? folder.files(name) : []
      if files.isEmpty { try folder.checkExistence(name) }
      try StateFolder.locked(folder.path) {
        var removed = 0
        var numbers: [Int64] = id
        if access(folder.store(name), F_OK) == 0 {
          if all {
            numbers = try StateFolder.exits { () throws(StoreRefusal) in
              try StoreReader(folder.store(name)).letterNumbers()
            }
          } else {
            _ = try DeadLetterFiles.letters(of: name, id, folder)
          }
          removed = Set(numbers).count
        }
        DeadLetterFiles.lines(name, all ? folder : nil) { _ in removed += 1 }
        guard removed > 0 else { return Console.print("'\(name)' has no dead letters") }
        if all { try StateFolder.confirm("This removes \(Printable.count(removed, "dead letter")) of '\(name)'.", yes) }
        if !numbers.isEmpty { try folder.edit(name) { try $0.removeLetters(numbers) } }
        for file in files where unlink(file) != 0 {
          Console.printError(PosixError("remove", file).message)
          throw ExitStatus.inputOutput
        }
        Console.print("removed from '\(name)': \(Printable.count(removed, "dead letter"))")
      }
    }
  }
}

/// The result of replaying dead letters.
struct ReplayPlan {
  let prints: Bool
  private(set) var rows: [OutboxRow] = []
  /// The number of events for each sink.
  private(set) var sinks: [String: Int] = [:]
  private(set) var printed: [[UInt8]] = []
  private(set) var removed: [Int64] = []
  /// The number of events that could only be printed.
  private(set) var unassigned = 0
  /// Rejected events that cannot be replayed, and why.
  private(set) var kept: [(number: Int64, why: String)] = []

  init(prints: Bool) { self.prints = prints }

  mutating func add(_ letter: NumberedDeadLetter, after lastRow: Int64) {
    guard let document = DeadLetterDocument(letter.letter.document) else {
      kept.append((letter.number, "it has no event"))
      return
    }
    if let why = document.isCutBecause {
      kept.append((letter.number, why))
      return
    }
    // A reply cannot be replayed: its request is gone.
    if let sink = document.sink, !document.isOfReply {
      do throws(StateFault) {
        rows.append(
          try document.row(
            lastRow + Int64(rows.count) + 1, for: sink, receivedAt: letter.letter.time, clock: SystemClock.shared))
      } catch {
        kept.append((letter.number, "its event cannot be kept: \(error.message)"))
        return
      }
      sinks[sink, default: 0] += 1
      removed.append(letter.number)
    } else if prints {
      printed.append(document.event)
      removed.append(letter.number)
    } else {
      unassigned += 1
    }
  }
}

/// The files and rows in which dead letters are kept.
enum DeadLetterFiles {
  /// Calls `body` for each line of the files of a pipeline, without the line end.
  static func lines(_ pipeline: String, _ folder: StateFolder?, _ body: ([UInt8]) -> Void) {
    guard let folder, !pipeline.contains("/") else { return }
    for path in folder.files(pipeline) {
      guard let file = fopen(path, "re") else {
        Console.printError(PosixError("open", path).message)
        continue
      }
      defer { fclose(file) }
      var line: UnsafeMutablePointer<CChar>?
      var capacity = 0
      defer { free(line) }
      while true {
        let count = getline(&line, &capacity, file)
        guard count >= 0, let start = line else { break }
        let bytes = UnsafeRawBufferPointer(start: start, count: count)
        let text = bytes.last == 0x0A ? bytes.dropLast() : bytes[...]
        if !text.isEmpty { body(Array(text)) }
      }
    }
  }

  /// The dead letters with these numbers, or all, and how many are damaged. Throws if no dead letter has one of the
  /// numbers.
  static func letters(
    of pipeline: String, _ numbers: [Int64], _ folder: StateFolder
  ) throws -> (letters: [NumberedDeadLetter], damaged: Int) {
    var missing = Set(numbers)
    var letters: [NumberedDeadLetter] = []
    let reader = try folder.read(pipeline)
    let damaged = try StateFolder.exits { () throws(StoreRefusal) in
      try reader.letters { letter in
        if numbers.isEmpty || missing.remove(letter.number) != nil { letters.append(letter) }
        return true
      }
    }
    guard missing.isEmpty else {
      Console.printError(
        "'\(pipeline)' has no dead letter \(missing.sorted().map(String.init).joined(separator: ", "))")
      throw ExitStatus.noInput
    }
    return (letters, damaged)
  }
}
