/// How a source turns bytes into events: `decode: json`, or `decode: { csv: { header: false } }`.
package struct DecodeParameter: ParameterValue {
  package var options: DecoderOptions

  package init(_ format: DecoderFormat = .text) {
    options = DecoderOptions(format)
    if format == .container { options.join = LineJoining(nil) }
  }

  private init(_ plugin: any OfferedFormat, _ context: inout DecodingContext) {
    self.init(plugin.format.framing == .lines ? .lines : .whole)
    options.plugin = plugin.format
    context.usedCodecs.append(plugin)
  }

  package var defaultText: String? { options.name }

  package static func shape(range: ClosedRange<Int64>?) -> ParameterShape {
    .oneOf([
      .choice(DecoderFormat.allCases.map { .init($0.rawValue, $0.summary) }),
      .record([
        Self.info("text", TextFields.self, "Lines of text, or whole bodies."),
        Self.info("lines", TextFields.self, "Lines of text."),
        Self.info("whole", TextFields.self, "The whole input as one text."),
        Self.info("json", JSONFields.self, "JSON documents."),
        Self.info("ndjson", JSONFields.self, "JSON documents, one a line."),
        Self.info(
          "jsonDocuments", JSONDocumentsFields.self, "JSON documents one after another, over several lines or on one."),
        Self.info("csv", CSVFields.self, "Comma-separated values."),
        Self.info("logfmt", LogfmtFields.self, "Lines of key=value pairs."),
        Self.info("regex", RegexFields.self, "Lines parsed by a regular expression."),
        Self.info("syslog", SyslogFields.self, "Syslog messages."),
        Self.info("container", ContainerFields.self, "Lines of containers' log files."),
        Self.info("statsd", TextFields.self, "Metrics of StatsD."),
      ]),
    ])
  }

  private static func info<R: RecordParameter>(_ name: String, _ type: R.Type, _ help: String) -> ParameterInfo {
    ParameterInfo(
      name: name, help: help, isPrimary: false, isRequired: false, isWhole: false,
      shape: R.shape(range: nil), defaultText: nil, range: nil, variables: [])
  }

  package static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> DecodeParameter? {
    guard let entries = node.entries else {
      if let plugin = context.codec(.decoder, node.string) {
        return DecodeParameter(plugin.with(nil, &context), &context)
      }
      return Format.decode(node, &context).map { DecodeParameter($0.format) }
    }
    guard entries.count == 1, let entry = entries.first else {
      context.badValue(
        node, "'\(context.parameter)' takes exactly one format", .notOneComponent,
        help: "Write e.g. 'decode: { csv: { header: true } }'")
      return nil
    }
    if let plugin = context.codec(.decoder, entry.name) {
      var decoder = plugin
      context.enter(entry.name, at: entry.value) { decoder = plugin.with(entry.value, &$0) }
      return DecodeParameter(decoder, &context)
    }
    let name = YAMLNode(.scalar(entry.key), at: entry.key.location)
    guard let format = Format.decode(name, &context)?.format else { return nil }
    let outer = context.parameter
    context.parameter = format.rawValue
    defer { context.parameter = outer }
    var parameter: DecodeParameter?
    // Entered so that the conditions of options see the values that the file gives.
    context.enter(format.rawValue, at: entry.value) { parameter = options(of: format, entry, &$0) }
    return parameter.flatMap { checked($0, entry.value, &context) }
  }

  private static func options(
    of format: DecoderFormat, _ entry: YAMLEntry, _ context: inout DecodingContext
  ) -> DecodeParameter? {
    var parameter = DecodeParameter(format)
    switch format {
    case .syslog:
      guard let fields = SyslogFields.decode(entry.value, &context) else { return nil }
      parameter.options.invalidUTF8 = fields.invalidUTF8.value
      parameter.options.isStrictSyslog = fields.strict
    case .container:
      guard let fields = ContainerFields.decode(entry.value, &context) else { return nil }
      parameter.options.invalidUTF8 = fields.invalidUTF8.value
      parameter.options.join = LineJoining(nil, wait: fields.wait, maxBytes: fields.maxBytes.bytes)
    case .text, .lines, .whole, .statsd:
      guard let fields = TextFields.decode(entry.value, &context) else { return nil }
      parameter.options.invalidUTF8 = fields.invalidUTF8.value
    case .json, .ndjson:
      guard let fields = JSONFields.decode(entry.value, &context) else { return nil }
      parameter.options.json.check = fields.validate ? .everything : .outline
    case .jsonDocuments:
      guard let fields = JSONDocumentsFields.decode(entry.value, &context) else { return nil }
      parameter.options.json.check = fields.validate ? .everything : .outline
      parameter.options.json.maxBytes = fields.maxBytes.bytes
    case .csv:
      guard let fields = CSVFields.decode(entry.value, &context) else { return nil }
      parameter.options.csv.header = fields.header.value
      if let byte = fields.delimiter.utf8.first, fields.delimiter.utf8.count == 1 {
        parameter.options.csv.delimiter = byte
      } else {
        context.badValue(entry.value, "'delimiter' of csv must be one ASCII character")
        return nil
      }
      parameter.options.csv.skipLines = fields.skipLines
      parameter.options.csv.headerAt = fields.headerAt
      parameter.options.csv.types = fields.types.value
      parameter.options.csv.emptyIsNull = fields.emptyIsNull
    case .logfmt:
      guard let fields = LogfmtFields.decode(entry.value, &context) else { return nil }
      parameter.options.logfmt.types = fields.types.dictionary
    case .regex:
      guard let fields = RegexFields.decode(entry.value, &context) else { return nil }
      parameter.options.regex.pattern = fields.pattern
      parameter.options.regex.types = fields.types.dictionary
    case .prometheus, .bytes:
      break
    }
    return parameter
  }

  /// The conditions of options if each body or message is decoded separately.
  package static let ofMessages: [String: Applicability] = [
    "container.wait": .never("the last line ends with the body or the message")
  ]

  /// The conditions of options if the component has `charset`: in a charset in which every byte is a character, no text
  /// is invalid.
  package static let withCharset: [String: Applicability] = Dictionary(
    uniqueKeysWithValues: ["text", "lines", "whole", "statsd", "syslog", "container"].map {
      ("\($0).invalidUTF8", .notWord("/charset", Charset.namesOfLatin1))
    })

  /// The conditions if both apply.
  package static let ofMessagesWithCharset = withCharset.merging(ofMessages) { $1 }

  /// The conditions if the component has `charset` and `join`, whose `wait` and `maxBytes` then apply to the lines of
  /// containers.
  package static let withCharsetAndJoin: [String: Applicability] = {
    var conditions = withCharset
    for option in ["wait", "maxBytes"] { conditions["container.\(option)"] = .without("/join") }
    return conditions
  }()

  /// Reports patterns that do not compile and options that exclude each other.
  private static func checked(
    _ parameter: DecodeParameter, _ node: YAMLNode, _ context: inout DecodingContext
  ) -> DecodeParameter? {
    do throws(CodecFailure) {
      _ = try parameter.options.decoder()
      return parameter
    } catch {
      // In the short form, the option is the value itself.
      let optionNode = node[error.option] ?? node
      let scalar = optionNode.scalar
      let location = error.offset.flatMap { at in scalar.map { $0.text.location(at, at + 1) } } ?? optionNode.location
      context.diagnostics.report(
        Diagnostic(
          .outOfRange, error.message, at: location, help: error.replacement.map { "Write \($0)" } ?? error.help,
          fixIts: error.replacement.flatMap { text in scalar.map { [$0.text.fix(0, $0.text.text.count, text)] } } ?? [])
      )
      return nil
    }
  }

  private struct Format: ParameterValue {
    var format: DecoderFormat
    static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .text }
    static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Format? {
      let known = DecoderFormat.allCases.map(\.rawValue) + context.codecs(.decoder)
      if let text = node.string, let format = DecoderFormat(rawValue: text) {
        return Format(format: format)
      }
      if let text = node.string, let form = written[text] {
        context.diagnostics.report(
          Diagnostic(
            .unknownChoice, "there is no decoder '\(text)'", at: node.location, help: "Write 'decode: \(form)'",
            fixIts: [.init(node.location, form)]))
        return nil
      }
      context.unknownFormat("decoder", node.shown, node.location, among: known)
      return nil
    }

    /// The YAML to write for names of formats that are options of a decoder.
    private static let written = [
      "apache": combined, "nginx": combined, "combined": combined, "tsv": "{ csv: { delimiter: \"\\t\" } }",
      "cri": DecoderFormat.container.rawValue, "docker": DecoderFormat.container.rawValue,
      "json-file": DecoderFormat.container.rawValue,
    ]
    private static let combined = "{ regex: \(RegexDecoding.combined) }"
  }
}

