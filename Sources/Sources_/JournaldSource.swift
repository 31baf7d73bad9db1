import PipelineCore
import Transport

/// `journald`: entries of systemd's journal.
package struct JournaldSource: SourceComponent {
  /// The least severe priority that is read, by name or by number.
  struct Priority: ParameterValue {
    var number = 7
    static func shape(range: ClosedRange<Int64>?) -> ParameterShape {
      .oneOf([
        .choice(SyslogNames.severities.enumerated().map { .init("\($1)", "priorities 0 to \($0)") }), .int(0...7),
      ])
    }
    static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Priority? {
      if node.scalar?.isPlaceholder == true { return Priority() }
      let known = SyslogNames.severities.map { "\($0)" }
      if let text = node.string {
        if let number = known.firstIndex(of: text) { return Priority(number: number) }
        if let number = Int(text), (0...7).contains(number) { return Priority(number: number) }
      }
      context.badValue(
        node, "'\(context.parameter)' of '\(context.component)' cannot be '\(node.shown)'", .unknownChoice,
        help: "It can be: " + known.joined(separator: ", ") + ", or a number from 0 to 7")
      return nil
    }
  }

  /// Where the first run starts: `-1h`, `boot`, a time, a cursor.
  struct Since: ParameterValue {
    enum Position: Sendable, Equatable {
      case beginning, end, boot
      case ago(TimeSpan)
      case time(Int64)
      case cursor(String)
    }
    var position = Position.beginning
    static func shape(range: ClosedRange<Int64>?) -> ParameterShape {
      .oneOf([
        .choice([
          .init("beginning", "the oldest entry"), .init("boot", "the first entry since the machine was started"),
          .init("end", "only entries written from now on"),
        ]), .text,
      ])
    }
    var defaultText: String? { "beginning" }

    static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Since? {
      guard let scalar = node.scalar, let text = node.string, scalar.kind != .null else {
        context.wrongType(node, wanted: "a position in the journal such as boot or -1h")
        return nil
      }
      if scalar.isPlaceholder { return Since() }
      switch text {
      case "beginning": return Since()
      case "end": return Since(position: .end)
      case "boot": return Since(position: .boot)
      default: break
      }
      if text.hasPrefix("s=") || text.contains(";i=") { return Since(position: .cursor(text)) }
      if let time = TimeText.nanoseconds(rfc3339: text), time >= 0 { return Since(position: .time(time)) }
      let located = scalar.text
      let signs = located.text.first == UInt8(ascii: "-") ? 1 : 0
      let positive = LocatedText(
        text: Array(located.text.dropFirst(signs)), source: located.source,
        offsets: Array(located.offsets.dropFirst(signs)))
      if case .success(let span) = Units.duration(positive) { return Since(position: .ago(span)) }
      context.badValue(
        node, "'\(context.parameter)' of '\(context.component)' cannot be '\(node.shown)'", .unknownChoice,
        help:
          "It can be: beginning, boot, end, a time ago such as -1h, a time such as 2026-01-31T12:00:00Z, or a cursor")
      return nil
    }
  }

  var units: [String] = []
  var priority: Priority?
  var match = Table<[String]>()
  var since = Since()
  package var follow = true
  var directory: String?
  var maxField = ByteSize(64 << 10)

  package init() {}

  package static let spec = ComponentSpec<JournaldSource>(
    "journald",
    summary: "Reads the journal of systemd, and follows it through rotations.",
    details: """
      An event has the fields of its entry by their names in the journal: `MESSAGE`, `PRIORITY`, `_SYSTEMD_UNIT`, `_PID` \
      and so on (systemd.journal-fields(7)), with `__CURSOR`, `__REALTIME_TIMESTAMP`, when journald received it, and \
      `__MONOTONIC_TIMESTAMP`, how long after the start of the machine. Numbers and times are such; a field that stands several times \
      is a list; values other than UTF-8 are bytes, which JSON writes as base64. A value longer than `maxField` is cut, and \
      `__TRUNCATED` lists the names of those fields. Of an entry at most 16 MiB are read.

      Conditions are applied while reading, by the journal's index. `units` takes the entries that `journalctl -u` shows: \
      those of the unit and those about it. Several values of one field are alternatives; all else must hold together.

      With a state directory, reading goes on behind the cursor of the last entry of the saved state, through rotation and \
      over restarts; `since` counts only for the first run. Without one it counts for each. If that entry is gone, because the journal was vacuumed \
      meanwhile, reading goes on with the next one that is left, and a warning says so. `meta.offset` is a hash of the cursor.

      The user of the process must be in the group `systemd-journal` to read the entries of the system. The journal is \
      read by libsystemd (Debian's libsystemd0), which is loaded when it is first used.
      """,
    parameters: [
      .init("units", \.units, "Units whose entries are read; a name without a suffix is a `.service`."),
      .init("priority", \.priority, "The least severe priority that is read; entries without one are left out then."),
      .init("match", \.match, "Values that fields must have; of a list, any."),
      .init(
        "since", \.since,
        "Where the first run starts; also a time ago such as `-1h`, a time such as `2026-01-31T12:00:00Z`, or a cursor."
      ),
      .init("follow", \.follow, "Continue to read entries that are added."),
      .init(
        "directory", \.directory,
        "A directory of journal files, or of directories of them; by default the journal of this machine."),
      .init("maxField", \.maxField, "The maximum bytes of a field."),
    ],
    examples: [
      .snippet("everything from now on", "journald: { since: end }"),
      .snippet("warnings of two services", "journald: { units: [nginx, postgresql], priority: warning, since: boot }"),
      .snippet(
        "what one program wrote in the last hour",
        "journald: { match: { SYSLOG_IDENTIFIER: sshd }, since: -1h, follow: false }"),
    ],
    edges: EdgeCases(
      empty: "Completes at once; with `follow`, it waits for entries.",
      error:
        "A journal that cannot be opened ends it with an error. If libsystemd is not installed, the pipeline ends.",
      completion: "After the last entry; with `follow`, never.", disposal: "Closes the journal."),
    memory: "The cursor of the last entry, and two pieces of up to 256 entries.", persistence: .position(version: 1),
    knownAs: ["Vector journald", "Fluent Bit systemd", "Logstash journald", "rsyslog imjournal", "journalctl"],
    useCases: [
      .init(.reading, "read the journal of systemd", "journald: { since: end }"),
      .init(.reading, "follow the log of a service", "journald: { units: [nginx], since: boot }"),
    ],
    seeAlso: ["syslog", "file"])

  package func validate(_ context: inout DecodingContext) {
    for unit in units where unit.isEmpty || unit.utf8.contains(where: { [0x20, 0x2A, 0x3F, 0x5B].contains($0) }) {
      context.badValue(
        at: context.location(of: "units"), "'\(Printable.cut(unit))' cannot be the name of a unit",
        help: "Write whole names, without wildcards, or match another field: 'match: { SYSLOG_IDENTIFIER: nginx }'")
    }
    for entry in match.entries {
      let isName =
        !entry.name.isEmpty && entry.name.utf8.count <= 64
        && entry.name.utf8.allSatisfy { $0 == 0x5F || 0x30...0x39 ~= $0 || 0x41...0x5A ~= $0 }
      if !isName {
        context.badValue(
          at: entry.location, "'\(Printable.cut(entry.name))' is not a field of the journal",
          help: "Names have capital letters, digits and _, such as _SYSTEMD_UNIT")
      } else if entry.value.isEmpty {
        context.badValue(at: entry.location, "'\(entry.name)' needs a value, or several")
      } else if entry.name.hasPrefix("__") {
        context.badValue(
          at: entry.location, "'\(entry.name)' is not a field that can be matched",
          help: "Use 'since', or a 'filter' step")
      }
    }
    if follow == false, since.position == .end {
      context.badValue(
        at: context.location(of: "since"), "'since: end' without 'follow' reads nothing", .conflictingParameters,
        help: "Leave one of them out")
    }
    if maxField.bytes < 1 || maxField.bytes > 16 << 20 {
      context.badValue(
        at: context.location(of: "maxField"), "'maxField' of 'journald' must be between 1B and 16MiB",
        help: "Write e.g. 64KiB")
    }
  }

  package var outputType: EventType {
    func texts(_ names: String...) -> [ExpressionType.Field] { names.map { .init($0, .dyn, mayBeAbsent: true) } }
    return EventType(
      .object(
        fields: [
          .init("__CURSOR", .string), .init("__REALTIME_TIMESTAMP", .timestamp),
          .init("__MONOTONIC_TIMESTAMP", .duration), .init("__TRUNCATED", .list(.string), mayBeAbsent: true),
        ]
          + texts(
            "MESSAGE", "MESSAGE_ID", "PRIORITY", "CODE_FILE", "CODE_LINE", "CODE_FUNC", "ERRNO", "SYSLOG_FACILITY",
            "SYSLOG_IDENTIFIER", "SYSLOG_PID", "_PID", "_UID", "_GID", "_COMM", "_EXE", "_CMDLINE", "_HOSTNAME",
            "_TRANSPORT", "_SYSTEMD_CGROUP", "_SYSTEMD_SLICE", "_SYSTEMD_UNIT", "_SYSTEMD_USER_UNIT", "_BOOT_ID",
            "_MACHINE_ID", "_SOURCE_REALTIME_TIMESTAMP", "UNIT"), open: true))
  }

  /// Reads the existing entries: all of them if the journal would otherwise be followed from its end.
  package var once: (any SourceComponent)? {
    var once = self
    once.follow = false
    if once.since.position == .end { once.since.position = .beginning }
    return once
  }

  package var recovery: SourceRecovery { .position }
  package var namesEvents: Bool { true }
  package func threads(_ limit: Int?) -> String? { "read and decoded by a thread of its own" }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }

  /// The conditions, in terms of the journal's index.
  var matches: [JournalReader.Match] {
    var matches: [JournalReader.Match] = []
    for name in units {
      let unit = name.contains(".") ? name : name + ".service"
      matches += [
        .field("_SYSTEMD_UNIT", unit), .or,
        // Messages of the service manager about the unit, and of services that may report for it.
        .field("_PID", "1"), .field("UNIT", unit), .or, .field("_UID", "0"), .field("OBJECT_SYSTEMD_UNIT", unit), .or,
        // Core dumps of the unit.
        .field("MESSAGE_ID", "fc2e22bc6ee647b6b90729ab34a250b1"), .field("_UID", "0"), .field("COREDUMP_UNIT", unit),
        .or,
      ]
      if unit.hasSuffix(".slice") { matches += [.field("_SYSTEMD_SLICE", unit), .or] }
    }
    if !units.isEmpty { matches[matches.count - 1] = .and }
    if let priority {
      matches += (0...priority.number).map { .field("PRIORITY", "\($0)") } + [.and]
    }
    for entry in match.entries { matches += entry.value.map { .field(entry.name, $0) } + [.and] }
    if matches.last == .and { matches.removeLast() }
    return matches
  }

  /// The position in the journal.
  private struct Position: Sendable, Equatable {
    /// The cursor of the last entry that was read; nil if no entry precedes the first one wanted.
    var cursor: String?
  }

  private final class Node: DecodingSource {
    private let parameters: JournaldSource
    private lazy var inputQueue = InputQueue(nodeContext, gate: SemaphoreGate())
    private var reader: JournalReader?
    /// The position before the last piece; nil if the source has not started.
    private var position: Position?
    /// The entries of the last piece.
    private var entries: [(number: Int64, cursor: String)] = []
    private lazy var positions = PositionLedger<Position?>(nil)

    init(_ parameters: JournaldSource, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(nodeContext, downstream: downstream)
    }

    override func begin() {
      let start: JournalReader.Start =
        switch parameters.since.position {
        case .beginning: .beginning
        case .end: .end
        case .boot: .boot
        case .ago(let span): .time(UInt64(max(0, executor.wallTime - span.nanoseconds) / 1000))
        case .time(let time): .time(UInt64(time / 1000))
        case .cursor(let cursor): .behind(cursor: cursor)
        }
      read(from: start)
    }

    override func resume() {
      if let position { read(from: .behind(cursor: position.cursor)) } else { begin() }
    }

    override func dryRun() {
      do throws(JournalFailure) { try JournalReader.check(directory: parameters.directory) } catch { fail(error) }
    }

    private func fail(_ failure: JournalFailure) {
      let reason = SignalFailure(.source, failure.message, at: nodeContext.location)
      if failure.isMissingLibrary { endPipeline(because: reason) } else { finish(failing: reason) }
    }

    private func read(from start: JournalReader.Start) {
      var options = JournalReader.Options()
      options.directory = parameters.directory
      options.matches = parameters.matches
      options.start = start
      options.follows = parameters.follow
      options.maxField = parameters.maxField.bytes
      options.allBlocks = execution.services.memory.ofReaders
      let queue = inputQueue
      let node = Weak(self)
      let services = execution.services
      let label = execution.plan.steps[nodeContext.step.number].label
      let damaged = OncePerSecond { services.log(.warning, label, $0) }
      do throws(JournalFailure) {
        let reader = try JournalReader(options)
        self.reader = reader
        // The position must be correct before anything else can happen, such as a checkpoint.
        position = Position(
          cursor: try reader.start { notice in
            switch notice {
            case .goneCursor:
              services.log(
                .warning, label,
                "the entry after the saved position is gone: reading continues with the next one")
            case .unreadable(let count):
              services.log(
                .warning, label,
                "\(count) journal file\(count == 1 ? " or directory" : "s or directories") cannot be read, and \(count == 1 ? "is" : "are") left out: add the user to the group systemd-journal"
              )
            case .nothing: services.log(.info, label, "there is no journal file yet")
            case .damaged: damaged.write("an entry of a damaged journal file could not be read completely")
            }
          } deliver: { piece in
            queue.deliver(bytes: piece.bytes) { node.object?.take(piece) }
          })
        positions.reset(to: position)
      } catch {
        reader = nil
        fail(error)
      }
    }

    private func take(_ piece: JournalReader.Piece) {
      guard !isClosed else { return }
      if let rows = piece.rows {
        // All entries of the previous piece have been sent by now.
        position = entries.last.map { Position(cursor: $0.cursor) } ?? position
        entries = piece.entries
        let origin = Origin(
          source: origin.source, receivedAt: executor.wallTime, reply: origin.reply, identity: origin.identity)
        take(rows, origin: origin)
      }
      guard let end = piece.end else { return }
      if isBatchDone { ended(end) } else { whenBatchIsDone { [unowned self] in ended(end) } }
    }

    private func ended(_ end: JournalReader.End) {
      switch end {
      case .finished: finish()
      case .failed(let message): finish(failing: SignalFailure(.source, message, at: nodeContext.location))
      }
    }

    /// The position after the last entry that has been sent.
    private var taken: Position? {
      guard let unsentOffset else { return entries.last.map { Position(cursor: $0.cursor) } ?? position }
      guard let index = entries.firstIndex(where: { $0.number == unsentOffset }), index > 0 else { return position }
      return Position(cursor: entries[index - 1].cursor)
    }

    override func beginPiece() { beginPiece(of: positions) { [self] in taken } }

    override var isReadAgain: Bool { true }
    override var hasPosition: Bool { position != nil }

    /// The next execution reads unsent entries again.
    override func suspend() {}

    override func save(_ state: inout StateWriter) {
      let upTo = state.positions == .acknowledged ? positions.acknowledged : taken
      state.write(upTo != nil)
      state.write(upTo?.cursor != nil)
      state.write(upTo?.cursor ?? "")
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      let hasStarted: Bool = try state.read()
      let hasCursor: Bool = try state.read()
      let cursor: String = try state.read()
      if hasStarted { position = Position(cursor: hasCursor ? cursor : nil) }
    }

    override func stop() {
      inputQueue.stop()
      reader?.stop()
    }
  }
}
