import PipelineCore
import Transport

/// Changes the store of a pipeline that is not running. The caller must hold the lock of the state directory.
///
/// Each change is one transaction, which is on the disk when the call returns. Must be used by one thread.
package final class StoreEditor {
  private let file: StoreFile

  /// Opens the store at `path`; creates it if there is none.
  /// - Throws: ``StoreRefusal`` for another program's file, a newer format, damage, or a directory that cannot be
  ///   written to.
  package init(_ path: String) throws(StoreRefusal) {
    do {
      file = try StoreFile(path)
    } catch let refusal as StoreRefusal {
      throw refusal
    } catch let damage as StoreDamage {
      throw Self.damaged(path, damage.message)
    } catch let error as DatabaseError {
      throw error.isDamage
        ? Self.damaged(path, error.message) : StoreRefusal("\(path) cannot be opened: \(error.message)")
    } catch {
      throw StoreRefusal("\(path) cannot be opened: \(error)")
    }
  }

  private static func damaged(_ path: String, _ why: String) -> StoreRefusal {
    StoreRefusal(
      "\(path) is damaged (\(why)). A start of the pipeline sets it aside and takes over what can be read")
  }

  private func change(_ body: (StoreFile) throws(DatabaseError) -> Void) throws(StoreRefusal) {
    do throws(DatabaseError) { try file.change(body) } catch {
      throw StoreRefusal("the store cannot be changed: \(error.message)")
    }
  }

  /// The highest number that any row of the outbox has had so far.
  package var lastRow: Int64 { file.lastRow }

  /// Replaces the state; nil: the pipeline starts without state.
  package func replaceState(_ state: [UInt8]?) throws(StoreRefusal) {
    var transaction = StoreTransaction()
    transaction.state = state.map { .replace(SavedState($0)) } ?? .clear
    try change { file throws(DatabaseError) in try file.write(transaction) }
  }

  /// Removes the undelivered rows of a sink.
  package func removeRows(of sink: String) throws(StoreRefusal) {
    try change { file throws(DatabaseError) in
      let statement = try file.database.prepare("DELETE FROM outbox WHERE sink = ?1")
      statement.bind(1, sink)
      try statement.run()
    }
  }

  /// Removes dead letters and adds rows to the outbox.
  package func removeLetters(_ numbers: some Sequence<Int64>, adding rows: [OutboxRow] = []) throws(StoreRefusal) {
    var transaction = StoreTransaction()
    transaction.rows = rows
    try change { file throws(DatabaseError) in
      try file.write(transaction)
      let statement = try file.database.prepare("DELETE FROM deadletter WHERE number = ?1")
      for number in numbers {
        statement.bind(1, number)
        try statement.run()
      }
    }
  }

  /// Replaces everything in the store.
  package func replaceAll(with contents: StoreContents) throws(StoreRefusal) {
    var transaction = StoreTransaction()
    transaction.state = contents.state.map { .replace(SavedState($0)) } ?? .clear
    transaction.rows = contents.rows
    transaction.deadLetters = contents.deadLetters
    try change { file throws(DatabaseError) in
      try file.database.execute("DELETE FROM outbox; DELETE FROM deadletter")
      try file.write(transaction)
      // A number that either store has used must never be used again.
      file.lastRow = max(file.lastRow, contents.lastRow)
      try file.database.setMeta("identity", Int64(bitPattern: contents.identity))
    }
  }

  /// Makes the file names in a store's directory survive a power failure.
  package static func syncDirectory(of path: String) throws(StoreRefusal) {
    do { try StoreFile.syncDirectory(of: path) } catch {
      throw StoreRefusal((error as? DatabaseError)?.message ?? "\(error)")
    }
  }

  /// Closes the store cleanly.
  package func close() throws(StoreRefusal) {
    do throws(DatabaseError) { try file.end() } catch {
      throw StoreRefusal("the store cannot be closed: \(error.message)")
    }
  }
}

/// The complete contents of a store.
package struct StoreContents: Sendable {
  package var identity: UInt64
  package var lastRow: Int64
  package var state: [UInt8]?
  package var rows: [OutboxRow] = []
  package var deadLetters: [StoredDeadLetter] = []

  /// The valid numbers of rows: counting on from the largest one, no process reaches the end of `Int64`.
  package static let rowNumbers: ClosedRange<Int64> = 0...(1 << 62)

  package init(identity: UInt64, lastRow: Int64) {
    self.identity = identity
    self.lastRow = lastRow
  }
}
