/// The anchor and tag of a node.
struct YAMLProperties {
  var anchor: String?
  var tag: String?
  var count: Int { (anchor == nil ? 0 : 1) + (tag == nil ? 0 : 1) }
}

/// Builds nodes from a parser's events and enforces every limit while they arrive.
///
/// Offsets are byte offsets in the file.
struct YAMLComposer: YAMLEventTarget {
  enum Collection { case sequence, mapping }

  let source: SourceText
  let limits: YAMLLimits
  private(set) var diagnostics: [Diagnostic] = []
  /// True after an error that makes it pointless to continue.
  private(set) var isStopped = false

  private var stack: [Frame] = []
  private var root: YAMLNode?
  private var anchors: [String: Anchor] = [:]
  private var anchorCount = 0
  private var nodeCount = 0
  private var expandedCount = 0
  private var lastScalar: YAMLScalar?

  init(source: SourceText, limits: YAMLLimits) {
    self.source = source
    self.limits = limits
  }

  /// An open collection.
  struct Frame {
    var kind: Collection
    var isFlow: Bool
    var properties: YAMLProperties
    /// The start of the collection, after anchor and tag.
    var start: Int
    var items: [YAMLNode] = []
    var entries: [YAMLEntry] = []
    var seen: [[UInt8]: SourceLocation] = [:]
    var key = Key.missing
    /// The number of values inside, with aliases replaced, including this one.
    var size = 1
    /// The depth of nested collections, including this one.
    var height = 1

    enum Key {
      /// The next value is a key.
      case missing
      case present(YAMLScalar)
      /// The key was rejected; its value is read and discarded.
      case refused
    }
  }

  private enum Anchor {
    /// The anchor's own collection is still open: an alias to it would contain itself.
    case open(SourceLocation)
    case done(YAMLNode, size: Int, height: Int, SourceLocation)
  }

  // MARK: Events

  mutating func begin(
    _ kind: Collection, flow: Bool, _ properties: YAMLProperties, _ from: Int, _ to: Int
  ) {
    let start = skipProperties(from, properties.count)
    let here = location(start, flow ? start + 1 : start)
    guard count(here) else { return }
    guard stack.count < limits.depth else {
      stop(tooDeep(here))
      return
    }
    checkTag(properties.tag, kind == .sequence ? "seq" : "map", from)
    declare(properties.anchor, from)
    stack.append(Frame(kind: kind, isFlow: flow, properties: properties, start: start))
  }

  mutating func end(_ to: Int) {
    guard let frame = stack.popLast() else { return }
    let content: YAMLNode.Content =
      frame.kind == .sequence ? .sequence(frame.items) : .mapping(frame.entries)
    var finish = to
    if !frame.isFlow {
      // libyaml reports the end of a block collection at the start of the next token.
      let last = frame.items.last?.location ?? frame.entries.last?.value.location
      finish = max(last.map { $0.offset + $0.length } ?? frame.start, frame.start)
    }
    let node = YAMLNode(content, at: location(frame.start, finish))
    if let anchor = frame.properties.anchor { define(anchor, node, frame.size, frame.height) }
    add(node, size: frame.size, height: frame.height)
  }

  mutating func scalar(
    _ value: UnsafeBufferPointer<UInt8>, style: YAMLScalar.Style, _ properties: YAMLProperties,
    _ from: Int, _ to: Int
  ) {
    let start = min(skipProperties(from, properties.count), max(from, to))
    guard count(location(start, to)) else { return }
    let limit =
      style == .literal || style == .folded ? limits.blockScalarBytes : limits.scalarBytes
    if value.count > limit {
      report(
        .scalarTooLong,
        "the value has \(value.count) bytes, more than the \(limit) that are allowed",
        start, 0, help: "Put long text into a separate file")
      isStopped = true
      return
    }
    let text =
      YAMLScalarText.decode(source, start, to, style: style, expected: value)
      ?? LocatedText(
        text: Array(value), source: source,
        offsets: Array(repeating: Int32(clamping: start), count: value.count + 1))
    let end =
      style == .literal || style == .folded ? Int(text.offsets[text.offsets.count - 1]) : to
    var scalar = YAMLScalar(text: text, style: style, location: location(start, max(start, end)))
    if let tag = properties.tag { applyTag(tag, from, &scalar) }
    if style == .plain { warnOfCutComment(scalar) }
    lastScalar = scalar
    declare(properties.anchor, from)
    let node = YAMLNode(.scalar(scalar), at: scalar.location)
    if let anchor = properties.anchor { define(anchor, node, 1, 0) }
    add(node, size: 1, height: 0)
  }

