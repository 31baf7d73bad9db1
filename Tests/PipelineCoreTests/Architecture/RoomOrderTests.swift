import Foundation
import Testing

/// The folders of a target are ordered: code in a folder uses nothing from a later one, neither a type nor a member that a later one adds
/// in an extension. Today's violations are counted in Tests/Golden/rooms.txt: new ones fail, and removed ones are deleted there.
@Suite struct RoomOrderTests {
  struct Target {
    var folder: String
    /// The folders in order; each may use the earlier ones.
    var rooms: [String]
    var uses: [String] = []
  }

  static let targets: [Target] = [
    Target(
      folder: "PipelineCore",
      rooms: [
        "Diagnostics", "Time", "Events", "Regex", "Expressions", "Codecs", "Config", "Services", "Specs", "Plan",
        "Engine", "Catalogue", "Commands", "Operators", "Compile",
      ]),
    Target(
      folder: "PipelineCore/Engine",
      rooms: ["Turns", "State", "Batches", "Fused", "Counters", "Nodes", "Delivery", "Edges"],
      uses: [
        "PipelineCore/Events", "PipelineCore/Time", "PipelineCore/Expressions", "PipelineCore/Services",
        "PipelineCore/Specs",
        "PipelineCore/Plan",
      ]),
    Target(
      folder: "Transport",
      rooms: [
        "System", "Texts", "Files", "Compressing", "Reading", "Following", "Writing", "Databases", "Machine",
        "Requests", "Sockets",
        "Programs", "Serving", "WebSockets", "Delivering",
      ], uses: ["PipelineCore"]),
    Target(
      folder: "PluginHost", rooms: ["Instances", "Components", "Process", "Native", "Loading", "Contract", "Packages"],
      uses: ["PipelineCore", "PipelineTesting", "Transport"]),
    Target(
      folder: "rxd",
      rooms: [
        "Surroundings", "Kept", "Figures", "Control", "Daemon/Taps", "Daemon/Why", "Page", "Daemon", "Verbs",
        "Verbs/PluginVerbs", "Verbs/Top",
      ],
      uses: [
        "PipelineCore", "PipelineRuntime", "PipelineTesting", "PluginHost", "Sources_", "Sinks", "Storage", "Transport",
      ]),
  ]

  /// Cycles with fewer types than this are acceptable.
  private static let leastKnot = 5

  private static func rooms(_ target: Target) -> SourceRooms {
    SourceRooms(target.folder, rooms: target.rooms, using: target.uses)
  }

  @Test func noTwoFoldersHaveOneName() throws {
    let sources = packageRoot.appending(path: "Sources")
    let paths = try FileManager.default.subpathsOfDirectory(atPath: sources.path).filter { $0.hasSuffix(".swift") }
    let folders = Set(paths.map { URL(fileURLWithPath: $0).deletingLastPathComponent().relativePath })
    let named = Dictionary(grouping: folders) { $0.split(separator: "/").last.map(String.init) ?? "" }
    for (name, found) in named where found.count > 1 { Issue.record("\(name): \(found.sorted())") }
    #expect(folders.count > 30)
  }

  @Test(arguments: targets.map(\.folder)) func everyFileHasARoom(_ folder: String) throws {
    let target = try #require(Self.targets.first { $0.folder == folder })
    let rooms = Self.rooms(target)
    #expect(rooms.strangers == [])
    #expect(rooms.count > 40)
  }

  @Test func noRoomUsesALaterOne() throws {
    let file = packageRoot.appending(path: "Tests/Golden/rooms.txt")
    let kept = try String(contentsOf: file, encoding: .utf8)
    var present: [String] = []
    var examples: [String: String] = [:]
    for target in Self.targets {
      let rooms = Self.rooms(target)
      for (way, uses) in rooms.usesOfRooms {
        let from = try #require(target.rooms.firstIndex(of: way.from))
        let to = try #require(target.rooms.firstIndex(of: way.to))
        guard to > from else { continue }
        let line = "\(target.folder): \(way.from) uses \(way.to): \(uses.count)"
        present.append(line)
        examples[line] = uses.map { "\($0.file) uses \($0.name)" }.sorted().joined(separator: ", ")
      }
      for knot in rooms.knots where knot.count >= Self.leastKnot {
        let line = "\(target.folder): knot of \(knot.count) types with \(knot.min() ?? "")"
        present.append(line)
        examples[line] = knot.sorted().joined(separator: ", ")
      }
    }
    present.sort()
    let lines = kept.split(separator: "\n").map(String.init).filter { !$0.hasPrefix("#") }
    let added = Set(present).subtracting(lines).sorted()
    let gone = Set(lines).subtracting(present).sorted()
    for line in added { print("rooms: \(line)\n  \(examples[line] ?? "")") }
    #expect(added.isEmpty && gone.isEmpty, "new or more: \(added); gone or fewer, strike them from rooms.txt: \(gone)")
    if ProcessInfo.processInfo.environment["RXD_UPDATE_GOLDEN"] == "1" {
      let head = kept.split(separator: "\n").filter { $0.hasPrefix("#") }.joined(separator: "\n")
      try Data((head + "\n" + present.joined(separator: "\n") + "\n").utf8).write(to: file)
    }
  }

  /// The check itself: the names that it finds in a text.
  @Test func namesAreRead() {
    let names = SwiftNames(
      #"""
      // Comment.type in a comment, "and text"
      extension Plan {
        private var hidden: Int { 1 }
        package func shown(_ label: Int) -> Int { let local = label; return other.member + "a \(inside.call()) text".count }
        enum Inner { case one(Int), two; static func within() {} }
      }
      func alone() { }
      final class Outer: Base { var own = Other() }
      """#)
    #expect(names.offeredTypes == ["Outer"] && names.types == ["Outer", "Inner"])
    #expect(names.additions == ["shown", "alone"])
    #expect(names.values.isSuperset(of: ["hidden", "shown", "local", "one", "two", "within", "alone", "own"]))
    #expect(names.usedTypes == ["Plan", "Int", "Inner", "Outer", "Base", "Other"])
    #expect(names.usedValues.isSuperset(of: ["member", "count", "call", "inside"]))
    #expect(!names.usedValues.contains("label") && !names.usedValues.contains("text"))
  }
}
