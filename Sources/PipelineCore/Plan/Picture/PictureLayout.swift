/// Computes the coordinates of all parts of an outline.
struct PictureLayout {
  typealias Frame = GraphPicture.Frame

  private let outline: PictureOutline
  private(set) var width = 0.0
  private(set) var height = 0.0
  /// The frames of groups in the picture, and the frames of boxes: first within their group, then in the picture.
  private var groupFrames: [Frame]
  private var boxFrames: [Frame]
  private var headHeights: [Double]
  private var columnOfGroup: [Int]
  private var boxLines: [[GraphPicture.Line]]
  private var groupLines: [[GraphPicture.Line]]
  /// The room on the right of a box's or a group's children for lines that pass some of these children.
  private var boxLanes: [Int: Double] = [:]
  private var groupLanes: [Int: Double] = [:]
  private var edges: [GraphPicture.Edge?]
  /// The links that leave their group, and the links that do not.
  private var outer: [Int] = []
  private var inner: [Int] = []
  /// The height within the head of the box at which a link from outside arrives, by link.
  private var entries: [Int: Double] = [:]
  /// The links from outside to each box.
  private var arrivals: [Int: [Int]] = [:]
  private var hasErrors: Set<Int> = []
  /// The box whose events are those of a group, and the index of each box among its siblings.
  private var lastBoxes: [Int: Int] = [:]
  private var positions: [Int]
  /// The boxes whose last inner signal sends into the box, so that a line is drawn below that signal.
  private var hasResult: Set<Int> = []

  enum Size {
    static let name = 12.0
    static let keyword = 12.0
    static let detail = 11.0
    static let small = 9.0
    static let linePitch = 14.0
    /// The gap between boxes below each other, with room for an arrow and a rate.
    static let gap = 22.0
    static let padding = 12.0
    static let textInset = 10.0
    static let lane = 10.0
    static let detailWidth = 238.0
    static let nameWidth = 230.0
    static let narrowest = 132.0
    static let details = 3
    static let lead = 40.0
    /// The distance between the last point of a column and the start of the lines into the next column; wider if more
    /// lines rise or fall there.
    static let narrowChannel = 40.0
    static let wideChannel = 120.0
    static let arrivalPitch = 13.0
    static let margin = 20.0
    static let count = 52.0
  }

  init(_ outline: PictureOutline) {
    self.outline = outline
    groupFrames = outline.groups.map { _ in Frame() }
    boxFrames = outline.boxes.map { _ in Frame() }
    headHeights = outline.boxes.map { _ in 0 }
    positions = outline.boxes.map { _ in 0 }
    columnOfGroup = outline.groups.map { _ in 0 }
    boxLines = outline.boxes.map { _ in [] }
    groupLines = outline.groups.map { _ in [] }
    edges = outline.links.map { _ in nil }
  }

  mutating func run() {
    for (index, link) in outline.links.enumerated() {
      let isOuter = outline.group(of: link.from) != outline.group(of: link.to)
      if isOuter { outer.append(index) } else { inner.append(index) }
      if isOuter, case .box(let box) = link.to { arrivals[box, default: []].append(index) }
      if case .errors(let group) = link.from { hasErrors.insert(group) }
      if case .inside(let box) = link.to { hasResult.insert(box) }
      if isOuter, case .inside(let box) = link.to { arrivals[box, default: []].append(index) }
    }
    for (group, info) in outline.groups.enumerated() {
      lastBoxes[group] = info.children.last { outline.boxes[$0].kind != .port }
      for (at, box) in info.children.enumerated() { positions[box] = at }
    }
    for box in outline.boxes { for (at, child) in box.children.enumerated() { positions[child] = at } }
    for index in inner {
      let link = outline.links[index]
      if case .group(let group) = link.to, let box = box(of: link.from) { lastBoxes[group] = box }
      guard case .lane = manner(link) else { continue }
      laneCounts[LaneOwner(group: outline.group(of: link.from), parent: laneParent(link)), default: 0] += 1
    }
    for group in outline.groups.indices { measure(group) }
    placeGroups()
    for group in outline.groups.indices {
      for box in outline.boxesInside(group) {
        boxFrames[box].x += groupFrames[group].x
        boxFrames[box].y += groupFrames[group].y
      }
    }
    for link in inner { edges[link] = insideEdge(link) }
  }

