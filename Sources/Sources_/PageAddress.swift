import PipelineCore
import Transport

/// The URLs of further pages.
enum PageAddress {
  /// Why a link is not followed, as a clause.
  struct Refusal: Error, Equatable {
    var reason: String
    init(_ reason: String) { self.reason = reason }
  }

  private static let longest = 8192

  /// The URL with one more query parameter, inserted before the fragment.
  static func adding(_ name: String, _ value: String, to url: String) -> String {
    let bytes = Array(url.utf8)
    let end = bytes.firstIndex(of: UInt8(ascii: "#")) ?? bytes.count
    let hasQuery = bytes[..<end].contains(UInt8(ascii: "?"))
    let mark: UInt8? =
      !hasQuery
      ? UInt8(ascii: "?")
      : bytes[end - 1] == UInt8(ascii: "?") || bytes[end - 1] == UInt8(ascii: "&") ? nil : UInt8(ascii: "&")
    var result = Array(bytes[..<end])
    if let mark { result.append(mark) }
    result += "\(FormText.escaped(name))=\(FormText.escaped(value))".utf8
    result += bytes[end...]
    return String(decoding: result, as: UTF8.self)
  }

  /// The absolute URL of a reference in a response (RFC 3986, 5.2), without its fragment. It must have the scheme, host
  /// and port of `base`, an absolute URL, because credentials must go nowhere else.
  static func resolve(_ reference: String, against base: String) -> Result<String, Refusal> {
    var text = Array(reference.utf8)
    if let fragment = text.firstIndex(of: UInt8(ascii: "#")) { text.removeSubrange(fragment...) }
    guard text.count <= longest else { return .failure(Refusal("is longer than \(longest) bytes")) }
    if text.contains(where: { $0 <= 0x20 || $0 == 0x7F }) {
      return .failure(Refusal("contains a space or control character"))
    }
    guard let origin = Origin(base) else { return .failure(Refusal("has no URL to start from")) }
    let bytes = Array(base.utf8)
    let end = bytes.firstIndex { $0 == UInt8(ascii: "?") || $0 == UInt8(ascii: "#") } ?? bytes.count
    let path = bytes[origin.end..<end]
    let url: [UInt8]
    if hasScheme(text) {
      url = text
    } else if text.starts(with: "//".utf8) {
      url = Array("\(origin.scheme):".utf8) + text
    } else if text.first == UInt8(ascii: "/") {
      url = Array(bytes[..<origin.end]) + text
    } else if text.first == UInt8(ascii: "?") {
      url = Array(bytes[..<end]) + text
    } else {
      if let slash = path.lastIndex(of: UInt8(ascii: "/")) {
        url = Array(bytes[...slash]) + text
      } else {
        url = Array(bytes[..<origin.end]) + [UInt8(ascii: "/")] + text
      }
    }
    let result = String(decoding: url, as: UTF8.self)
    guard let other = Origin(result) else { return .failure(Refusal("is not an http or https URL")) }
    guard other == origin else {
      return .failure(
        Refusal("leads to another server, \(Printable.cut("\(other.scheme)://\(other.host):\(other.port)"))"))
    }
    return .success(result)
  }

  private static func hasScheme(_ text: [UInt8]) -> Bool {
    guard let colon = text.firstIndex(of: UInt8(ascii: ":")), colon > 0 else { return false }
    return !text[..<colon].contains { [UInt8(ascii: "/"), UInt8(ascii: "?")].contains($0) }
  }

  /// The scheme, host and port of a URL.
  struct Origin: Equatable {
    var scheme: String
    var host: String
    var port: String
    /// The offset at which the path starts.
    var end: Int

    static func == (a: Origin, b: Origin) -> Bool { a.scheme == b.scheme && a.host == b.host && a.port == b.port }

    /// Nil if it is not an http or https URL, or names a user.
    init?(_ url: String) {
      let bytes = Array(url.utf8)
      guard let mark = bytes.firstRange(of: Array("://".utf8)) else { return nil }
      scheme = String(decoding: bytes[..<mark.lowerBound], as: UTF8.self).lowercased()
      guard scheme == "http" || scheme == "https" else { return nil }
      let rest = bytes[mark.upperBound...]
      end =
        rest.firstIndex { [UInt8(ascii: "/"), UInt8(ascii: "?"), UInt8(ascii: "#"), UInt8(ascii: "\\")].contains($0) }
        ?? bytes.count
      let authority = bytes[mark.upperBound..<end]
      guard !authority.isEmpty, !authority.contains(UInt8(ascii: "@")) else { return nil }
      let close = authority.lastIndex(of: UInt8(ascii: "]")) ?? authority.startIndex
      let colon = authority[close...].lastIndex(of: UInt8(ascii: ":"))
      host = String(decoding: authority[..<(colon ?? authority.endIndex)], as: UTF8.self).lowercased()
      let digits = colon.map { String(decoding: authority[($0 + 1)...], as: UTF8.self) } ?? ""
      port = digits.isEmpty ? (scheme == "https" ? "443" : "80") : digits
    }
  }

  /// The target of the first link with `rel=next` in the headers `Link` (RFC 8288); nil if there is none.
  static func next(_ headers: [HTTPHeader]) -> String? {
    for header in headers where header.name.lowercased() == "link" {
      if let target = next(Array(header.value.utf8)) { return target }
    }
    return nil
  }

  private static func next(_ text: [UInt8]) -> String? {
    var at = 0
    func skipSpace() { while at < text.count, text[at] == 0x20 || text[at] == 0x09 { at += 1 } }
    while let open = text[at...].firstIndex(of: UInt8(ascii: "<")),
      let close = text[open...].firstIndex(of: UInt8(ascii: ">"))
    {
      let target = text[(open + 1)..<close]
      at = close + 1
      var isNext = false
      // Reads the parameters up to the comma before the next link.
      while at < text.count {
        skipSpace()
        guard at < text.count, text[at] == UInt8(ascii: ";") else { break }
        at += 1
        skipSpace()
        let start = at
        while at < text.count, !"=;,".utf8.contains(text[at]) { at += 1 }
        let name = String(decoding: text[start..<at].filter { $0 != 0x20 }, as: UTF8.self).lowercased()
        var value: [UInt8] = []
        if at < text.count, text[at] == UInt8(ascii: "=") {
          at += 1
          skipSpace()
          if at < text.count, text[at] == UInt8(ascii: "\"") {
            at += 1
            while at < text.count, text[at] != UInt8(ascii: "\"") {
              if text[at] == UInt8(ascii: "\\"), at + 1 < text.count { at += 1 }
              value.append(text[at])
              at += 1
            }
            at += 1
          } else {
            while at < text.count, !";,".utf8.contains(text[at]) {
              value.append(text[at])
              at += 1
            }
          }
        }
        let words = value.split(separator: 0x20).map { String(decoding: $0, as: UTF8.self).lowercased() }
        if name == "rel", words.contains("next") { isNext = true }
      }
      if isNext { return String(decoding: target, as: UTF8.self) }
      guard at < text.count, let comma = text[at...].firstIndex(of: UInt8(ascii: ",")) else { return nil }
      at = comma + 1
    }
    return nil
  }
}
