import Foundation
import FoundationXML
import PipelineCore
import PipelineRuntime
import PipelineTestSupport
import Testing

/// Pictures of plans: the laws for all of them, over random pipelines, and the text of some, kept in Tests/Golden/Pictures;
/// RXD_UPDATE_GOLDEN=1 rewrites them.
@Suite struct GraphPictureTests {
  private static let names = ["search", "login", "access-log", "orders-table", "bookshop", "nginx-status"]

  @Test(arguments: names) func looksAsBefore(_ name: String) throws {
    let text = try String(contentsOf: packageRoot.appending(path: "pipelines/\(name).yaml"), encoding: .utf8)
    let plan = try PipelineRun.compile(text, catalogue: .builtIn)
    let picture = GraphPicture(plan)
    let svg = picture.svg()
    try checkXML(svg)
    check(picture, plan, hasCommands: name == "login") { Issue.record("\($0)") }
    let file = packageRoot.appending(path: "Tests/Golden/Pictures/\(name).svg")
    if ProcessInfo.processInfo.environment["RXD_UPDATE_GOLDEN"] == "1" { try Data(svg.utf8).write(to: file) }
    #expect(svg == (try String(contentsOf: file, encoding: .utf8)), "\(name)")
  }

  private func checkXML(_ text: String) throws {
    let parser = XMLParser(data: Data(text.utf8))
    #expect(parser.parse(), "\(parser.parserError.map { "\($0)" } ?? "") at line \(parser.lineNumber)")
  }

  // MARK: What holds for every picture

  @Test(arguments: [false, true]) func holdsForRandomPipelines(commands: Bool) throws {
    var pictures = 0
    var edges = 0
    for seed in 0..<RandomGraphTests.count {
      var generator = GraphGenerator(seed: seed)
      generator.hasCommands = commands
      let yaml = generator.graph().yaml
      guard let plan = try? PipelineRun.compile(yaml) else { continue }
      func fail(_ message: String) { Issue.record("seed \(seed): \(message)\n\(yaml)") }
      let picture = GraphPicture(plan, folding: false)
      check(picture, plan, hasCommands: commands, fail)
      compare(picture, plan, fail)
      let folded = GraphPicture(plan)
      check(folded, plan, hasCommands: commands, fail)
      if seed % 50 == 0 { try checkXML(picture.svg(.page)) }
      if GraphPicture(plan, folding: false).svg() != picture.svg() { fail("another time, another picture") }
      pictures += 1
      edges += picture.edges.count
    }
    #expect(pictures > Int(RandomGraphTests.count) / 2 && edges > pictures * 5)
  }

  private func check(_ picture: GraphPicture, _ plan: Plan, hasCommands: Bool, _ fail: (String) -> Void) {
    let whole = GraphPicture.Frame(width: picture.width, height: picture.height)
    for (index, group) in picture.groups.enumerated() {
      if !whole.contains(group.frame) { fail("\(group.name) is not in the picture") }
      for other in picture.groups[..<index] where other.frame.meets(group.frame) {
        fail("\(group.name) and \(other.name) overlap")
      }
      for line in group.lines { check(line, group.frame, group.name, fail) }
    }
    for (index, box) in picture.boxes.enumerated() {
      let outer = box.parent.map { picture.boxes[$0].frame } ?? picture.groups[box.group].frame
      if !outer.contains(box.frame) { fail("\(box.id) is not within what it stands in") }
      if let parent = box.parent, box.frame.y < outer.y + picture.boxes[parent].headHeight {
        fail("\(box.id) covers a head")
      }
      for other in picture.boxes[..<index]
      where other.group == box.group && other.parent == box.parent && other.frame.meets(box.frame) {
        fail("\(box.id) and \(other.id) overlap")
      }
      let head = GraphPicture.Frame(x: box.frame.x, y: box.frame.y, width: box.frame.width, height: box.headHeight)
      for line in box.lines { check(line, head, box.id, fail) }
    }
    for edge in picture.edges { check(edge, picture, hasCommands, fail) }
  }

