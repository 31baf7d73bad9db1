internal import CDigest
import NIOCore
import PipelineCore

/// The opening handshake of WebSockets (RFC 6455, 4).
enum WebSocketHandshake {
  static let needsLibrary =
    "WebSockets need the library libcrypto.so.3: install the package libssl3, or libssl3t64 where there is one"

  /// Whether libcrypto is installed.
  static var isAvailable: Bool { accept("") != nil }

  /// The server's answer to a key; nil: libcrypto is missing.
  static func accept(_ key: String) -> String? {
    let text = Array((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").utf8)
    var digest = [UInt8](repeating: 0, count: Int(RX_DIGEST_MAX))
    let count = rx_digest(Int32(RX_SHA1), text, text.count, &digest)
    return count == 0 ? nil : base64(digest[..<count])
  }

  static func base64(_ bytes: some Collection<UInt8>) -> String {
    let buffer = OutputBuffer()
    Array(bytes).withUnsafeBytes { JSONWriter.appendBase64($0, to: buffer) }
    return String(decoding: buffer.bytes, as: UTF8.self)
  }

  /// Whether the text is sixteen bytes in base64.
  static func isKey(_ text: String) -> Bool {
    let bytes = Array(text.utf8)
    return bytes.count == 24 && bytes.suffix(2).allSatisfy { $0 == UInt8(ascii: "=") }
      && bytes.prefix(22).allSatisfy {
        ($0 | 0x20) &- 97 < 26 || $0 &- 48 < 10 || $0 == UInt8(ascii: "+") || $0 == UInt8(ascii: "/")
      }
  }

  /// Whether a list of tokens contains `token`, ignoring case.
  static func lists(_ text: String, _ token: String) -> Bool {
    items(text).contains { HTTPSyntax.same($0, token) }
  }

  /// The members of a list.
  static func items(_ text: String) -> [String] {
    text.utf8.split(separator: UInt8(ascii: ",")).compactMap { part in
      let trimmed = part.drop { $0 == 0x20 || $0 == 0x09 }
      var bytes = Array(trimmed)
      while let last = bytes.last, last == 0x20 || last == 0x09 { bytes.removeLast() }
      return bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self)
    }
  }
}

extension ServerRequest {
  /// The values of all headers with this name as one list. `name` is in lower case.
  private func list(_ name: StaticString) -> String {
    head.fields.filter { head.matches($0, name) }.map { head.text($0.value) }.joined(separator: ",")
  }

  /// The subprotocols that the client offers.
  package var webSocketProtocols: [String] { WebSocketHandshake.items(list("sec-websocket-protocol")) }

  /// Upgrades the connection to a WebSocket, or answers with the reason for the refusal.
  /// - Parameter subprotocol: One of those that the client offers; nil: none.
  /// - Returns: Whether the request was a valid handshake. Even then the session ends if the client has just left.
  @discardableResult
  package func acceptWebSocket(
    _ session: WebSocketSession, subprotocol: String? = nil
  ) -> Bool {
    guard WebSocketHandshake.lists(list("upgrade"), "websocket"),
      WebSocketHandshake.lists(list("connection"), "upgrade")
    else {
      reply.reply(
        ServerAnswer(426, [(name: "Connection", value: "Upgrade")], error: "this path serves WebSockets only"))
      return false
    }
    guard list("sec-websocket-version") == "13" else {
      reply.reply(
        ServerAnswer(
          426, [(name: "Sec-WebSocket-Version", value: "13")], error: "this path serves version 13 of WebSockets"))
      return false
    }
    let key = list("sec-websocket-key")
    guard WebSocketHandshake.isKey(key), !head.isOld, body.count == 0 else {
      reply.reply(ServerAnswer(400, error: "this is not the opening handshake of a WebSocket"))
      return false
    }
    guard let accept = WebSocketHandshake.accept(key) else {
      reply.reply(ServerAnswer(501, error: WebSocketHandshake.needsLibrary))
      return false
    }
    var headers = [(name: "Sec-WebSocket-Accept", value: accept)]
    if let subprotocol { headers.append((name: "Sec-WebSocket-Protocol", value: subprotocol)) }
    let stream = exchange.stream(
      status: 101, headers: headers, room: session.options.sendingRoom, speaker: ("websocket", session), closed: {})
    if stream == nil { session.disconnected() }
    return stream != nil
  }
}
