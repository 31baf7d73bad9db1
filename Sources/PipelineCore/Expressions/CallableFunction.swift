/// A function of a plugin as expressions see it: `geo.lookup`.
package struct CallableFunction: Sendable {
  let function: any ForeignFunction
  package let name: String
  /// One sentence with a full stop.
  let summary: String
  /// Further paragraphs of Markdown.
  let details: String
  /// The types of the arguments.
  let parameters: [ExpressionType]
  /// The number of arguments that a call needs; the others can be left out, from the last on.
  let least: Int
  let result: ExpressionType
  let examples: [(call: String, result: String)]

  init(
    _ function: any ForeignFunction, name: String, summary: String, details: String, parameters: [ExpressionType],
    least: Int, result: ExpressionType, examples: [(call: String, result: String)]
  ) {
    self.function = function
    self.name = name
    self.summary = summary
    self.details = details
    self.parameters = parameters
    self.least = least
    self.result = result
    self.examples = examples
  }
}