  /// A character of DejaVu Sans Mono, the widest of the fonts, has 0.602 of the font size.
  private func check(_ line: GraphPicture.Line, _ frame: GraphPicture.Frame, _ name: String, _ fail: (String) -> Void) {
    let size = line.style == .kind ? 9.0 : line.style == .detail || line.style == .badge ? 11 : 12
    let needed = Double(line.text.unicodeScalars.count) * 0.602 * size
    if line.x < frame.x || line.x + max(needed, line.width) > frame.right { fail("'\(line.text)' leaves \(name)") }
    if line.y - size < frame.y || line.y + 3 > frame.bottom { fail("'\(line.text)' leaves \(name) above or below") }
  }

  private func check(_ edge: GraphPicture.Edge, _ picture: GraphPicture, _ hasCommands: Bool, _ fail: (String) -> Void)
  {
    let points = points(edge)
    let (from, to) = (picture.groups[edge.fromGroup], picture.groups[edge.toGroup])
    if edge.fromGroup == edge.toGroup {
      for point in points where !from.frame.contains(.init(x: point.x, y: point.y)) {
        fail("\(edge.name) leaves its group")
      }
      // Always downwards, or a back edge that goes up only once.
      if let first = points.first, let last = points.last, last.y < first.y { fail("\(edge.name) leads upwards") }
    } else if edge.isBackward {
      if !hasCommands { fail("\(edge.name) leads back") }
    } else {
      if from.column >= to.column { fail("\(edge.name) does not lead to a later column") }
      for (point, next) in zip(points, points.dropFirst()) where next.x < point.x { fail("\(edge.name) goes back") }
    }
    // A line touches the boxes at its ends and those that enclose them, and no others.
    for point in points {
      for (index, group) in picture.groups.enumerated()
      where index != edge.fromGroup && index != edge.toGroup && inside(point, group.frame) {
        fail("\(edge.name) crosses \(group.name)")
        return
      }
      for box in picture.boxes
      where (box.group == edge.fromGroup || box.group == edge.toGroup) && box.frame.height == box.headHeight
        && inside(point, box.frame)
      {
        fail("\(edge.name) crosses \(box.id)")
        return
      }
    }
  }

  private func inside(_ point: (x: Double, y: Double), _ frame: GraphPicture.Frame) -> Bool {
    point.x > frame.x + 0.5 && point.x < frame.right - 0.5 && point.y > frame.y + 0.5 && point.y < frame.bottom - 0.5
  }

  private func points(_ edge: GraphPicture.Edge) -> [(x: Double, y: Double)] {
    var result = [(x: edge.startX, y: edge.startY)]
    for segment in edge.segments {
      let start = result[result.count - 1]
      for step in 1...16 {
        let t = Double(step) / 16
        switch segment {
        case .line(let x, let y): result.append((start.x + (x - start.x) * t, start.y + (y - start.y) * t))
        case .curve(let x, let y):
          // A cubic curve with both control points in the middle.
          let middle = (start.x + x) / 2
          let (a, b, c, d) = ((1 - t) * (1 - t) * (1 - t), 3 * (1 - t) * (1 - t) * t, 3 * (1 - t) * t * t, t * t * t)
          result.append((a * start.x + (b + c) * middle + d * x, (a + b) * start.y + (c + d) * y))
        }
      }
    }
    return result
  }

