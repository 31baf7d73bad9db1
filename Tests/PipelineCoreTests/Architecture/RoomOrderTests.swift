import Foundation
import Testing

/// The folders of the core stand in an order: code of one names nothing of a later one.
@Suite struct RoomOrderTests {
  /// Each may use those before it; those of one line are one layer and may use each other. A plan holds components, and
  /// a component makes nodes of its plan: specs, plan and engine are one layer for that. It knows no operator.
  private static let order: [Set<String>] = [
    ["Diagnostics"], ["Time"], ["Events"], ["Regex"], ["Expressions"], ["Codecs"], ["Config"], ["Services"],
    ["Specs", "Plan", "Engine"], ["Commands", "Operators"], ["Compile"],
  ]

  private struct File {
    var name: String
    var room: String
    /// What it declares, inside of others, too.
    var declared: Set<String>
    /// What it declares for others.
    var offered: Set<String>
    /// What begins with a capital letter.
    var used: Set<String>
  }

  private static func files() throws -> [File] {
    let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
      .appendingPathComponent("../../../Sources/PipelineCore").standardizedFileURL
    // A file beside the rooms only exports a target again.
    let paths = try FileManager.default.subpathsOfDirectory(atPath: root.path)
      .filter { $0.hasSuffix(".swift") && $0.contains("/") }
    return try paths.map { path in
      var text = try String(contentsOf: root.appendingPathComponent(path), encoding: .utf8)
      // Texts and comments name what they like.
      text.replace(#/"""[\s\S]*?"""/#, with: "")
      text.replace(#///[^\n]*/#, with: "")
      text.replace(#/"(?:[^"\\\n]|\\.)*"/#, with: "")
      let declaration = #/(?m)^([ ]*)(?:[a-z@][\w()]*[ ])*(?:class|struct|enum|protocol|typealias)[ ]([A-Z]\w*)/#
      let declared = text.matches(of: declaration)
      return File(
        name: path, room: String(path.prefix { $0 != "/" }), declared: Set(declared.map { String($0.2) }),
        offered: Set(declared.filter { $0.1.isEmpty }.map { String($0.2) }),
        used: Set(text.matches(of: #/\b[A-Z]\w*\b/#).map { String($0.output) }))
    }
  }

  @Test func noTwoFoldersHaveOneName() throws {
    let sources = packageRoot.appending(path: "Sources")
    let paths = try FileManager.default.subpathsOfDirectory(atPath: sources.path).filter { $0.hasSuffix(".swift") }
    let folders = Set(paths.map { URL(fileURLWithPath: $0).deletingLastPathComponent().relativePath })
    let named = Dictionary(grouping: folders) { $0.split(separator: "/").last.map(String.init) ?? "" }
    for (name, found) in named where found.count > 1 { Issue.record("\(name): \(found.sorted())") }
    #expect(folders.count > 30)
  }

  @Test func noRoomUsesALaterOne() throws {
    let files = try Self.files()
    var place: [String: Int] = [:]
    for (index, rooms) in Self.order.enumerated() { for room in rooms { place[room] = index } }
    var rooms: [String: Set<String>] = [:]
    for file in files { for name in file.offered { rooms[name, default: []].insert(file.room) } }
    let own = Dictionary(grouping: files, by: \.room).mapValues { Set($0.flatMap(\.declared)) }
    #expect(files.count > 200)
    for file in files {
      let here = try #require(place[file.room], "\(file.room) has no place in the order")
      for name in file.used.sorted() where own[file.room]?.contains(name) != true {
        // A name that several rooms have cannot be told apart.
        guard let offering = rooms[name], offering.count == 1, let room = offering.first, let there = place[room] else {
          continue
        }
        #expect(there <= here, "\(file.name) uses \(name) of \(room)")
      }
    }
  }
}