/// The treatment of text that is not UTF-8.
package enum InvalidTextParameter: String, ChoiceParameter {
  case reject, replace, bytes
  package var help: String {
    switch self {
    case .reject: "the row goes to the errors output"
    case .replace: "faulty bytes become U+FFFD"
    case .bytes: "the row becomes an event of raw bytes"
    }
  }
  package var value: InvalidUTF8 { InvalidUTF8(rawValue: rawValue) ?? .reject }
}

private struct SyslogFields: RecordParameter {
  var strict = false
  var invalidUTF8 = InvalidTextParameter.reject
  static var fields: [RecordField<SyslogFields>] {
    [
      .init(
        "strict", \.strict,
        "Reject messages that do not follow their RFC. By default whatever can be recognised is read, and `guessed` names the members that no RFC defines."
      ),
      .init("invalidUTF8", \.invalidUTF8, "What happens to text that is not UTF-8."),
    ]
  }
}

private struct ContainerFields: RecordParameter {
  var invalidUTF8 = InvalidTextParameter.reject
  var wait = TimeSpan.seconds(1)
  var maxBytes = ByteSize(1 << 20)
  static var fields: [RecordField<ContainerFields>] {
    [
      .init("invalidUTF8", \.invalidUTF8, "What happens to text that is not UTF-8."),
      .init(
        "wait", \.wait, range: 1_000_000...Int64.max,
        "How long the pieces of a line wait for the next one; then they are sent as they are."),
      .init(
        "maxBytes", \.maxBytes, range: 1...(1 << 30),
        "The maximum length of a line in bytes; a longer line goes to the errors output."),
    ]
  }
}

