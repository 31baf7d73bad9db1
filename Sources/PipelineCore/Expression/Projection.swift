import CJSON

/// The paths of one variable that the expressions of one fused run read, one slot each.
///
/// First every expression of the run is compiled with it, which collects the paths; then it is frozen
/// and shared; then, for each event, it fills the slots of a frame in one pass.
public final class Projection: @unchecked Sendable {
  /// What a slot is read for.
  public enum Want: Sendable {
    /// Whether the path is there, and of which kind.
    case presence
    /// The value; lists and maps as ranges of JSON text.
    case value
  }

  /// One field; children are indices into `nodes`.
  private struct Node {
    var key: [UInt8]
    var slot: Int32 = -1
    var presenceOnly = true
    var children: [Int] = []
  }

  /// The variable whose paths these are.
  public let variable: String
  private var nodes = [Node(key: [])]
  /// How many slots the frames need.
  public private(set) var slotCount = 0
  /// The trie as the scanner reads it; set by ``freeze()``.
  private var frozen: UnsafeMutablePointer<rx_path_node>?
  private var keys: UnsafeMutablePointer<CChar>?

  public init(variable: String = "event") {
    self.variable = variable
  }

  deinit {
    frozen?.deallocate()
    keys?.deallocate()
  }

  /// The slot of a path of at least one field, new or known.
  public func slot(for path: [String], wants: Want) -> Int {
    slot(for: path.map { Array($0.utf8) }, wants: wants)
  }

  func slot(for path: [[UInt8]], wants: Want) -> Int {
    precondition(frozen == nil, "a path is added to a frozen projection")
    precondition(!path.isEmpty)
    var at = 0
    for key in path {
      if let child = nodes[at].children.first(where: { nodes[$0].key == key }) {
        at = child
      } else {
        nodes.append(Node(key: key))
        nodes[at].children.append(nodes.count - 1)
        at = nodes.count - 1
      }
    }
    if nodes[at].slot < 0 {
      nodes[at].slot = Int32(slotCount)
      slotCount += 1
    }
    if wants == .value { nodes[at].presenceOnly = false }
    return Int(nodes[at].slot)
  }

  /// The paths, for `rxd explain`.
  public var paths: [String] {
    var all: [String] = []
    func walk(_ at: Int, _ prefix: String) {
      for child in nodes[at].children {
        let path = prefix + "." + String(decoding: nodes[child].key, as: UTF8.self)
        if nodes[child].slot >= 0 { all.append(path) }
        walk(child, path)
      }
    }
    walk(0, variable)
    return all
  }

  /// Ends the collection. Call it once, before the first ``fill(_:_:)``.
  public func freeze() {
    guard frozen == nil else { return }
    // Breadth first, so that the children of a node stand together.
    var order = [0]
    var firstChild: [Int32] = []
    var at = 0
    while at < order.count {
      firstChild.append(Int32(order.count))
      order += nodes[order[at]].children
      at += 1
    }
    let text = UnsafeMutablePointer<CChar>.allocate(
      capacity: max(nodes.reduce(0) { $0 + $1.key.count }, 1))
    let trie = UnsafeMutablePointer<rx_path_node>.allocate(capacity: order.count)
    var used = 0
    for (index, id) in order.enumerated() {
      let node = nodes[id]
      for (offset, byte) in node.key.enumerated() { text[used + offset] = CChar(bitPattern: byte) }
      trie[index] = rx_path_node(
        key: text + used, key_length: UInt32(node.key.count), slot: node.slot,
        first_child: firstChild[index], child_count: Int32(node.children.count),
        presence_only: node.presenceOnly ? 1 : 0)
      used += node.key.count
    }
    frozen = trie
    keys = text
  }

  /// Fills the slots of the frame for one event and makes it the projected variable's value's fields.
  ///
  /// A path that is not there is `.absent`. Returns `.null`, or an `.error` whose payload is the byte
  /// offset of what is malformed in a raw event.
  public func fill(_ event: Value, _ frame: EvaluationFrame) -> Value {
    guard slotCount > 0 else { return .null }
    guard let frozen else { preconditionFailure("the projection is not frozen") }
    let slots = frame.state.pointee.slots
    for index in 0..<slotCount { slots[index] = .absent }
    if event.is(.jsonMap) {
      let malformed = rx_project(
        frame.scanner(), frozen, event.pointer?.assumingMemoryBound(to: CChar.self), Int(event.length),
        slots)
      return malformed < 0 ? .null : Self.malformed(malformed)
    }
    if event.is(.map) { return walk(frozen, frozen, event, Context(state: frame.state)) }
    return .null
  }

  private static func malformed(_ offset: Int) -> Value {
    Value(
      kind: .error, payload: UInt64(offset), aux: ExpressionFailure.malformedJSON.rawValue)
  }

  private func walk(
    _ trie: UnsafeMutablePointer<rx_path_node>, _ node: UnsafeMutablePointer<rx_path_node>, _ map: Value,
    _ context: Context
  ) -> Value {
    for index in 0..<Int(node.pointee.child_count) {
      let child = trie + Int(node.pointee.first_child) + index
      let key = Value.string(
        UnsafeRawBufferPointer(start: child.pointee.key, count: Int(child.pointee.key_length)))
      var value = context.member(of: map, key)
      if child.pointee.slot >= 0 { context.state.pointee.slots[Int(child.pointee.slot)] = value }
      if child.pointee.child_count > 0 {
        value = context.expanded(value)
        if value.isError { return Self.malformed(0) }
        if value.is(.map) {
          let outcome = walk(trie, child, value, context)
          if outcome.isError { return outcome }
        }
      }
    }
    return .null
  }
}
