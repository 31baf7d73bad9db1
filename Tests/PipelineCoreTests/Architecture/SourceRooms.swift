import Foundation

/// The files of one folder of `Sources`, sorted into rooms: its folders.
struct SourceRooms {
  struct Use: Hashable {
    var file: String
    /// A type, or `.member`.
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
  /// Files with the path of a folder, and of none of the rooms.
  private(set) var strangers: [String] = []
  /// What the targets declare that this one can use: a member with such a name may be theirs.
  private var known: Set<String> = []

  /// All Swift files of the package's targets, by their paths below `Sources`.
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
  ///   - rooms: Folders below `folder`. A file belongs to the longest that its path begins with. A file beside the rooms joins the
  ///     parts, as `main.swift`, and belongs to none.
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

  /// What files use of each other. A name that several of the parts declare cannot be told apart and is left out, and so is one that the
  /// part declares itself.
  private func uses(by part: (File) -> String) -> [Way: Set<Use>] {
    var types: [String: Set<String>] = [:]
    var values: [String: Set<String>] = [:]
    var additions: [String: Set<String>] = [:]
    var own: [String: Set<String>] = [:]
    // The rooms of the types, and what each room declares inside of others, too.
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
        // A type inside of another one of the own room has the name, too.
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

  /// Members of the standard library and of Foundation, and words of the language, that an extension may also have.
  private static let names: Set<String> = [
    "contains", "count", "decode", "defer", "description", "elements", "encode", "first", "hash", "init", "isEmpty",
    "kill",
    "map", "prefix",
    "reduce", "sorted", "suffix", "write",
  ]

  var usesOfRooms: [Way: Set<Use>] { uses { $0.room }.filter { $0.key.from != $0.key.to } }

  /// Groups of types that cannot be understood one by one: each uses each other one, by way of others, too. A type is the file that has
  /// its name, with those of its extensions (`Name+Part.swift`).
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
