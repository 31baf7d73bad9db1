import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import Synchronization
import Transport

/// `rxd ui`: the address of the live page of a running process, or a way to it.
struct UIVerb: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "ui",
    abstract: "Makes the live page of a running process available in a browser.",
    discussion: """
      A process that was started with --ui or --ui-listen serves the page itself: an address is printed. For any other one, this \
      verb serves the page on a port of 127.0.0.1 until it ends, and asks the process over its control socket, so that a \
      service needs no port. An address works once, and one of a process that serves the page itself within 15 minutes. It opens \
      a session of the browser, which lasts until the browser or the process that serves the page ends.
      """)

  @Option(
    help: ArgumentHelp(
      "Serve the page here: a port, or an address of this machine's loopback. By default a free port.",
      valueName: "address"))
  var listen: String?

  @OptionGroup var control: ControlOptions

  func run() throws {
    let client = try control.client()
    do throws(ControlClient.Failure) {
      let answer = try client.ask("POST", "/ui/link", within: .seconds(10))
      if answer.status != 200 {
        throw ControlClient.Failure(message: "the process at \(client.path) has no page (status \(answer.status))")
      }
      if listen == nil, let url = JSONView(answer.body)?["url"]?.text { return Console.print(url) }
    } catch {
      Console.printError(error.message)
      throw error.isLate ? ExitStatus.temporary : ExitStatus.unavailable
    }
    guard let address = TCPAddress(listen ?? "127.0.0.1:0"), address.isLoopback else {
      throw ValidationError("--listen takes a port, or an address of this machine's loopback such as 127.0.0.1:7931.")
    }
    let gate = PageGate(address: address)
    let relay = PageRelay(client: client)
    do throws(HTTPServerFailure) {
      let port = try gate.start { notice in
        if case .fault(let reason) = notice { Console.printError(reason) }
      } take: {
        relay.pass($0, $1)
      }
      Console.print(gate.link(port: port, lasting: nil))
      Console.note(
        "The page of the process at \(client.path), until Ctrl-C ends this. The address works once: run 'rxd ui' again for another one."
      )
    } catch {
      Console.printError(error.message)
      throw ExitStatus.inputOutput
    }
    // The network thread serves; SIGINT and SIGTERM end the process as they do by default.
    while true { pause() }
  }
}

/// Forwards the page's requests to a control socket, each on its own thread.
final class PageRelay: Sendable {
  private static let mostThreads = 48
  private static let served: Set<String> = ["/tap", "/ui/feed", "/ui/graph", "/ui/test", "/why"]
  private let client: ControlClient
  private let threads = Mutex(0)

  init(client: ControlClient) { self.client = client }

  /// - Parameter use: The use of the page's session, kept until the answer has ended.
  func pass(_ request: ServerRequest, _ use: PageSessions.Use?) {
    guard Self.served.contains(request.path) else { return refuse(request, 404, "there is no \(request.path)") }
    let isFree = threads.withLock { count in
      guard count < Self.mostThreads else { return false }
      count += 1
      return true
    }
    guard isFree else { return refuse(request, 429, "too many requests at a time") }
    do throws(PosixError) {
      _ = try OwnThread("rxd page") { [self] in
        withExtendedLifetime(use) { answer(request) }
        threads.withLock { $0 -= 1 }
      }
    } catch {
      threads.withLock { $0 -= 1 }
      refuse(request, 503, error.message)
    }
  }

  private func refuse(_ request: ServerRequest, _ status: Int, _ message: String) {
    request.reply.reply(
      status: status, headers: [("Content-Type", "application/json")],
      body: Array(JSONText.object([("error", .string(message))]).line.utf8))
  }

  private func answer(_ request: ServerRequest) {
    do throws(ControlClient.Failure) {
      let isStream =
        request.path == "/ui/feed" || request.path == "/tap" && request.query.contains { $0.name == "edge" }
      if isStream { return try stream(request) }
      let answer = try client.ask(
        request.method, request.target, body: Array(request.body.bytes), within: .seconds(60))
      request.reply.reply(status: answer.status, headers: [("Content-Type", "application/json")], body: answer.body)
    } catch {
      refuse(request, 502, error.message)
    }
  }

  /// Relays a streamed answer until either side closes.
  private func stream(_ request: ServerRequest) throws(ControlClient.Failure) {
    let connection = Mutex<FileDescriptor?>(nil)
    let type = request.path == "/tap" ? "application/x-ndjson" : "text/event-stream"
    var body: ResponseStream?
    defer { body?.end() }
    let answer = try client.stream(
      request.target, idle: nil,
      opened: { opened in connection.withLock { $0 = opened } },
      take: { bytes in
        if body == nil {
          body = request.stream(
            status: 200, headers: [("Content-Type", type), ("Cache-Control", "no-store")], room: PageFeed.room
          ) {
            // The browser has left, so the connection to the process is closed, too.
            connection.withLock { if let open = $0 { shutdown(open.number, Int32(SHUT_RDWR)) } }
          }
        }
        // A browser that does not keep up receives no further bytes, because an incomplete answer would be worse; it
        // then sends a new request.
        if body?.send(Array(bytes)) != true {
          connection.withLock { if let open = $0 { shutdown(open.number, Int32(SHUT_RDWR)) } }
        }
      })
    connection.withLock { $0 = nil }
    if body == nil {
      request.reply.reply(status: answer.status, headers: [("Content-Type", "application/json")], body: answer.body)
    }
  }
}
