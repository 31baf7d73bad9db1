internal import CYAML

/// Parses the bytes of a file into located nodes. The only file that uses libyaml.
package enum YAMLReader {
  /// Nil if the text cannot be read at all. After some errors (a duplicate key, a merge key) a node is still returned,
  /// so that later phases can report more; it must not be run.
  ///
  /// `limits` bound time and memory for any bytes.
  ///
  /// - Parameter offset: The start of the text; bytes before it are ignored.
  package static func read(
    _ source: SourceText, from offset: Int = 0, limits: YAMLLimits = .standard, into diagnostics: inout Diagnostics
  ) -> YAMLNode? {
    guard let start = YAMLBytes.check(source, limits: limits, into: &diagnostics).map({ max($0, offset) }),
      !YAMLDirectives.refuse(source, from: start, into: &diagnostics)
    else { return nil }
    var composer = YAMLComposer(source: source, limits: limits)
    let stream = EventStream(source, from: start)
    let node = stream.compose(&composer)
    diagnostics.report(contentsOf: composer.diagnostics)
    return node
  }

  /// The layout of a text that ``read(_:from:limits:into:)`` can read without an error.
  static func layout(_ source: SourceText) -> YAMLLayoutNode? {
    var composer = YAMLLayoutComposer(source)
    return EventStream(source, from: source.bytes.starts(with: [0xEF, 0xBB, 0xBF]) ? 3 : 0).compose(&composer)
  }
}

/// Feeds libyaml's events to a composer.
private final class EventStream {
  private let source: SourceText
  private let start: Int
  private let parser = UnsafeMutablePointer<yaml_parser_t>.allocate(capacity: 1)
  /// libyaml counts code points; `offsets` maps them to byte offsets, and is empty if all characters are ASCII.
  private let offsets: [Int32]

  init(_ source: SourceText, from start: Int) {
    self.source = source
    self.start = start
    parser.initialize(to: yaml_parser_t())
    let bytes = source.bytes
    if bytes.dropFirst(start).allSatisfy({ $0 < 0x80 }) {
      offsets = []
    } else {
      var offsets: [Int32] = []
      offsets.reserveCapacity(bytes.count - start)
      for (offset, byte) in bytes.enumerated().dropFirst(start) where byte & 0xC0 != 0x80 {
        offsets.append(Int32(clamping: offset))
      }
      self.offsets = offsets
    }
  }

  deinit { parser.deallocate() }

  private func offset(_ mark: yaml_mark_t) -> Int {
    if offsets.isEmpty { return min(start + mark.index, source.bytes.count) }
    return mark.index < offsets.count ? Int(offsets[mark.index]) : source.bytes.count
  }

  func compose<Target: YAMLEventTarget>(_ composer: inout Target) -> Target.Result? {
    source.bytes.withUnsafeBufferPointer { bytes in
      guard yaml_parser_initialize(parser) == 1 else {
        composer.report(.outOfMemory, "there is not enough memory to read the file", start, 0, help: nil)
        return nil
      }
      defer { yaml_parser_delete(parser) }
      yaml_parser_set_encoding(parser, YAML_UTF8_ENCODING)
      yaml_parser_set_input_string(
        parser, bytes.baseAddress.map { $0 + start }, bytes.count - start)
      var event = yaml_event_t()
      while !composer.isStopped {
        guard yaml_parser_parse(parser, &event) == 1 else {
          composer.fail(syntaxError())
          return nil
        }
        defer { yaml_event_delete(&event) }
        let from = offset(event.start_mark)
        let to = offset(event.end_mark)
        switch event.type {
        case YAML_STREAM_END_EVENT, YAML_NO_EVENT:
          composer.endOfFile()
          return nil
        case YAML_DOCUMENT_END_EVENT:
          // libyaml must not read further: a second document is an error anyway.
          return composer.endOfDocument(explicit: event.data.document_end.implicit == 0, from, to)
        case YAML_ALIAS_EVENT:
          composer.alias(text(event.data.alias.anchor) ?? "", from, to)
        case YAML_SCALAR_EVENT:
          let scalar = event.data.scalar
          composer.scalar(
            UnsafeBufferPointer(start: scalar.value, count: scalar.length),
            style: style(scalar.style),
            YAMLProperties(anchor: text(scalar.anchor), tag: text(scalar.tag)), from, to)
        case YAML_SEQUENCE_START_EVENT:
          let sequence = event.data.sequence_start
          composer.begin(
            .sequence, flow: sequence.style == YAML_FLOW_SEQUENCE_STYLE,
            YAMLProperties(anchor: text(sequence.anchor), tag: text(sequence.tag)), from, to)
        case YAML_MAPPING_START_EVENT:
          let mapping = event.data.mapping_start
          composer.begin(
            .mapping, flow: mapping.style == YAML_FLOW_MAPPING_STYLE,
            YAMLProperties(anchor: text(mapping.anchor), tag: text(mapping.tag)), from, to)
        case YAML_SEQUENCE_END_EVENT, YAML_MAPPING_END_EVENT:
          composer.end(to)
        default: break
        }
      }
      return nil
    }
  }

  private func text(_ pointer: UnsafeMutablePointer<UInt8>?) -> String? {
    pointer.map { String(cString: $0) }
  }

  private func style(_ style: yaml_scalar_style_t) -> YAMLScalar.Style {
    switch style {
    case YAML_SINGLE_QUOTED_SCALAR_STYLE: .singleQuoted
    case YAML_DOUBLE_QUOTED_SCALAR_STYLE: .doubleQuoted
    case YAML_LITERAL_SCALAR_STYLE: .literal
    case YAML_FOLDED_SCALAR_STYLE: .folded
    default: .plain
    }
  }

  private func syntaxError() -> YAMLSyntaxError {
    let error = parser.pointee
    let isReader = error.error == YAML_READER_ERROR || error.error == YAML_MEMORY_ERROR
    return YAMLSyntaxError(
      problem: error.problem.map { String(cString: $0) } ?? "not enough memory",
      context: error.context.map { String(cString: $0) } ?? "",
      offset: isReader ? offset(error.mark) : offset(error.problem_mark),
      contextOffset: error.context == nil ? nil : offset(error.context_mark))
  }
}
