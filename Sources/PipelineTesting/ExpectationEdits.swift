import PipelineCore

/// Finds the edits to the text of one expectation that make it match the result, in the author's style.
struct ExpectationEdits {
  typealias Refusal = ExpectationUpdate.Refusal
  typealias Item = PipelineTest.Expectation.Item

  private let source: SourceText
  private let expectation: PipelineTest.Expectation
  private var entries: [SignalHistory.Entry]
  private var edits: [TextEdit] = []

  /// The maximum number of cells that are compared.
  private static let limit = 4_000_000

  init(_ source: SourceText, _ expectation: PipelineTest.Expectation, _ entries: [SignalHistory.Entry]) {
    self.source = source
    self.expectation = expectation
    self.entries = entries
  }

  func find() throws(Refusal) -> [TextEdit] {
    var edits = self
    try edits.readExpectation()
    return edits.edits
  }

  private mutating func readExpectation() throws(Refusal) {
    let node = expectation.node
    if expectation.allowsMore {
      throw Refusal(
        "'more: true' leaves open which events it is about", help: "Rewrite it by hand, or remove 'more: true'")
    }
    guard node.location.offset >= expectation.subject.location.offset, node.isWrittenInPlace else {
      throw Refusal("it is written elsewhere, and others may refer to it", help: "Write it out in place of the alias")
    }
    if node.isInterpolated {
      throw Refusal("it holds values of the environment", help: "Rewrite it by hand")
    }
    switch node.content {
    case .scalar(let scalar): try marbles(scalar, in: nil)
    case .sequence(let items): try list(node, items)
    case .mapping:
      if let events = node["events"], let items = events.items {
        try list(events, items)
      } else if let scalar = node["marbles"]?.scalar {
        try marbles(scalar, in: node)
      }
    }
  }

  private mutating func replace(_ location: SourceLocation, by text: String) {
    edits.append(TextEdit(offset: location.offset, length: location.length, text))
  }

  private func bytes(_ location: SourceLocation) -> ArraySlice<UInt8> {
    source.bytes[location.offset..<(location.offset + location.length)]
  }

  private func isFlow(_ node: YAMLNode) -> Bool {
    let first = source.bytes[node.location.offset]
    return first == UInt8(ascii: "{") || first == UInt8(ascii: "[")
  }

  /// Refuses to replace the text of a node if that would lose comments.
  private func refuseComments(_ location: SourceLocation) throws(Refusal) {
    let text = bytes(location)
    for index in text.indices.dropFirst() where text[index] == UInt8(ascii: "#") {
      if [0x20, 0x09, 0x0A].contains(text[index - 1]) {
        throw Refusal("a comment in it would be lost", help: "Rewrite it by hand")
      }
    }
  }

  // MARK: Marbles

  private mutating func marbles(_ scalar: YAMLScalar, in mapping: YAMLNode?) throws(Refusal) {
    guard scalar.style != .literal, scalar.style != .folded else {
      throw Refusal("marbles in a block cannot be rewritten", help: "Write them between quotes")
    }
    var letters = expectation.letters
    if let values = mapping?["values"] {
      for (name, value) in changedLetters(scalar) {
        guard let index = letters.firstIndex(where: { $0.name == name }), let node = values[name] else { continue }
        if expectation.target.comparesParts {
          try writePart(letters[index].value, value, over: node)
        } else {
          try write(value, over: node)
        }
        letters[index].value = value
      }
    }
    if expectation.target.comparesParts { entries = named(entries, letters) }
    var names = MarbleNames(letters)
    guard let text = MarbleText.write(entries, tick: expectation.tick, &names) else {
      throw Refusal(
        "marbles of \(expectation.tick) a character cannot show the events", help: "Write it as a list with 'at:'")
    }
    let added = names.known.dropFirst(letters.count).filter { MarbleNames.letter($0.value) != $0.name }
      .map { "\($0.name): \(YAMLFlowText.write($0.value))" }
    let written = YAMLFlowText.quoted(text, like: scalar)
    guard let mapping else {
      let values =
        added.isEmpty
        ? written
        : "{ marbles: \(YAMLFlowText.quoted(Array(text.utf8))), values: { \(added.joined(separator: ", ")) } }"
      replace(scalar.location, by: values)
      return
    }
    if text != scalar.string { replace(scalar.location, by: written) }
    try errorText(mapping)
    if !added.isEmpty { try add(added, to: mapping, behind: scalar) }
  }

