import PipelineCore
import PipelineTesting

/// Two branches of one signal that meet, drawn from the examples of `combineLatest`.
enum DiamondPicture {
  struct Missing: Error { var message: String }

  static func svg(_ catalogue: Catalogue) throws(Missing) -> String {
    let plain = try example("a diamond", catalogue)
    let settled = try example("a diamond, settled", catalogue)
    var values = plain.values
    for value in settled.values where !values.contains(where: { $0.0 == value.0 }) { values.append(value) }
    let rows: [MarblePicture.Row] = [
      .signal(name: "a", plain.input),
      .step("combineLatest: { left, right }"),
      .signal(name: "out", plain.output, marked: [1]),
      .step("combineLatest: { left, right, settle: true }"),
      .signal(name: "out", settled.output),
    ]
    let picture = MarblePicture(
      title: "A diamond with and without settle",
      description: """
        A signal a goes through two branches, left (event + 1) and right (event * 2), which combineLatest brings \
        together. Without settle the second event of a makes two lists, the first of them half new: [3, 2], then [3, 4]. \
        With settle: true it makes one, [3, 4].
        """,
      rows: rows, values: values)
    return picture.svg(head: graph, headHeight: 128, headWidth: 480)
  }

  private static func example(
    _ title: String, _ catalogue: Catalogue
  ) throws(Missing) -> (input: Marbles, output: Marbles, values: [(String, String)]) {
    let examples = catalogue.component(.combination, "combineLatest")?.examples ?? []
    guard case .marble(_, let inputs, let output, let values)? = examples.first(where: { $0.title == title })?.body,
      let input = try? Marbles(inputs.first?.marbles ?? ""), let result = try? Marbles(output)
    else { throw Missing(message: "combineLatest has no example \(Printable.quote(title))") }
    return (input, result, values)
  }

  /// The graph: one signal, two branches, one node that combines them.
  private static var graph: String {
    func box(_ x: Int, _ y: Int, _ width: Int, _ text: String) -> String {
      "<rect class=\"b\" x=\"\(x)\" y=\"\(y - 15)\" width=\"\(width)\" height=\"30\" rx=\"8\"/>"
        + "<text class=\"m\" x=\"\(x + width / 2)\" y=\"\(y + 4)\" text-anchor=\"middle\">\(text)</text>"
    }
    func arrow(_ x1: Int, _ y1: Int, _ x2: Int, _ y2: Int) -> String {
      let middle = (x1 + x2) / 2
      return "<path class=\"l\" d=\"M\(x1) \(y1)C\(middle) \(y1) \(middle) \(y2) \(x2) \(y2)\"/>"
        + "<path class=\"a\" d=\"M\(x2 - 7) \(y2 - 4)l7 4-7 4\"/>"
    }
    func name(_ x: Int, _ y: Int, _ text: String) -> String {
      "<text class=\"s\" x=\"\(x)\" y=\"\(y)\" text-anchor=\"middle\">\(text)</text>"
    }
    return box(14, 66, 36, "a") + arrow(50, 62, 114, 32) + arrow(50, 70, 114, 100)
      + box(116, 32, 124, "map: event + 1") + box(116, 100, 124, "map: event * 2")
      + arrow(240, 32, 304, 60) + arrow(240, 100, 304, 72) + name(286, 32, "left") + name(286, 108, "right")
      + box(306, 66, 112, "combineLatest") + arrow(418, 66, 462, 66)
  }
}
