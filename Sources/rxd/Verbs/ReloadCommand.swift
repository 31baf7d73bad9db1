import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import Transport

/// `rxd reload`: asks the running process over its control socket.
struct Reload: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "reload",
    abstract: "Has the running rxd read its files again.",
    discussion: """
      The files are checked first. If one has errors, nothing changes, and the report of 'rxd check' is printed. \
      Pipelines whose files mean the same are not touched; others continue from their state, as far as their steps are the \
      same. With --wait the verdict has the result for each pipeline that has changed, step by step.

      The exit status is 0 if the new files run (without --wait: if they have no errors), 78 if they were refused, 1 \
      if a pipeline does not run from its new file, 69 if no process answers, 75 if the answer takes too long.
      """)

  enum Format: String, CaseIterable, ExpressibleByArgument { case text, json }

  @Flag(help: "Wait until the new files run, and print the result for each pipeline that has changed.")
  var wait = false

  @Option(help: ArgumentHelp("How long to wait for the answer; default is 60.", valueName: "seconds"))
  var timeout = 60

  @OptionGroup var control: ControlOptions

  @Option(help: ArgumentHelp("The format: text or json.", valueName: "form"))
  var format = Format.text

  @OptionGroup var color: ColorOptions

  func validate() throws {
    guard (1...86_400).contains(timeout) else {
      throw ValidationError("--timeout is between 1 and 86400 seconds, not \(timeout).")
    }
  }

  func run() throws {
    let colors = Console.colors(try color.mode(), on: 1)
    let target = "/reload?wait=\(wait)&format=\(format.rawValue)&colors=\(colors)"
    let client = try control.client()
    let answer: ControlClient.Answer
    do throws(ControlClient.Failure) {
      answer = try client.ask("POST", target, within: .seconds(Int64(timeout)))
    } catch {
      Console.printError(error.message)
      throw error.isLate ? ExitStatus.temporary : ExitStatus.unavailable
    }
    Console.write(answer.body)
    switch answer.status {
    case 200, 202: return
    case 422: throw ExitStatus.configuration
    case 500: throw ExitStatus.failure
    case 504: throw ExitStatus.temporary
    default:
      Console.printError("the process at \(client.path) answered with the status \(answer.status)")
      throw ExitStatus.unavailable
    }
  }
}

/// Sends requests to a running process over its control socket.
struct ControlClient {
  struct Answer {
    var status: Int
    var body: [UInt8]
  }

  struct Failure: Error {
    var message: String
    /// Whether the process has taken the request but not answered in time.
    var isLate = false
  }

  /// The maximum size of an answer, so that an endless one is an error.
  private static let mostBytes = 2 << 30
  let path: String

  init(at path: String) { self.path = path }

  /// Finds the socket: see ``ControlSocket/addresses(_:state:)``. If the user has several processes running, lists them
  /// and ends.
  init(_ given: String?, state: String?) throws {
    let addresses = ControlSocket.addresses(given, state: state)
    if addresses.named == ["none"] { throw ValidationError("Name the control socket of the process with --socket.") }
    if let found = addresses.named.first(where: { access($0, F_OK) == 0 }) {
      path = found
      return
    }
    let usual: [String] = addresses.hasUsual && access(ControlSocket.usual, F_OK) == 0 ? [ControlSocket.usual] : []
    let live = usual.filter(UserSockets.isLive) + (addresses.hasUsual ? UserSockets.live() : [])
    if live.count > 1 {
      Self.list(live)
      throw ExitStatus.usage
    }
    guard let found = live.first ?? usual.first else {
      let all = addresses.named + (addresses.hasUsual ? [ControlSocket.usual] : [])
      Console.printError(
        """
        no rxd answers: there is no control socket \(all.joined(separator: ", nor "))\
        \(addresses.hasUsual ? ", and none of a process of this user" : "")\
        \(addresses.hasUsual ? UserSockets.absence.map { " (\($0))" } ?? "" : "")
        Start rxd as a service, with --state-dir or with --control-socket PATH, and name that socket with --socket PATH.
        """)
      throw ExitStatus.unavailable
    }
    path = found
  }

