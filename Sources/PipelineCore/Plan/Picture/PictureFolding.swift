extension PictureOutline {
  /// Merges groups that have the same steps and similar origins and readers into one, if there are at least `limit`.
  mutating func fold(atLeast limit: Int) {
    let classes = likeGroups()
    var representatives = Array(groups.indices)
    var replaced: [Int: Int] = [:]
    for members in classes where members.count >= limit {
      let first = members[0]
      let own = boxesInside(first)
      var lines = own.map { [boxes[$0].details] }
      for member in members.dropFirst() {
        representatives[member] = first
        for (at, box) in boxesInside(member).enumerated() {
          replaced[box] = own[at]
          lines[at].append(boxes[box].details)
        }
      }
      groups[first].members = members.map { groups[$0].name }
      for (at, box) in own.enumerated() { boxes[box].details = Self.common(lines[at]) }
    }
    if replaced.isEmpty { return }
    func moved(_ anchor: Anchor) -> Anchor {
      switch anchor {
      case .box(let box): .box(replaced[box] ?? box)
      case .feed(let box): .feed(replaced[box] ?? box)
      case .inside(let box): .inside(replaced[box] ?? box)
      case .group(let group): .group(representatives[group])
      case .errors(let group): .errors(representatives[group])
      }
    }
    struct Ends: Hashable {
      var from: Anchor
      var to: Anchor
    }
    var known: [Ends: Int] = [:]
    var merged: [Link] = []
    for var link in links {
      link.from = moved(link.from)
      link.to = moved(link.to)
      let ends = Ends(from: link.from, to: link.to)
      if let index = known[ends] {
        merged[index].count += link.count
      } else {
        known[ends] = merged.count
        merged.append(link)
      }
    }
    links = merged
    removeAll { representatives[$0] != $0 }
  }

  /// The boxes of a group, from top to bottom.
  func boxesInside(_ group: Int) -> [Int] {
    var result: [Int] = []
    var open = Array(groups[group].children.reversed())
    while let box = open.popLast() {
      result.append(box)
      open += boxes[box].children.reversed()
    }
    return result
  }

  /// Sets of similar groups, in the order of the file. Two groups are similar if they have the same steps, and their
  /// inputs and outputs connect to similar groups: so a set never reads itself.
  private func likeGroups() -> [[Int]] {
    var position = [Int](repeating: 0, count: boxes.count)
    for group in groups.indices { for (at, box) in boxesInside(group).enumerated() { position[box] = at } }
    func anchorKey(_ anchor: Anchor) -> [Int] {
      switch anchor {
      case .box(let box): [0, position[box]]
      case .feed(let box): [1, position[box]]
      case .inside(let box): [2, position[box]]
      case .group: [3]
      case .errors: [4]
      }
    }
    var incoming = [[Int]](repeating: [], count: groups.count)
    var outgoing = incoming
    for (index, link) in links.enumerated() where group(of: link.from) != group(of: link.to) {
      outgoing[group(of: link.from)].append(index)
      incoming[group(of: link.to)].append(index)
    }
    var numbers: [[Int]: Int] = [:]
    var texts: [String: Int] = [:]
    func number(_ key: [Int]) -> Int {
      if let known = numbers[key] { return known }
      numbers[key] = numbers.count
      return numbers.count - 1
    }
    func number(_ text: String) -> Int {
      if let known = texts[text] { return known }
      texts[text] = texts.count
      return texts.count - 1
    }
    let shapes = groups.indices.map { group -> Int in
      var text = groups[group].kind.rawValue
      for box in boxesInside(group) {
        text += "\n\(boxes[box].parent.map { position[$0] } ?? -1) \(boxes[box].kind.rawValue) \(boxes[box].keyword)"
      }
      return number(text)
    }
    let order = PictureLayers.topologicalOrder(
      groups.count, links.map { (group(of: $0.from), group(of: $0.to)) })
    var rank = [Int](repeating: 0, count: groups.count)
    for (at, group) in order.enumerated() { rank[group] = at }

    /// A number for each group, equal for groups whose predecessors (or successors) are similar. Links that close a
    /// cycle are ignored.
    func walk(_ order: [Int], _ sides: [[Int]], _ far: (Link) -> Anchor, _ near: (Link) -> Anchor, isBefore: Bool)
      -> [Int]
    {
      var color = [Int](repeating: 0, count: groups.count)
      for group in order {
        let around = sides[group].compactMap { index -> [Int]? in
          let other = self.group(of: far(links[index]))
          if (rank[other] < rank[group]) != isBefore { return nil }
          return anchorKey(near(links[index])) + [-1, color[other], -1] + anchorKey(far(links[index])) + [
            links[index].kind.number
          ]
        }.sorted { $0.lexicographicallyPrecedes($1) }
        color[group] = number([isBefore ? -3 : -4, shapes[group]] + around.joined(separator: [-2]))
      }
      return color
    }
    let before = walk(order, incoming, \.from, \.to, isBefore: true)
    let after = walk(order.reversed(), outgoing, \.to, \.from, isBefore: false)
    var sets: [[Int]: Int] = [:]
    var result: [[Int]] = []
    for group in groups.indices {
      let key = [before[group], after[group]]
      if let index = sets[key] {
        result[index].append(group)
      } else {
        sets[key] = result.count
        result.append([group])
      }
    }
    return result
  }

  /// The lines of the settings of folded boxes; where lines differ, their common beginning.
  private static func common(_ all: [[String]]) -> [String] {
    let first = all[0]
    return first.indices.map { at in
      var prefix = first[at][...]
      for other in all.dropFirst() {
        guard at < other.count else { return "…" }
        prefix = prefix.prefix(zip(prefix, other[at]).prefix { $0 == $1 }.count)
      }
      return prefix.count == first[at].count && all.allSatisfy { $0[at] == first[at] } ? first[at] : prefix + "…"
    }
  }

  private mutating func removeAll(where isGone: (Int) -> Bool) {
    var groupNumbers = [Int](repeating: -1, count: groups.count)
    var boxNumbers = [Int](repeating: -1, count: boxes.count)
    var keptGroups: [Group] = []
    var keptBoxes: [Box] = []
    for group in groups.indices where !isGone(group) {
      groupNumbers[group] = keptGroups.count
      keptGroups.append(groups[group])
    }
    for box in boxes.indices where groupNumbers[boxes[box].group] >= 0 {
      boxNumbers[box] = keptBoxes.count
      keptBoxes.append(boxes[box])
    }
    for index in keptGroups.indices { keptGroups[index].children = keptGroups[index].children.map { boxNumbers[$0] } }
    for index in keptBoxes.indices {
      keptBoxes[index].group = groupNumbers[keptBoxes[index].group]
      keptBoxes[index].parent = keptBoxes[index].parent.map { boxNumbers[$0] }
      keptBoxes[index].children = keptBoxes[index].children.map { boxNumbers[$0] }
    }
    func moved(_ anchor: Anchor) -> Anchor {
      switch anchor {
      case .box(let box): .box(boxNumbers[box])
      case .feed(let box): .feed(boxNumbers[box])
      case .inside(let box): .inside(boxNumbers[box])
      case .group(let group): .group(groupNumbers[group])
      case .errors(let group): .errors(groupNumbers[group])
      }
    }
    for index in links.indices {
      links[index].from = moved(links[index].from)
      links[index].to = moved(links[index].to)
    }
    groups = keptGroups
    boxes = keptBoxes
  }
}

extension GraphPicture.Edge.Kind {
  fileprivate var number: Int {
    switch self {
    case .events: 0
    case .errors: 1
    case .inner: 2
    case .command: 3
    }
  }
}