  mutating func alias(_ name: String, _ from: Int, _ to: Int) {
    let here = location(from, to)
    guard count(here) else { return }
    switch anchors[name] {
    case nil:
      stop(
        Diagnostic(
          .undefinedAlias, "there is no anchor &\(Printable.cut(name)) before this alias",
          at: here,
          help: "An unquoted value that begins with * is an alias; to mean the text, quote it",
          fixIts: [quoteLine(from)].compactMap { $0 }))
    case .open(let start):
      stop(
        Diagnostic(
          .aliasCycle, "*\(Printable.cut(name)) is inside the value that it names, so it would never end",
          at: here, notes: [.init("the anchor is here", at: start)]))
    case .done(let node, let size, let height, let defined):
      if size > limits.expandedNodes - expandedCount {
        stop(
          Diagnostic(
            .aliasExpansion,
            "with this alias the file would have more than \(limits.expandedNodes) values",
            at: here, notes: [.init("the anchor is here", at: defined)],
            help: "Write fewer aliases of aliases"))
      } else if stack.count + height > limits.depth {
        stop(tooDeep(here))
      } else {
        expandedCount += size - 1
        add(node, size: size, height: height, alias: here)
      }
    }
  }

  /// The file contains no document.
  mutating func endOfFile() {
    report(
      .emptyFile, "the file is empty", 0, 0,
      help: "A pipeline has at least 'sources' and 'sinks'")
  }

  /// `from ..< to` is the `...`; without one it is empty, at the start of the next token.
  mutating func endOfDocument(explicit: Bool, _ from: Int, _ to: Int) -> YAMLNode? {
    var offset = explicit ? to : from
    let bytes = source.bytes
    while offset < bytes.count {
      switch bytes[offset] {
      case 0x20, 0x09, 0x0A, 0x0D: offset += 1
      case UInt8(ascii: "#"):
        while offset < bytes.count, bytes[offset] != 0x0A { offset += 1 }
      default:
        if let rest = YAMLSyntaxError.afterDocument(source, offset, root: root) {
          diagnostics.append(rest)
          return nil
        }
        offset += 3
      }
    }
    return root
  }

  mutating func fail(_ error: YAMLSyntaxError) {
    let flow = stack.last(where: { $0.isFlow })
    let explained = error.explain(source, lastScalar: lastScalar, openBracket: flow?.start)
    // libyaml and the composer may report the same cause, as in `{{ a }}/b`.
    if diagnostics.last?.location != explained.location { diagnostics.append(explained) }
    isStopped = true
  }

  // MARK: Putting together

  private mutating func add(
    _ node: YAMLNode, size: Int, height: Int, alias: SourceLocation? = nil
  ) {
    guard var frame = stack.popLast() else {
      root = node
      return
    }
    frame.size += size
    frame.height = max(frame.height, height + 1)
    switch (frame.kind, frame.key) {
    case (.sequence, _):
      frame.items.append(node)
    case (.mapping, .missing):
      frame.key = acceptKey(node, alias, &frame.seen)
    case (.mapping, .present(let key)):
      frame.entries.append(YAMLEntry(key: key, value: node))
      frame.key = .missing
    case (.mapping, .refused):
      frame.key = .missing
    }
    stack.append(frame)
  }

  private mutating func acceptKey(
    _ node: YAMLNode, _ alias: SourceLocation?, _ seen: inout [[UInt8]: SourceLocation]
  ) -> Frame.Key {
    if let alias {
      report(
        Diagnostic(
          .complexKey, "a key cannot be an alias", at: alias, help: "Write the key out"))
      return .refused
    }
    guard case .scalar(let key) = node.content else {
      report(YAMLSyntaxError.complexKey(source, node))
      return .refused
    }
    let name = key.text.text
    if name.isEmpty {
      report(
        Diagnostic(.invalidKey, "the key before ':' is missing", at: key.location))
      return .refused
    }
    if name.count > limits.keyBytes {
      report(
        Diagnostic(
          .keyTooLong,
          "the key has \(name.count) bytes, more than the \(limits.keyBytes) that are allowed",
          at: key.location))
      return .refused
    }
    if name.contains(where: { $0 < 0x20 || $0 == 0x7F }) {
      report(
        Diagnostic(
          .invalidKey, "the key '\(key.shown)' contains a control character", at: key.location))
      return .refused
    }
    if key.style == .plain, name == [0x3C, 0x3C] {
      report(
        Diagnostic(
          .mergeKey, "the merge key << is not supported", at: key.location,
          help: "YAML 1.2 has none; write the keys out, or use an alias for a whole value"))
      return .refused
    }
    if let first = seen[name] {
      report(
        Diagnostic(
          .duplicateKey, "the key '\(key.shown)' is defined twice", at: key.location,
          notes: [.init("first defined here", at: first)], help: "Remove or rename one of the two"))
      return .refused
    }
    seen[name] = key.location
    return .present(key)
  }

  /// Counts a value; false if there are too many.
  private mutating func count(_ here: SourceLocation) -> Bool {
    nodeCount += 1
    expandedCount += 1
    if nodeCount > limits.nodes || expandedCount > limits.expandedNodes {
      stop(
        Diagnostic(
          .tooManyNodes, "the file has more than \(limits.nodes) values", at: here,
          help: "Split it: every file of a directory is a separate pipeline"))
      return false
    }
    return true
  }

