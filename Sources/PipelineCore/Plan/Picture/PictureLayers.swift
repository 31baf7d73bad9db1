/// Puts nodes into columns so that arcs lead from left to right, with few crossings and short routes. Nodes are given
/// in the order of the file, which is kept as far as crossings allow. After Sugiyama: columns by the longest path,
/// orders by barycentres, heights by least squares.
struct PictureLayers {
  struct Arc {
    var from: Int
    var to: Int
    /// The distances of the arc's ends from the upper edges of the two nodes.
    var fromOffset = 0.0
    var toOffset = 0.0
  }

  /// An item of a column: a node, or an arc that passes through the column.
  private struct Item {
    var height: Double
    /// The arc that passes through; nil: the item is a node.
    var arc: Int?
    var y = 0.0
    /// The index of the item in its column.
    var order = 0
    var column = 0
    var isNode: Bool { arc == nil }
  }

  private struct Segment {
    var from: Int
    var to: Int
    var arc: Int
    var isFirst: Bool
    var isLast: Bool
  }

  private let nodeCount: Int
  private(set) var arcs: [Arc]
  /// Whether the arc leads to the left, because it closes a cycle.
  private(set) var isBackward: [Bool]
  private(set) var column: [Int]
  private var items: [Item] = []
  private var columns: [[Int]] = []
  /// The items that an arc passes between its ends, from left to right.
  private var ways: [[Int]] = []
  private var segments: [Segment] = []
  /// The segments that leave and reach an item.
  private var leaving: [[Int]] = []
  private var reaching: [[Int]] = []

  private static let nodeGap = 26.0
  private static let wayGap = 12.0

  init(heights: [Double], arcs: [Arc]) {
    nodeCount = heights.count
    self.arcs = arcs
    let order = Self.topologicalOrder(heights.count, arcs.map { ($0.from, $0.to) })
    var rank = [Int](repeating: 0, count: heights.count)
    for (at, node) in order.enumerated() { rank[node] = at }
    isBackward = arcs.map { rank[$0.from] >= rank[$0.to] }
    column = [Int](repeating: 0, count: heights.count)
    var outgoing = [[Int]](repeating: [], count: heights.count)
    var hasOrigin = [Bool](repeating: false, count: heights.count)
    for (index, arc) in arcs.enumerated() where !isBackward[index] {
      outgoing[arc.from].append(index)
      hasOrigin[arc.to] = true
    }
    for node in order {
      for arc in outgoing[node] { column[arcs[arc].to] = max(column[arcs[arc].to], column[node] + 1) }
    }
    // Nodes without an origin are placed right before their first reader.
    for node in order where !hasOrigin[node] {
      if let first = outgoing[node].map({ column[arcs[$0].to] }).min() { column[node] = first - 1 }
    }
    ways = [[Int]](repeating: [], count: arcs.count)
    items = heights.map { Item(height: $0) }
    for node in items.indices { items[node].column = column[node] }
    for (index, arc) in arcs.enumerated() where !isBackward[index] {
      var last = arc.from
      for between in (column[arc.from] + 1)..<max(column[arc.to], column[arc.from] + 1) {
        items.append(Item(height: 0, arc: index, column: between))
        ways[index].append(items.count - 1)
        segments.append(
          Segment(from: last, to: items.count - 1, arc: index, isFirst: last == arc.from, isLast: false))
        last = items.count - 1
      }
      segments.append(Segment(from: last, to: arc.to, arc: index, isFirst: last == arc.from, isLast: true))
    }
    leaving = [[Int]](repeating: [], count: items.count)
    reaching = leaving
    for (index, segment) in segments.enumerated() {
      leaving[segment.from].append(index)
      reaching[segment.to].append(index)
    }
    columns = [[Int]](repeating: [], count: (items.map(\.column).max() ?? -1) + 1)
    for item in items.indices { columns[items[item].column].append(item) }
  }

