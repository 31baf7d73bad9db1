import PipelineCore

/// Checks on the parts of HTTP messages.
enum HTTPSyntax {
  /// Whether the text has no byte that could end the line or the text: CR, LF, NUL.
  static func isFieldValue(_ text: String) -> Bool {
    text.utf8.allSatisfy { $0 != 13 && $0 != 10 && $0 != 0 }
  }

  /// Whether the texts are equal, ignoring the case of ASCII letters.
  static func same(_ a: String, _ b: String) -> Bool {
    let left = a.utf8
    let right = b.utf8
    guard left.count == right.count else { return false }
    return zip(left, right).allSatisfy { lower($0) == lower($1) }
  }

  @inline(__always)
  static func lower(_ byte: UInt8) -> UInt8 { byte &- 65 < 26 ? byte | 0x20 : byte }

  /// The usual reason phrase of a status; empty if there is none.
  static func reason(_ status: Int) -> StaticString {
    switch status {
    case 101: "Switching Protocols"
    case 200: "OK"
    case 201: "Created"
    case 202: "Accepted"
    case 204: "No Content"
    case 301: "Moved Permanently"
    case 302: "Found"
    case 303: "See Other"
    case 304: "Not Modified"
    case 307: "Temporary Redirect"
    case 308: "Permanent Redirect"
    case 400: "Bad Request"
    case 401: "Unauthorized"
    case 403: "Forbidden"
    case 404: "Not Found"
    case 405: "Method Not Allowed"
    case 408: "Request Timeout"
    case 409: "Conflict"
    case 410: "Gone"
    case 413: "Content Too Large"
    case 415: "Unsupported Media Type"
    case 421: "Misdirected Request"
    case 422: "Unprocessable Content"
    case 426: "Upgrade Required"
    case 429: "Too Many Requests"
    case 431: "Request Header Fields Too Large"
    case 500: "Internal Server Error"
    case 501: "Not Implemented"
    case 502: "Bad Gateway"
    case 503: "Service Unavailable"
    case 504: "Gateway Timeout"
    default: ""
    }
  }

  /// The text for use in messages: control and invisible characters are escaped; at most 200 characters.
  static func printable(_ text: String) -> String { Printable.cut(text, limit: 200) }
}
