/// Rejects directives before libyaml reads them: it compares each with all earlier ones, which takes quadratic time,
/// and pipeline files need none.
enum YAMLDirectives {
  /// Returns whether any was rejected. A single `%YAML 1.1` or `%YAML 1.2` is allowed.
  static func refuse(
    _ source: SourceText, from start: Int, into diagnostics: inout Diagnostics
  ) -> Bool {
    let bytes = source.bytes
    var offset = start
    var versions = 0
    while offset < bytes.count {
      var end = offset
      while end < bytes.count, bytes[end] != 0x0A { end += 1 }
      let line = bytes[offset..<end]
      if line.first == UInt8(ascii: "%") {
        let words = line.split(whereSeparator: { $0 <= 0x20 })
        let known =
          words.count == 2 && words[0].elementsEqual("%YAML".utf8)
          && (words[1].elementsEqual("1.1".utf8) || words[1].elementsEqual("1.2".utf8))
        versions += 1
        if !known || versions > 1 {
          let name = words.first.map { Printable.cut($0) } ?? "%"
          diagnostics.report(
            Diagnostic(
              .directive, "the directive \(name) is not supported",
              at: SourceLocation(source, offset: offset, length: line.count),
              help: "Remove the line"
            ))
          return true
        }
      } else if let first = line.first(where: { $0 > 0x20 }), first != UInt8(ascii: "#") {
        return false
      }
      offset = end + 1
    }
    return false
  }
}