  /// All numbers below `count`, origins first; unconnected ones keep their order. If arcs form a cycle, the arc that
  /// closes it in the order of the numbers is ignored.
  static func topologicalOrder(_ count: Int, _ arcs: [(Int, Int)]) -> [Int] {
    var next = [[Int]](repeating: [], count: count)
    for (from, to) in arcs where from != to { next[from].append(to) }
    // Depth-first from each node, backwards: gives an order in which arcs that close no cycle lead forward.
    var state = [UInt8](repeating: 0, count: count)
    var finished: [Int] = []
    for root in (0..<count).reversed() where state[root] == 0 {
      var stack = [(node: root, at: 0)]
      state[root] = 1
      while let (node, at) = stack.last {
        // The last readers are visited first, so that the first readers end up first.
        if at < next[node].count {
          stack[stack.count - 1].at += 1
          let target = next[node][next[node].count - 1 - at]
          if state[target] == 0 {
            state[target] = 1
            stack.append((target, 0))
          }
        } else {
          state[node] = 2
          finished.append(node)
          stack.removeLast()
        }
      }
    }
    return finished.reversed()
  }

  // MARK: Order

  /// Reduces crossings: sorts each column by the positions of its neighbours, in both directions.
  mutating func order() {
    number()
    var best = columns
    var fewest = crossings()
    var rounds = 0
    var idle = 0
    while fewest > 0, rounds < 16, idle < 4 {
      if rounds % 2 == 0 {
        for column in columns.indices.dropFirst() { sort(column, reaching, \.from) }
      } else {
        for column in columns.indices.dropLast().reversed() { sort(column, leaving, \.to) }
      }
      let count = crossings()
      if count < fewest {
        fewest = count
        best = columns
        idle = 0
      } else {
        idle += 1
      }
      rounds += 1
    }
    columns = best
    number()
  }

  private mutating func number() {
    for column in columns { for (at, item) in column.enumerated() { items[item].order = at } }
  }

  private mutating func sort(_ column: Int, _ sides: [[Int]], _ far: (Segment) -> Int) {
    let keys = columns[column].map { item -> Double in
      let around = sides[item]
      if around.isEmpty { return Double(items[item].order) }
      return around.reduce(0.0) { $0 + Double(items[far(segments[$1])].order) } / Double(around.count)
    }
    let moving = columns[column].indices.filter { !sides[columns[column][$0]].isEmpty }
      .sorted { (keys[$0], $0) < (keys[$1], $1) }
    var rest = moving.makeIterator()
    let result = columns[column].map { item -> Int in
      // Items without a neighbour there keep their index.
      sides[item].isEmpty ? item : rest.next().map { columns[column][$0] } ?? item
    }
    columns[column] = result
    for (at, item) in result.enumerated() { items[item].order = at }
  }

  func crossings() -> Int {
    var total = 0
    for column in columns.indices.dropLast() {
      // Pairs in the wrong order, counted with a binary indexed tree.
      let pairs = columns[column].flatMap { item in
        leaving[item].map { (items[item].order, items[segments[$0].to].order) }.sorted { $0.1 < $1.1 }
      }
      var tree = [Int](repeating: 0, count: columns[column + 1].count + 1)
      for (seen, pair) in pairs.enumerated() {
        var smaller = 0
        var at = pair.1 + 1
        while at > 0 {
          smaller += tree[at]
          at &= at - 1
        }
        total += seen - smaller
        at = pair.1 + 1
        while at < tree.count {
          tree[at] += 1
          at += at & -at
        }
      }
    }
    return total
  }

  /// The position of an arc's origin, as seen from its end: numbers grow from top to bottom.
  func rankBeforeEnd(_ arc: Int) -> (Int, Int) {
    if isBackward[arc] { return (Int.max, arc) }
    return (items[ways[arc].last ?? arcs[arc].from].order, arc)
  }

  // MARK: Heights

  mutating func setOffsets(_ arc: Int, from: Double, to: Double) {
    arcs[arc].fromOffset = from
    arcs[arc].toOffset = to
  }

  /// The height to which the arc pulls a node: the arc's end, but for high nodes nearer to their middle, so that a row
  /// of high nodes forms no staircase.
  private func pull(_ node: Int, _ offset: Double) -> Double {
    let middle = items[node].height / 2
    return min(max(offset, middle - Self.reach), middle + Self.reach)
  }
  private static let reach = 70.0