  /// Replaces requests and replies by the letters that stand for them; replies without a letter are shown by status and
  /// body.
  private func named(
    _ entries: [SignalHistory.Entry], _ letters: [(name: String, value: TestValue)]
  ) -> [SignalHistory.Entry] {
    entries.map { entry in
      guard case .next(let value) = entry.moment else { return entry }
      if let letter = letters.first(where: { expectation.matches(.next($0.value), .next(value)) }) {
        return .init(at: entry.at, .next(letter.value))
      }
      if case .replies = expectation.target { return .init(at: entry.at, .next(Self.reply(value))) }
      return entry
    }
  }

  /// Letters whose events have all changed to one other value.
  private func changedLetters(_ scalar: YAMLScalar) -> [(String, TestValue)] {
    guard let picture = try? Marbles(scalar.string, tick: expectation.tick),
      picture.entries.count == expectation.items.count, picture.entries.count == entries.count
    else { return [] }
    var values: [String: Set<TestValue>] = [:]
    for (drawn, came) in zip(picture.entries, entries) {
      switch (drawn.moment, came.moment) {
      case (.next(let name), .next(let value)): values[name, default: []].insert(value)
      case (.next, _), (_, .next): return []
      default: break
      }
    }
    return expectation.letters.compactMap { letter in
      guard let found = values[letter.name], found.count == 1, let value = found.first,
        !expectation.matches(.next(letter.value), .next(value))
      else { return nil }
      return (letter.name, value)
    }
  }

  private mutating func errorText(_ mapping: YAMLNode) throws(Refusal) {
    guard let node = mapping["error"], let wanted = node.string, let scalar = node.scalar else { return }
    for entry in entries {
      guard case .error(let message) = entry.moment, !Glob.matches("*\(wanted)*", message) else { continue }
      replace(node.location, by: YAMLFlowText.quoted(message, like: scalar))
    }
  }

  private mutating func add(_ letters: [String], to mapping: YAMLNode, behind scalar: YAMLScalar) throws(Refusal) {
    guard let values = mapping["values"], let entries = values.entries else {
      let text = "values: { \(letters.joined(separator: ", ")) }"
      guard !isFlow(mapping) else {
        edits.append(TextEdit(offset: scalar.location.offset + scalar.location.length, length: 0, ", \(text)"))
        return
      }
      addLine(text, behind: scalar.location, like: mapping.location)
      return
    }
    guard let last = entries.last else {
      replace(values.location, by: "{ \(letters.joined(separator: ", ")) }")
      return
    }
    let end = last.value.location
    guard !isFlow(values) else {
      edits.append(
        TextEdit(offset: end.offset + end.length, length: 0, letters.map { ", \($0)" }.joined()))
      return
    }
    for letter in letters { addLine(letter, behind: end, like: values.location) }
  }

  /// Adds a line after the one that contains the end of `location`, indented like the first line of `block`.
  private mutating func addLine(_ text: String, behind location: SourceLocation, like block: SourceLocation) {
    let indent = String(repeating: " ", count: block.column - 1)
    let end = lineEnd(location.offset + location.length)
    let isLast = end == source.bytes.count && source.bytes.last != 0x0A
    edits.append(TextEdit(offset: end, length: 0, isLast ? "\n\(indent)\(text)" : "\(indent)\(text)\n"))
  }

  /// The offset after the line that contains `offset`.
  private func lineEnd(_ offset: Int) -> Int {
    source.bytes[min(offset, source.bytes.count)...].firstIndex(of: 0x0A).map { $0 + 1 } ?? source.bytes.count
  }

  // MARK: Timed lists

  private enum Change {
    case keep(Int)
    case change(Int, SignalHistory.Entry)
    case remove(Int)
    case add(SignalHistory.Entry)
  }

