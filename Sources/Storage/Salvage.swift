import Glibc
import PipelineCore
import Transport

/// Sets a damaged store aside and copies its readable records into a new one.
struct Salvage {
  private let path: String
  private let log: DiskStore.Log

  init(_ path: String, _ log: @escaping DiskStore.Log) {
    self.path = path
    self.log = log
  }

  func run(because reason: String) throws {
    let aside = try setAside()
    log(.error, "the store \(path) is damaged (\(reason)); it is kept as \(aside)")
    // The remains of an earlier attempt are not a store.
    var found = StoreTransaction()
    var lost: [String] = []
    var letters = 0
    do {
      let database = try Database(aside, .writing)
      if let state = try? database.state() {
        found.state = .replace(SavedState(state))
      } else {
        lost.append("the state")
      }
      found.rows = rows(of: database, &lost)
      found.deadLetters = deadLetters(of: database, &lost)
      letters = found.deadLetters.count
    } catch {
      lost = ["everything"]
    }
    let fresh = try StoreFile(path)
    try fresh.write([found])
    let events = found.rows.reduce(0) { $0 + $1.events }
    log(
      .warning,
      "taken over from the damaged store: "
        + (lost.contains("the state") || lost == ["everything"]
          ? "no state, so the pipeline starts from the beginning" : "the state")
        + ", \(Printable.count(events, "event")) to deliver, \(Printable.count(letters, "dead letter"))"
        + (lost.isEmpty ? "" : "; lost: \(lost.joined(separator: ", "))"))
  }

  private func setAside() throws -> String {
    var number = 1
    while access("\(path).damaged-\(number)", F_OK) == 0 { number += 1 }
    let aside = "\(path).damaged-\(number)"
    // The log is renamed first: without it, the file would be an older state of the store.
    for suffix in ["-wal", ""] {
      if rename(path + suffix, aside + suffix) != 0, errno != ENOENT {
        throw StoreDamage(PosixError("rename", path + suffix).message)
      }
    }
    unlink(path + "-shm")
    try StoreFile.syncDirectory(of: path)
    return aside
  }

  private func rows(of database: Database, _ lost: inout [String]) -> [OutboxRow] {
    var rows: [Int64: OutboxRow] = [:]
    var damaged = 0
    var isWhole = true
    // Scanned from both ends, because a damaged page ends a scan.
    for order in ["ASC", "DESC"] where rows.isEmpty || !isWhole {
      do throws(DatabaseError) {
        let statement = try database.prepare(
          "SELECT number, sink, events, sum, body FROM outbox ORDER BY number \(order)")
        while try statement.step() {
          let number = statement.number(0)
          let bytes = statement.bytes(4)
          if StoreSchema.sum(bytes, number) == statement.number(3), statement.number(2) >= 0 {
            rows[number] = OutboxRow(
              number: number, sink: statement.text(1), events: Int(statement.number(2)), bytes: Array(bytes))
          } else if order == "ASC" {
            damaged += 1
          }
        }
        isWhole = true
      } catch {
        isWhole = false
      }
    }
    if !isWhole { lost.append("an unknown number of rows of the outbox") }
    if damaged > 0 { lost.append("\(Printable.count(damaged, "damaged row")) of the outbox") }
    return rows.values.sorted { $0.number < $1.number }
  }

  private func deadLetters(of database: Database, _ lost: inout [String]) -> [StoredDeadLetter] {
    var letters: [StoredDeadLetter] = []
    do throws(DatabaseError) {
      let statement = try database.prepare("SELECT time, code, step, sum, document FROM deadletter ORDER BY number")
      while try statement.step() {
        let document = statement.bytes(4)
        let time = statement.number(0)
        guard StoreSchema.sum(document, time) == statement.number(3) else { continue }
        letters.append(
          StoredDeadLetter(
            time: time, code: statement.text(1), step: statement.text(2), document: Array(document)))
      }
    } catch {
      lost.append("some dead letters")
    }
    return letters
  }
}
