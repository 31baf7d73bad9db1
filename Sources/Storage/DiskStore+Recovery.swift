import Glibc
import PipelineCore
import Transport

/// How a store reacts when its file is damaged, moved, removed or replaced.
extension DiskStore.Writer {
  /// Sets the damaged file aside and copies its readable records; false if that failed.
  func salvage(because reason: String) -> Bool {
    file = nil
    do {
      try Salvage(path, log).run(because: reason)
      return true
    } catch {
      log(.error, "the readable records of the damaged store \(path) cannot be copied: \(error)")
      return false
    }
  }

  /// Reports that the directory was moved with the open file. Nothing is written under the old name, because that
  /// directory may belong to another process now.
  func reportMoved() {
    guard !hasReportedMove else { return }
    hasReportedMove = true
    log(
      .error,
      "the directory of the store \(path) was moved or removed while it was in use: this process continues to write to the open file, wherever it is "
        + "now, and its next start does not find it under the old name")
  }

  /// Writes a copy of the contents under the file's name after the open file was removed or replaced.
  func putBack() throws(DatabaseError) {
    guard let open = file else { return }
    var aside: String?
    if access(path, F_OK) == 0 {
      var number = 1
      while access("\(path).replaced-\(number)", F_OK) == 0 { number += 1 }
      aside = "\(path).replaced-\(number)"
    }
    let copy = path + ".copy"
    try open.copy(to: copy)
    if let aside, rename(path, aside) != 0 {
      throw DatabaseError(code: 14, message: PosixError("rename", path).message)
    }
    // The log that has the old name must not be applied to the copy.
    file = nil
    for suffix in ["-wal", "-shm"] { unlink(path + suffix) }
    guard chmod(copy, 0o600) == 0, rename(copy, path) == 0 else {
      throw DatabaseError(code: 14, message: PosixError("rename", copy).message)
    }
    do { try StoreFile.syncDirectory(of: path) } catch let error as DatabaseError { throw error } catch {}
    file = try reopen()
    log(
      .error,
      "the store \(path) was \(aside == nil ? "removed" : "replaced") while it was in use, and has been written again from the copy in use; "
        + (aside.map { "the other file is \($0) now" } ?? "'rxd state delete' removes a store"))
  }

  func reopen() throws(DatabaseError) -> StoreFile {
    defer { state.withLock(\.copier)?.storeWasReopened() }
    do {
      return try StoreFile(path)
    } catch let error as DatabaseError {
      throw error
    } catch let damage as StoreDamage {
      throw DatabaseError(code: 11, message: damage.message)
    } catch {
      throw DatabaseError(code: 1, message: "\(error)")
    }
  }
}
