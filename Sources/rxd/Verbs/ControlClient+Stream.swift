import ArgumentParser
import Glibc
import PipelineCore
import Transport

/// The process to which a verb sends its request.
struct ControlOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      """
      The control socket of the process. By default control.sock in the runtime directory of the service manager, in \
      the state directory, or in /run/rxd, or the socket of this user's only process. (RXD_CONTROL_SOCKET, RUNTIME_DIRECTORY)
      """, valueName: "path"), completion: .file())
  var socket: String?

  @Option(
    name: .customLong("state-dir"),
    help: ArgumentHelp(
      "The state directory of the process, to find its socket. (RXD_STATE_DIR, STATE_DIRECTORY)", valueName: "dir"),
    completion: .directory)
  var stateDirectory: String?

  func client() throws -> ControlClient { try ControlClient(socket, state: StateDirectory.named(stateDirectory)) }
}

extension ControlClient {
  /// Requests a streamed answer and reads it to its end.
  ///
  /// - Parameters:
  ///   - idle: After this time without bytes, `take` is called once with none.
  ///   - opened: Called with the connection, which another thread may shut down to end the call.
  ///   - take: Called with the bytes of the answer if its status is 200.
  /// - Returns: The status, with the body if the status is not 200.
  func stream(
    _ target: String, idle: TimeSpan?, opened: (FileDescriptor) -> Void = { _ in },
    take: (ArraySlice<UInt8>) -> Void
  ) throws(Failure) -> Answer {
    let connection = try connect()
    opened(connection)
    try send("GET", target, over: connection)
    var head: [UInt8] = []
    var body = ChunkedBody()
    var status = 0
    var isQuiet = true
    var chunk = [UInt8](repeating: 0, count: 64 << 10)
    while true {
      var entry = pollfd(fd: connection.number, events: Int16(POLLIN), revents: 0)
      let patience = idle.flatMap { isQuiet ? nil : Int32(clamping: $0.nanoseconds / 1_000_000 + 1) } ?? -1
      let ready = poll(&entry, 1, patience)
      if ready < 0 { continue }
      if ready == 0 {
        take([])
        isQuiet = true
        continue
      }
      let count = recv(connection.number, &chunk, chunk.count, 0)
      if count < 0, errno == EAGAIN || errno == EINTR { continue }
      guard count > 0 else { break }
      var bytes = chunk[..<count]
      if status == 0 {
        head += bytes
        guard let end = head.firstRange(of: Array("\r\n\r\n".utf8)) else { continue }
        status = Self.status(of: head)
        bytes = head[end.upperBound...]
        head = status == 200 ? [] : Array(bytes)
      } else if status != 200 {
        head += bytes
      }
      guard status == 200 else {
        if head.count > 1 << 20 { break }
        continue
      }
      let content = body.content(of: bytes)
      if !content.isEmpty {
        isQuiet = false
        take(content[...])
      }
      if body.isOver { break }
    }
    guard status > 0 else {
      throw Failure(message: "the process at \(path) has ended, or is not rxd: it sent no answer")
    }
    return Answer(status: status, body: status == 200 ? [] : head)
  }

  private static func status(of head: [UInt8]) -> Int {
    let words = String(decoding: head.prefix(64), as: UTF8.self).split(separator: " ")
    return words.count > 1 && words[0] == "HTTP/1.1" ? Int(words[1]) ?? 502 : 502
  }
}

/// Decodes the content of a chunked body.
private struct ChunkedBody {
  private var left = 0
  private var line: [UInt8] = []
  private(set) var isOver = false

  mutating func content(of bytes: ArraySlice<UInt8>) -> [UInt8] {
    var content: [UInt8] = []
    var bytes = bytes
    while !isOver, let byte = bytes.first {
      if left > 0 {
        let part = bytes.prefix(left)
        content += part
        left -= part.count
        bytes = bytes.dropFirst(part.count)
        continue
      }
      bytes = bytes.dropFirst()
      guard byte == 0x0A else {
        line.append(byte)
        continue
      }
      let size = line.filter { $0 != 0x0D }
      line = []
      // The line end after a chunk.
      if size.isEmpty { continue }
      left = Int(String(decoding: size, as: UTF8.self), radix: 16) ?? 0
      isOver = left == 0
    }
    return content
  }
}

extension ControlClient {
  /// `name=value&name=value`.
  static func query(_ members: [(String, String)]) -> String {
    members.map { "\($0)=\(encoded($1))" }.joined(separator: "&")
  }

  private static func encoded(_ text: String) -> String {
    var result = ""
    for byte in text.utf8 {
      switch byte {
      case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
        UInt8(ascii: "~"):
        result.unicodeScalars.append(Unicode.Scalar(byte))
      default: result += "%\(byte < 16 ? "0" : "")\(String(byte, radix: 16))"
      }
    }
    return result
  }
}

extension ControlClient.Answer {
  /// Ends the program with the reason that an error answer gives; suggests a correction for a misspelt name.
  ///
  /// - Parameters:
  ///   - pipeline: The requested pipeline.
  ///   - part: The requested edge or step.
  func refuse(asked pipeline: String, _ part: String) -> Never {
    let document = JSONView(body)
    var message = document?["error"]?.text ?? "the answer has the status \(status)"
    let known = document?["known"]?.items.compactMap(\.text) ?? []
    if !known.isEmpty {
      let isPipeline = status != 404 || document?["error"]?.text?.contains("pipeline") == true
      let meant = Suggestion.correction(for: isPipeline ? pipeline : part, among: known)?.help
      message += "\n" + (meant ?? "There are: \(known.prefix(40).joined(separator: ", "))")
    }
    Console.printError(message)
    _exit((status == 503 ? ExitStatus.unavailable : status == 429 ? ExitStatus.temporary : ExitStatus.usage).rawValue)
  }
}
