import PipelineCore

/// The entries of directories, listed once each.
struct DirectoryListings {
  struct Listing {
    private var byInode: [UInt64: [String]] = [:]
    private var byName: [String: UInt64] = [:]
    /// Sorted by their bytes.
    private var names: [String] = []
    /// Whether a second listing was the same: then no file was renamed meanwhile, and none is missing.
    fileprivate var isSettled = false

    init(_ entries: [(name: String, inode: UInt64)]) {
      for (name, inode) in entries {
        byInode[inode, default: []].append(name)
        byName[name] = inode
      }
      names = entries.map(\.name).sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }
    }

    func names(of inode: UInt64) -> [String] { byInode[inode] ?? [] }

    func inode(of name: String) -> UInt64? { byName[name] }

    fileprivate func isSame(as other: Listing) -> Bool { byName == other.byName }

    /// The names that start with one of the prefixes.
    func names(with prefixes: [String]) -> [String] {
      prefixes.flatMap { prefix in
        var (first, end) = (0, names.count)
        while first < end {
          let middle = (first + end) / 2
          if names[middle].utf8.lexicographicallyPrecedes(prefix.utf8) { first = middle + 1 } else { end = middle }
        }
        return names[first...].prefix { $0.utf8.starts(with: prefix.utf8) }
      }
    }
  }

  private let list: Glob.Lister
  private var known: [String: Result<Listing, PosixError>] = [:]
  /// Compressed files by their paths.
  var compressed: [String: CompressedFile] = [:]

  init(_ list: @escaping Glob.Lister) { self.list = list }

  /// Makes the next use of a directory list it again.
  mutating func forget(_ directory: String) { known[directory] = nil }

  /// The directory, listed until two listings are the same.
  mutating func settled(_ directory: String) throws(PosixError) -> Listing {
    var listing = try self[directory]
    for _ in 0..<100 where !listing.isSettled {
      let last = listing
      forget(directory)
      listing = try self[directory]
      listing.isSettled = listing.isSame(as: last)
    }
    known[directory] = .success(listing)
    return listing
  }

  subscript(directory: String) -> Listing {
    mutating get throws(PosixError) {
      if let listing = known[directory] { return try listing.get() }
      let listing: Result<Listing, PosixError>
      do throws(PosixError) {
        // Called although its result is not used: tests replace the listing of directories.
        _ = try list(directory)
        listing = .success(Listing(try directoryEntries(directory)))
      } catch {
        listing = .failure(error)
      }
      known[directory] = listing
      return try listing.get()
    }
  }
}
