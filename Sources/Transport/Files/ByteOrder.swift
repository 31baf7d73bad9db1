import Glibc

/// The order of texts by their bytes in UTF-8, as of `LC_ALL=C`.
package enum ByteOrder {
  /// Whether `a` comes before `b`.
  package static func precedes(_ a: String, _ b: String) -> Bool {
    let found = a.utf8.withContiguousStorageIfAvailable { a in
      b.utf8.withContiguousStorageIfAvailable { b -> Bool in
        guard let first = a.baseAddress, let second = b.baseAddress else { return a.count < b.count }
        let order = memcmp(first, second, min(a.count, b.count))
        return order == 0 ? a.count < b.count : order < 0
      }
    }
    return (found ?? nil) ?? a.utf8.lexicographicallyPrecedes(b.utf8)
  }
}
