/// The unit in which a plugin's decoder receives its input, and the content of an encoder's output.
package enum PluginFraming: String, Sendable {
  case lines, whole
}

/// A format for `decode` or `encode` that a plugin offers, with its parameters.
package struct PluginFormat: Sendable {
  let function: any ForeignFunction
  package let name: String
  let framing: PluginFraming
  /// For a decoder: whether it returns a list of events for each unit.
  let makesList: Bool
  /// For a decoder: the type of its events.
  package let output: ExpressionType
  /// For an encoder: the media type of its output.
  let mediaType: String

  init(
    _ function: any ForeignFunction, name: String, framing: PluginFraming, makesList: Bool, output: ExpressionType,
    mediaType: String
  ) {
    self.function = function
    self.name = name
    self.framing = framing
    self.makesList = makesList
    self.output = output
    self.mediaType = mediaType
  }
}

extension PluginFormat: Equatable {
  package static func == (one: PluginFormat, two: PluginFormat) -> Bool {
    one.function === two.function || one.function.identity == two.function.identity
  }
}
