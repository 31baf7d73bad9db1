import CDigest

/// The parts of a step's state that have changed since the last commit.
///
/// A step with state for each of many keys numbers the keys, writes them in pages of ``keysOfPage`` numbers, and marks
/// a key whenever the bytes that it would write for the key change. A commit then writes only marked pages, so its cost
/// depends on the changes. docs/decisions/0202 has the reasons.
///
/// Until the first commit with pages, and wherever a state is written as a whole (for the next version in a reload, by
/// a step inside another step's page), all pages are written in place.
final class StatePages {
  /// The number of keys of a page. If the changed keys are random, each of them costs a page, so pages are small. In
  /// debug builds few keys of a test share a page, so that a missing mark is not hidden by the mark of another key.
  static let keysOfPage = _isDebugAssertConfiguration() ? 2 : 32
  /// The last page number: the numbers of keys fit into 31 bits.
  static let lastPage = Int64(Int32.max) / Int64(keysOfPage)

  /// Identifies these pages in the store; 0: no commit has had pages yet.
  private(set) var owner: Int64 = 0
  /// The marked pages, one bit each.
  @exclusivity(unchecked) private var marked: [UInt64] = []
  /// The bytes of each page in the last commit, in the order of their numbers; 0: the store does not have the page.
  private var sizes: [Int32] = []
  /// The bytes of the pages in the next commit.
  private var written: [Int: [UInt8]] = [:]
  /// The number of pages that the store has after the next commit, and their bytes.
  private(set) var count = 0
  private(set) var bytes = 0
  /// The checksums of the pages in the last commit, with which debug builds find changes that were not marked.
  private var sums: [Int: UInt64] = [:]
  /// The checksums of restored pages. Sets have no order, so these sums do not depend on it.
  private var sumsOfRestored: [Int: UInt64] = [:]

  /// Marks a key: the bytes that would be written for it have changed.
  @inline(__always)
  func mark(_ key: Int) {
    guard owner != 0 else { return }
    let page = key / Self.keysOfPage
    guard page >> 6 < marked.count else { return markNew(page) }
    marked[page >> 6] |= 1 << UInt64(page & 63)
  }

  @inline(never)
  private func markNew(_ page: Int) {
    while marked.count <= page >> 6 { marked.append(0) }
    marked[page >> 6] |= 1 << UInt64(page & 63)
  }

  /// The number of marked pages.
  var markedCount: Int { marked.reduce(0) { $0 + $1.nonzeroBitCount } }

  /// Begins to write pages, of `keys` numbers.
  func begin(_ owner: Int64, keys: Int) {
    self.owner = owner
    if keys > 0 { for page in 0...(keys - 1) / Self.keysOfPage { markNew(page) } }
  }

  /// Keeps these pages, which the store has as they are: the next commits write only later changes.
  func goOn(_ owner: Int64, _ pages: [(number: Int, bytes: ArraySlice<UInt8>)]) {
    self.owner = owner
    marked = []
    sizes = [Int32](repeating: 0, count: (pages.last?.number ?? -1) + 1)
    count = pages.count
    bytes = 0
    for page in pages {
      sizes[page.number] = Int32(clamping: page.bytes.count)
      bytes += page.bytes.count
      if _isDebugAssertConfiguration() { sumsOfRestored[page.number] = Self.sumWithoutOrder(page.bytes) }
    }
  }

  private static func sumWithoutOrder(_ bytes: some Sequence<UInt8>) -> UInt64 {
    bytes.reduce(0) { $0 &+ (UInt64($1) &+ 0x9E37_79B9) &* (UInt64($1) &+ 0x85EB_CA6B) }
  }

  /// Writes as many marked pages with `write` as `paging` allows, and clears their marks. Written pages are kept here
  /// until the commit that contains all of them. A page for which `write` returns nil cannot be written; it stays
  /// marked, so that no later commit treats it as unchanged.
  func writeMarked(_ paging: StatePaging, _ write: (Int) -> [UInt8]?) {
    var faulty: [Int] = []
    defer { for page in faulty { markNew(page) } }
    for word in marked.indices {
      while marked[word] != 0 {
        guard paging.takeOne() else { return paging.leave(markedCount) }
        let page = word << 6 + marked[word].trailingZeroBitCount
        marked[word] &= marked[word] &- 1
        if let content = write(page) { wrote(page, content) } else { faulty.append(page) }
      }
    }
  }