  private mutating func list(_ node: YAMLNode, _ nodes: [YAMLNode]) throws(Refusal) {
    guard nodes.count == expectation.items.count else { throw Refusal("it has steps without content") }
    let changes = try align()
    for case .change(let index, let entry) in changes { try rewrite(nodes[index], expectation.items[index], entry) }
    let isTimed = nodes.isEmpty || expectation.items.contains { $0.at != nil }
    let writer = self
    func step(_ entry: SignalHistory.Entry) -> String { writer.step(entry, isTimed: isTimed) }
    let isSame = changes.allSatisfy { if case .keep = $0 { true } else if case .change = $0 { true } else { false } }
    if isSame { return }
    if isFlow(node) {
      try rebuild(node, nodes, changes, step)
    } else {
      try relist(node, nodes, changes, step)
    }
  }

  /// The fewest changes that turn the expected steps into the actual ones.
  private func align() throws(Refusal) -> [Change] {
    let items = expectation.items
    let (rows, columns) = (items.count + 1, entries.count + 1)
    guard rows * columns <= Self.limit else {
      throw Refusal("\(Printable.count(entries.count, "event")) arrived, too many to compare")
    }
    var costs = Array(repeating: 0, count: rows * columns)
    func cost(_ item: Item, _ entry: SignalHistory.Entry) -> Int {
      if expectation.matches(item, entry) { return 0 }
      if expectation.matches(item.moment, entry.moment) { return 1 }
      return item.at == entry.at ? 2 : 3
    }
    for row in 0..<rows {
      for column in 0..<columns where row + column > 0 {
        var best = Int.max
        if row > 0 { best = min(best, costs[(row - 1) * columns + column] + 2) }
        if column > 0 { best = min(best, costs[row * columns + column - 1] + 2) }
        if row > 0, column > 0 {
          best = min(best, costs[(row - 1) * columns + column - 1] + cost(items[row - 1], entries[column - 1]))
        }
        costs[row * columns + column] = best
      }
    }
    var changes: [Change] = []
    var (row, column) = (items.count, entries.count)
    while row > 0 || column > 0 {
      let here = costs[row * columns + column]
      if row > 0, column > 0 {
        let own = cost(items[row - 1], entries[column - 1])
        if here == costs[(row - 1) * columns + column - 1] + own {
          changes.append(own == 0 ? .keep(row - 1) : .change(row - 1, entries[column - 1]))
          (row, column) = (row - 1, column - 1)
          continue
        }
      }
      if row > 0, here == costs[(row - 1) * columns + column] + 2 {
        changes.append(.remove(row - 1))
        row -= 1
      } else {
        changes.append(.add(entries[column - 1]))
        column -= 1
      }
    }
    return changes.reversed()
  }

  /// Formats `{ at: 20ms, next: 1 }`.
  private func step(_ entry: SignalHistory.Entry, isTimed: Bool) -> String {
    let what =
      switch entry.moment {
      case .next(let value): "next: \(shown(value))"
      case .complete: "complete: true"
      case .error(let message): "error: \(YAMLFlowText.quoted(Array(message.utf8)))"
      case .subscribe: "subscribe: true"
      case .cancel: "cancel: true"
      }
    return isTimed ? "{ at: \(entry.at), \(what) }" : "{ \(what) }"
  }

  /// A request is shown as `"GET http://127.0.0.1/"`, a reply by its status and body.
  private func shown(_ value: TestValue) -> String {
    switch expectation.target {
    case .requests: YAMLFlowText.quoted(Array("\(value.text("method")) \(value.text("url"))".utf8))
    case .replies: YAMLFlowText.write(Self.reply(value))
    case .sink, .signal, .errors: YAMLFlowText.write(value)
    }
  }

  private static func reply(_ value: TestValue) -> TestValue {
    let status = value.member("status") ?? .null
    guard let body = value.member("body") else { return status }
    return .object(unsorted: [.init(Array("status".utf8), status), .init(Array("body".utf8), body)])
  }

  /// Changes one step.
  private mutating func rewrite(_ node: YAMLNode, _ item: Item, _ entry: SignalHistory.Entry) throws(Refusal) {
    let own = step(entry, isTimed: item.at != nil)
    switch (item.moment, entry.moment) {
    case (.next(let wanted), .next(let value)):
      guard let next = node["next"] else { break }
      if expectation.target.comparesParts {
        try writePart(wanted, value, over: next)
      } else {
        try write(value, over: next)
      }
      retime(node, item, entry)
    case (.error, .error(let message)):
      if !expectation.matches(item.moment, entry.moment), let scalar = node["error"]?.scalar {
        replace(scalar.location, by: YAMLFlowText.quoted(message, like: scalar))
      }
      retime(node, item, entry)
    case (.complete, .complete), (.subscribe, .subscribe), (.cancel, .cancel): retime(node, item, entry)
    default:
      try refuseComments(node.location)
      replace(node.location, by: own)
    }
  }