  // MARK: Groups from inside

  private mutating func measure(_ group: Int) {
    let own = outline.boxesInside(group)
    // A box comes before its contents, so in reverse order the contents are measured first.
    for box in own.reversed() { measureBox(box) }
    let children = outline.groups[group].children
    let lanes = lanes(group, nil)
    groupLanes[group] = lanes
    let name = headline(group)
    let widest = children.map { boxFrames[$0].width }.max() ?? 0
    let content = max(widest, name - 2 * Size.padding, Size.narrowest)
    var frame = Frame(width: content + 2 * Size.padding + lanes)
    var y = 36.0
    for (at, child) in children.enumerated() {
      if at > 0 { y += Size.gap }
      boxFrames[child].x = Size.padding
      boxFrames[child].y = y
      boxFrames[child].width = content
      y += boxFrames[child].height
    }
    frame.height = y + (children.isEmpty ? 0 : Size.padding) + (hasErrors.contains(group) ? 12 : 0)
    groupFrames[group] = frame
    for box in own { stretch(box) }
  }

  /// Lays out the texts at the head of a group; returns the width that they need.
  private mutating func headline(_ group: Int) -> Double {
    let info = outline.groups[group]
    var name = info.name
    if info.members.count > 1, let last = info.members.last { name = "\(name) … \(last)" }
    name = PictureText.cut(name, size: Size.name, to: Size.nameWidth)
    let width = PictureText.width(name, size: Size.name)
    groupLines[group] = [.init(text: name, style: .name, x: Size.padding, y: 23, width: width)]
    var right = Size.padding + width
    if info.members.count > 1 {
      let badge = "\(info.members.count) ×"
      let width = PictureText.width(badge, size: Size.detail)
      groupLines[group].append(.init(text: badge, style: .badge, x: right + 12, y: 23, width: width))
      right += 12 + width
    }
    let kind = info.kind.rawValue
    let kindWidth = PictureText.width(kind, size: Size.small)
    groupLines[group].append(.init(text: kind, style: .kind, x: right + 14, y: 23, width: kindWidth))
    return right + 14 + kindWidth + Size.padding
  }

  /// Computes the minimum width and the height of a box with its contents.
  private mutating func measureBox(_ box: Int) {
    let info = outline.boxes[box]
    var lines: [GraphPicture.Line] = []
    let isSmall = info.kind == .port || info.kind == .branch
    let size = isSmall ? Size.detail : Size.keyword
    let keyword = PictureText.cut(info.keyword, size: size, to: Size.detailWidth)
    let keywordWidth = PictureText.width(keyword, size: size)
    var y = isSmall ? 16.0 : 19
    lines.append(.init(text: keyword, style: .keyword, x: Size.textInset, y: y, width: keywordWidth))
    var widest = keywordWidth + Size.count
    var shown = info.details
    if shown.count > Size.details {
      let rest = shown.count - Size.details + 1
      shown = shown.prefix(Size.details - 1) + ["and \(rest) more"]
    }
    for detail in shown {
      y += Size.linePitch
      let text = PictureText.cut(detail, size: Size.detail, to: Size.detailWidth)
      let width = PictureText.width(text, size: Size.detail)
      lines.append(.init(text: text, style: .detail, x: Size.textInset, y: y, width: width))
      widest = max(widest, width)
    }
    boxLines[box] = lines
    let entries = arrivals[box]?.count ?? 0
    var height = y + (isSmall ? 7 : 9)
    height = max(height, Double(entries) * Size.arrivalPitch + 8)
    headHeights[box] = height
    var frame = Frame(width: max(Size.narrowest, widest + 2 * Size.textInset), height: height)
    if !info.children.isEmpty {
      let lanes = lanes(info.group, box)
      boxLanes[box] = lanes
      let content = info.children.map { boxFrames[$0].width }.max() ?? 0
      frame.width = max(frame.width, content + 2 * Size.padding + lanes)
      var y = height + (info.kind == .branch ? 2 : Size.gap - 6)
      for (at, child) in info.children.enumerated() {
        if at > 0 { y += Size.gap }
        boxFrames[child].y = y
        y += boxFrames[child].height
      }
      frame.height = y + (hasResult.contains(box) ? Size.gap - 2 : Size.padding)
    }
    boxFrames[box].width = frame.width
    boxFrames[box].height = frame.height
  }

