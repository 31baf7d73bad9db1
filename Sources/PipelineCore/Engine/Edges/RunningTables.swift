/// The tables of an execution, by their indexes.
final class RunningTables {
  private let all: [RunningTable]
  /// For expressions, which read them without reference counting; nil: there are none.
  let pointer: UnsafePointer<Unmanaged<RunningTable>>?
  /// The subscribers of the tables that are loaded from sources of their own, and what cancels their subscriptions.
  var loaders: [(cancel: () -> Void, subscriber: AnyObject)] = []
  /// How many of these have not been loaded yet.
  var left = 0
  /// Begins what waits until they have been; nil: nothing waits.
  var begin: (() -> Void)?
  /// The state that the execution was launched with, while it waits.
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
