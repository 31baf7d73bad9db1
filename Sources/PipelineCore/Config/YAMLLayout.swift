/// Receives a parser's events in order. Offsets are byte offsets in the file.
protocol YAMLEventTarget {
  associatedtype Result
  /// True after an error that makes it pointless to continue.
  var isStopped: Bool { get }
  mutating func begin(_ kind: YAMLComposer.Collection, flow: Bool, _ properties: YAMLProperties, _ from: Int, _ to: Int)
  mutating func end(_ to: Int)
  mutating func scalar(
    _ value: UnsafeBufferPointer<UInt8>, style: YAMLScalar.Style, _ properties: YAMLProperties, _ from: Int, _ to: Int)
  mutating func alias(_ name: String, _ from: Int, _ to: Int)
  mutating func endOfFile()
  mutating func endOfDocument(explicit: Bool, _ from: Int, _ to: Int) -> Result?
  mutating func fail(_ error: YAMLSyntaxError)
  mutating func report(_ code: Diagnostic.Code, _ message: String, _ from: Int, _ length: Int, help: String?)
}

/// A value of a YAML text as written: aliases are not resolved, and the texts of anchors and tags are kept.
final class YAMLLayoutNode {
  enum Kind {
    case scalar(YAMLScalar.Style)
    case alias
    case sequence([YAMLLayoutNode])
    case mapping([(key: YAMLLayoutNode, value: YAMLLayoutNode)])
  }

  var kind: Kind
  /// Anchor and tag.
  let properties: Range<Int>
  /// The value itself, with quotes and brackets; a block collection extends from its first key or dash to its last
  /// value.
  var range: Range<Int>
  let isFlow: Bool

  init(_ kind: Kind, properties: Range<Int>, range: Range<Int>, isFlow: Bool) {
    self.kind = kind
    self.properties = properties
    self.range = range
    self.isFlow = isFlow
  }

  /// The start, with anchor and tag.
  var start: Int { properties.isEmpty ? range.lowerBound : properties.lowerBound }
  /// The end; for an empty value, the same as its start.
  var end: Int { range.upperBound }
  var isCollection: Bool {
    switch kind {
    case .sequence, .mapping: true
    case .scalar, .alias: false
    }
  }
  var children: [YAMLLayoutNode] {
    switch kind {
    case .scalar, .alias: []
    case .sequence(let items): items
    case .mapping(let entries): entries.flatMap { [$0.key, $0.value] }
    }
  }
}

/// Builds the layout of a text that ``YAMLReader`` can read without an error.
struct YAMLLayoutComposer: YAMLEventTarget {
  private struct Frame {
    var kind: YAMLComposer.Collection
    var isFlow: Bool
    var properties: Range<Int>
    var start: Int
    var nodes: [YAMLLayoutNode] = []
  }

  private let bytes: [UInt8]
  private var stack: [Frame] = []
  private var root: YAMLLayoutNode?
  private(set) var isStopped = false

  init(_ source: SourceText) { bytes = source.bytes }

  mutating func begin(
    _ kind: YAMLComposer.Collection, flow: Bool, _ properties: YAMLProperties, _ from: Int, _ to: Int
  ) {
    let (properties, start) = split(from, properties.count)
    stack.append(Frame(kind: kind, isFlow: flow, properties: properties, start: start))
  }

  mutating func end(_ to: Int) {
    guard let frame = stack.popLast() else { return }
    // libyaml reports the end of a block collection at the start of the next token.
    let end = frame.isFlow ? to : max(frame.start, frame.nodes.last?.end ?? frame.start)
    let start = frame.isFlow || frame.kind == .sequence ? frame.start : frame.nodes.first?.start ?? frame.start
    let kind: YAMLLayoutNode.Kind =
      switch frame.kind {
      case .sequence: .sequence(frame.nodes)
      case .mapping:
        .mapping(
          stride(from: 0, to: frame.nodes.count - 1, by: 2).map { (key: frame.nodes[$0], value: frame.nodes[$0 + 1]) })
      }
    add(YAMLLayoutNode(kind, properties: frame.properties, range: start..<max(start, end), isFlow: frame.isFlow))
  }

  mutating func scalar(
    _ value: UnsafeBufferPointer<UInt8>, style: YAMLScalar.Style, _ properties: YAMLProperties, _ from: Int, _ to: Int
  ) {
    let (properties, start) = split(from, properties.count)
    var end = max(start, to)
    if style == .literal || style == .folded { end = endOfBlock(start, end) }
    // An empty value has no text: it is located at the end of its anchor or tag.
    if style == .plain, value.isEmpty, !properties.isEmpty {
      add(
        YAMLLayoutNode(
          .scalar(style), properties: properties, range: properties.upperBound..<properties.upperBound, isFlow: false))
      return
    }
    add(YAMLLayoutNode(.scalar(style), properties: properties, range: start..<end, isFlow: false))
  }

  mutating func alias(_ name: String, _ from: Int, _ to: Int) {
    add(YAMLLayoutNode(.alias, properties: from..<from, range: from..<to, isFlow: false))
  }

  mutating func endOfFile() {}
  mutating func endOfDocument(explicit: Bool, _ from: Int, _ to: Int) -> YAMLLayoutNode? { root }
  mutating func fail(_ error: YAMLSyntaxError) { isStopped = true }
  mutating func report(_ code: Diagnostic.Code, _ message: String, _ from: Int, _ length: Int, help: String?) {
    isStopped = true
  }

  private mutating func add(_ node: YAMLLayoutNode) {
    if stack.isEmpty { root = node } else { stack[stack.count - 1].nodes.append(node) }
  }

  /// The range of anchor and tag, which libyaml counts as part of the value, and the start of the value itself.
  private func split(_ from: Int, _ count: Int) -> (properties: Range<Int>, start: Int) {
    var offset = from
    var end = from
    for _ in 0..<count {
      while offset < bytes.count, bytes[offset] > 0x20 { offset += 1 }
      end = offset
      while offset < bytes.count {
        if bytes[offset] <= 0x20 {
          offset += 1
        } else if bytes[offset] == UInt8(ascii: "#") {
          while offset < bytes.count, bytes[offset] != 0x0A { offset += 1 }
        } else {
          break
        }
      }
    }
    return (from..<end, offset)
  }

  /// The end of the last line of a block scalar that is not blank; without such a line, the end of its header.
  private func endOfBlock(_ start: Int, _ limit: Int) -> Int {
    var end = min(limit, bytes.count)
    while end > start, bytes[end - 1] <= 0x20 { end -= 1 }
    while end < bytes.count, bytes[end] != 0x0A { end += 1 }
    return end
  }
}
