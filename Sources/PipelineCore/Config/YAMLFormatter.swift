/// Rewrites a YAML text in one layout: two spaces per level, one kind of quotes, flow style for short collections.
/// Values, comments, anchors and aliases are not changed.
///
/// The caller must compare the result with the text (``FormattedFile``): YAML has forms that this formatter does not
/// support.
struct YAMLFormatter {
  /// The maximum length in code points of a line that contains a flow collection.
  static let width = 120

  private struct Comment {
    var range: Range<Int>
    /// Whether only spaces precede it on its line.
    var isAlone: Bool
    var column: Int
  }

  private let bytes: [UInt8]
  private var comments: [Comment] = []
  /// Whether each comment has been written.
  private var written: [Bool] = []
  private var output: [UInt8] = []
  /// The start of the line being written.
  private var lineStart = 0
  /// The target order of the top-level entries, by index; nil keeps the order of the file.
  private let order: [Int]?
  /// Whether every comment has been written. Set by ``run(_:)``.
  private(set) var isComplete = true

  /// - Parameters:
  ///   - source: A text that ``YAMLReader`` reads without an error, with line feeds only.
  ///   - start: The offset at which the document begins.
  ///   - order: The indexes of the entries of the top level.
  init(_ source: SourceText, from start: Int, _ root: YAMLLayoutNode, order: [Int]?) {
    bytes = source.bytes
    self.order = order
    findComments(from: start, root)
    written = Array(repeating: false, count: comments.count)
  }

  // MARK: Comments

  /// Comments are searched for between scalars, where `#` can only start a comment.
  private mutating func findComments(from start: Int, _ root: YAMLLayoutNode) {
    var ranges: [Range<Int>] = []
    func collect(_ node: YAMLLayoutNode) {
      if !node.properties.isEmpty { ranges.append(node.properties) }
      if node.isCollection {
        for child in node.children { collect(child) }
      } else if !node.range.isEmpty {
        ranges.append(node.range)
      }
    }
    collect(root)
    ranges.sort { $0.lowerBound < $1.lowerBound }
    var offset = start
    for range in ranges + [bytes.count..<bytes.count] {
      while offset < range.lowerBound {
        guard bytes[offset] == UInt8(ascii: "#") else {
          offset += 1
          continue
        }
        var end = offset
        while end < bytes.count, bytes[end] != 0x0A { end += 1 }
        var line = offset
        while line > 0, bytes[line - 1] != 0x0A { line -= 1 }
        var last = end
        while last > offset, bytes[last - 1] <= 0x20 { last -= 1 }
        comments.append(
          Comment(range: offset..<last, isAlone: bytes[line..<offset].allSatisfy { $0 <= 0x20 }, column: offset - line))
        offset = end
      }
      offset = max(offset, range.upperBound)
    }
  }

  /// The texts of the comments.
  var commentTexts: [String] { comments.map { String(decoding: bytes[$0.range], as: UTF8.self) } }

  /// The index of the first comment that does not begin before `offset`.
  private func index(from offset: Int) -> Int {
    var low = 0
    var high = comments.count
    while low < high {
      let middle = (low + high) / 2
      if comments[middle].range.lowerBound < offset { low = middle + 1 } else { high = middle }
    }
    return low
  }

  /// The indexes of the comments that begin in the range.
  private func indexes(in range: Range<Int>) -> Range<Int> {
    let first = index(from: range.lowerBound)
    return first..<max(first, index(from: range.upperBound))
  }

  private func hasComment(in range: Range<Int>) -> Bool { !indexes(in: range).isEmpty }

  /// The comment that follows a value on its line, with the spaces before it; empty if there is none.
  private mutating func endOfLine(behind offset: Int) -> [UInt8] {
    var at = offset
    var spaces = 0
    while at < bytes.count {
      switch bytes[at] {
      case 0x20, 0x09: spaces += 1
      case UInt8(ascii: ","), UInt8(ascii: ":"): spaces = 0
      case UInt8(ascii: "#"):
        let index = index(from: at)
        guard index < comments.count, comments[index].range.lowerBound == at, !written[index] else { return [] }
        written[index] = true
        return Array(repeating: 0x20, count: max(1, spaces)) + bytes[comments[index].range]
      default: return []
      }
      at += 1
    }
    return []
  }

