/// The order in which files are read.
enum ReadingOrder {
  /// Sorts by birth time. The clock of birth times ticks only every few milliseconds, so among equal times the file
  /// with the higher number at the end of its name comes first, because rotation gives that number to the older file:
  /// `log.10`, `log.9`, `log`. A compressed file is created later than its content: it comes before the first other
  /// file that was written to after it.
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

  /// Whether `a` is older, by times alone: the known names of followed files may be out of date.
  static func isBornBefore(_ a: FollowedFile, _ b: FollowedFile) -> Bool {
    a.isCompressed || b.isCompressed ? a.modified < b.modified : a.born < b.born
  }

  /// `known` in its order, with each file of `new` inserted before the first known file that is younger: an older file
  /// may be found later.
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