  /// The picture has the steps and the edges of the plan, with the names used in metrics.
  private func compare(_ picture: GraphPicture, _ plan: Plan, _ fail: (String) -> Void) {
    let ids = picture.boxes.map(\.id).filter { !$0.isEmpty && !$0.hasSuffix("?") }
    if Set(ids).count != ids.count { fail("a step is drawn twice") }
    for index in plan.steps.indices where plan.isInFile(StepID(index)) {
      if !ids.contains(plan.id(of: StepID(index))) { fail("\(plan.id(of: StepID(index))) is not drawn") }
    }
    var all: Set<String> = []
    var expected: Set<String> = []
    for edge in plan.edges.dropFirst() {
      let (from, to) = (plan.id(of: edge.from), plan.id(of: edge.to))
      all.insert("\(from)>\(to)")
      // Edges that send nothing, or nothing that a step reads.
      if from.isEmpty || to.isEmpty || from == to { continue }
      if case .named(let index) = edge.to {
        // A reader of a cold signal runs its steps itself; a command is read through its outputs.
        if plan.named[index].isCold || plan.named[index].kind == .command { continue }
      }
      if case .step(let step) = edge.to, !plan.isInFile(step) { continue }
      expected.insert("\(from)>\(to)")
    }
    let drawn = Set(picture.edges.map(\.name))
    if drawn.count != picture.edges.count { fail("an edge is drawn twice") }
    if !drawn.isSubset(of: all) { fail("no edges of the plan: \(drawn.subtracting(all).sorted())") }
    if !expected.isSubset(of: drawn) { fail("not drawn: \(expected.subtracting(drawn).sorted())") }
  }

  // MARK: Single traits

  private func picture(_ yaml: String, folding: Bool = true) throws -> GraphPicture {
    GraphPicture(try PipelineRun.compile(yaml, catalogue: .builtIn), folding: folding)
  }

  private static func fan(_ count: Int) -> String {
    let branches = (0..<count).map { "  b\($0): { from: s, chain: [ { filter: event.kind == 'k\($0)' } ] }\n" }.joined()
    let sinks = (0..<count).map { "  o\($0): { from: b\($0), file: /tmp/out/o\($0).ndjson }\n" }.joined()
    return "name: fan\nsources: { s: { stdin: { decode: json } } }\nsignals:\n\(branches)sinks:\n\(sinks)"
  }

  @Test func likeBranchesAreFolded() throws {
    let folded = try picture(Self.fan(20))
    #expect(folded.groups.map(\.name) == ["s", "b0", "o0"])
    #expect(folded.groups.map(\.members.count) == [1, 20, 20])
    #expect(folded.groups[1].lines.contains { $0.text == "20 ×" })
    #expect(folded.boxes.map { $0.lines.last?.text } == ["decode: json", "event.kind == 'k…", "/tmp/out/o…"])
    #expect(folded.edges.first { $0.from == "s" }?.count == 20)
    #expect(folded.svg().contains("20 of the same shape: b0, b1, "))
    #expect(try picture(Self.fan(20), folding: false).groups.count == 41)
    #expect(try picture(Self.fan(4)).groups.count == 9)
    // A branch of another shape is not folded.
    let other = Self.fan(6).replacing("b3, file: /tmp/out/o3.ndjson", with: "b3, stdout: {}")
    #expect(try picture(other).groups.map(\.members.count) == [1, 5, 1, 5, 1])
  }

  @Test func boxesSayWhatTheFileSays() throws {
    let search = try String(contentsOf: packageRoot.appending(path: "pipelines/search.yaml"), encoding: .utf8)
    let picture = try picture(search)
    func lines(_ id: String) -> [String]? { picture.boxes.first { $0.id == id }?.lines.map(\.text) }
    #expect(lines("query/throttle") == ["throttle", "300ms"])
    #expect(lines("query/filter") == ["filter", "size(event) >= 3"])
    #expect(lines("books/flattenMap") == ["flattenMap", "policy: latest"])
    #expect(lines("screen/stdout") == ["stdout", "encode: json"])
    let request = try #require(picture.boxes.first { $0.keyword == "http" })
    #expect(request.lines.last?.text.hasSuffix("…") == true)
    #expect(request.title.contains("/search.json?q={{ urlEncode(event) }}"))
    #expect(request.parent.map { picture.boxes[$0].id } == "books/flattenMap")
  }

