internal import CDigest
import PipelineCore

/// AWS request signatures, version 4, which AWS and compatible stores check.
struct AWSSignature {
  var method: String
  /// As sent, with its escapes.
  var path: String
  /// As sent, without `?`.
  var query: String
  /// The signed headers, with `Host`.
  var headers: [HTTPHeader]
  /// The SHA-256 of the body in hexadecimal digits.
  var payload: String

  /// The headers that a signed request needs in addition to its own.
  ///
  /// - Parameters:
  ///   - host: The value of the header `Host`.
  ///   - seconds: The time in seconds since 1970.
  /// - Returns: Nil if libcrypto is not installed.
  static func headers(
    _ credentials: HTTPOptions.AWSSigV4, method: String, host: String, path: String, query: String,
    headers: [HTTPHeader], body: [UInt8], at seconds: Int64
  ) -> [HTTPHeader]? {
    guard let payload = sha256(body) else { return nil }
    let time = timestamp(seconds)
    var added = [HTTPHeader("X-Amz-Date", time), HTTPHeader("X-Amz-Content-Sha256", payload)]
    if let token = credentials.sessionToken {
      added.append(HTTPHeader("X-Amz-Security-Token", token.revealed, isSecret: true))
    }
    let own = headers.filter { header in
      let name = header.name.lowercased()
      return name == "content-type" || name.hasPrefix("x-amz-")
    }
    let signature = AWSSignature(
      method: method, path: path, query: query, headers: [HTTPHeader("Host", host)] + added + own, payload: payload)
    guard let authorization = signature.authorization(credentials, time) else { return nil }
    return added + [HTTPHeader("Authorization", authorization)]
  }

  /// The header `Authorization`; nil if libcrypto is not installed.
  ///
  /// - Parameter time: `20150830T123600Z`.
  func authorization(_ credentials: HTTPOptions.AWSSigV4, _ time: String) -> String? {
    let scope = "\(time.prefix(8))/\(credentials.region)/\(credentials.service)/aws4_request"
    let (request, signed) = canonical(isS3: credentials.service == "s3")
    guard let digest = Self.sha256(Array(request.utf8)) else { return nil }
    let toSign = "AWS4-HMAC-SHA256\n\(time)\n\(scope)\n\(digest)"
    var key = Array("AWS4\(credentials.secretKey.revealed)".utf8)
    for part in [String(time.prefix(8)), credentials.region, credentials.service, "aws4_request", toSign] {
      guard let next = Self.hmac(key, Array(part.utf8)) else { return nil }
      key = next
    }
    return
      "AWS4-HMAC-SHA256 Credential=\(credentials.accessKey.revealed)/\(scope), SignedHeaders=\(signed), Signature=\(HexText.text(key))"
  }

  /// The canonical request, and the names of the signed headers.
  private func canonical(isS3: Bool) -> (request: String, signed: String) {
    // S3 signs the path encoded once, all other services twice.
    var path = FormText.escaped(FormText.unescaped(ArraySlice(self.path.utf8)), keepsSlashes: true)
    if !isS3 { path = FormText.escaped(path, keepsSlashes: true) }
    let pairs = query.utf8.split(separator: UInt8(ascii: "&")).map { pair -> (name: [UInt8], value: [UInt8]) in
      let parts = pair.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
      func canonical(_ index: Int) -> [UInt8] {
        parts.indices.contains(index) ? FormText.escaped(FormText.unescaped(ArraySlice(parts[index]))) : []
      }
      return (canonical(0), canonical(1))
    }.sorted { a, b in
      a.name == b.name ? a.value.lexicographicallyPrecedes(b.value) : a.name.lexicographicallyPrecedes(b.name)
    }
    let parameters = pairs.map { String(decoding: $0.name + [UInt8(ascii: "=")] + $0.value, as: UTF8.self) }
    var values: [(name: String, value: String)] = []
    for header in headers {
      let name = header.name.lowercased()
      // Runs of spaces count as one.
      let value = header.value.split(separator: " ").joined(separator: " ")
      if let known = values.firstIndex(where: { $0.name == name }) {
        values[known].value += ",\(value)"
      } else {
        values.append((name, value))
      }
    }
    values.sort { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }
    let signed = values.map(\.name).joined(separator: ";")
    let lines = values.map { "\($0.name):\($0.value)\n" }.joined()
    return (
      """
      \(method)
      \(path.isEmpty ? "/" : String(decoding: path, as: UTF8.self))
      \(parameters.joined(separator: "&"))
      \(lines)
      \(signed)
      \(payload)
      """, signed
    )
  }

  /// `20150830T123600Z`.
  static func timestamp(_ seconds: Int64) -> String {
    TimeText.rfc3339(seconds: seconds).filter { $0 != "-" && $0 != ":" }
  }

  static func sha256(_ bytes: [UInt8]) -> String? {
    var digest = [UInt8](repeating: 0, count: Int(RX_DIGEST_MAX))
    let count = bytes.withUnsafeBytes { rx_digest(Int32(RX_SHA256), $0.baseAddress, $0.count, &digest) }
    return count == 0 ? nil : HexText.text(digest.prefix(count))
  }

  private static func hmac(_ key: [UInt8], _ bytes: [UInt8]) -> [UInt8]? {
    var digest = [UInt8](repeating: 0, count: Int(RX_DIGEST_MAX))
    let count = rx_hmac(Int32(RX_SHA256), key, key.count, bytes, bytes.count, &digest)
    return count == 0 ? nil : Array(digest.prefix(count))
  }
}
