import Glibc
import PipelineCore
import Storage

/// The contents of the store of one pipeline, for `rxd state ls` and `show`.
struct PipelineState {
  let name: String
  let store: String
  /// The time of the state or, without a state, of the last write to the store; nanoseconds since 1970.
  private(set) var committedAt: Int64
  let bytes: [UInt8]?
  let backlogs: [(sink: String, backlog: OutboxBacklog)]
  let deadLetters: Int
  /// The bytes of the keys that steps keep on the disk, alongside the store; nil: there are none.
  let keyBytes: Int?

  init(_ name: String, _ folder: StateFolder) throws(StoreRefusal) {
    self.name = name
    store = folder.store(name)
    keyBytes = folder.keyBytes(name)
    let reader = try StoreReader(store)
    bytes = try reader.state()
    backlogs = try reader.backlogs().sorted { $0.key < $1.key }.filter { $0.value.rows > 0 }.map { ($0.key, $0.value) }
    deadLetters = try reader.letterCounts().reduce(0) { $0 + $1.count }
    committedAt = reader.writtenAt
  }

  var stateBytes: Int { bytes?.count ?? 0 }
  var events: Int { backlogs.reduce(0) { $0 + $1.backlog.events } }
  var isWorthAsking: Bool { stateBytes > 0 || events > 0 || deadLetters > 0 }

  /// `a state of 312 bytes, 5 events to deliver, 1 dead letter`
  var summary: String {
    "\(stateBytes == 0 ? "no state" : "a state of \(Printable.count(stateBytes, "byte"))"), "
      + "\(Printable.count(events, "event")) to deliver, \(Printable.count(deadLetters, "dead letter"))"
  }

  /// `5 to out, 2 to web`
  var toDeliver: String {
    backlogs.isEmpty ? "-" : backlogs.map { "\($0.backlog.events) to \($0.sink)" }.joined(separator: ", ")
  }

  // MARK: For people

  func text(_ report: SavedStateReport?, _ user: String?) -> String {
    var lines = [
      "pipeline: \(name)", "store: \(Printable.cut(store, limit: 4096))",
      "committed: \(StoredTime.text(committedAt))", "in use by: \(user ?? "no process")",
    ]
    if let report {
      lines.append("state: \(Printable.count(report.bytes, "byte")), taken at \(StoredTime.text(report.savedAt))")
    } else {
      lines.append("state: none, so the pipeline starts from the beginning")
    }
    if let keyBytes { lines.append("keys on the disk: \(Printable.count(keyBytes, "byte"))") }
    let positions = report?.steps.flatMap { step in step.positions.map { (step.name, $0) } } ?? []
    if !positions.isEmpty {
      lines.append("")
      var table = TextTable("SOURCE", "HAS READ")
      for (step, position) in positions { table.add(step, Self.words(position)) }
      lines.append(table.text)
    }
    if let report, !report.steps.isEmpty {
      lines.append("")
      var table = TextTable("STEP", "BYTES", "VERSION", numbers: [1, 2])
      for step in report.steps { table.add(step.name, "\(step.bytes)", "\(step.version)") }
      lines.append(table.text)
    }
    if !backlogs.isEmpty {
      lines.append("")
      var table = TextTable("SINK", "EVENTS TO DELIVER", "ROWS", "BYTES", numbers: [1, 2, 3])
      for (sink, backlog) in backlogs {
        table.add(sink, "\(backlog.events)", "\(backlog.rows)", "\(backlog.bytes)")
      }
      lines.append(table.text)
    }
    if deadLetters > 0 {
      lines.append("")
      lines.append(
        "\(Printable.count(deadLetters, "dead letter")): 'rxd deadletters show \(name)' prints them")
    }
    return lines.joined(separator: "\n")
  }

  /// `/var/log/a.log: 1024 of 4096 bytes`
  private static func words(_ position: SavedPosition) -> String {
    guard let path = position.path else {
      return position.offset.map { Printable.count($0, String(position.unit.dropLast())) } ?? "all"
    }
    guard let offset = position.offset else { return "\(path): all" }
    var status = stat()
    guard stat(path, &status) == 0 else { return "\(path): \(Printable.count(offset, "byte")); the file is gone" }
    if position.inode != 0, UInt64(status.st_ino) != position.inode {
      return "\(path): \(Printable.count(offset, "byte")) of a file that has another name now, or is gone"
    }
    return "\(path): \(offset) of \(Printable.count(Int64(status.st_size), "byte"))"
  }

  // MARK: For programs

  func json(
    _ user: String?, _ report: SavedStateReport? = nil, hasFile: Bool? = nil, left: [LeftBehind] = []
  ) -> JSONText {
    var members: [(String, JSONText)] = [
      ("pipeline", .string(name)), ("store", .string(store)), ("committed", .string(StoredTime.text(committedAt))),
      ("in_use_by", user.map { .string($0) } ?? .null), ("state_bytes", .int(stateBytes)),
      (
        "outbox",
        .array(
          backlogs.map { sink, backlog in
            .object([
              ("sink", .string(sink)), ("events", .int(backlog.events)), ("rows", .int(backlog.rows)),
              ("bytes", .int(backlog.bytes)),
            ])
          })
      ), ("dead_letters", .int(deadLetters)),
    ]
    if let keyBytes { members.append(("key_bytes", .int(keyBytes))) }
    if let hasFile { members.append(("has_file", .bool(hasFile))) }
    if !left.isEmpty {
      members.append(
        (
          "left_behind",
          .array(
            left.map { left in
              .object([
                ("sink", .string(left.sink)), ("events", .int(left.events)), ("reason", .string(left.reason.rawValue)),
                ("advice", .string(left.advice)),
              ])
            })
        ))
    }
    guard let report else { return .object(members) }
    members.append(("state_taken", .string(StoredTime.text(report.savedAt))))
    members.append(("steps", .array(report.steps.map(Self.json))))
    return .object(members)
  }

  private static func json(_ step: SavedStateReport.Step) -> JSONText {
    var members: [(String, JSONText)] = [
      ("step", .string(step.name)), ("bytes", .int(step.bytes)), ("version", .int(step.version)),
    ]
    if !step.positions.isEmpty {
      members.append(
        (
          "positions",
          .array(
            step.positions.map { position in
              var members: [(String, JSONText)] = []
              if let path = position.path { members.append(("path", .string(path))) }
              members.append((position.unit, position.offset.map { .int(Int($0)) } ?? .string("all")))
              return .object(members)
            })
        ))
    }
    return .object(members)
  }
}
