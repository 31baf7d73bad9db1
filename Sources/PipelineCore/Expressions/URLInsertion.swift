/// How the text of an expression goes into a URL.
package enum URLInsertion: Sendable, Equatable {
  /// A value: everything but letters, digits and `-._~` is percent-encoded, so it stays one value of the query, or one segment of the path.
  case data
  /// Made by a form that the file itself gives, as that of `formatTime`: a `/` of the path stays.
  case ownForm
  /// As it is: `urlEncode(...)`, `raw(...)` and what the file writes.
  case asIs

  /// For a text that consists of both, or is one of the two.
  func joined(_ other: URLInsertion) -> URLInsertion {
    if self == .data || other == .data { return .data }
    return self == other ? self : .asIs
  }

  /// Appends `text` as it goes into the path, or what is behind it.
  func append(_ text: some Sequence<UInt8>, isPath: Bool, to url: inout [UInt8]) {
    for byte in text {
      let stays =
        self == .asIs || ASCII.isLetterOrUnderscore(byte) || ASCII.isDigit(byte) || byte == 0x2D || byte == 0x2E
        || byte == 0x7E || self == .ownForm && isPath && byte == UInt8(ascii: "/")
      if stays {
        url.append(byte)
      } else {
        url.append(0x25)
        for digit in [byte >> 4, byte & 15] { url.append(digit < 10 ? 0x30 + digit : 0x37 + digit) }
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

  /// Whether a text that is encoded already is a part of one that is encoded as a whole.
  var encodesTwice: Bool {
    urlInsertion == .data
      && nodes.contains { node in if case .call(_, "urlEncode", _, _) = node.kind { true } else { false } }
  }
}
