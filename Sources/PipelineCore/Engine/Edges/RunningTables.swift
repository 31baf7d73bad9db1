/// The tables of an execution, by index.
final class RunningTables {
  private let all: [RunningTable]
  /// The tables for expressions, which thus avoid retain and release; nil: there are none.
  let pointer: UnsafePointer<Unmanaged<RunningTable>>?
  /// The subscribers that load tables from their own sources, and closures that cancel their subscriptions.
  var loaders: [(cancel: () -> Void, subscriber: AnyObject)] = []
  /// How many of these tables have not been loaded yet.
  var left = 0
  /// Continues the launch when the tables are loaded; nil: the launch does not wait.
  var begin: (() -> Void)?
  /// The state that the execution was launched with, while the launch waits.
  var state: [UInt8]?

  init(_ count: Int) {
    all = (0..<count).map { _ in RunningTable() }
    guard count > 0 else {
      pointer = nil
      return
    }
    let memory = UnsafeMutablePointer<Unmanaged<RunningTable>>.allocate(capacity: count)
    for (index, table) in all.enumerated() { (memory + index).initialize(to: .passUnretained(table)) }
    pointer = UnsafePointer(memory)
  }

  deinit { pointer?.deallocate() }

  subscript(index: Int) -> RunningTable { all[index] }

  /// Whether tables are being loaded, and everything else waits.
  var areLoading: Bool { begin != nil }

  func cancel() { for loader in loaders { loader.cancel() } }
}
