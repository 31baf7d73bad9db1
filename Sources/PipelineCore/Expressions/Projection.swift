import CJSON

/// The paths of one variable that the expressions of one fused run read, one slot each.
///
/// First every expression of the run is compiled with the projection, which collects the paths; then it is frozen and
/// shared; then it fills the slots of a frame for each event in one pass.
package final class Projection: @unchecked Sendable {
  /// The part of a value that a slot must provide.
  package enum Need: Sendable {
    /// The presence and kind of the value.
    case presence
    /// The value; lists and maps as ranges of JSON text.
    case value
  }

  /// One field; children are indexes into `nodes`.
  private struct Node {
    var key: [UInt8]
    var slot: Int32 = -1
    var presenceOnly = true
    var children: [Int] = []
  }

  /// The variable of the paths.
  package let variable: String
  private var nodes = [Node(key: [])]
  /// Whether several frames see the same event one after another and share the slots that were filled for it.
  var isShared = false
  /// The projection of all chains that start at the same signal: it fills common slots for the paths of all of them.
  /// This projection keeps only its own paths.
  let common: Projection?
  private var ownCount = 0
  /// The number of slots of a frame.
  package var slotCount: Int { common?.slotCount ?? ownCount }
  /// The trie for the scanner, set by ``freeze()``. In raw memory, read without checks.
  private struct Trie {
    var nodes: UnsafeMutablePointer<rx_path_node>?
    var keys: UnsafeMutablePointer<CChar>?
    /// The trie prepared for reading JSON text.
    var paths: OpaquePointer?
    var slotCount = 0
  }

  private let trie: UnsafeMutablePointer<Trie>

  package init(variable: String = "event", within common: Projection? = nil) {
    self.variable = variable
    self.common = common
    trie = .allocate(capacity: 1)
    trie.initialize(to: Trie())
  }

  deinit {
    if let paths = trie.pointee.paths { rx_paths_free(paths) }
    trie.pointee.nodes?.deallocate()
    trie.pointee.keys?.deallocate()
    trie.deallocate()
  }

  /// The slot of a path of at least one field, new or existing.
  package func slot(for path: [String], needs: Need) -> Int {
    slot(for: path.map { Array($0.utf8) }, needs: needs)
  }

  func slot(for path: [[UInt8]], needs: Need) -> Int {
    precondition(trie.pointee.nodes == nil, "a path is added to a frozen projection")
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
    if let common { nodes[at].slot = Int32(common.slot(for: path, needs: needs)) }
    if nodes[at].slot < 0 {
      nodes[at].slot = Int32(ownCount)
      ownCount += 1
    }
    if needs == .value { nodes[at].presenceOnly = false }
    return Int(nodes[at].slot)
  }

  /// The paths, for `rxd explain`.
  package var paths: [String] {
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

  /// The slots in order, with their paths.
  package var slotPaths: [(slot: Int, path: String, isPresenceOnly: Bool)] {
    var all: [(slot: Int, path: String, isPresenceOnly: Bool)] = []
    func walk(_ at: Int, _ prefix: String) {
      for child in nodes[at].children {
        let node = nodes[child]
        let path = prefix + "." + String(decoding: node.key, as: UTF8.self)
        if node.slot >= 0 { all.append((Int(node.slot), path, node.presenceOnly)) }
        walk(child, path)
      }
    }
    walk(0, variable)
    return all.sorted { $0.slot < $1.slot }
  }

  /// Ends the collection. Call it once, before the first ``fill(_:_:)``.
  package func freeze() {
    guard self.trie.pointee.nodes == nil else { return }
    common?.freeze()
    // Breadth first, so that the children of a node are adjacent.
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
    self.trie.pointee = Trie(
      nodes: trie, keys: text, paths: rx_paths_new(trie, order.count), slotCount: slotCount)
  }

  /// Whether any expression reads a path.
  var hasPaths: Bool { nodes.count > 1 }

  /// The projection that fills the slots: the common one if several chains share it.
  var filling: Projection { common.flatMap { $0.isShared ? $0 : nil } ?? self }

  /// Fills only its own slots, for an event that the common projection cannot read: the malformed part may concern only
  /// other chains.
  @inline(never)
  func fillAlone(_ event: Value, _ state: UnsafeMutablePointer<EvaluationFrame.State>) -> Value {
    let outcome = fill(event, state)
    // Other frames must not take the slots as filled for this event.
    state.pointee.filled?.pointee = SlotBank.Document()
    return outcome
  }

  /// Fills the slots of the frame for one event.
  ///
  /// The slot of a missing path is `.absent`. Returns `.null`, or an `.error` (see ``JSONFailure``) if a raw event is
  /// malformed.
  package func fill(_ event: Value, _ frame: EvaluationFrame) -> Value { fill(event, frame.state) }

  @inline(__always)
  func fill(_ event: Value, _ state: UnsafeMutablePointer<EvaluationFrame.State>) -> Value {
    let row = state.pointee.indexed
    if let filled = state.pointee.filled {
      if event.is(.jsonMap), filled.pointee.payload == event.payload, filled.pointee.length == event.length {
        return .null
      }
      // A document that could not be read must not count as filled.
      filled.pointee = SlotBank.Document()
    }
    guard event.is(.jsonMap), row.pointee.payload == event.payload, row.pointee.length == event.length,
      row.pointee.lines != nil
    else { return fillFromOther(event, state) }
    guard rx_paths_read_row(trie.pointee.paths, row, state.pointee.slots, trie.pointee.slotCount) else {
      return Self.failure(event, Context(state: state))
    }
    if let filled = state.pointee.filled {
      filled.pointee = SlotBank.Document(payload: event.payload, length: event.length)
    }
    return .null
  }

  /// Fills the slots for an event that is not a row of the most recently indexed block.
  @inline(never)
  private func fillFromOther(_ event: Value, _ state: UnsafeMutablePointer<EvaluationFrame.State>) -> Value {
    guard let nodes = trie.pointee.nodes else {
      preconditionFailure("the projection is not frozen")
    }
    let count = trie.pointee.slotCount
    guard count > 0 else { return .null }
    for index in 0..<count { state.pointee.slots[index] = .absent }
    let outcome = fill(nodes, 0, event, Context(state: state))
    if outcome.isError { return outcome }
    if let filled = state.pointee.filled, event.is(.jsonMap) {
      filled.pointee = SlotBank.Document(payload: event.payload, length: event.length)
    }
    return .null
  }

  @inline(never)
  private static func failure(_ event: Value, _ context: Context) -> Value {
    // The validating parser finds the reason and the offset.
    (context.json.validate(event.rawBytes) ?? JSONFailure(.malformed, offset: 0)).value
  }

  private func fill(
    _ nodes: UnsafeMutablePointer<rx_path_node>, _ at: Int, _ event: Value, _ context: Context
  ) -> Value {
    if event.is(.jsonMap) {
      let isSound = rx_paths_read(
        trie.pointee.paths, context.scanner, Int32(at), event.pointer?.assumingMemoryBound(to: CChar.self),
        Int(event.length), event.isChecked, context.state.pointee.slots)
      return isSound ? .null : Self.failure(event, context)
    }
    guard event.is(.map) else { return .null }
    for index in 0..<Int(nodes[at].child_count) {
      let child = Int(nodes[at].first_child) + index
      let key = Value.string(
        UnsafeRawBufferPointer(start: nodes[child].key, count: Int(nodes[child].key_length)))
      let value = context.member(of: event, key)
      if nodes[child].slot >= 0 { context.state.pointee.slots[Int(nodes[child].slot)] = value }
      if nodes[child].child_count > 0 {
        let outcome = fill(nodes, child, value, context)
        if outcome.isError { return outcome }
      }
    }
    return .null
  }
}
