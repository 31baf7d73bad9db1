/// The variable `response` of expressions.
package enum ResponseVariable {
  package static let type = ExpressionType.object([
    ("status", .int), ("headers", .map(.string, .string)), ("body", .dyn), ("page", .int),
  ])

  /// - Parameters:
  ///   - body: The body as a value.
  ///   - page: The number of the page, from 1.
  package static func value(_ response: HTTPResponse, body: Value, page: Int = 1, in arena: Arena) -> Value {
    var headers: [(name: String, value: String)] = []
    for header in response.headers {
      let name = header.name.lowercased()
      if let known = headers.firstIndex(where: { $0.name == name }) {
        headers[known].value += ", \(header.value)"
      } else {
        headers.append((name, header.value))
      }
    }
    return arena.map([
      "status": .int(response.status),
      "headers": arena.map(headers.map { (key: arena.string($0.name), value: arena.string($0.value)) }),
      "body": body, "page": .int(page),
    ])
  }
}
