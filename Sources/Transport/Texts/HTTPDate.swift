internal import CCurl

/// The dates of HTTP headers (RFC 9110, 5.6.7) and their common variants.
package enum HTTPDate {
  /// Seconds since 1970; nil if the text is not a date.
  package static func seconds(_ text: String) -> Int64? {
    let seconds = rx_curl_getdate(text)
    return seconds == -1 ? nil : Int64(seconds)
  }
}
