/// A change to a text: bytes `offset ..< offset + length` become `replacement`.
package struct TextEdit: Sendable, Equatable {
  package var offset: Int
  package var length: Int
  package var replacement: String

  package init(offset: Int, length: Int, _ replacement: String) {
    self.offset = offset
    self.length = length
    self.replacement = replacement
  }

  package var end: Int { offset + length }
}

extension [TextEdit] {
  /// The edits in the order of the text; an insertion comes before an edit at the same offset.
  package var inOrder: [TextEdit] {
    enumerated().sorted { a, b in
      a.element.offset != b.element.offset
        ? a.element.offset < b.element.offset
        : a.element.length != b.element.length && (a.element.length == 0 || b.element.length == 0)
          ? a.element.length == 0 : a.offset < b.offset
    }.map(\.element)
  }

  /// Whether no two edits overlap.
  package var areApart: Bool {
    let ordered = inOrder
    return zip(ordered, ordered.dropFirst()).allSatisfy { $0.end <= $1.offset }
  }

  /// The bytes in `range` after the edits within it.
  package func applied(to bytes: [UInt8], in range: Range<Int>) -> [UInt8] {
    var result: [UInt8] = []
    var at = range.lowerBound
    for edit in inOrder where edit.offset >= range.lowerBound && edit.end <= range.upperBound {
      result += bytes[at..<edit.offset]
      result += [UInt8](edit.replacement.utf8)
      at = edit.end
    }
    return result + bytes[at..<range.upperBound]
  }

  /// The changed lines, old ones with `-`, new ones with `+`, each group below its location.
  package func difference(of source: SourceText) -> String {
    let bytes = source.bytes
    var text = ""
    var rest = inOrder[...]
    while let first = rest.popFirst() {
      let start = source.lineRange(source.position(at: first.offset).line).lowerBound
      var end = lineEnd(bytes, Swift.max(first.end, first.offset))
      // Adjacent edits are shown together.
      while let next = rest.first, next.offset <= end {
        end = Swift.max(end, lineEnd(bytes, next.end))
        rest = rest.dropFirst()
      }
      let new = applied(to: bytes, in: start..<end)
      text += "\(source.name):\(source.position(at: start).line)\n"
      for (mark, part) in [("-", [UInt8](bytes[start..<end])), ("+", new)] {
        var lines = part.split(separator: 0x0A, omittingEmptySubsequences: false)
        if lines.last?.isEmpty == true { lines.removeLast() }
        for line in lines { text += "\(mark) \(String(decoding: line, as: UTF8.self))\n" }
      }
    }
    return text
  }

  /// The offset after the line that contains the end of an edit.
  private func lineEnd(_ bytes: [UInt8], _ offset: Int) -> Int {
    if offset > 0, offset <= bytes.count, bytes[offset - 1] == 0x0A { return offset }
    return bytes[offset...].firstIndex(of: 0x0A).map { $0 + 1 } ?? bytes.count
  }
}