  /// Arranges the contents of a box in the group. The box itself has been arranged.
  private mutating func stretch(_ box: Int) {
    let own = boxFrames[box]
    let content = own.width - 2 * Size.padding - (boxLanes[box] ?? 0)
    for child in outline.boxes[box].children {
      boxFrames[child].x = own.x + Size.padding
      boxFrames[child].y += own.y
      boxFrames[child].width = content
    }
  }

  // MARK: Lines inside of a group

  private enum Inside {
    /// Down from the first box to the second, directly below it.
    case down
    /// Down from the head of a box to the first box inside.
    case into
    /// Down from the last box to the lower edge of its enclosing box.
    case outOf
    /// Leads to the border of the group.
    case exit
    /// Along the right side of the boxes between the two.
    case lane
  }

  private func manner(_ link: PictureOutline.Link) -> Inside {
    switch (link.from, link.to) {
    case (_, .group): return .exit
    case (.feed(let box), .box(let target)): return outline.boxes[box].children.first == target ? .into : .lane
    case (.box(let box), .inside(let target)): return outline.boxes[target].children.last == box ? .outOf : .lane
    case (.box(let box), .box(let target)):
      let (first, second) = (outline.boxes[box], outline.boxes[target])
      let siblings = first.parent.map { outline.boxes[$0].children } ?? outline.groups[first.group].children
      let below = positions[box] + 1
      return first.parent == second.parent && below < siblings.count && siblings[below] == target ? .down : .lane
    default: return .lane
    }
  }

  private func box(of anchor: PictureOutline.Anchor) -> Int? {
    switch anchor {
    case .box(let box), .feed(let box), .inside(let box): box
    case .group, .errors: nil
    }
  }

  /// A box and its enclosing boxes, innermost first.
  private func ancestors(_ box: Int) -> [Int] {
    var result = [box]
    while let parent = outline.boxes[result[result.count - 1]].parent { result.append(parent) }
    return result
  }

  /// The box within which a link passes other boxes; nil: the group.
  private func laneParent(_ link: PictureOutline.Link) -> Int? {
    guard let from = box(of: link.from), let to = box(of: link.to) else { return nil }
    // A link between a box and its contents is drawn inside of that box.
    var outer = ancestors(from)
    var other = ancestors(to)
    if case .box = link.from { outer.removeFirst() }
    if case .box = link.to { other.removeFirst() }
    return outer.first { other.contains($0) }
  }

  private func lanes(_ group: Int, _ parent: Int?) -> Double {
    let count = laneCounts[LaneOwner(group: group, parent: parent), default: 0]
    return count == 0 ? 0 : Double(count) * Size.lane + 4
  }

  /// The distance between the upper edge of a box and the point at its side where its events leave it.
  private func exitOffset(_ box: Int) -> Double {
    outline.boxes[box].kind == .port
      ? headHeights[box] - 7 : outline.boxes[box].children.isEmpty ? headHeights[box] / 2 : boxFrames[box].height - 9
  }

