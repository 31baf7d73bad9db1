import Transport

/// A WebSocket client that sends exactly the bytes that a test wants.
package final class RawWebSocket: @unchecked Sendable {
  package let connection: Connection

  package init(_ port: Int, _ headers: String = "", path: String = "/in") throws {
    connection = try Connection(port: port)
    connection.send(
      "GET \(path) HTTP/1.1\r\nHost: 127.0.0.1:\(port)\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\(headers)\r\n"
    )
  }

  package var head: String { connection.message(hasBody: false)?.head ?? "" }

  /// A frame of up to 65,535 bytes.
  package func send(_ opcode: UInt8, _ payload: [UInt8], isFinal: Bool = true) {
    let mask: [UInt8] = [1, 2, 3, 4]
    var bytes = [(isFinal ? 0x80 : 0) | opcode]
    if payload.count < 126 {
      bytes.append(0x80 | UInt8(payload.count))
    } else {
      bytes += [0x80 | 126, UInt8(payload.count >> 8), UInt8(payload.count & 0xFF)]
    }
    bytes += mask
    for (index, byte) in payload.enumerated() { bytes.append(byte ^ mask[index & 3]) }
    connection.send(bytes)
  }

  package func send(_ text: String) { send(1, Array(text.utf8)) }

  /// Waits until the server has read everything that was sent: sends a ping and waits for the pong.
  package func sync() {
    send(9, [])
    while let frame = frame(), frame.opcode != 10 {}
  }

  /// The next frame of less than 64 KiB: its opcode and payload.
  package func frame() -> (opcode: UInt8, payload: [UInt8])? {
    guard let first = connection.byte(), let short = connection.byte() else { return nil }
    var count = Int(short)
    if short == 126 {
      guard let high = connection.byte(), let low = connection.byte() else { return nil }
      count = Int(high) << 8 | Int(low)
    }
    let payload = (0..<count).compactMap { _ in connection.byte() }
    return (first & 0xF, payload)
  }

  /// The code with which the server closes; nil: the connection ends without a close frame.
  package var closeCode: Int? {
    while let frame = frame() {
      if frame.opcode == 8 {
        return frame.payload.count < 2 ? 1005 : Int(frame.payload[0]) << 8 | Int(frame.payload[1])
      }
    }
    return nil
  }
}
