import NIOCore
import PipelineCore

/// Writes answers in the form that is sent.
enum AnswerText {
  /// Writes an answer. Invalid headers, and those that the transport writes itself, are left out.
  static func write(
    _ status: Int, _ headers: [(name: String, value: String)], _ body: [UInt8], isBodyLeftOut: Bool = false,
    connection: String?, coding: String? = nil, upgrade: String? = nil, to buffer: OutputBuffer
  ) {
    buffer.append("HTTP/1.1 ")
    buffer.append(String(status))
    buffer.append(" ")
    buffer.append(HTTPSyntax.reason(status))
    buffer.append("\r\n")
    for (name, value) in headers
    where HTTPHeader.isToken(name) && HTTPSyntax.isFieldValue(value) && !HTTPHeader.isFraming(name) {
      buffer.append(name)
      buffer.append(": ")
      buffer.append(value)
      buffer.append("\r\n")
    }
    let hasBody = status >= 200 && status != 204 && status != 304
    if let coding {
      if !coding.isEmpty { buffer.append("Transfer-Encoding: \(coding)\r\n") }
    } else if hasBody {
      buffer.append("Content-Length: ")
      buffer.append(String(body.count))
      buffer.append("\r\n")
    }
    // RFC 9110: an answer that asks for another protocol names it.
    if let upgrade = upgrade ?? (status == 426 ? "websocket" : nil) { buffer.append("Upgrade: \(upgrade)\r\n") }
    if let connection {
      buffer.append("Connection: ")
      buffer.append(connection)
      buffer.append("\r\n")
    }
    buffer.append("\r\n")
    if hasBody, !isBodyLeftOut { buffer.append(body) }
  }
}