  /// Writes the comments before `offset` that are not written yet, each on its own line. Returns whether there were
  /// any.
  @discardableResult
  private mutating func leading(
    _ offset: Int, _ indent: Int, after start: Int, isFirst: Bool = false, isMoved: Bool = false
  ) -> Bool {
    var found = false
    for index in indexes(in: start..<max(start, offset)) where !written[index] {
      // Other comments belong to the previous entry, which is written elsewhere.
      if isMoved, !comments[index].isAlone || comments[index].column > 0 { continue }
      written[index] = true
      if !(isFirst && !found), isAfterBlank(comments[index].range.lowerBound) { blank() }
      line(indent, Array(bytes[comments[index].range]))
      found = true
    }
    return found
  }

  /// Writes the comments after the last value of a block collection that belong to it: those indented at least as far
  /// as its entries.
  private mutating func trailing(from start: Int, to limit: Int, _ indent: Int, column: Int, outer: Int) {
    for index in indexes(in: start..<max(start, limit)) where !written[index] {
      let comment = comments[index]
      guard comment.column >= column, comment.column > outer else { return }
      written[index] = true
      if isAfterBlank(comment.range.lowerBound) { blank() }
      line(indent, Array(bytes[comment.range]))
    }
  }

  // MARK: Lines

  private mutating func line(_ indent: Int, _ text: [UInt8]) {
    output += Array(repeating: 0x20, count: indent) + text
    endLine()
  }

  private mutating func endLine() {
    while let last = output.last, last == 0x20, output.count > lineStart { output.removeLast() }
    output.append(0x0A)
    lineStart = output.count
  }

  /// Writes an empty line, but never two in a row nor one at the beginning.
  private mutating func blank() {
    if output.isEmpty || output.suffix(2).elementsEqual([0x0A, 0x0A]) { return }
    output.append(0x0A)
    lineStart = output.count
  }

  /// Whether the line that contains `offset` follows an empty line and has only spaces, or dashes of list items, before
  /// `offset`.
  private func isAfterBlank(_ offset: Int) -> Bool {
    var at = offset
    while at > 0, bytes[at - 1] == 0x20 || bytes[at - 1] == 0x09 { at -= 1 }
    // A list item starts at its dash.
    while at > 0, bytes[at - 1] == UInt8(ascii: "-") || bytes[at - 1] == 0x20 { at -= 1 }
    guard at > 0, bytes[at - 1] == 0x0A else { return false }
    at -= 1
    while at > 0, bytes[at - 1] == 0x20 || bytes[at - 1] == 0x09 { at -= 1 }
    return at > 0 && bytes[at - 1] == 0x0A
  }

  private func column(_ offset: Int) -> Int {
    var line = offset
    while line > 0, bytes[line - 1] != 0x0A { line -= 1 }
    return offset - line
  }

  // MARK: The document

  mutating func run(_ root: YAMLLayoutNode) -> [UInt8] {
    header(before: root.start)
    if case .mapping(let entries) = root.kind, root.properties.isEmpty, inlined(root, after: nil) == nil {
      mapping(entries, 0, node: root, from: 0, limit: bytes.count, outer: -1, order: order)
    } else {
      value(root, from: 0, indent: -2, limit: bytes.count, outer: -1, isDocument: true)
    }
    isComplete = comments.indices.allSatisfy { written[$0] || comments[$0].range.lowerBound >= root.end }
    leading(bytes.count, 0, after: 0)
    while output.suffix(2).elementsEqual([0x0A, 0x0A]) { output.removeLast() }
    return output
  }

  /// Writes the comments that stay at the beginning of the file, whichever entry is moved there: all of them; or, if an
  /// empty line divides them and the last block touches the first entry, only those before the last empty line.
  private mutating func header(before offset: Int) {
    let own = Array(comments.indices.prefix(index(from: offset)))
    guard !own.isEmpty else { return }
    var count = own.count
    if !isAfterBlank(offset) {
      let divided = own.dropFirst().last { isAfterBlank(comments[$0].range.lowerBound) }
      count = divided.flatMap { own.firstIndex(of: $0) } ?? count
    }
    for index in own.prefix(count) {
      written[index] = true
      if isAfterBlank(comments[index].range.lowerBound) { blank() }
      line(0, Array(bytes[comments[index].range]))
    }
    if count < own.count || isAfterBlank(offset) { blank() }
  }