  private mutating func insideEdge(_ index: Int) -> GraphPicture.Edge {
    let link = outline.links[index]
    let group = outline.group(of: link.from)
    var edge = GraphPicture.Edge(
      from: link.fromName, to: link.toName, kind: link.kind, isTimed: link.isTimed, fromGroup: group, toGroup: group,
      startX: 0, startY: 0,
      segments: [], isBackward: false, count: link.count, labelX: 0, labelY: 0, labelEndsThere: false)
    func label(_ x: Double, _ y: Double) {
      edge.labelX = x + 7
      edge.labelY = y + 3
    }
    let from = box(of: link.from).map { boxFrames[$0] } ?? groupFrames[group]
    let to = box(of: link.to).map { boxFrames[$0] } ?? groupFrames[group]
    switch manner(link) {
    case .down:
      (edge.startX, edge.startY) = (from.middle, from.bottom)
      edge.segments = [.line(x: from.middle, y: to.y)]
      label(from.middle, (from.bottom + to.y) / 2)
    case .into:
      let top = from.y + (box(of: link.from).map { headHeights[$0] } ?? 0)
      (edge.startX, edge.startY) = (to.middle, top)
      edge.segments = [.line(x: to.middle, y: to.y)]
      label(to.middle, (top + to.y) / 2)
    case .outOf:
      (edge.startX, edge.startY) = (from.middle, from.bottom)
      edge.segments = [.line(x: from.middle, y: to.bottom)]
      label(from.middle, (from.bottom + to.bottom) / 2)
    case .exit:
      edge.isExit = true
      let y = from.y + (box(of: link.from).map { exitOffset($0) } ?? 0)
      (edge.startX, edge.startY) = (from.right, y)
      edge.segments = [.line(x: groupFrames[group].right, y: y)]
      edge.labelX = groupFrames[group].right - 4
      edge.labelY = y - 5
      edge.labelEndsThere = true
    case .lane:
      let parent = laneParent(link)
      let outer = parent.map { boxFrames[$0] } ?? groupFrames[group]
      let used = laneNumbers[LaneOwner(group: group, parent: parent), default: 0]
      laneNumbers[LaneOwner(group: group, parent: parent)] = used + 1
      let lanes = parent.map { boxLanes[$0] ?? 0 } ?? groupLanes[group] ?? 0
      let x = outer.right - Size.padding - lanes + 8 + Double(used) * Size.lane
      let startY: Double
      if case .feed(let box) = link.from {
        startY = from.y + headHeights[box] / 2
        (edge.startX, edge.startY) = (min(from.right, x), from.y + headHeights[box])
      } else {
        startY = from.y + (box(of: link.from).map { exitOffset($0) } ?? 0)
        (edge.startX, edge.startY) = (from.right, startY)
        edge.segments = [.line(x: x, y: startY)]
      }
      if case .inside = link.to {
        edge.segments.append(.line(x: x, y: to.bottom))
      } else {
        let endY = to.y + 8
        edge.segments += [.line(x: x, y: endY), .line(x: to.right, y: endY)]
      }
      edge.labelX = x - 4
      edge.labelY = startY + 12
      edge.labelEndsThere = true
    }
    return edge
  }

  private struct LaneOwner: Hashable {
    var group: Int
    var parent: Int?
  }
  /// The number of lines that pass boxes there, and how many of these lines have been drawn.
  private var laneCounts: [LaneOwner: Int] = [:]
  private var laneNumbers: [LaneOwner: Int] = [:]

  // MARK: Groups

  /// The distance between the upper edge of a group and the point where a link leaves it.
  private func exit(_ link: PictureOutline.Link) -> Double {
    switch link.from {
    case .errors(let group): return groupFrames[group].height - 12
    case .box(let box), .feed(let box), .inside(let box): return boxFrames[box].y + exitOffset(box)
    case .group(let group):
      guard let last = lastBoxes[group] else { return 22 }
      return boxFrames[last].y + exitOffset(last)
    }
  }

  private mutating func placeGroups() {
    var top = 0.0
    var right = 0.0
    for part in parts() {
      let (bottom, side) = place(part, below: top)
      top = bottom + 40
      right = max(right, side)
    }
    width = (right + 2 * Size.margin).rounded(.up)
    height = (max(0, top - 40) + 2 * Size.margin).rounded(.up)
    for group in groupFrames.indices {
      groupFrames[group].x += Size.margin
      groupFrames[group].y += Size.margin
    }
    for index in edges.indices where edges[index] != nil { edges[index]?.move(by: Size.margin) }
  }

  /// Parts of the picture: sets of groups that links connect. The parts are drawn below each other, in the order of the
  /// file.
  private func parts() -> [[Int]] {
    var leader = Array(outline.groups.indices)
    func find(_ group: Int) -> Int {
      var group = group
      while leader[group] != group { group = leader[group] }
      return group
    }
    for index in outer {
      let (a, b) = (
        find(outline.group(of: outline.links[index].from)), find(outline.group(of: outline.links[index].to))
      )
      leader[max(a, b)] = min(a, b)
    }
    var result: [Int: [Int]] = [:]
    for group in outline.groups.indices { result[find(group), default: []].append(group) }
    return result.keys.sorted().map { result[$0] ?? [] }
  }

