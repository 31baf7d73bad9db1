import PipelineCore

/// The pauses that servers ask for in the headers of their answers.
package enum ServerPause {
  /// The pause until the next request: from `Retry-After` if the answer is not a success, or else from a rate limit
  /// that is used up. Nil: the server asks for none. At most `longest`.
  ///
  /// - Parameter wallTime: Nanoseconds since 1970.
  package static func after(_ response: HTTPResponse, wallTime: Int64, longest: TimeSpan) -> TimeSpan? {
    if !(200..<300).contains(response.status),
      let pause = retryAfter(response, wallTime: wallTime, longest: longest)
    {
      return pause
    }
    return rateLimit(response, wallTime: wallTime, longest: longest)
  }

  /// The pause that `Retry-After` gives in seconds or as a date (RFC 9110, 10.2.3). Invalid and empty pauses are
  /// ignored.
  package static func retryAfter(_ response: HTTPResponse, wallTime: Int64, longest: TimeSpan) -> TimeSpan? {
    guard let text = response.header("retry-after") else { return nil }
    if let seconds = digits(text) { return span(seconds, longest) }
    guard let date = HTTPDate.seconds(text) else { return nil }
    return span(date.subtractingReportingOverflow(wallTime / 1_000_000_000).partialValue, longest)
  }

  /// The time until a rate limit is reset, if it is used up: `RateLimit: "name";r=0;t=30` or `limit=100, remaining=0,
  /// reset=30`, `RateLimit-Remaining` with `RateLimit-Reset` (seconds), or `X-RateLimit-Remaining` with
  /// `X-RateLimit-Reset` (seconds, or the time in seconds since 1970).
  static func rateLimit(_ response: HTTPResponse, wallTime: Int64, longest: TimeSpan) -> TimeSpan? {
    if let fields = response.header("ratelimit") {
      var left: Int64?
      var reset: Int64?
      for part in fields.utf8.split(whereSeparator: { $0 == UInt8(ascii: ";") || $0 == UInt8(ascii: ",") }) {
        let pair = part.split(separator: UInt8(ascii: "="), maxSplits: 1)
        guard pair.count == 2 else { continue }
        let name = String(decoding: pair[0].filter { $0 != 0x20 }, as: UTF8.self).lowercased()
        let value = digits(String(decoding: pair[1].filter { $0 != 0x20 }, as: UTF8.self))
        if name == "r" || name == "remaining" { left = value }
        if name == "t" || name == "reset" { reset = value }
      }
      if left == 0, let reset { return span(reset, longest) }
    }
    for prefix in ["ratelimit-", "x-ratelimit-"] {
      guard digits(response.header(prefix + "remaining") ?? "") == 0,
        let reset = digits(response.header(prefix + "reset") ?? "")
      else { continue }
      // A number this large is a time since 1970: no server asks for a pause of thirty years.
      let isTime = reset >= 1_000_000_000
      return span(isTime ? reset - wallTime / 1_000_000_000 : reset, longest)
    }
    return nil
  }

  /// The value of decimal digits, the largest number if it does not fit. Nil: the text has other characters.
  private static func digits(_ text: String) -> Int64? {
    guard !text.isEmpty, text.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }) else {
      return nil
    }
    return Int64(text) ?? .max
  }

  private static func span(_ seconds: Int64, _ longest: TimeSpan) -> TimeSpan? {
    seconds > 0 ? min(.seconds(min(seconds, 1_000_000_000)), longest) : nil
  }
}
