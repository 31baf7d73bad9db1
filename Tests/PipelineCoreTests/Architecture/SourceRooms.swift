import Foundation

/// The files of one folder of `Sources`, grouped by its subfolders.
struct SourceRooms {
  struct Use: Hashable {
    var file: String
    /// The name of a type, or `.member`.
    var name: String
  }

  struct Way: Hashable {
    var from: String
    var to: String
  }

  private struct File {
    var path: String
    var room: String
    var names: SwiftNames
  }

  private var files: [File] = []
  /// Files in subfolders that are not listed.
  private(set) var strangers: [String] = []
  /// Declarations in the targets that this one may use: a member of this name may be theirs.
  private var known: Set<String> = []

  /// All Swift files of the package's targets, by path below `Sources`.
  private static let all: [String: SwiftNames] = {
    let root = packageRoot.appending(path: "Sources")
    var all: [String: SwiftNames] = [:]
    for path in (try? FileManager.default.subpathsOfDirectory(atPath: root.path)) ?? [] where path.hasSuffix(".swift") {
      if let text = try? String(contentsOf: root.appending(path: path), encoding: .utf8) {
        all[path] = SwiftNames(text)
      }
    }
    return all
  }()

  /// - Parameters:
  ///   - rooms: Folders below `folder`. A file belongs to the longest one that is a prefix of its path. A file outside of them,
  ///     such as `main.swift`, combines the others and belongs to none.
  ///   - targets: Those that code of the folder can use.
  init(_ folder: String, rooms: [String], using targets: [String]) {
    for (path, names) in Self.all.sorted(by: { $0.key < $1.key }) {
      if targets.contains(where: { path.hasPrefix($0 + "/") }) { known.formUnion(names.values) }
      guard path.hasPrefix(folder + "/") else { continue }
      let rest = String(path.dropFirst(folder.count + 1))
      if let room = rooms.filter({ rest.hasPrefix($0 + "/") }).max(by: { $0.count < $1.count }) {
        files.append(File(path: rest, room: room, names: names))
      } else if rest.contains("/") {
        strangers.append(path)
      }
    }
  }

  var count: Int { files.count }

  /// The uses between files. A name that several parts declare is ambiguous and left out, and so is one that the part declares itself.
  private func uses(by part: (File) -> String) -> [Way: Set<Use>] {
    var types: [String: Set<String>] = [:]
    var values: [String: Set<String>] = [:]
    var additions: [String: Set<String>] = [:]
    var own: [String: Set<String>] = [:]
    // The folders that declare each type, and the names that each folder declares, including nested ones.
    var rooms: [String: Set<String>] = [:]
    var inRoom: [String: Set<String>] = [:]
    for file in files {
      let part = part(file)
      for name in file.names.offeredTypes {
        types[name, default: []].insert(part)
        rooms[name, default: []].insert(file.room)
      }
      inRoom[file.room, default: []].formUnion(file.names.types)
      for name in file.names.values { values[name, default: []].insert(part) }
      for name in file.names.additions { additions[name, default: []].insert(part) }
      own[part, default: []].formUnion(file.names.types)
    }
    var result: [Way: Set<Use>] = [:]
    for file in files {
      let part = part(file)
      for name in file.names.usedTypes where own[part]?.contains(name) != true {
        guard let found = types[name], found.count == 1, let other = found.first else { continue }
        // A nested type of the same folder has this name too.
        if inRoom[file.room]?.contains(name) == true, rooms[name]?.contains(file.room) != true { continue }
        result[Way(from: part, to: other), default: []].insert(Use(file: file.path, name: name))
      }
      for name in file.names.usedValues where !Self.names.contains(name) && !known.contains(name) {
        guard let found = additions[name], found.count == 1, values[name] == found, let other = found.first,
          other != part
        else { continue }
        result[Way(from: part, to: other), default: []].insert(Use(file: file.path, name: "." + name))
      }
    }
    return result
  }

  /// Members of the standard library and of Foundation, and keywords, which an extension may also declare.
  private static let names: Set<String> = [
    "contains", "count", "decode", "defer", "description", "elements", "encode", "first", "hash", "init", "isEmpty",
    "kill",
    "map", "prefix",
    "reduce", "sorted", "suffix", "write",
  ]

  var usesOfRooms: [Way: Set<Use>] { uses { $0.room }.filter { $0.key.from != $0.key.to } }

  /// Cycles of types, which cannot be understood one by one: each uses each other, at least indirectly. A type is the file of its name,
  /// together with its extensions (`Name+Part.swift`).
  var knots: [Set<String>] {
    var next: [String: Set<String>] = [:]
    for way in uses(by: Self.unit).keys where way.from != way.to { next[way.from, default: []].insert(way.to) }
    func reached(from start: String) -> Set<String> {
      var found: Set<String> = []
      var open = [start]
      while let unit = open.popLast() {
        for other in next[unit] ?? [] where found.insert(other).inserted { open.append(other) }
      }
      return found
    }
    let reachable = Dictionary(uniqueKeysWithValues: Set(files.map(Self.unit)).map { ($0, reached(from: $0)) })
    var result: [Set<String>] = []
    for (unit, found) in reachable where found.contains(unit) && !result.contains(where: { $0.contains(unit) }) {
      result.append(found.filter { reachable[$0]?.contains(unit) == true })
    }
    return result
  }

  private static func unit(_ file: File) -> String {
    let name = file.path.split(separator: "/").last ?? ""
    return String(name.dropLast(".swift".count).prefix { $0 != "+" })
  }
}