  /// - Parameters:
  ///   - from: The end of the text before the first entry: later comments belong to the entry.
  ///   - limit: The start of the next value of an enclosing collection.
  ///   - outer: The column of the enclosing collection in the text.
  ///   - isOpen: Whether the line already starts with `- `.
  private mutating func mapping(
    _ entries: [(key: YAMLLayoutNode, value: YAMLLayoutNode)], _ indent: Int, node: YAMLLayoutNode, from: Int,
    limit: Int,
    outer: Int, order: [Int]? = nil, isOpen: Bool = false
  ) {
    let places = order ?? Array(entries.indices)
    let column = node.isFlow ? outer + 1 : column(entries[0].key.start)
    let isTop = indent == 0 && outer < 0
    var wasSection = false
    for (number, place) in places.enumerated() {
      let entry = entries[place]
      let before = place == 0 ? from : entries[place - 1].value.end
      let next = place + 1 < entries.count ? entries[place + 1].key.start : limit
      let isFirst = number == 0
      if isOpen, isFirst {
        leadingOpen(entry.key.start, after: from)
      } else {
        let isSection = isTop && entry.value.isCollection && inlined(entry.value, after: entry.key) == nil
        let hasBlank = isAfterBlank(firstComment(in: before..<entry.key.start) ?? entry.key.start)
        if !isFirst, isSection || wasSection || hasBlank { blank() }
        wasSection = isSection
        if leading(entry.key.start, indent, after: before, isFirst: true, isMoved: order != nil),
          isAfterBlank(entry.key.start)
        {
          blank()
        }
        output += Array(repeating: 0x20, count: indent)
      }
      if !entry.key.properties.isEmpty { output += bytes[entry.key.properties] + [0x20] }
      output += quoted(entry.key) + [UInt8(ascii: ":")]
      value(entry.value, from: entry.key.end, indent: indent, limit: next, outer: column, key: entry.key)
    }
    finish(node, from: entries[entries.count - 1].value.end, limit: limit, indent, column: column, outer: outer)
  }

  /// Writes the comments after the last value of a collection, if it is written as a block.
  private mutating func finish(
    _ node: YAMLLayoutNode, from start: Int, limit: Int, _ indent: Int, column: Int, outer: Int
  ) {
    if node.isFlow {
      leading(node.end, indent, after: start)
    } else {
      trailing(from: start, to: limit, indent, column: column, outer: outer)
    }
  }

  private func firstComment(in range: Range<Int>) -> Int? {
    indexes(in: range).first { !written[$0] }.map { comments[$0].range.lowerBound }
  }

  /// Writes comments between a dash and its value on separate lines, after the dash.
  private mutating func leadingOpen(_ offset: Int, after start: Int) {
    guard firstComment(in: start..<max(start, offset)) != nil else { return }
    let indent = output.count - lineStart
    endLine()
    leading(offset, indent, after: start, isFirst: true)
    output += Array(repeating: 0x20, count: indent)
  }

  private mutating func sequence(
    _ items: [YAMLLayoutNode], _ indent: Int, node: YAMLLayoutNode, from: Int, limit: Int, outer: Int,
    isOpen: Bool = false
  ) {
    let column = node.isFlow ? outer + 1 : dash(before: items[0])
    for (number, item) in items.enumerated() {
      let before = number == 0 ? from : items[number - 1].end
      let next = number + 1 < items.count ? beginning(of: items[number + 1], in: node) : limit
      let place = beginning(of: item, in: node)
      if isOpen, number == 0 {
        leadingOpen(place, after: from)
      } else {
        let hasBlank = isAfterBlank(firstComment(in: before..<max(before, place)) ?? place)
        if number > 0, hasBlank { blank() }
        if leading(place, indent, after: before, isFirst: true), isAfterBlank(place) { blank() }
        output += Array(repeating: 0x20, count: indent)
      }
      output.append(UInt8(ascii: "-"))
      value(item, from: node.isFlow ? item.start : place + 1, indent: indent, limit: next, outer: column, isItem: true)
    }
    finish(node, from: items[items.count - 1].end, limit: limit, indent, column: column, outer: outer)
  }

  /// The start of a list item, including its dash.
  private func beginning(of item: YAMLLayoutNode, in list: YAMLLayoutNode) -> Int {
    list.isFlow ? item.start : place(ofDashBefore: item)
  }

