import PipelineHost

extension Connection {
  /// Whether the whole request with this body was sent: a server that refuses it may have closed the connection.
  @discardableResult
  func post(_ body: [UInt8]) -> Bool {
    send(Array("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.count)\r\n\r\n".utf8) + body)
  }

  @discardableResult
  func post(_ body: String) -> Bool { post(Array(body.utf8)) }

  /// The status of the next answer; nil if there is none.
  func status() -> Int? { message().flatMap { Int($0.head.split(separator: " ")[1]) } }
}