  private func wrote(_ page: Int, _ content: [UInt8]) {
    while sizes.count <= page { sizes.append(0) }
    let before = Int(sizes[page])
    sizes[page] = Int32(clamping: content.count)
    bytes += content.count - before
    count += (content.isEmpty ? 0 : 1) - (before == 0 ? 0 : 1)
    if _isDebugAssertConfiguration() {
      sums[page] = sum(page, content)
      sumsOfRestored[page] = nil
    }
    // The store has no page that was always empty.
    if before > 0 || !content.isEmpty { written[page] = content }
  }

  /// The pages that have changed since the last commit.
  func takeWritten() -> [StatePage] {
    defer { written = [:] }
    return written.map { StatePage(owner: owner, number: Int64($0.key), bytes: $0.value) }
      .sorted { $0.number < $1.number }
  }

  private func sum(_ page: Int, _ content: [UInt8]) -> UInt64 {
    content.withUnsafeBytes { StatePage.sum($0, owner, Int64(page)) }
  }

  /// Debug builds only: asserts that unmarked pages would be written as they were written before.
  func checkUnmarked(_ write: (Int) -> [UInt8]?) {
    func isMarked(_ page: Int) -> Bool {
      page >> 6 < marked.count && marked[page >> 6] & 1 << UInt64(page & 63) != 0
    }
    for (page, sum) in sums where !isMarked(page) {
      assert(write(page).map { self.sum(page, $0) } == sum, "page \(page) of a state has changed without a mark")
    }
    for (page, sum) in sumsOfRestored where !isMarked(page) {
      guard let content = write(page), Self.sumWithoutOrder(content) == sum else {
        assertionFailure("page \(page) of a state has changed without a mark since it was restored")
        continue
      }
      sums[page] = self.sum(page, content)
    }
    sumsOfRestored = [:]
  }
}

/// The pages of one commit.
package final class StatePaging {
  /// The number of keys from which a step's state is written in pages.
  private let least: Int
  package private(set) var lastOwner: Int64
  /// Moves keys to the disk; nil: all stay in memory.
  let spilling: Spilling?
  /// The number of pages that may still be written in this turn.
  private var room: Int
  /// The number of marked pages that had no room: the written pages are not a snapshot of one moment yet.
  private(set) var left = 0
  /// The owners of pages, and the entry of the outermost record of each in the table of steps.
  private(set) var owners: [(pages: StatePages, entry: Int)] = []

  /// - Parameters:
  ///   - least: The number of keys from which a step's state is written in pages.
  ///   - most: The number of pages that may be written in one turn.
  package convenience init(from least: Int, after lastOwner: Int64, most: Int) {
    self.init(from: least, after: lastOwner, most: most, spilling: nil)
  }

  init(from least: Int, after lastOwner: Int64, most: Int, spilling: Spilling?) {
    self.least = least
    self.spilling = spilling
    self.lastOwner = lastOwner
    room = most
  }

  /// Whether a state of `keys` keys is written in pages. Once it has been, it always is.
  func takes(_ pages: StatePages, keys: Int) -> Bool { pages.owner != 0 || keys >= least }

  func newOwner() -> Int64 {
    lastOwner += 1
    return lastOwner
  }

  fileprivate func takeOne() -> Bool {
    room -= 1
    return room >= 0
  }

  fileprivate func leave(_ count: Int) { left += count }

  func add(_ pages: StatePages, of entry: Int) { owners.append((pages, entry)) }

  /// The pages that have changed since the last commit.
  func takePages() -> [StatePage] { owners.flatMap { $0.pages.takeWritten() } }
}

extension StatePage {
  /// Appends a page to a saved state, after its parts: the owner, the number, the checksum and the length of the bytes,
  /// each of 8 bytes, and the bytes.
  package static func append(_ owner: Int64, _ number: Int64, _ bytes: UnsafeRawBufferPointer, to state: inout [UInt8])
  {
    let sum = sum(bytes, owner, number)
    for field in [UInt64(bitPattern: owner), UInt64(bitPattern: number), sum, UInt64(bytes.count)] {
      for shift in stride(from: UInt64(0), to: 64, by: 8) { state.append(UInt8(truncatingIfNeeded: field &>> shift)) }
    }
    state.append(contentsOf: bytes)
  }

  /// The checksum of a page, which also depends on the owner and the number.
  static func sum(_ bytes: UnsafeRawBufferPointer, _ owner: Int64, _ number: Int64) -> UInt64 {
    rx_xxh3_seeded(bytes.baseAddress, bytes.count, UInt64(bitPattern: owner << 32 | number))
  }
}
