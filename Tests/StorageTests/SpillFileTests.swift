import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

@testable import Storage

/// The keys of steps that are on the disk, in RocksDB beside the store.
@Suite struct SpillFileTests {
  private let folder = Scratch()
  private var store: String { folder("a.db") }
  private var keys: String { folder("a.keys") }
  private let lines = Lines()

  private func open(identity: UInt64 = 7) throws -> SpillFile {
    let lines = lines
    return try SpillFile(besideStore: store, identity: identity, memory: 16 << 20) { level, message in
      lines.add("\(level): \(message)")
    }
  }

  private func write(_ numbers: Range<Int>, of owner: Int64, _ file: SpillFile) throws {
    let texts = numbers.map { Array("key \($0)".utf8) }
    for (number, text) in zip(numbers, texts) {
      try text.withUnsafeBytes { text in
        try file.write(
          [SpillChange(text, SpilledValue(rank: number, time: Int64(number) * 10))], of: owner, top: number)
      }
    }
  }

  private func find(_ number: Int, of owner: Int64, _ file: SpillFile) throws -> SpilledValue? {
    try Array("key \(number)".utf8).withUnsafeBytes { text throws in try file.find(text, of: owner) }
  }

  @Test func keysAreFoundAgain() throws {
    var file: SpillFile? = try open()
    try write(0..<1000, of: 3, file!)
    try write(500..<510, of: 4, file!)
    func expectAll(_ file: SpillFile) throws {
      for number in [0, 1, 500, 999] {
        #expect(try find(number, of: 3, file) == SpilledValue(rank: number, time: Int64(number) * 10))
      }
      #expect(try find(1000, of: 3, file) == nil && find(0, of: 4, file) == nil && find(0, of: 5, file) == nil)
      #expect(try find(505, of: 4, file) != nil)
      #expect(try file.top(of: 3) == 999 && file.top(of: 4) == 509 && file.top(of: 5) == nil)
      #expect(file.lastOwner == 4)
    }
    try expectAll(file!)
    try file?.sync()
    file = nil
    file = try open()
    try expectAll(file!)
    #expect(lines.all.isEmpty)
  }