  private func tooDeep(_ here: SourceLocation) -> Diagnostic {
    Diagnostic(
      .tooDeep, "mappings and lists are nested more than \(limits.depth) levels deep", at: here,
      help: "Name the inner signals and refer to them")
  }

  private mutating func declare(_ name: String?, _ from: Int) {
    guard let name else { return }
    anchorCount += 1
    let here = location(from, from + 1 + name.utf8.count)
    if anchorCount > limits.anchors {
      stop(
        Diagnostic(
          .tooManyAnchors, "the file has more than \(limits.anchors) anchors", at: here))
      return
    }
    switch anchors[name] {
    case .open(let first), .done(_, _, _, let first):
      report(
        Diagnostic(
          .duplicateAnchor, "the anchor &\(Printable.cut(name)) is defined twice", at: here,
          notes: [.init("first defined here", at: first)]))
    case nil: break
    }
    anchors[name] = .open(here)
  }

  private mutating func define(_ name: String, _ node: YAMLNode, _ size: Int, _ height: Int) {
    guard case .open(let here) = anchors[name] else { return }
    anchors[name] = .done(node, size: size, height: height, here)
  }

  // MARK: Tags

  private static let corePrefix = "tag:yaml.org,2002:"

  private mutating func checkTag(_ tag: String?, _ expected: String, _ from: Int) {
    guard let tag, tag != "!", tag != Self.corePrefix + expected else { return }
    report(YAMLSyntaxError.tag(source, from, isFlow: isInFlow))
  }

  private mutating func applyTag(_ tag: String, _ from: Int, _ scalar: inout YAMLScalar) {
    let kind: YAMLScalar.Kind
    scalar.isTagged = true
    switch tag {
    case "!", Self.corePrefix + "str":
      scalar.kind = .string
      return
    case Self.corePrefix + "null": kind = .null
    case Self.corePrefix + "bool": kind = .bool
    case Self.corePrefix + "int": kind = .int
    case Self.corePrefix + "float": kind = .float
    default:
      report(YAMLSyntaxError.tag(source, from, isFlow: isInFlow))
      return
    }
    let found = YAMLCoreSchema.kind(of: scalar.text.text)
    if found == kind || (found == .int && kind == .float) {
      scalar.kind = kind
    } else {
      report(
        Diagnostic(
          .tag, "'\(scalar.shown)' does not fit its tag !!\(kind)", at: scalar.location))
    }
  }

  // MARK: Places

  private func location(_ from: Int, _ to: Int) -> SourceLocation {
    SourceLocation(source, offset: from, length: max(0, to - from))
  }

  /// The offset after anchor and tag, which libyaml counts as part of the node.
  private func skipProperties(_ from: Int, _ count: Int) -> Int {
    let bytes = source.bytes
    var offset = from
    for _ in 0..<count {
      while offset < bytes.count, bytes[offset] > 0x20 { offset += 1 }
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
    return offset
  }

  private var isInFlow: Bool { stack.last?.isFlow ?? false }

  private func quoteLine(_ offset: Int) -> Diagnostic.FixIt? {
    YAMLLine(source, at: offset).quoting(from: offset, isFlow: isInFlow)
  }

  /// Warns of `filter: event.a == "x # y"`, where YAML ends the value before ` #`, even within quotes. Warns only if
  /// the value leaves a quote or bracket open that the comment closes.
  private mutating func warnOfCutComment(_ scalar: YAMLScalar) {
    let bytes = source.bytes
    var offset = scalar.location.offset + scalar.location.length
    while offset < bytes.count, bytes[offset] == 0x20 || bytes[offset] == 0x09 { offset += 1 }
    guard offset < bytes.count, bytes[offset] == UInt8(ascii: "#"),
      let open = YAMLLine.openDelimiter(scalar.text.text)
    else { return }
    let line = YAMLLine(source, at: offset)
    guard bytes[offset..<line.end].contains(open) else { return }
    report(
      Diagnostic(
        .commentCutsValue, "the value ends here, because ' #' begins a comment",
        at: location(offset, line.end),
        help: "Quote the whole value, or put it in a block scalar (|), where # has no meaning",
        fixIts: [
          line.quoting(from: scalar.location.offset, isFlow: isInFlow, keepComment: true)
        ].compactMap { $0 }))
  }

  // MARK: Reports

  mutating func report(
    _ code: Diagnostic.Code, _ message: String, _ from: Int, _ length: Int, help: String? = nil
  ) {
    report(Diagnostic(code, message, at: location(from, from + length), help: help))
  }

  private mutating func report(_ diagnostic: Diagnostic) {
    diagnostics.append(diagnostic)
    if diagnostics.count >= limits.errors { isStopped = true }
  }

  private mutating func stop(_ diagnostic: Diagnostic) {
    diagnostics.append(diagnostic)
    isStopped = true
  }
}