  mutating func place() {
    for column in columns {
      var y = 0.0
      var previous: Int?
      for item in column {
        y += previous.map { gap($0, item) } ?? 0
        items[item].y = y
        y += items[item].height
        previous = item
      }
    }
    for round in 0..<10 {
      let last = round >= 8
      if round % 2 == 0 {
        for column in columns.indices { settle(column, usesReaching: true, usesLeaving: last) }
      } else {
        for column in columns.indices.reversed() { settle(column, usesReaching: last, usesLeaving: true) }
      }
    }
    let top = items.map(\.y).min() ?? 0
    for item in items.indices { items[item].y = (items[item].y - top).rounded() }
    // Rounding may take a pixel of a gap, never more.
  }

  private func gap(_ upper: Int, _ lower: Int) -> Double {
    items[upper].isNode && items[lower].isNode
      ? Self.nodeGap : items[upper].isNode || items[lower].isNode ? 18 : Self.wayGap
  }

  /// Moves the items of a column to the heights at which their lines are straightest, without changing their order or
  /// their gaps: least squares under constraints, by joining neighbours that would overlap into blocks.
  private mutating func settle(_ column: Int, usesReaching: Bool, usesLeaving: Bool) {
    struct Block {
      var weight: Double
      var sum: Double
      var count: Int
      var mean: Double { sum / weight }
    }
    var blocks: [Block] = []
    var offsets: [Double] = []
    var offset = 0.0
    var previous: Int?
    for item in columns[column] {
      if let previous { offset += items[previous].height + gap(previous, item) }
      previous = item
      offsets.append(offset)
      var weight = 0.0
      var sum = 0.0
      if usesReaching {
        for index in reaching[item] {
          let segment = segments[index]
          let start = items[segment.from].y + (segment.isFirst ? pull(segment.from, arcs[segment.arc].fromOffset) : 0)
          let own = segment.isLast ? pull(item, arcs[segment.arc].toOffset) : 0
          let pull = segment.isFirst && segment.isLast ? 1.0 : segment.isFirst || segment.isLast ? 2 : 6
          weight += pull
          sum += pull * (start - own)
        }
      }
      if usesLeaving {
        for index in leaving[item] {
          let segment = segments[index]
          let end = items[segment.to].y + (segment.isLast ? pull(segment.to, arcs[segment.arc].toOffset) : 0)
          let own = segment.isFirst ? pull(item, arcs[segment.arc].fromOffset) : 0
          let pull = segment.isFirst && segment.isLast ? 1.0 : segment.isFirst || segment.isLast ? 2 : 6
          weight += pull
          sum += pull * (end - own)
        }
      }
      if weight == 0 {
        weight = 0.01
        sum = items[item].y * weight
      }
      blocks.append(Block(weight: weight, sum: sum - offset * weight, count: 1))
      while blocks.count > 1, blocks[blocks.count - 2].mean > blocks[blocks.count - 1].mean {
        let lower = blocks.removeLast()
        blocks[blocks.count - 1].weight += lower.weight
        blocks[blocks.count - 1].sum += lower.sum
        blocks[blocks.count - 1].count += lower.count
      }
    }
    var at = 0
    for block in blocks {
      for _ in 0..<block.count {
        items[columns[column][at]].y = block.mean + offsets[at]
        at += 1
      }
    }
  }

  var columnCount: Int { columns.count }
  func y(ofNode node: Int) -> Double { items[node].y }
  /// The heights of both ends of an arc.
  func ends(ofArc arc: Int) -> (start: Double, end: Double) {
    (items[arcs[arc].from].y + arcs[arc].fromOffset, items[arcs[arc].to].y + arcs[arc].toOffset)
  }
  /// The height at which the arc passes each column between its ends.
  func heights(ofArc arc: Int) -> [Double] { ways[arc].map { items[$0].y } }
  /// The lowest point of all items.
  var bottom: Double { items.map { $0.y + $0.height }.max() ?? 0 }
}
