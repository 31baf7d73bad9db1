import PipelineCore

/// How the characters of an input are encoded: `charset: utf-16le`.
public struct CharsetParameter: ParameterValue {
  private var charset: Charset?

  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .text }
  public var defaultText: String? { charset?.name ?? "utf-8" }

  public init() {}

  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> CharsetParameter? {
    guard let name = String.decode(node, &context) else { return nil }
    var parameter = CharsetParameter()
    if node.scalar?.isPlaceholder == true || Charset.isUTF8(name) { return parameter }
    do throws(CodecFailure) {
      parameter.charset = try Charset(name)
      return parameter
    } catch {
      let near = Suggestion.nearest(to: name.lowercased(), among: Charset.builtin)
      context.badValue(node, error.message, help: near.map { "Did you mean '\($0)'?" } ?? error.help)
      return nil
    }
  }

  /// The decoder's options with the charset.
  func reading(_ options: DecoderOptions, maxLine: ByteSize) -> DecoderOptions {
    guard var charset else { return options }
    var options = options
    charset.maxLine = maxLine.bytes
    options.charset = charset
    return options
  }

  /// Reports what cannot be converted.
  func check(_ options: DecoderOptions, joins: Bool, _ context: inout DecodingContext) {
    guard let charset else { return }
    switch options.format {
    case .bytes, .jsonDocuments, .prometheus:
      context.badValue(
        at: context.location(of: "charset"), "'decode: \(options.format.rawValue)' takes no 'charset'",
        .conflictingParameters,
        help: options.format == .bytes
          ? "Leave it out: bytes are not converted"
          : "Read lines ('json', 'ndjson', 'text' ...), or convert the input with iconv(1)")
    default:
      if joins, charset.isUTF16 {
        context.badValue(
          at: context.location(of: "join"), "'join' cannot be used with 'charset: \(charset.name)'",
          .conflictingParameters, help: "Convert the input with iconv(1), as the program of an 'exec' source")
      }
    }
  }
}