  /// Places a part, and returns the lowest and the rightmost point.
  private mutating func place(_ part: [Int], below top: Double) -> (bottom: Double, right: Double) {
    var number: [Int: Int] = [:]
    for (at, group) in part.enumerated() { number[group] = at }
    let links = outer.filter { number[outline.group(of: outline.links[$0].from)] != nil }
    var layers = PictureLayers(
      heights: part.map { groupFrames[$0].height },
      arcs: links.map { index in
        let link = outline.links[index]
        return .init(from: number[outline.group(of: link.from)] ?? 0, to: number[outline.group(of: link.to)] ?? 0)
      })
    layers.order()
    // Links reach a box in the order in which they come from above.
    var arriving: [Int: [Int]] = [:]
    for (arc, index) in links.enumerated() {
      if let box = box(of: outline.links[index].to) { arriving[box, default: []].append(arc) }
    }
    for (box, arcs) in arriving {
      let sorted = arcs.sorted { layers.rankBeforeEnd($0) < layers.rankBeforeEnd($1) }
      let room = headHeights[box] / Double(sorted.count)
      for (at, arc) in sorted.enumerated() { entries[links[arc]] = ((Double(at) + 0.5) * room).rounded() }
    }
    for (arc, index) in links.enumerated() {
      let link = outline.links[index]
      let to = box(of: link.to).map { boxFrames[$0].y + (entries[index] ?? 0) } ?? 22
      layers.setOffsets(arc, from: exit(link), to: to)
    }
    layers.place()
    // Columns from left to right, as wide as their widest group.
    var widths = [Double](repeating: 0, count: layers.columnCount)
    for (at, group) in part.enumerated() {
      columnOfGroup[group] = layers.column[at]
      widths[layers.column[at]] = max(widths[layers.column[at]], groupFrames[group].width)
    }
    var rises = [Double](repeating: 0, count: layers.columnCount)
    for arc in links.indices where !layers.isBackward[arc] {
      var column = layers.column[layers.arcs[arc].from]
      let ends = layers.ends(ofArc: arc)
      for (height, next) in zip([ends.start] + layers.heights(ofArc: arc), layers.heights(ofArc: arc) + [ends.end]) {
        rises[column] = max(rises[column], abs(next - height))
        column += 1
      }
    }
    var lefts: [Double] = []
    var x = 0.0
    for (width, rise) in zip(widths, rises) {
      lefts.append(x)
      x += width + Size.lead + min(Size.wideChannel, Size.narrowChannel + (rise / 6).rounded())
    }
    for (at, group) in part.enumerated() {
      groupFrames[group].x = lefts[layers.column[at]]
      groupFrames[group].y = top + layers.y(ofNode: at)
    }
    var bottom = part.map { groupFrames[$0].bottom }.max() ?? top
    var right = part.map { groupFrames[$0].right }.max() ?? 0
    for (arc, index) in links.enumerated() {
      for height in layers.heights(ofArc: arc) { bottom = max(bottom, top + height + 6) }
      if layers.isBackward[arc] { continue }
      edges[index] = forward(
        index, columns: lefts.indices.map { (lefts[$0], lefts[$0] + widths[$0]) },
        between: layers.heights(ofArc: arc).map { top + $0 })
    }
    for (arc, index) in links.enumerated() where layers.isBackward[arc] {
      bottom += 16
      edges[index] = backward(
        index, columns: lefts.indices.map { (lefts[$0], lefts[$0] + widths[$0]) }, along: bottom,
        detour: Double(arc % 3) * 3)
      right = max(right, lefts.last.map { $0 + (widths.last ?? 0) + 20 } ?? 0)
      if arc == links.indices.last(where: { layers.isBackward[$0] }) { bottom += 6 }
    }
    return (bottom, right)
  }

  private func start(_ index: Int) -> GraphPicture.Edge {
    let link = outline.links[index]
    let (from, to) = (outline.group(of: link.from), outline.group(of: link.to))
    let startX: Double
    switch link.from {
    case .group, .errors: startX = groupFrames[from].right
    case .box(let box), .feed(let box), .inside(let box): startX = groupFrames[from].x + boxFrames[box].right
    }
    return GraphPicture.Edge(
      from: link.fromName, to: link.toName, kind: link.kind, isTimed: link.isTimed, fromGroup: from, toGroup: to,
      startX: startX,
      startY: groupFrames[from].y + exit(link), segments: [], isBackward: false, count: link.count, labelX: 0,
      labelY: 0,
      labelEndsThere: true)
  }

