import Glibc
import PipelineCore
import Storage
import Transport

/// The stores of the pipelines in the state directory: `pipelines/NAME.db`.
final class Stores: Sendable {
  static let folder = "pipelines"

  /// Holds the lock as long as stores are open.
  private let state: StateDirectory
  private let directory: FileDescriptor
  /// The path of the state directory, as it was given.
  var path: String { state.path }
  private let log: LogWriter
  private let letters: DeadLetterCounts

  init(_ state: StateDirectory, log: LogWriter, counting letters: DeadLetterCounts) throws(StateDirectory.Refusal) {
    self.state = state
    self.log = log
    self.letters = letters
    directory = try state.folder(Self.folder)
  }

  /// The path of a pipeline's store. The state directory may be a symbolic link, which SQLite refuses, so the path is resolved.
  static func path(_ pipeline: String, in state: String) -> String {
    let real = realpath(state, nil)
    defer { free(real) }
    return "\(real.map { String(cString: $0) } ?? state)/\(folder)/\(pipeline).db"
  }

  /// The file with the names of the pipelines of this process, one per line.
  static let names = "names"

  /// Records the pipelines that have files, for `rxd state ls`.
  func note(_ pipelines: [String]) {
    let text = Array(pipelines.map { $0 + "\n" }.joined().utf8)
    let path = "\(state.path)/\(Self.folder)/\(Self.names)"
    let failure = text.withUnsafeBytes { bytes -> PosixError? in
      do throws(PosixError) {
        try replaceFile(path, with: bytes, permissions: 0o600)
        return nil
      } catch {
        return error
      }
    }
    if let failure { log.write(.debug, "", failure.message) }
  }

  /// Records which event the pipeline has in hand, in a file next to its store; nil: it cannot be recorded.
  func inHand(_ pipeline: String) -> InHand? {
    guard let found = InHand.beside(Self.path(pipeline, in: state.path)) else {
      log.write(
        .warning, pipeline,
        "an event that ends the process again and again will not be found: the record beside the store cannot be made")
      return nil
    }
    if found.isNewlyRefused {
      log.write(
        .error, pipeline,
        "the process has ended three times with the same event in hand: the event is left out and rejected (RX550)")
    } else if found.ends > 0 {
      log.write(
        .warning, pipeline,
        "the last process was killed or has crashed\(found.ends > 1 ? ", \(found.ends) times in a row" : ""): for "
          + "\(InHand.trial) each event is recorded before it is processed, to find one that ends the process")
    }
    return found
  }

  /// Opens the store of a pipeline; creates it if there is none.
  func open(_ pipeline: String) throws(StoreRefusal) -> DiskStore {
    let log = log
    let state = state.path
    let store = try DiskStore(Self.path(pipeline, in: state)) { level, message in
      log.write(level.logLevel, pipeline, message)
    }
    let letters = letters
    store.reportDroppedLetters = { letters.add($0, .dropped, of: pipeline) }
    store.reportDeadLetters = { count in
      letters.add(count, .kept, of: pipeline)
      let what = count == 1 ? "1 rejected event is kept" : "\(count) rejected events are kept"
      log.write(
        .warning, pipeline, "\(what): 'rxd deadletters show \(pipeline) --state-dir \(state)' shows what and why")
    }
    return store
  }
}
