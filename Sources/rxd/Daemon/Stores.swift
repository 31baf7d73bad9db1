import Glibc
import PipelineCore
import Storage
import Transport

/// The stores of the pipelines in the state directory: `pipelines/NAME.db`.
final class Stores: Sendable {
  static let folder = "pipelines"

  /// Locked as long as stores are open.
  private let state: StateDirectory
  private let directory: FileDescriptor
  private let log: LogWriter

  init(_ state: StateDirectory, log: LogWriter) throws(StateDirectory.Refusal) {
    self.state = state
    self.log = log
    directory = try state.folder(Self.folder)
  }

  /// Where the store of a pipeline is. The state directory may be a symbolic link, which SQLite is told to refuse.
  static func path(_ pipeline: String, in state: String) -> String {
    let real = realpath(state, nil)
    defer { free(real) }
    return "\(real.map { String(cString: $0) } ?? state)/\(folder)/\(pipeline).db"
  }

  /// Opens the store of a pipeline; creates it if there is none.
  func open(_ pipeline: String) throws(StoreRefusal) -> DiskStore {
    let log = log
    let state = state.path
    let store = try DiskStore(Self.path(pipeline, in: state)) { level, message in
      log.write(level.logLevel, pipeline, message)
    }
    store.reportDeadLetters = { count in
      let what = count == 1 ? "1 rejected event is kept" : "\(count) rejected events are kept"
      log.write(
        .warning, pipeline, "\(what): 'rxd deadletters show \(pipeline) --state-dir \(state)' shows what and why")
    }
    return store
  }
}