private struct TextFields: RecordParameter {
  var invalidUTF8 = InvalidTextParameter.reject
  static var fields: [RecordField<TextFields>] {
    [.init("invalidUTF8", \.invalidUTF8, "What happens to text that is not UTF-8.")]
  }
}

private struct JSONFields: RecordParameter {
  var validate = false
  static var fields: [RecordField<JSONFields>] {
    [
      .init(
        "validate", \.validate,
        "Check each document completely, not only its outline and the fields that are read.")
    ]
  }
}

private struct JSONDocumentsFields: RecordParameter {
  var validate = false
  var maxBytes = ByteSize(16 << 20)
  static var fields: [RecordField<JSONDocumentsFields>] {
    [
      .init(
        "validate", \.validate,
        "Check each document completely, not only its outline and the fields that are read."),
      .init(
        "maxBytes", \.maxBytes, range: 1...(1 << 30),
        "The longest document of a stream; a longer one goes to the errors output."),
    ]
  }
}

private struct CSVFields: RecordParameter {
  struct Header: ParameterValue {
    var value = CSVDecoding.Header.firstRow
    var defaultText: String? { "true" }
    static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .oneOf([.bool, .list(.text)]) }
    static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Header? {
      if let items = node.items {
        return Header(value: .names(items.compactMap { String.decode($0, &context) }))
      }
      return Bool.decode(node, &context).map { Header(value: $0 ? .firstRow : .none) }
    }
  }
  enum Types: String, ChoiceParameter {
    case strings, infer
    var help: String { self == .strings ? "every field is a text" : "numbers and booleans are recognised" }
    var value: FieldType { self == .strings ? .string : .infer }
  }
  var header = Header()
  var skipLines = 0
  var headerAt: String?
  var delimiter = ","
  var types = Types.strings
  var emptyIsNull: Bool?
  static var fields: [RecordField<CSVFields>] {
    [
      .init("header", \.header, "Whether the first row names the fields; or the names."),
      .init(
        "skipLines", \.skipLines, range: 0...1_000_000,
        "The number of lines before the header, or before the first row, that are left out: a title, remarks."),
      .init(
        "headerAt", \.headerAt,
        """
        An RE2 pattern: the first line that matches is the header, and the lines before it are left out. From the 1,001st line \
        on each goes to the errors output.
        """),
      .init("delimiter", \.delimiter, "The character that separates the fields."),
      .init("types", \.types, "The types of the fields; fields in quotes are always texts."),
      .init(
        "emptyIsNull", \.emptyIsNull,
        """
        Whether a field without content or quotes is null instead of an empty text. Default: true with `types: \
        infer`, otherwise false.
        """
      ),
    ]
  }
}

