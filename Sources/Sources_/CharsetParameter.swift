import Glibc
import PipelineCore

/// The encoding of an input's characters: `charset: utf-16le`.
package struct CharsetParameter: ParameterValue {
  private var charset: Charset?
  /// Whether the file sets a charset, including UTF-8.
  private(set) var isGiven = false

  package static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .text }
  package var defaultText: String? { charset?.name ?? "utf-8" }

  package init() {}

  package static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> CharsetParameter? {
    guard let name = String.decode(node, &context) else { return nil }
    var parameter = CharsetParameter()
    parameter.isGiven = true
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

  /// The decoder's options, with the charset.
  func reading(_ options: DecoderOptions, maxLine: ByteSize) -> DecoderOptions {
    guard var charset else { return options }
    var options = options
    charset.maxLine = maxLine.bytes
    options.charset = charset
    return options
  }

  /// The options for a body with a `Content-Type`. Its charset counts if the file sets none and the format is text.
  /// Other formats have their own rules: JSON is UTF-8.
  ///
  /// - Parameter unknown: Called with the name of a charset that is not known; the body is then read as UTF-8.
  func reading(
    _ options: DecoderOptions, maxLine: ByteSize, type: String?, unknown: (String) -> Void
  ) -> DecoderOptions {
    guard !isGiven, options.takesCharsetOfType, let name = Self.charset(ofType: type), !Charset.isUTF8(name)
    else {
      return reading(options, maxLine: maxLine)
    }
    var options = options
    do throws(CodecFailure) {
      var charset = try Charset(name)
      charset.maxLine = maxLine.bytes
      options.charset = charset
    } catch {
      unknown(name)
    }
    return options
  }

  /// The parameter `charset` of a media type (RFC 9110, 8.3), in lower case.
  static func charset(ofType type: UnsafeRawBufferPointer?) -> String? {
    // Most types have no parameter.
    guard let type, let start = type.baseAddress, memchr(start, Int32(UInt8(ascii: ";")), type.count) != nil else {
      return nil
    }
    return charset(ofType: String(decoding: type, as: UTF8.self))
  }

  static func charset(ofType type: String?) -> String? {
    guard let type else { return nil }
    for part in type.utf8.split(separator: UInt8(ascii: ";")).dropFirst() {
      let pair = part.split(separator: UInt8(ascii: "="), maxSplits: 1)
      func text(_ bytes: Substring.UTF8View) -> String {
        let kept = bytes.filter { $0 != 0x20 && $0 != 0x09 && $0 != UInt8(ascii: "\"") }
        return String(decoding: kept, as: UTF8.self).lowercased()
      }
      if pair.count == 2, text(pair[0]) == "charset" { return text(pair[1]) }
    }
    return nil
  }

  /// Reports options that exclude a conversion. `joins`: whether lines are joined where a line may be read in parts.
  func check(_ options: DecoderOptions, joins: Bool, _ context: inout DecodingContext) {
    guard let charset else { return }
    if options.isBinary || [.bytes, .jsonDocuments, .prometheus].contains(options.format) {
      context.badValue(
        at: context.location(of: "charset"), "'decode: \(options.name)' takes no 'charset'",
        .conflictingParameters,
        help: options.format == .bytes
          ? "Leave it out: bytes are not converted"
          : "Read lines ('json', 'ndjson', 'text' ...), or convert the input with iconv(1)")
      return
    }
    if options.invalidUTF8 == .bytes, !Charset.namesOfLatin1.contains(charset.name) {
      context.badValue(
        at: context.location(of: "decode"),
        "'invalidUTF8: bytes' has no effect with 'charset: \(charset.name)': bytes that are invalid in it are rejected",
        .conflictingParameters, help: "Write 'invalidUTF8: replace' or 'reject'")
    }
    if joins, charset.isUTF16 {
      context.badValue(
        at: context.location(of: "join"), "'join' cannot be used with 'charset: \(charset.name)' and 'follow'",
        .conflictingParameters, help: "Convert the input with iconv(1), as the program of an 'exec' source")
    }
  }
}