  private func place(ofDashBefore item: YAMLLayoutNode) -> Int {
    var at = item.start
    // An empty item is directly after its dash.
    while at > 0 {
      at -= 1
      if bytes[at] == UInt8(ascii: "-"), !isInComment(at) { return at }
    }
    return item.start
  }

  private func isInComment(_ offset: Int) -> Bool {
    let next = index(from: offset + 1)
    return next > 0 && comments[next - 1].range.contains(offset)
  }

  private func dash(before item: YAMLLayoutNode) -> Int { column(place(ofDashBefore: item)) }

  // MARK: Values

  /// Writes a value after `key:` or `-`, up to the end of its last line.
  ///
  /// - Parameter from: The end of the key or of the dash.
  private mutating func value(
    _ node: YAMLLayoutNode, from: Int, indent: Int, limit: Int, outer: Int, key: YAMLLayoutNode? = nil,
    isItem: Bool = false, isDocument: Bool = false
  ) {
    let space: [UInt8] = isDocument ? [] : [0x20]
    let inner = indent + 2
    let hasProperties = !node.properties.isEmpty
    let head = hasProperties ? space + bytes[node.properties] : []
    if let text = inlined(node, after: key) {
      output += text.isEmpty ? [] : space + text
      output += endOfLine(behind: node.range.isEmpty && !hasProperties ? from : node.end)
      // A comment between the key or dash and the value.
      let between = indexes(in: from..<max(from, node.range.lowerBound))
      if let own = between.first(where: { !written[$0] }), !endsInComment {
        written[own] = true
        output += [0x20] + bytes[comments[own].range]
      }
      return endLine()
    }
    switch node.kind {
    case .alias: return
    case .scalar(.literal), .scalar(.folded):
      output += head + (hasProperties ? [0x20] : space)
      return block(node, inner)
    case .scalar:
      output += head + (hasProperties ? [0x20] : space)
      lines(node, inner)
      output += endOfLine(behind: node.end)
      return endLine()
    case .mapping, .sequence: break
    }
    output += head
    let behind = headComment(node, key)
    var isOpen = isItem && !hasProperties
    if isOpen {
      if !behind.isEmpty {
        endLine()
        line(inner, Array(behind.drop { $0 == 0x20 }))
        isOpen = false
      } else {
        output += space
      }
    } else if !isDocument || hasProperties {
      output += behind
      endLine()
    }
    let column = isDocument ? 0 : inner
    if case .mapping(let entries) = node.kind {
      mapping(entries, column, node: node, from: from, limit: limit, outer: outer, isOpen: isOpen)
    } else if case .sequence(let items) = node.kind {
      sequence(items, column, node: node, from: from, limit: limit, outer: outer, isOpen: isOpen)
    }
  }

  /// Whether the line being written already has a comment.
  private var endsInComment: Bool { output[lineStart...].contains(UInt8(ascii: "#")) }

  /// The comment after the key, or after the end of a flow collection that is written as a block.
  private mutating func headComment(_ node: YAMLLayoutNode, _ key: YAMLLayoutNode?) -> [UInt8] {
    if node.isFlow {
      let behind = endOfLine(behind: node.end)
      if !behind.isEmpty { return behind }
    }
    if !node.properties.isEmpty { return endOfLine(behind: node.properties.upperBound) }
    return key.map { endOfLine(behind: $0.end) } ?? []
  }

  /// The value as text for the current line; nil if it needs its own lines. Flow collections must fit into the width.
  private func inlined(_ node: YAMLLayoutNode, after key: YAMLLayoutNode?) -> [UInt8]? {
    guard let text = inline(node) else { return nil }
    guard node.isFlow, !node.children.isEmpty else { return text }
    // A key is followed by its colon and a space, a dash by a space.
    let before = lineStart < output.count ? output.count - lineStart : key.map { quoted($0).count + 1 } ?? 0
    let length = before + 1 + text.count { $0 & 0xC0 != 0x80 }
    return length <= Self.width ? text : nil
  }