  @Test func credentialsAreMasked() throws {
    let svg = try picture(
      """
      sources: { s: { http: { url: "https://example.org/x", every: 5s, headers: { Authorization: "Bearer hunter2", Accept: text/plain } } } }
      sinks: { o: { from: s, stdout: {} } }
      """
    ).svg()
    #expect(!svg.contains("hunter") && svg.contains("Authorization: (secret)"))
    #expect(svg.contains("every: 5s") && svg.contains("text/plain"))
  }

  @Test func aPageGetsNoStylesAndNoIdentifiers() throws {
    let page = try picture(Self.fan(3)).svg(.page)
    for forbidden in ["<style", "style=", " id=", "url(", "<script"] {
      #expect(!page.contains(forbidden), "\(forbidden)")
    }
    let root = page.prefix { $0 != ">" }
    #expect(root.contains(" viewBox=") && !root.contains(" width="))
    #expect(page.contains("data-step=\"b0/filter\" tabindex=\"0\""))
    #expect(page.contains("data-edge=\"s&gt;b0/filter\""))
    #expect(page.contains("<text class=\"rate\" data-edge=\"s&gt;b0/filter\""))
    #expect(GraphPicture.styleSheet.contains("prefers-color-scheme:dark"))
  }

  @Test func textsOfAllAlphabetsFit() throws {
    let picture = try picture(
      """
      sources: { s: { values: [ "日本語のとても長い文字列がここにありますので切られます", "🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂" ] } }
      signals: { x: { from: s, chain: [ { filter: "event != 'Ελληνικά και кириллица, довольно длинно, чтобы обрезать'" }, { filter: "event != '<&\\"'" } ] } }
      sinks: { o: { from: x, stdout: {} } }
      """)
    for box in picture.boxes {
      for line in box.lines { #expect(line.x + line.width <= box.frame.right, "\(line.text)") }
    }
    try checkXML(picture.svg())
    #expect(picture.svg().contains("textLength="))
  }

  /// Long chains, wide fans, and many columns.
  @Test(arguments: ["chain", "fan", "grid"]) func twoThousandStepsAreDrawnAtOnce(_ form: String) throws {
    var yaml = "sources: { s: { stdin: { decode: json } } }\nsignals:\n"
    switch form {
    case "chain":
      yaml += "  x:\n    from: s\n    chain:\n"
      for index in 0..<2000 {
        yaml += index % 2 == 0 ? "      - filter: event.a > \(index)\n" : "      - throttle: \(index)ms\n"
      }
      yaml += "sinks: { o: { from: x, stdout: {} } }\n"
    case "fan":
      for index in 0..<1000 { yaml += "  x\(index): { from: s, chain: [ { filter: event.a > \(index) } ] }\n" }
      yaml += "sinks:\n"
      for index in 0..<1000 { yaml += "  o\(index): { from: x\(index), discard: {} }\n" }
    default:
      for index in 0..<500 {
        let inputs = (1...3).map {
          "i\($0): \(index < 20 ? "s" : "x\(index - 20 + (index * 7 + $0 * 5) % 17 - 16 < 0 ? 0 : index - 20 + (index * 7 + $0 * 5) % 17 - 16)")"
        }
        yaml +=
          "  x\(index): { merge: { \(inputs.joined(separator: ", ")) }, chain: [ { filter: event.a > \(index) }, { map: event }, { skip: 1 } ] }\n"
      }
      yaml += "sinks: { o: { from: x499, discard: {} } }\n"
    }
    let plan = try PipelineRun.compile(yaml, catalogue: .builtIn)
    let start = threadTime()
    let picture = GraphPicture(plan, folding: false)
    let svg = picture.svg()
    let time = threadTime() - start
    #expect(picture.boxes.count >= 2000)
    print("picture of \(form): \(time), \(svg.utf8.count) bytes, \(picture.width) x \(picture.height)")
    // Test builds are not optimized.
    #expect(time < .seconds(20))
  }
}