  /// A value may have any length, and another one takes its place.
  @Test func valuesChange() throws {
    var file: SpillFile? = try open()
    func payload(_ number: Int, _ round: Int) -> [UInt8] {
      let lengths = [0, 1, 239, 240, 241, 300, 5000, 100_000]
      return [UInt8](repeating: UInt8(number * 7 + round), count: lengths[(number + round) % lengths.count])
    }
    for round in 0..<3 {
      for number in 0..<20 {
        try Array("key \(number)".utf8).withUnsafeBytes { text in
          let value = SpilledValue(rank: 0, time: 0, payload: payload(number, round))
          try #require(file).write([SpillChange(text, value)], of: 3, top: round)
        }
      }
      if round == 1 {
        try file?.sync()
        file = nil
        file = try open()
      }
      for number in 0..<20 { #expect(try find(number, of: 3, #require(file))?.payload == payload(number, round)) }
    }
    // What is not below a floor stays, whatever its rank.
    #expect(file?.keep([SpilledOwner(owner: 3, least: SpilledValue(rank: 0, time: .min))]) == nil)
    #expect(try find(5, of: 3, #require(file))?.payload == payload(5, 2))
  }

  private func change(
    _ key: String, _ value: SpilledValue?, marks: [(index: UInt8, time: Int64)] = [],
    former: [(index: UInt8, time: Int64)] = [], of owner: Int64, _ file: SpillFile
  ) throws {
    try Array(key.utf8).withUnsafeBytes {
      try file.write([SpillChange($0, value, marks: marks, formerMarks: former)], of: owner, top: 1)
    }
  }

  /// Marks are in the order of times, whatever their signs, and of equal ones in that of the keys; each owner and index has its own.
  @Test func marksHaveAnOrder() throws {
    var file: SpillFile? = try open()
    let value = SpilledValue(rank: 0, time: 0)
    let times: [Int64] = [5, -1, .min, .max, 0, 256, -256, 1 << 40, 5]
    for (number, time) in times.enumerated() {
      try change("\(number)", value, marks: [(1, time), (2, -(time / 2))], of: 3, file!)
    }
    try change("other", value, marks: [(1, 1)], of: 4, file!)
    func found(_ index: UInt8, _ from: SpilledMark = .first, _ count: Int = 100) throws -> [SpilledMark] {
      try #require(file).marks(index, of: 3, from: from, count: count)
    }
    func marks(_ change: (Int64) -> Int64) -> [SpilledMark] {
      times.enumerated().map { SpilledMark(time: change($1), key: Array("\($0)".utf8)) }.sorted()
    }
    for round in 0..<2 {
      #expect(try found(1) == marks { $0 } && found(2) == marks { -($0 / 2) } && found(0) == [] && found(3) == [])
      #expect(try found(1, .first, 2) == Array(marks { $0 }.prefix(2)))
      let fifth = marks { $0 }[4]
      #expect(try found(1, fifth, 2) == Array(marks { $0 }[4..<6]) && found(1, fifth.next, 1) == [marks { $0 }[5]])
      guard round == 0 else { break }
      try file?.sync()
      file = nil
      file = try open()
    }
    func gone(_ file: SpillFile?) throws -> Bool {
      try Array("3".utf8).withUnsafeBytes { try #require(file).find($0, of: 3) } == nil
    }
    // A mark that is moved, one that stays, and a key that is removed with both of its marks.
    try change("1", value, marks: [(1, 700), (2, 0)], former: [(1, -1), (2, 0)], of: 3, file!)
    try change("3", nil, former: [(1, .max), (2, -(.max / 2))], of: 3, file!)
    #expect(try found(1).map(\.time) == [.min, -256, 0, 5, 5, 256, 700, 1 << 40])
    #expect(try found(2).count == 8 && gone(file))
    #expect(file?.keep([SpilledOwner(owner: 4, least: SpilledValue(rank: 0, time: .min))]) == nil)
    #expect(try found(1) == [] && file?.marks(1, of: 4, from: .first, count: 9).count == 1)
  }

  /// Few of many pipelines with a limit ever reach it.
  @Test func nothingIsThereBeforeTheFirstKey() throws {
    let file = try open()
    #expect(try find(1, of: 3, file) == nil && file.top(of: 3) == nil && file.lastOwner == 0)
    try file.sync()
    #expect(file.keep([SpilledOwner(owner: 3, least: SpilledValue(rank: 0, time: 0), hasKeys: false)]) == nil)
    #expect(!FileManager.default.fileExists(atPath: keys))
    try write(1..<2, of: 3, file)
    #expect(try find(1, of: 3, file) != nil && FileManager.default.fileExists(atPath: keys))
  }

  @Test func emptyAndLongKeysAreKeys() throws {
    let file = try open()
    let texts: [[UInt8]] = [[], [0], Array(repeating: 0xFF, count: 100_000), Array("\u{0}a".utf8)]
    for (rank, text) in texts.enumerated() {
      try text.withUnsafeBytes {
        try file.write([SpillChange($0, SpilledValue(rank: rank, time: .min))], of: 1, top: rank)
      }
    }
    for (rank, text) in texts.enumerated() {
      let found = try text.withUnsafeBytes { text throws in try file.find(text, of: 1) }
      #expect(found == SpilledValue(rank: rank, time: .min))
    }
  }

  /// What a committed state no longer has is removed: all keys of other owners at once, and the directory when it is empty.
  @Test func keysOfOthersGo() throws {
    var file: SpillFile? = try open()
    try write(0..<100, of: 3, file!)
    try write(0..<100, of: 4, file!)
    #expect(file!.keep([SpilledOwner(owner: 4, least: SpilledValue(rank: 50, time: .min))]) == nil)
    #expect(try find(5, of: 3, file!) == nil && file!.top(of: 3) == nil)
    // Keys below the least rank may be there or not.
    #expect(try find(50, of: 4, file!) != nil)
    file = nil
    file = try open()
    #expect(file!.lastOwner == 4)
    #expect(try find(5, of: 3, file!) == nil)
    #expect(try find(99, of: 4, file!) != nil)
    #expect(file!.keep([]) == nil)
    file = nil
    #expect(!FileManager.default.fileExists(atPath: keys))
  }

  /// Keys of a store that was replaced by another one are not taken for those of that.
  @Test func keysOfAnotherStoreAreMovedAway() throws {
    var file: SpillFile? = try open()
    try write(0..<10, of: 3, file!)
    file = nil
    file = try open(identity: 8)
    #expect(try find(5, of: 3, file!) == nil)
    #expect(lines.all == ["error: \(keys) has the keys of another store: it was renamed to \(keys).foreign-1"])
    #expect(FileManager.default.fileExists(atPath: "\(keys).foreign-1"))
  }

  @Test func anUnusableDirectoryIsRefused() throws {
    try Data("no directory".utf8).write(to: URL(fileURLWithPath: keys))
    #expect {
      try open()
    } throws: {
      ($0 as? StoreRefusal)?.message.hasPrefix("\(keys) cannot be opened: ") == true
    }
  }

  // MARK: With a store

  private func commit(_ store: DiskStore, _ state: StoreTransaction.StateChange) {
    var transaction = StoreTransaction()
    transaction.state = state
    let done = DispatchSemaphore(value: 0)
    store.commit(transaction) { done.signal() }
    done.wait()
  }

  private func openStore(memory: Int?) throws -> DiskStore {
    let lines = lines
    let opened = try DiskStore(store) { level, message in lines.add("\(level): \(message)") }
    try opened.openSpill(memory: memory)
    return opened
  }

  /// The store opens the directory if it is asked for or if there is one; owners of keys count like those of pages; and a store with
  /// keys beside it is one that earlier versions refuse.
  @Test func aStoreHasKeysBesideIt() throws {
    var opened = try openStore(memory: nil)
    #expect(opened.spill == nil && !FileManager.default.fileExists(atPath: keys))
    #expect(opened.close(within: .seconds(30)))
    opened = try openStore(memory: 16 << 20)
    var file = opened.spill as? SpillFile
    try write(0..<10, of: 9, try #require(file))
    var saved = SavedState([1, 2, 3])
    saved.pages = [StatePage(owner: 9, number: 0, bytes: [1])]
    saved.owners = [9]
    saved.spilled = [SpilledOwner(owner: 9, least: SpilledValue(rank: 0, time: .min))]
    commit(opened, .replace(saved))
    file = nil
    #expect(opened.close(within: .seconds(30)))
    // SQLite's header has the version of the user at byte 60.
    let header = try Data(contentsOf: URL(fileURLWithPath: store)).prefix(64)
    #expect(Array(header.suffix(4)) == [0, 0, 0, 3])
    opened = try openStore(memory: nil)
    #expect(opened.lastOwner == 9)
    file = opened.spill as? SpillFile
    #expect(try find(5, of: 9, try #require(file)) != nil)
    commit(opened, .clear)
    #expect(try find(5, of: 9, try #require(file)) == nil)
    file = nil
    #expect(opened.close(within: .seconds(30)))
    #expect(!FileManager.default.fileExists(atPath: keys) && lines.all.isEmpty)
  }
}
