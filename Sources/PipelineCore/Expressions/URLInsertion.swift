/// How the text of an expression goes into a URL.
package enum URLInsertion: Sendable, Equatable {
  /// Percent-encoded, except letters, digits and `-._~`: the text can add neither a parameter to the query nor a
  /// segment to the path.
  case data
  /// Like `data`, but a `/` in the path is kept, because the file itself determines the format of the text, as with
  /// `formatTime`.
  case ownForm
  /// Unchanged: `urlEncode(...)`, `raw(...)` and literals in the file.
  case asIs

  /// The encoding of a text that is joined from two parts, or is one of the two.
  func joined(_ other: URLInsertion) -> URLInsertion {
    if self == .data || other == .data { return .data }
    return self == other ? self : .asIs
  }

  /// Appends `text`, encoded for the path or for the query and fragment.
  func append(_ text: some Sequence<UInt8>, isPath: Bool, to url: inout [UInt8]) {
    if self == .asIs { return url.append(contentsOf: text) }
    for byte in text {
      if ASCII.isUnreserved(byte) || self == .ownForm && isPath && byte == UInt8(ascii: "/") {
        url.append(byte)
      } else {
        url.append(0x25)
        url.append(ASCII.hexDigit(byte >> 4))
        url.append(ASCII.hexDigit(byte & 15))
      }
    }
  }
}

extension SyntaxTree {
  /// How the text of the expression goes into a URL. The functions of the file are part of a checked tree.
  var urlInsertion: URLInsertion { urlInsertion(root) }

  private func urlInsertion(_ id: ID) -> URLInsertion {
    switch self[id].kind {
    case .literal: return .asIs
    case .call(_, "urlEncode", _, _), .call(_, "raw", _, _): return .asIs
    case .call(_, "formatTime", _, let arguments):
      let isFixed = arguments.dropFirst().allSatisfy { if case .literal = self[$0].kind { true } else { false } }
      return isFixed ? .ownForm : .data
    case .call(.some(let target), "orValue", _, let arguments) where arguments.count == 1:
      return urlInsertion(target).joined(urlInsertion(arguments[0]))
    case .binary(.add, let a, let b): return urlInsertion(a).joined(urlInsertion(b))
    case .conditional(_, let a, let b): return urlInsertion(a).joined(urlInsertion(b))
    case .optionalMap(_, _, let body, _): return urlInsertion(body)
    case .bind(_, _, let body): return urlInsertion(body)
    case .apply(let application): return urlInsertion(application.body)
    default: return .data
    }
  }

  /// Whether a part of the text is encoded already, although the text is encoded as a whole.
  var encodesTwice: Bool {
    urlInsertion == .data
      && nodes.contains { node in if case .call(_, "urlEncode", _, _) = node.kind { true } else { false } }
  }
}
