import PipelineCore
import Synchronization

/// Keys on a disk in memory, beside a ``MemoryStore``.
package final class MemorySpill: SpillStore {
  /// What a disk has.
  package struct Contents: Sendable, Equatable {
    package var keys: [Int64: [[UInt8]: SpilledValue]] = [:]
    /// The marks of each owner, in the order of their indexes and of the marks in each.
    package var marks: [Int64: [UInt8: [SpilledMark]]] = [:]
    package var tops: [Int64: Int] = [:]
    package init() {}
  }

  private struct State {
    /// What is found, and what a crash of the process leaves.
    var written: Contents
    /// What a power cut leaves.
    var synced: Contents
    var failure: String?
    var writes = 0
    var removals = 0
    var finds = 0
  }
  private let state: Mutex<State>

  package init(_ contents: Contents = Contents()) { state = Mutex(State(written: contents, synced: contents)) }

  package var written: Contents { state.withLock(\.written) }
  package var synced: Contents { state.withLock(\.synced) }
  /// How many keys have been written.
  package var writes: Int { state.withLock(\.writes) }
  /// How many have been removed one by one.
  package var removals: Int { state.withLock(\.removals) }
  package var finds: Int { state.withLock(\.finds) }
  /// Why the disk fails; nil: it does not.
  package var failure: String? {
    get { state.withLock(\.failure) }
    set { state.withLock { $0.failure = newValue } }
  }

  private func change<T>(_ body: (inout State) -> T) throws(SpillFault) -> T {
    let result = state.withLock { state -> Result<T, SpillFault> in
      if let failure = state.failure { return .failure(SpillFault(failure)) }
      return .success(body(&state))
    }
    return try result.get()
  }

  package func find(_ key: UnsafeRawBufferPointer, of owner: Int64) throws(SpillFault) -> SpilledValue? {
    let key = Array(key)
    return try change { state in
      state.finds += 1
      return state.written.keys[owner]?[key]
    }
  }

  package func write(_ changes: [SpillChange], of owner: Int64, top: Int) throws(SpillFault) {
    let copies = changes.map { (Array($0.key), $0) }
    try change { state in
      state.written.tops[owner] = top
      for (key, change) in copies {
        if change.value == nil { state.removals += 1 } else { state.writes += 1 }
        state.written.keys[owner, default: [:]][key] = change.value
        for mark in change.formerMarks {
          state.written.marks[owner]?[mark.index]?.removeAll { $0 == SpilledMark(time: mark.time, key: key) }
        }
        for mark in change.marks {
          let new = SpilledMark(time: mark.time, key: key)
          var marks = state.written.marks[owner]?[mark.index] ?? []
          let at = marks.firstIndex { new < $0 } ?? marks.count
          if at == 0 || marks[at - 1] != new { marks.insert(new, at: at) }
          state.written.marks[owner, default: [:]][mark.index] = marks
        }
      }
    }
  }

  package func marks(
    _ index: UInt8, of owner: Int64, from: SpilledMark, count: Int
  ) throws(SpillFault) -> [SpilledMark] {
    try change { Array(($0.written.marks[owner]?[index] ?? []).drop { $0 < from }.prefix(count)) }
  }

  package func top(of owner: Int64) throws(SpillFault) -> Int? { try change { $0.written.tops[owner] } }

  /// Called before a commit is on the disk.
  func sync() { state.withLock { $0.synced = $0.written } }

  /// Called when a commit is on the disk: removes what it needs no longer.
  func keep(_ spilled: [SpilledOwner]) {
    let least = Dictionary(uniqueKeysWithValues: spilled.map { ($0.owner, $0.least) })
    func kept(_ contents: Contents) -> Contents {
      var contents = contents
      contents.tops = contents.tops.filter { least[$0.key] != nil }
      contents.marks = contents.marks.filter { least[$0.key] != nil }
      contents.keys = contents.keys.filter { least[$0.key] != nil }
      for (owner, least) in least {
        contents.keys[owner] = contents.keys[owner]?.filter {
          $0.value.rank >= least.rank && $0.value.time >= least.time
        }
      }
      return contents
    }
    state.withLock { state in
      state.written = kept(state.written)
      state.synced = kept(state.synced)
    }
  }
}
