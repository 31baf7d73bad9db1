extension PipelineFile {
  /// The prefix of the names of sinks that were added to print a signal; it is invalid in names in a file.
  static let printedPrefix = "--print "

  /// Adds a sink for each signal that writes the signal to standard output. These sinks promise no delivery, so they
  /// leave the pipeline's guarantee as it is.
  ///
  /// - Parameter signals: References as text: `NAME` or `NAME.errors`.
  mutating func print(_ signals: [String], as format: EncoderFormat, into diagnostics: inout Diagnostics) {
    var known: Set<String> = []
    for signal in signals where known.insert(signal).inserted {
      let text = LocatedText(signal, name: "--print")
      let node = YAMLNode(.scalar(YAMLScalar(text: text, kind: .string)), at: text.location)
      guard let reference = PipelineFileParser.parseReference(node, into: &diagnostics) else {
        isWhole = false
        continue
      }
      func word(_ word: String) -> YAMLNode {
        let text = LocatedText(
          text: Array(word.utf8), source: text.source, offsets: Array(repeating: 0, count: word.utf8.count + 1))
        return YAMLNode(.scalar(YAMLScalar(text: text, kind: .string)), at: node.location)
      }
      let component = ComponentNode(
        keyword: Located("stdout", at: node.location), arguments: word(format.rawValue),
        options: [OptionNode(key: Located("delivery", at: node.location), value: word(Delivery.bestEffort.rawValue))],
        location: node.location)
      sinks.append(
        NamedNode(
          Located(Self.printedPrefix + signal, at: node.location),
          SinkNode(from: .reference(reference), chain: [], component: component, location: node.location)))
    }
  }
}