private enum FieldKind: String, ChoiceParameter {
  case string, int, double, bool, timestamp, infer
  var help: String { self == .infer ? "the type that the text looks like" : Printable.withArticle(rawValue) }
  var type: FieldType { FieldType(rawValue: rawValue) ?? .string }
}

extension Table where Element == FieldKind {
  fileprivate var dictionary: [String: FieldType] {
    Dictionary(entries.map { ($0.name, $0.value.type) }, uniquingKeysWith: { $1 })
  }
}

private struct LogfmtFields: RecordParameter {
  var types = Table<FieldKind>()
  static var fields: [RecordField<LogfmtFields>] {
    [
      .init(
        "types", \.types,
        "The types of the named fields; the others are texts. With any type but `string`, an empty field is null."
      )
    ]
  }
}

private struct RegexFields: RecordParameter {
  var pattern = ""
  var types = Table<FieldKind>()
  static var fields: [RecordField<RegexFields>] {
    [
      .init(
        "pattern", \.pattern, primary: true, required: true,
        "An RE2 expression with named groups, `(?P<name>...)`, or `combined` for the access logs of Apache and nginx."),
      .init(
        "types", \.types,
        "The types of the named groups; the others are texts. With any type but `string`, an empty group is null."
      ),
    ]
  }
}

extension DecodingContext {
  /// The format of a plugin; nil: no plugin offers it.
  fileprivate func codec(_ kind: ComponentKind, _ name: String?) -> (any OfferedFormat)? {
    codecs.first { $0.kind == kind && $0.name == name }
  }

  /// The names of the formats of plugins.
  fileprivate func codecs(_ kind: ComponentKind) -> [String] {
    codecs.filter { $0.kind == kind }.map { $0.name }
  }

  /// Reports an unknown format.
  fileprivate mutating func unknownFormat(
    _ kind: String, _ name: String, _ location: SourceLocation, among known: [String]
  ) {
    let plugin = KnownPlugin.help(for: name, kind, besides: known)
    let near = plugin == nil ? Suggestion.nearest(to: name, among: known) : nil
    diagnostics.report(
      Diagnostic(
        .unknownChoice, "there is no \(kind) '\(name)'", at: location,
        help: plugin ?? near.map { "Did you mean '\($0)'?" } ?? "There are \(Suggestion.list(known))",
        fixIts: near.map { [.init(location, $0)] } ?? []))
  }
}

/// How a sink turns events into bytes: `encode: json`, or `encode: { csv: { columns: [a, b] } }`.
public struct EncodeParameter: ParameterValue {
  package var options: EncoderOptions
  package private(set) var isGiven = false

  package init(_ format: EncoderFormat = .json) { options = EncoderOptions(format) }

