import PipelineCore
import PipelineTesting

/// Reduces a failing graph as long as it fails in the same way: removes a part of a flow collection, a line, or an event of a script at a
/// time.
struct GraphShrinker {
  /// Whether a smaller graph still fails in the same way; false if it is not a valid pipeline.
  var fails: (GraphGenerator.Graph) -> Bool
  /// The maximum number of graphs that are tried.
  var most = 3000

  func smallest(_ graph: GraphGenerator.Graph) -> GraphGenerator.Graph {
    var best = graph
    var tried = 0
    var isSmaller = true
    while isSmaller {
      isSmaller = false
      var index = 0
      // A part that could not be removed may become removable later, so all are tried again after each success
      // further on.
      while let candidate = Self.without(index, best), tried < most {
        tried += 1
        if fails(candidate) {
          best = candidate
          isSmaller = true
        } else {
          index += 1
        }
      }
    }
    return best
  }

  /// The graph without the part of this index; nil: there are fewer parts.
  private static func without(_ index: Int, _ graph: GraphGenerator.Graph) -> GraphGenerator.Graph? {
    var graph = graph
    let ranges = parts(of: graph.yaml)
    if index < ranges.count {
      graph.yaml.removeSubrange(ranges[index])
      return graph
    }
    var rest = index - ranges.count
    for name in graph.scripts.keys.sorted() {
      let entries = graph.scripts[name]?.entries ?? []
      if rest < entries.count - 1 {
        graph.scripts[name] = SignalHistory(Array(entries[..<rest] + entries[(rest + 1)...]))
        return graph
      }
      rest -= max(0, entries.count - 1)
    }
    return nil
  }

  /// Lines within the blocks of the file, and elements of flow collections, the largest first.
  static func parts(of yaml: String) -> [Range<String.Index>] {
    var parts: [Range<String.Index>] = []
    var line = yaml.startIndex
    // The starts of the elements of the open collections.
    var open: [[String.Index]] = []
    var position = yaml.startIndex
    while position < yaml.endIndex {
      let next = yaml.index(after: position)
      switch yaml[position] {
      case "{", "[": open.append([next])
      case ",": if !open.isEmpty { open[open.count - 1].append(position) }
      case "}", "]":
        if let begins = open.popLast() {
          for (number, begin) in begins.enumerated() {
            let end = number + 1 < begins.count ? begins[number + 1] : position
            // For the first element the comma after it, otherwise the one before it.
            parts.append(begin..<(number == 0 && begins.count > 1 ? yaml.index(after: end) : end))
          }
        }
      case "\n":
        if yaml[line..<position].hasPrefix("  ") { parts.append(line..<next) }
        line = next
        open = []
      default: break
      }
      position = next
    }
    return parts.sorted {
      yaml.distance(from: $0.lowerBound, to: $0.upperBound) > yaml.distance(from: $1.lowerBound, to: $1.upperBound)
    }
  }
}