  /// The value on one line, with anchor and tag; nil if that is impossible.
  private func inline(_ node: YAMLLayoutNode) -> [UInt8]? {
    let head = node.properties.isEmpty ? [] : Array(bytes[node.properties])
    func with(_ text: [UInt8]) -> [UInt8] { head.isEmpty || text.isEmpty ? head + text : head + [0x20] + text }
    if head.contains(0x0A) { return nil }
    switch node.kind {
    case .alias: return Array(bytes[node.range])
    case .scalar(.literal), .scalar(.folded): return nil
    case .scalar:
      let text = quoted(node)
      return text.contains(0x0A) ? nil : with(text)
    case .sequence(let items):
      guard node.isFlow, node.children.isEmpty || !hasComment(in: node.range) else { return nil }
      var parts: [[UInt8]] = []
      for item in items {
        guard let part = inline(item) else { return nil }
        parts.append(part)
      }
      let isLoose = items.contains { $0.isCollection && !$0.children.isEmpty }
      return with(Self.enclosed(parts, "[", "]", isLoose: isLoose))
    case .mapping(let entries):
      guard node.isFlow, node.children.isEmpty || !hasComment(in: node.range) else { return nil }
      var parts: [[UInt8]] = []
      for (key, value) in entries {
        guard let name = inline(key), let text = inline(value) else { return nil }
        // `*name :` needs the space, or the colon is part of the name.
        let colon: [UInt8] = if case .alias = key.kind { [0x20, 0x3A] } else { [0x3A] }
        parts.append(text.isEmpty ? name : name + colon + [0x20] + text)
      }
      return with(Self.enclosed(parts, "{", "}", isLoose: true))
    }
  }

  private static func enclosed(_ parts: [[UInt8]], _ open: String, _ close: String, isLoose: Bool) -> [UInt8] {
    if parts.isEmpty { return Array((open + close).utf8) }
    let space: [UInt8] = isLoose ? [0x20] : []
    return Array(open.utf8) + space + Array(parts.joined(separator: [0x2C, 0x20])) + space + Array(close.utf8)
  }

  /// The scalar in double quotes if its text needs no escapes in them, otherwise in single quotes if it needs no
  /// escapes there, otherwise as it is written.
  private func quoted(_ node: YAMLLayoutNode) -> [UInt8] {
    let text = Array(bytes[node.range])
    guard case .scalar(let style) = node.kind, text.count >= 2, !text.contains(0x0A) else { return text }
    let body = text[1..<(text.count - 1)]
    let (double, single, backslash) = (UInt8(ascii: "\""), UInt8(ascii: "'"), UInt8(ascii: "\\"))
    switch style {
    case .singleQuoted where !body.contains(double) && !body.contains(backslash) && !body.contains(single):
      return [double] + body + [double]
    case .doubleQuoted where !body.contains(single) && body.contains(backslash):
      // The quotes can change only if every escape is an escaped quote.
      var plain: [UInt8] = []
      var at = body.startIndex
      while at < body.endIndex {
        if body[at] == backslash {
          guard body[at + 1] == double else { return text }
          at += 1
        }
        plain.append(body[at])
        at += 1
      }
      return [single] + plain + [single]
    default: return text
    }
  }

  /// Writes a flow scalar of several lines; the indentation of its lines has no meaning.
  private mutating func lines(_ node: YAMLLayoutNode, _ indent: Int) {
    let all = bytes[node.range].split(separator: 0x0A, omittingEmptySubsequences: false)
    for (number, part) in all.enumerated() {
      if number == 0 {
        output += part
      } else {
        let text = part.drop { $0 == 0x20 || $0 == 0x09 }
        output.append(0x0A)
        lineStart = output.count
        if !text.isEmpty { output += Array(repeating: 0x20, count: indent) + text }
      }
    }
  }

  /// Writes a block scalar; the relative indentation of its lines has a meaning and is kept.
  private mutating func block(_ node: YAMLLayoutNode, _ indent: Int) {
    let all = bytes[node.range].split(separator: 0x0A, omittingEmptySubsequences: false)
    output += all[0]
    endLine()
    let body = all.dropFirst()
    let own = body.first { $0.contains { $0 > 0x20 } }?.prefix { $0 == 0x20 }.count ?? 0
    for part in body {
      let text = part.count <= own && part.allSatisfy { $0 == 0x20 } ? [] : part.dropFirst(own)
      if !text.isEmpty { output += Array(repeating: 0x20, count: indent) + text }
      // Spaces at the end of a line are part of the value here.
      output.append(0x0A)
      lineStart = output.count
    }
  }
}