  private mutating func retime(_ node: YAMLNode, _ item: Item, _ entry: SignalHistory.Entry) {
    guard let at = item.at, at != entry.at, let scalar = node["at"]?.scalar else { return }
    replace(scalar.location, by: scalar.isPlain ? "\(entry.at)" : YAMLFlowText.quoted(Array("\(entry.at)".utf8)))
  }

  /// Adds or removes steps of a list in brackets.
  private mutating func rebuild(
    _ node: YAMLNode, _ nodes: [YAMLNode], _ changes: [Change], _ step: (SignalHistory.Entry) -> String
  ) throws(Refusal) {
    let start = node.location.offset
    let end = start + node.location.length
    var separator = ", "
    for (one, next) in zip(nodes, nodes.dropFirst()) {
      let between = (one.location.offset + one.location.length)..<next.location.offset
      let text = String(decoding: source.bytes[between], as: UTF8.self)
      if text.contains("#") { throw Refusal("a comment in it could be lost", help: "Rewrite it by hand") }
      separator = text
    }
    var texts: [String] = []
    for change in changes {
      switch change {
      case .keep(let index), .change(let index, _):
        let location = nodes[index].location
        let bytes = edits.applied(to: source.bytes, in: location.offset..<(location.offset + location.length))
        texts.append(String(decoding: bytes, as: UTF8.self))
      case .add(let entry): texts.append(step(entry))
      case .remove: break
      }
    }
    edits.removeAll { $0.offset >= start && $0.end <= end }
    guard let first = nodes.first, let last = nodes.last else {
      replace(node.location, by: texts.isEmpty ? "[]" : "[ \(texts.joined(separator: ", ")) ]")
      return
    }
    if texts.isEmpty {
      try refuseComments(node.location)
      replace(node.location, by: "[]")
      return
    }
    let from = first.location.offset
    let to = last.location.offset + last.location.length
    edits.append(TextEdit(offset: from, length: to - from, texts.joined(separator: separator)))
  }

  /// Adds or removes lines of a list in which each step has a dash.
  private mutating func relist(
    _ node: YAMLNode, _ nodes: [YAMLNode], _ changes: [Change], _ step: (SignalHistory.Entry) -> String
  ) throws(Refusal) {
    if changes.allSatisfy({ if case .remove = $0 { true } else { false } }) {
      try refuseComments(node.location)
      edits.removeAll { $0.offset >= node.location.offset && $0.end <= node.location.offset + node.location.length }
      replace(node.location, by: "[]")
      return
    }
    var lines: [Range<Int>] = []
    for item in nodes {
      let dash = try dash(of: item)
      lines.append(dash.line..<lineEnd(item.location.offset + item.location.length))
    }
    guard let first = nodes.first else { return }
    let indent = String(repeating: " ", count: try dash(of: first).column)
    var offset = lines.first?.lowerBound ?? 0
    for change in changes {
      switch change {
      case .keep(let index), .change(let index, _): offset = lines[index].upperBound
      case .remove(let index):
        edits.removeAll { lines[index].contains($0.offset) }
        edits.append(TextEdit(offset: lines[index].lowerBound, length: lines[index].count, ""))
        offset = lines[index].upperBound
      case .add(let entry):
        let isOpen = offset == source.bytes.count && source.bytes.last != 0x0A
        let line = "\(indent)- \(step(entry))"
        edits.append(TextEdit(offset: offset, length: 0, isOpen ? "\n\(line)" : "\(line)\n"))
      }
    }
  }

  /// The line and the column of a step's dash, from 0.
  private func dash(of item: YAMLNode) throws(Refusal) -> (line: Int, column: Int) {
    var at = item.location.offset - 1
    while at >= 0, source.bytes[at] == 0x20 { at -= 1 }
    var line = at
    while line > 0, source.bytes[line - 1] == 0x20 { line -= 1 }
    guard at >= 0, source.bytes[at] == UInt8(ascii: "-"), line == 0 || source.bytes[line - 1] == 0x0A else {
      throw Refusal("its steps are not on separate lines", help: "Rewrite it by hand")
    }
    return (line, at - line)
  }

