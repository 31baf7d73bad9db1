import PipelineCore

extension HTTP {
  /// `pages`: how a response with several pages is read.
  struct Pages: RecordParameter {
    var next = ExpressionParameter()
    var cursor = ExpressionParameter()
    var parameter: String?
    var page: String?
    var from = 1
    var step = 1
    var until = ExpressionParameter()
    var max = 100
    init() {}

    static var fields: [RecordField<Pages>] {
      [
        .init(
          "next", \.next,
          """
          The URL of the next page, absolute or relative; null: there is none. `link` is the one of the header `Link` with \
          `rel="next"`.
          """),
        .init(
          "cursor", \.cursor,
          "What the next request sends as `parameter`; null, an empty text or an absent optional: none follows."),
        .init("parameter", \.parameter, applies: .with("cursor"), "The parameter of the query that carries `cursor`."),
        .init(
          "page", \.page, "The parameter of the query that carries the number of the page, the first one included."),
        .init("from", \.from, range: 0...1_000_000_000, applies: .with("page"), "The number of the first page."),
        .init(
          "step", \.step, range: 1...1_000_000, applies: .with("page"),
          "The distance of two numbers, for those that count items."),
        .init("until", \.until, expecting: .bool, "The page for which this is true is the last one; `page` needs it."),
        .init(
          "max", \.max, range: 1...100_000,
          "The maximum number of pages of one poll; the next poll continues after them. Without `every`, more pages are an error."
        ),
      ]
    }

    func validate(_ node: YAMLNode, _ context: inout DecodingContext) {
      guard node.entries != nil else { return }
      let ways = ["next", "cursor", "page"].compactMap { name in node[name].map { (name, $0) } }
      guard let first = ways.first else {
        context.badValue(
          node, "'pages' of 'http' has no way to the next page", .missingParameter,
          help: "Add 'next: link', 'cursor' with 'parameter', or 'page' with 'until'")
        return
      }
      if ways.count > 1 {
        context.diagnostics.report(
          Diagnostic(
            .conflictingParameters, "'pages' of 'http' has both '\(first.0)' and '\(ways[1].0)'",
            at: ways[1].1.location,
            notes: [.init("the other one is here", at: first.1.location)], help: "Remove one of them"))
      }
      func require(_ name: String, beside other: String) {
        guard first.0 == other, node[name] == nil else { return }
        context.badValue(
          first.1, "'\(other)' of 'pages' needs '\(name)'", .missingParameter,
          help: name == "until" ? "Add e.g. 'until: size(response.body) == 0'" : "Add the name that the server gives it"
        )
      }
      require("parameter", beside: "cursor")
      require("until", beside: "page")
      for name in ["parameter", "page"] {
        if let field = node[name], field.string?.isEmpty == true {
          context.badValue(field, "'\(name)' of 'pages' is empty", help: "Write the name of a parameter of the query")
        }
      }
    }
  }

  /// `cursor`: the position up to which earlier polls have read; sent to the server with each request.
  struct Cursor: RecordParameter {
    var from = ExpressionParameter()
    var parameter = ""
    var start: String?
    init() {}

    static var fields: [RecordField<Cursor>] {
      [
        .init(
          "from", \.from, required: true,
          "The cursor after an answer; null or an absent optional: it stays. It sees the one so far as `cursor`, null at first."
        ),
        .init("parameter", \.parameter, required: true, "The parameter of the query that carries it."),
        .init("start", \.start, "The cursor of the first poll; by default it carries none."),
      ]
    }

    func validate(_ node: YAMLNode, _ context: inout DecodingContext) {
      if let field = node["parameter"], field.string?.isEmpty == true {
        context.badValue(field, "'parameter' of 'cursor' is empty", help: "Write the name of a parameter of the query")
      }
    }
  }

  /// The variables of expressions about a response.
  static let pageVariables: [(String, ExpressionType)] = [
    ("response", ResponseVariable.type), ("link", .dyn), ("cursor", .dyn),
  ]

  func validatePolling(_ context: inout DecodingContext) {
    let names = [
      (pages?.parameter, "pages.parameter"), (pages?.page, "pages.page"), (cursor?.parameter, "cursor.parameter"),
    ].compactMap { name, path in name.map { (name: $0, path: path) } }
    for (index, entry) in names.enumerated() where !entry.name.isEmpty {
      if names[..<index].contains(where: { $0.name == entry.name }) {
        context.badValue(
          at: context.location(of: entry.path),
          "two parameters of the query have the name '\(Printable.cut(entry.name))'",
          .conflictingParameters, help: "Give the other one another name")
      } else if Self.hasParameter(entry.name, url.template?.literalPrefix ?? "") {
        context.badValue(
          at: context.location(of: entry.path),
          "the URL has the parameter '\(Printable.cut(entry.name))' already", .conflictingParameters,
          help: "Take it out of the URL; 'http' adds it")
      }
    }
  }

  private static func hasParameter(_ name: String, _ url: String) -> Bool {
    guard let query = url.utf8.firstIndex(of: UInt8(ascii: "?")) else { return false }
    return url[query...].utf8.dropFirst().split(separator: UInt8(ascii: "&")).contains { pair in
      pair.elementsEqual(name.utf8) || pair.starts(with: (name + "=").utf8)
    }
  }
}