  public var defaultText: String? { options.name }

  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape {
    .oneOf([
      .choice(EncoderFormat.allCases.map { .init($0.rawValue, $0.summary) }),
      .record([
        ParameterInfo(
          name: "json", help: "JSON documents.", isPrimary: false, isRequired: false, isWhole: false,
          shape: JSONEncodeFields.shape(range: nil), defaultText: nil, range: nil, variables: []),
        ParameterInfo(
          name: "csv", help: "Comma-separated values.", isPrimary: false, isRequired: false,
          isWhole: false, shape: CSVEncodeFields.shape(range: nil), defaultText: nil, range: nil,
          variables: []),
        ParameterInfo(
          name: "influx", help: "InfluxDB's line protocol.", isPrimary: false, isRequired: false, isWhole: false,
          shape: InfluxEncodeFields.shape(range: nil), defaultText: nil, range: nil, variables: []),
      ]),
    ])
  }

  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> EncodeParameter? {
    let known = EncoderFormat.allCases.map(\.rawValue) + context.codecs(.encoder)
    let name: String
    if let entries = node.entries, entries.count == 1, let entry = entries.first {
      name = entry.name
    } else if let text = node.string {
      name = text
    } else {
      context.badValue(
        node, "'\(context.parameter)' takes exactly one format", .notOneComponent,
        help: "Write e.g. 'encode: { csv: { columns: [a, b] } }'")
      return nil
    }
    if let plugin = context.codec(.encoder, name) {
      var encoder = plugin
      if let value = node.entries?.first?.value {
        context.enter(name, at: value) { encoder = plugin.with(value, &$0) }
      } else {
        encoder = plugin.with(nil, &context)
      }
      context.usedCodecs.append(encoder)
      var parameter = EncodeParameter(.bytes)
      parameter.options.plugin = encoder.format
      parameter.isGiven = true
      return parameter
    }
    guard let format = EncoderFormat(rawValue: name) else {
      let key = node.entries?.first?.key
      context.unknownFormat("encoder", key?.shown ?? node.shown, key?.location ?? node.location, among: known)
      return nil
    }
    var parameter = EncodeParameter(format)
    parameter.isGiven = true
    guard let value = node.entries?.first?.value else { return parameter }
    let outer = context.parameter
    context.parameter = name
    defer { context.parameter = outer }
    var isSound = false
    // Entered so that the conditions of options see the values that the file gives.
    context.enter(name, at: value) { isSound = parameter.read(value, &$0) }
    return isSound ? parameter : nil
  }

  private mutating func read(_ value: YAMLNode, _ context: inout DecodingContext) -> Bool {
    switch options.format {
    case .json:
      guard let fields = JSONEncodeFields.decode(value, &context) else { return false }
      options.indent = fields.indent == 0 ? nil : fields.indent
    case .csv:
      guard let fields = CSVEncodeFields.decode(value, &context) else { return false }
      options.csv.columns = fields.columns.isEmpty ? nil : fields.columns
      options.csv.header = fields.header
    case .influx:
      guard let fields = InfluxEncodeFields.decode(value, &context) else { return false }
      options.precision = fields.precision
    default:
      context.badValue(value, "the encoder '\(options.format.rawValue)' has no parameters", .unknownParameter)
      return false
    }
    return true
  }

  /// The conditions of options if each event is a separate message.
  package static let ofMessages: [String: Applicability] = [
    "csv.header": .never("receivers could not distinguish a header from an event, so none is sent")
  ]

  /// An encoder; the options were checked when they were decoded.
  package func makeEncoder() -> any EventEncoder {
    do throws(CodecFailure) {
      return try options.encoder()
    } catch {
      preconditionFailure("encoder options were not checked: \(error)")
    }
  }
}

private struct JSONEncodeFields: RecordParameter {
  var indent = 0
  static var fields: [RecordField<JSONEncodeFields>] {
    [.init("indent", \.indent, range: 0...16, "Spaces per level; 0 writes each document on one line.")]
  }
}

extension InfluxPrecision: ChoiceParameter {
  package var help: String {
    switch self {
    case .ns: "nanoseconds"
    case .us: "microseconds"
    case .ms: "milliseconds"
    case .s: "seconds"
    }
  }
}

private struct InfluxEncodeFields: RecordParameter {
  var precision = InfluxPrecision.ns
  static var fields: [RecordField<InfluxEncodeFields>] {
    [
      .init(
        "precision", \.precision,
        "The unit of `timestamp`; a timestamp is rounded down to it, a whole number is in this unit.")
    ]
  }
}

private struct CSVEncodeFields: RecordParameter {
  var columns: [String] = []
  var header = true
  static var fields: [RecordField<CSVEncodeFields>] {
    [
      .init("columns", \.columns, "The fields and their order; by default those of the first event."),
      .init("header", \.header, "Whether the first row names the columns."),
    ]
  }
}