  /// Prints the sockets and pipelines of several running processes.
  private static func list(_ paths: [String]) {
    var text = "\(paths.count) rxd processes run here; say which:"
    for path in paths {
      var names: [String] = []
      do throws(Failure) {
        let answer = try ControlClient(at: path).ask("GET", "/status", within: .seconds(2))
        names = JSONView(answer.body)?["pipelines"]?.items.compactMap { $0["name"]?.text } ?? []
      } catch {
        // The process does not answer; its socket is listed without pipelines.
      }
      let shown = names.prefix(4).joined(separator: ", ") + (names.count > 4 ? ", ... (\(names.count) pipelines)" : "")
      text += "\n  --socket \(path)" + (shown.isEmpty ? "" : "  \(shown)")
    }
    Console.printError(text)
  }

  func connect() throws(Failure) -> FileDescriptor {
    do throws(PosixError) { return try connection() } catch {
      switch error.code {
      case ECONNREFUSED:
        throw Failure(message: "no rxd answers at \(path): its process has ended; start it again")
      case EACCES, EPERM:
        throw Failure(message: "\(error.message); the socket belongs to another user: run this as that user or as root")
      case EAGAIN: throw Failure(message: "\(path) has too many clients; try again later", isLate: true)
      default: throw Failure(message: error.message)
      }
    }
  }

  /// A starting process binds its socket a moment before it listens, so a refused connection is tried again for a fifth
  /// of a second.
  private func connection() throws(PosixError) -> FileDescriptor {
    for _ in 0..<10 {
      do throws(PosixError) { return try LocalSocket.connect(to: path) } catch {
        guard error.code == ECONNREFUSED else { throw error }
      }
      poll(nil, 0, 20)
    }
    return try LocalSocket.connect(to: path)
  }

  /// Sends a request.
  func send(
    _ method: String, _ target: String, body: [UInt8] = [], over connection: FileDescriptor
  ) throws(Failure) {
    // With `close` the connection ends after the answer.
    let request = Array(
      "\(method) \(target) HTTP/1.1\r\nHost: rxd\r\nConnection: close\r\nContent-Length: \(body.count)\r\n\r\n".utf8)
    var rest = (request + body)[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { Glibc.send(connection.number, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
      if count < 0, errno == EINTR { continue }
      if count < 0, errno == EAGAIN {
        var entry = pollfd(fd: connection.number, events: Int16(POLLOUT), revents: 0)
        guard poll(&entry, 1, 10_000) != 0 else { throw Failure(message: "\(path) takes no request", isLate: true) }
        continue
      }
      guard count > 0 else { throw Failure(message: PosixError("write to", path).message) }
      rest = rest.dropFirst(count)
    }
  }

  /// Sends a request and waits for the answer.
  func ask(
    _ method: String, _ target: String, body: [UInt8] = [], within limit: TimeSpan
  ) throws(Failure) -> Answer {
    let deadline = SystemClock.shared.now + limit
    let connection = try connect()
    try send(method, target, body: body, over: connection)
    var bytes: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 64 << 10)
    while true {
      let left = (deadline - SystemClock.shared.now).nanoseconds
      guard left > 0 else {
        throw Failure(
          message: """
            no answer from \(path) within \(limit); the request goes on there, and \
            'curl --unix-socket \(path) http://rxd/status' shows how far it is
            """, isLate: true)
      }
      var entry = pollfd(fd: connection.number, events: Int16(POLLIN), revents: 0)
      guard poll(&entry, 1, Int32(clamping: left / 1_000_000 + 1)) > 0 else { continue }
      let count = recv(connection.number, &chunk, chunk.count, 0)
      if count < 0, errno == EAGAIN || errno == EINTR { continue }
      guard count > 0 else { break }
      bytes += chunk[..<count]
      guard bytes.count <= Self.mostBytes else { throw Failure(message: "the answer from \(path) has no end") }
    }
    let parts = String(decoding: bytes.prefix(64), as: UTF8.self).split(separator: " ")
    guard let head = bytes.firstRange(of: Array("\r\n\r\n".utf8)), parts.count > 1, parts[0] == "HTTP/1.1",
      let status = Int(parts[1])
    else { throw Failure(message: "the process at \(path) has ended, or is not rxd: it sent no answer") }
    return Answer(status: status, body: Array(bytes[head.upperBound...]))
  }
}
