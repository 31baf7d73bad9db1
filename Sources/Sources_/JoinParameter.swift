import PipelineCore

/// The rule that joins lines into events: `join: { start: '^\d{4}-' }`.
package struct JoinParameter: RecordParameter {
  var start: String?
  var end: String?
  var continuation: String?
  var wrapped: String?
  var indented = false
  var by: String?
  var maxKeys = 1000
  var wait = TimeSpan.seconds(1)
  var maxLines = 1000
  var maxBytes = ByteSize(1 << 20)

  package init() {}

  package static var fields: [RecordField<JoinParameter>] {
    [
      .init(
        "start", \.start,
        "A line that matches this RE2 pattern begins an event; the others belong to the line before them."),
      .init("end", \.end, "A line that matches this RE2 pattern ends an event."),
      .init("continuation", \.continuation, "A line that matches this RE2 pattern belongs to the line before it."),
      .init("wrapped", \.wrapped, "A line that matches this RE2 pattern is continued by the next line."),
      .init("indented", \.indented, "A line that begins with a space or a tab belongs to the line before it."),
      .init(
        "by", \.by,
        """
        An RE2 pattern whose first group, or whole match, is the key of a line: only lines of one key belong together, so those of \
        several senders may mix. Lines that do not match have a key of their own. Events are sent in the order of their first lines.
        """),
      .init(
        "maxKeys", \.maxKeys, range: 1...100_000, applies: .with("by"),
        "The maximum number of keys with an incomplete event; another key ends the oldest event."),
      .init(
        "wait", \.wait, range: 1_000_000...Int64.max,
        "How long the last event, or that of each key, waits for another line; then it is sent. Without `follow`, a file needs no such time."
      ),
      .init(
        "maxLines", \.maxLines, range: 1...1_000_000,
        "The maximum number of lines of an event; the next line begins another event."),
      .init(
        "maxBytes", \.maxBytes, range: 1...(1 << 30),
        """
        The most bytes of an event of several lines; the line that would be too much begins another event. With `by` an event also ends \
        four times as many bytes of input behind its beginning.
        """),
    ]
  }

  /// The conditions of fields for sources that join the lines of each connection: these have no keys, because the wait
  /// is measured once per connection.
  static let ofConnections: [String: Applicability] = {
    let never = Applicability.never("each connection joins its own lines, which have one key")
    return ["by": never, "maxKeys": never]
  }()

  private var rules: [LineJoining.Rule] {
    [
      start.map { .start($0) }, end.map { .end($0) }, continuation.map { .continuation($0) },
      wrapped.map { .wrapped($0) }, indented ? .indented : nil,
    ].compactMap { $0 }
  }

  package func validate(_ node: YAMLNode, _ context: inout DecodingContext) {
    let rules = rules
    guard rules.count == 1, let rule = rules.first else {
      context.badValue(
        node,
        rules.isEmpty
          ? "'join' has no rule for lines that belong together"
          : "'join' has \(rules.map { "'\($0.name)'" }.joined(separator: " and ")), and one rule decides",
        .conflictingParameters,
        help:
          "Write one of 'start', 'end', 'continuation', 'wrapped' and 'indented', such as join: { start: '^\\d{4}-' }")
      return
    }
    do throws(CodecFailure) {
      var options = DecoderOptions(.text)
      options.join = LineJoining(rule)
      options.join?.key = by
      _ = try options.decoder()
    } catch {
      let optionNode = node[error.option] ?? node
      let location =
        error.offset.flatMap { at in optionNode.scalar.map { $0.text.location(at, at + 1) } } ?? optionNode.location
      context.badValue(at: location, error.message, help: error.help)
    }
  }

  /// The decoder's options, with the rule.
  func joining(_ options: DecoderOptions) -> DecoderOptions {
    guard let rule = rules.first else { return options }
    var options = options
    options.join = LineJoining(rule, wait: wait, maxLines: maxLines, maxBytes: maxBytes.bytes)
    options.join?.key = by
    options.join?.maxKeys = maxKeys
    return options
  }

  /// Like ``check(_:_:)``, but also reports a stream that is not split into lines.
  func check(_ options: DecoderOptions, _ framing: FramingParameter, _ context: inout DecodingContext) {
    check(options, &context)
    guard framing.by != .lines else { return }
    context.badValue(
      at: context.location(of: "join"),
      "'join' joins lines, and 'framing: \(framing.by.rawValue)' cuts the stream into other messages",
      .conflictingParameters, help: "Leave one of them out")
  }

  /// Reports a format whose rows are not lines.
  func check(_ options: DecoderOptions, _ context: inout DecodingContext) {
    if by != nil, options.format == .container {
      context.badValue(
        at: context.location(of: "join"), "'by' gives lines a key, and that of 'decode: container' is the stream",
        .conflictingParameters, help: "Leave 'by' out")
    }
    let isCombined = options.format == .regex && options.regex.pattern == RegexDecoding.combined
    if LineJoining.formats.contains(options.format), !isCombined { return }
    let name = isCombined ? "regex: combined" : options.name
    let help =
      switch options.format {
      case .csv: "Leave 'join' out: a quoted field of 'csv' may contain line breaks"
      default: "Use 'join' with text, regex, json, logfmt or syslog, or leave it out"
      }
    context.badValue(
      at: context.location(of: "join"), "'join' joins lines, and 'decode: \(name)' does not read joined ones",
      .conflictingParameters, help: help)
  }
}

extension RunningSource {
  /// The number of threads that may decode input with these options. If lines are joined and more may arrive at any
  /// time, the pipeline thread decodes, because only it has timers.
  func decodingThreads(for options: DecoderOptions) -> Int { options.join == nil ? decodingThreads : 1 }
}
