/// The order in which files are read.
enum ReadingOrder {
  /// Sorts by birth. The clock of births ticks every few milliseconds, so for equal times the higher number at the end
  /// of the name, which rotation gives to the older file, comes first: `log.10`, `log.9`, `log`. A compressed file is born
  /// later than its content: it comes before the first other file that was written to after that.
  static func oldestFirst(_ files: [FollowedFile]) -> [FollowedFile] {
    let plain = files.filter { !$0.isCompressed }.sorted { isOlder($0, than: $1) }
    guard plain.count < files.count else { return plain }
    var compressed = files.filter(\.isCompressed).sorted { isOlder($0, than: $1) }[...]
    var sorted: [FollowedFile] = []
    for file in plain {
      while let first = compressed.first, isOlder(first, than: file) { sorted.append(compressed.removeFirst()) }
      sorted.append(file)
    }
    return sorted + compressed
  }

  static func isOlder(_ a: FollowedFile, than b: FollowedFile) -> Bool {
    let (first, second) = a.isCompressed || b.isCompressed ? (a.modified, b.modified) : (a.born, b.born)
    return first != second ? first < second : hasOlderName(a.path, than: b.path)
  }

  /// Whether `a` is older, whatever names the files have: those of followed files may be former ones.
  static func isBornBefore(_ a: FollowedFile, _ b: FollowedFile) -> Bool {
    a.isCompressed || b.isCompressed ? a.modified < b.modified : a.born < b.born
  }

  /// `known` in their order, and each of `new` before the first of them that is younger: an older file may be found later.
  static func merge(
    _ new: [FollowedFile], into known: [FollowedFile], by isOlder: (FollowedFile, FollowedFile) -> Bool
  ) -> [FollowedFile] {
    var rest = oldestFirst(new)[...]
    var merged: [FollowedFile] = []
    merged.reserveCapacity(known.count + new.count)
    for file in known {
      while let first = rest.first, isOlder(first, file) { merged.append(rest.removeFirst()) }
      merged.append(file)
    }
    return merged + rest
  }
}

/// Whether rotation gives the first of two names to the older file.
func hasOlderName(_ a: String, than b: String) -> Bool { (a.utf8.count, a) > (b.utf8.count, b) }