  /// The end of the link: the left edge of a box, or of a group without one.
  private func arrival(_ index: Int) -> (x: Double, y: Double) {
    let link = outline.links[index]
    let group = groupFrames[outline.group(of: link.to)]
    guard let box = box(of: link.to) else { return (group.x, group.y + 22) }
    return (group.x + boxFrames[box].x, group.y + boxFrames[box].y + (entries[index] ?? 0))
  }

  private func forward(_ index: Int, columns: [(left: Double, right: Double)], between: [Double]) -> GraphPicture.Edge {
    var edge = start(index)
    let first = columnOfGroup[edge.fromGroup]
    let end = arrival(index)
    edge.segments.append(.line(x: columns[first].right, y: edge.startY))
    var column = first
    for height in between {
      column += 1
      edge.segments += [.curve(x: columns[column].left, y: height), .line(x: columns[column].right, y: height)]
    }
    column = columnOfGroup[edge.toGroup]
    edge.segments += [.curve(x: columns[column].left - Size.lead, y: end.y), .line(x: end.x, y: end.y)]
    edge.labelX = columns[column].left - 4
    edge.labelY = end.y - 4
    return edge
  }

  private func backward(
    _ index: Int, columns: [(left: Double, right: Double)], along: Double, detour: Double
  ) -> GraphPicture.Edge {
    var edge = start(index)
    edge.isBackward = true
    let end = arrival(index)
    let out = columns[columnOfGroup[edge.fromGroup]].right + 12 + detour
    let back = columns[columnOfGroup[edge.toGroup]].left - 12 - detour
    edge.segments = [
      .line(x: out, y: edge.startY), .line(x: out, y: along), .line(x: back, y: along), .line(x: back, y: end.y),
      .line(x: end.x, y: end.y),
    ]
    edge.labelX = out - 6
    edge.labelY = along - 4
    return edge
  }

  // MARK: Result

  func finished() -> ([GraphPicture.Group], [GraphPicture.Box], [GraphPicture.Edge]) {
    let groups = outline.groups.indices.map { index -> GraphPicture.Group in
      let info = outline.groups[index]
      let frame = groupFrames[index]
      var title = "\(info.kind.rawValue) \(info.name)"
      if info.members.count > 1 {
        title = "\(info.members.count) of the same shape: \(info.members.joined(separator: ", "))"
      }
      return .init(
        name: info.name, kind: info.kind, frame: frame,
        lines: groupLines[index].map { line in
          var line = line
          line.x += frame.x
          line.y += frame.y
          // The kind is at the right end.
          if line.style == .kind { line.x = frame.right - Size.padding - line.width }
          return line
        }, title: title, members: info.members, column: columnOfGroup[index], location: info.location)
    }
    // Outer boxes before inner ones, as they are drawn.
    let order = outline.groups.indices.flatMap { outline.boxesInside($0) }
    var number = [Int](repeating: 0, count: outline.boxes.count)
    for (at, box) in order.enumerated() { number[box] = at }
    let boxes = order.map { index -> GraphPicture.Box in
      let info = outline.boxes[index]
      let frame = boxFrames[index]
      let title = ([info.keyword] + info.details + info.remarks + [info.fileAndLine]).joined(
        separator: "\n")
      return .init(
        id: info.id, kind: info.kind, topic: info.topic, keyword: info.keyword, frame: frame,
        headHeight: headHeights[index],
        lines: boxLines[index].map { line in
          var line = line
          line.x += frame.x
          line.y += frame.y
          return line
        }, title: title, group: info.group, parent: info.parent.map { number[$0] },
        countX: frame.right - Size.textInset, location: info.location)
    }
    return (groups, boxes, edges.compactMap { $0 })
  }
}

extension GraphPicture.Edge {
  fileprivate mutating func move(by margin: Double) {
    startX += margin
    startY += margin
    labelX += margin
    labelY += margin
    segments = segments.map { segment in
      switch segment {
      case .line(let x, let y): .line(x: x + margin, y: y + margin)
      case .curve(let x, let y): .curve(x: x + margin, y: y + margin)
      }
    }
  }
}