  // MARK: Values

  /// Writes `value` in place of `node`, changing only what differs.
  private mutating func write(_ value: TestValue, over node: YAMLNode) throws(Refusal) {
    if TestValue(node) == value { return }
    switch (node.content, value) {
    case (.mapping(let entries), .object(let members)) where entries.count == members.count:
      let table = Dictionary(members.map { ($0.key, $0.value) }) { first, _ in first }
      if entries.allSatisfy({ table[Array($0.name.utf8)] != nil }) {
        for entry in entries {
          if let member = table[Array(entry.name.utf8)] { try write(member, over: entry.value) }
        }
        return
      }
    case (.sequence(let items), .list(let elements)) where items.count == elements.count:
      for (item, element) in zip(items, elements) { try write(element, over: item) }
      return
    case (.scalar(let scalar), .text(let bytes))
    where scalar.kind == .string && scalar.style != .literal
      && scalar.style != .folded:
      replace(node.location, by: YAMLFlowText.quoted(String(decoding: bytes, as: UTF8.self), like: scalar))
      return
    default: break
    }
    try refuseComments(node.location)
    if case .scalar(let scalar) = node.content, scalar.style == .literal || scalar.style == .folded {
      throw Refusal("a text in a block cannot be rewritten", help: "Rewrite it by hand")
    }
    replace(node.location, by: YAMLFlowText.write(value))
  }

  /// Writes only those parts of a request or a reply that the test gives.
  private mutating func writePart(
    _ wanted: TestValue, _ value: TestValue, over node: YAMLNode
  ) throws(Refusal) {
    if expectation.matches(.next(wanted), .next(value)) { return }
    switch wanted {
    case .int:
      if let status = value.member("status") { try write(status, over: node) }
    case .text(let pattern):
      guard let scalar = node.scalar else { return }
      let url = value.text("url")
      let hasMethod = pattern.contains(0x20)
      replace(
        node.location, by: YAMLFlowText.quoted(hasMethod ? "\(value.text("method")) \(url)" : url, like: scalar))
    case .object:
      for entry in node.entries ?? [] {
        let own = TestValue.object([.init(Array(entry.name.utf8), TestValue(entry.value))])
        if expectation.matches(.next(own), .next(value)) { continue }
        if entry.name == "headers", let headers = entry.value.entries, let sent = value.member("headers") {
          for header in headers {
            guard let said = sent.member(header.name.lowercased()) else {
              throw Refusal("there is no header '\(header.key.shown)'", help: "Rewrite it by hand")
            }
            try write(said, over: header.value)
          }
          continue
        }
        guard let said = value.member(entry.name) else {
          throw Refusal("there is no '\(entry.key.shown)'", help: "Rewrite it by hand")
        }
        try write(said, over: entry.value)
      }
    default: break
    }
  }
}

extension TestValue {
  func member(_ name: String) -> TestValue? {
    guard case .object(let members) = self else { return nil }
    return members.first { $0.key == Array(name.utf8) }?.value
  }

  /// The member as text; empty if there is none.
  func text(_ name: String) -> String {
    if case .text(let bytes)? = member(name) { String(decoding: bytes, as: UTF8.self) } else { "" }
  }
}

extension YAMLNode {
  /// Whether the whole value is written here, without an alias.
  var isWrittenInPlace: Bool {
    let end = location.offset + location.length
    func isInside(_ node: YAMLNode) -> Bool {
      node.location.offset >= location.offset && node.location.offset + node.location.length <= end
        && node.isWrittenInPlace
    }
    return switch content {
    case .scalar: true
    case .sequence(let items): items.allSatisfy(isInside)
    case .mapping(let entries): entries.allSatisfy { isInside($0.value) }
    }
  }

  var isInterpolated: Bool {
    switch content {
    case .scalar(let scalar): scalar.isInterpolated || scalar.isPlaceholder || scalar.containsSecret
    case .sequence(let items): items.contains(where: \.isInterpolated)
    case .mapping(let entries): entries.contains { $0.value.isInterpolated }
    }
  }
}
