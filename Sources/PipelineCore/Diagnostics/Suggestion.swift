/// Finds the name that was probably meant.
package enum Suggestion {
  /// The known name nearest to `name`; nil if none is near. Of equally near ones, the first wins.
  ///
  /// The distance counts insertions, deletions, substitutions and swaps of neighbours; a change of case, or between `_`
  /// and `-`, is free. Names are near if the distance is at most a third of the length.
  package static func nearest(to name: String, among known: some Sequence<String>) -> String? {
    // A text of this length is not a misspelt name.
    guard name.utf8.count <= 64 else { return nil }
    let wanted = folded(name)
    var best: (name: String, distance: Int)?
    for candidate in known {
      let letters = folded(candidate)
      let bound = max(1, min(wanted.count, letters.count) / 3)
      if let distance = distance(wanted, letters, atMost: min(bound, (best?.distance ?? 99) - 1)) {
        best = (candidate, distance)
      }
    }
    return best?.name
  }

  /// A sentence for `help` that leads from an unknown name to a known one; nil if none is similar.
  ///
  /// It is "Did you mean ...", or the explanation of a foreign name. The name itself is the replacement of a `FixIt`.
  package static func correction(
    for name: String, among known: some Collection<String>
  ) -> (name: String, help: String)? {
    let candidates = ForeignNames.table[name] ?? ForeignNames.table[camelCase(name)] ?? []
    if let foreign = candidates.first(where: { known.isEmpty || known.contains($0.ours) }) {
      return (foreign.ours, foreign.help)
    }
    let camel = camelCase(name)
    if camel != name, known.contains(camel) {
      return (camel, "Names are written in camelCase: '\(camel)'")
    }
    return nearest(to: name, among: known).map { ($0, "Did you mean '\($0)'?") }
  }

  /// Whether `word` is another spelling of `name`, rather than another name for it.
  package static func isMisspelt(_ word: String, _ name: String) -> Bool {
    camelCase(word) == name || nearest(to: word, among: [name]) == name
  }

  /// Advice, as a sentence, for a foreign name without a counterpart; nil if the name is unknown.
  package static func nothing(for name: String) -> String? { ForeignNames.nothing(for: name) }

  /// The name here for a foreign name, with the explanation, in any context; nil if the name is unknown.
  package static func otherName(_ name: String) -> (name: String, help: String)? {
    (ForeignNames.table[name] ?? ForeignNames.table[camelCase(name)])?.first.map { ($0.ours, $0.help) }
  }

  /// The names as `a, b and c`, each in quotes; of many, the first `limit`. A single name is never left out.
  package static func list(_ names: some Collection<String>, limit: Int = 20) -> String {
    let isCut = names.count > limit + 1
    let quoted = names.prefix(isCut ? limit : names.count).map { "'\($0)'" }
    if isCut {
      return quoted.joined(separator: ", ") + " and \(names.count - limit) more"
    }
    guard quoted.count > 1, let last = quoted.last else { return quoted.first ?? "" }
    return quoted.dropLast().joined(separator: ", ") + " and " + last
  }

  /// `combine_latest` and `combine-latest` become `combineLatest`; other names stay unchanged.
  package static func camelCase(_ name: String) -> String {
    guard name.utf8.contains(0x5F) || name.utf8.contains(0x2D) else { return name }
    var result: [UInt8] = []
    var raise = false
    for byte in name.utf8 {
      if byte == 0x5F || byte == 0x2D {
        raise = !result.isEmpty
      } else {
        let isLower = byte >= 0x61 && byte <= 0x7A
        result.append(raise && isLower ? byte - 0x20 : byte)
        raise = false
      }
    }
    return String(decoding: result, as: UTF8.self)
  }

  private static func folded(_ name: String) -> [UInt8] {
    name.utf8.compactMap { byte in
      byte == 0x5F || byte == 0x2D ? nil : byte >= 0x41 && byte <= 0x5A ? byte + 0x20 : byte
    }
  }

  /// The Damerau-Levenshtein distance (an adjacent swap counts once); nil if it exceeds the bound.
  static func distance(_ a: [UInt8], _ b: [UInt8], atMost bound: Int) -> Int? {
    guard bound >= 0, abs(a.count - b.count) <= bound else { return nil }
    var beforeLast = [Int](repeating: 0, count: b.count + 1)
    var last = Array(0...b.count)
    for i in 0..<a.count {
      var row = [i + 1]
      row.reserveCapacity(b.count + 1)
      for j in 0..<b.count {
        var cost = min(last[j] + (a[i] == b[j] ? 0 : 1), last[j + 1] + 1, row[j] + 1)
        if i > 0, j > 0, a[i] == b[j - 1], a[i - 1] == b[j] {
          cost = min(cost, beforeLast[j - 1] + 1)
        }
        row.append(cost)
      }
      beforeLast = last
      last = row
    }
    return last[b.count] <= bound ? last[b.count] : nil
  }
}
