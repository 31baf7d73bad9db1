#if canImport(Glibc)
  import Glibc
#endif

/// Finds sinks whose output returns to them, directly or through other sinks: their events would circulate forever.
///
/// Steps that drop events are not considered, so a cycle that a `filter` breaks is reported too.
struct OutsideCircles {
  /// One link of a cycle, going upstream: the sink of `way` writes what `inlet` reads.
  struct Part {
    var inlet: OutsideInlet
    var way: Int
  }

  private let ways: [OutsideWay]
  /// The sinks that write each exact file, those that write any file, and those that send to each port or socket.
  private var byFile: [String: [Int]] = [:]
  private var files: [(path: String, isPattern: Bool, way: Int)] = []
  private var byPort: [ListenAddress.Key: [Int]] = [:]
  private var feeds: [ListenAddress.Key: [Int]] = [:]

  init(_ ways: [OutsideWay]) {
    self.ways = ways
    for (index, way) in ways.enumerated() {
      switch way.outlet {
      case .file(_, let path):
        if way.isSure { byFile[path, default: []].append(index) }
        files.append((path, !way.isSure, index))
      case .address(let target), .request(let target): byPort[target.address.key, default: []].append(index)
      case .feed(let address): feeds[address.key, default: []].append(index)
      }
    }
  }

  /// The shortest path upstream from a sink to itself; nil if there is none.
  ///
  /// - Parameter isUsed: Whether the path may pass through a sink.
  func circle(through start: Int, _ isUsed: (Int) -> Bool = { _ in true }) -> [Part]? {
    var found: [(part: Part, before: Int)] = []
    var seen: Set<Int> = []
    var next = -1
    while next < found.count {
      for inlet in ways[next < 0 ? start : found[next].part.way].inlets {
        for writer in writers(of: inlet) where isUsed(writer) {
          if writer == start {
            var parts = [Part(inlet: inlet, way: writer)]
            var at = next
            while at >= 0 {
              parts.append(found[at].part)
              at = found[at].before
            }
            return parts.reversed()
          }
          if seen.insert(writer).inserted { found.append((Part(inlet: inlet, way: writer), next)) }
        }
      }
      next += 1
    }
    return nil
  }

  private func writers(of inlet: OutsideInlet) -> [Int] {
    switch inlet.kind {
    case .files(_, let pattern):
      let fixed = pattern.utf8.prefix { !Self.wildcards.contains($0) }
      if fixed.count == pattern.utf8.count, !hasPatterns { return byFile[pattern] ?? [] }
      return files.filter { file in
        file.isPattern
          ? Self.matches(pattern, file.path) || Self.matches(file.path, pattern)
          : file.path == pattern || file.path.utf8.starts(with: fixed) && Self.matches(pattern, file.path)
      }.map(\.way)
    case .address(let listener, let rules):
      return (byPort[listener.key] ?? []).filter { way in
        switch ways[way].outlet {
        case .address(let target), .request(let target): return target.arrives(at: listener, rules)
        case .file, .feed: return false
        }
      }
    case .feed(let target):
      return (feeds[target.address.key] ?? []).filter { way in
        guard case .feed(let address) = ways[way].outlet else { return false }
        return target.arrives(at: address, nil)
      }
    }
  }

  private var hasPatterns: Bool { files.contains(where: \.isPattern) }

  private static func matches(_ pattern: String, _ path: String) -> Bool {
    pattern == path || PathPattern.matches(pattern, path)
  }

  private static let wildcards = Array("*?[\\".utf8)

  func diagnostic(of circle: [Part], through start: Int) -> Diagnostic {
    let way = ways[start]
    // It is unknown whether an expression ever yields that path, and whether a step lets an event pass.
    let isSure = circle.allSatisfy { ways[$0.way].isSure }
    let (what, help) =
      switch way.outlet {
      case .file:
        (
          "the sink '\(way.sink)' \(isSure ? "writes" : "may write") a file that its own events are read from",
          "Every event would return to it forever: write somewhere else, or narrow the pattern"
        )
      case .address:
        (
          "the sink '\(way.sink)' \(isSure ? "sends" : "may send") to a source that its own events come from",
          "Every event would return to it forever: send somewhere else, or read another source"
        )
      case .request:
        (
          "'\(way.sink)' asks a source that its own events come from",
          "Each request may cause another one, forever: ask another address, or limit how often events go round"
        )
      case .feed:
        (
          "the sink '\(way.sink)' \(isSure ? "sends" : "may send") to a source that its own events come from",
          "Every event would return to it forever: serve another path, or follow another server"
        )
      }
    return Diagnostic(
      isSure ? .cycle : .possibleFileCycle, what, at: way.location,
      notes: circle.flatMap { part in
        part.way == start ? [part.inlet.note] : [part.inlet.note, ways[part.way].note]
      }, help: help)
  }
}
