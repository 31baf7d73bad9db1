import Glibc
import PipelineCore
import Storage
import Transport

/// The settings of `--replicate`.
struct Replication: Sendable {
  /// The address of the standby, without a slash at its end.
  let url: String
  let token: Secret
  let caFile: String?
  /// Whether commits are reported only after the standby has them.
  let isAwaited: Bool
  private let client = CurlClient()

  init(url: String, token: Secret, caFile: String?, isAwaited: Bool) {
    self.url = String(url.reversed().drop { $0 == "/" }.reversed())
    self.token = token
    self.caFile = caFile
    self.isAwaited = isAwaited
  }

  /// The copier of a pipeline's store, at this path.
  func copier(of pipeline: String, at path: String, log: LogWriter) -> StoreCopier {
    let url = url
    let notices = StoreCopier.Notices { level, message in
      log.write(level.logLevel, pipeline, message)
    } promoted: {
      log.write(
        .error, "",
        "the standby \(url) has been promoted and runs the pipelines: this process ends at once, because only one may run them"
      )
      log.flush(patience: .seconds(1))
      kill(getpid(), SIGQUIT)
    }
    return StoreCopier(path, Link(replication: self, pipeline: pipeline), name: url, isAwaited: isAwaited, notices)
  }

  /// Whether the standby has been promoted; false if it cannot be reached.
  func isPromoted() -> Bool {
    let answer = Guarded<Bool?>(nil)
    let call = client.send(request("GET", "/", within: .seconds(5))) { result in
      let isGone = if case .success(let response) = result { response.status == 410 } else { false }
      answer.withLock { $0 = isGone }
      answer.notify()
    }
    return withExtendedLifetime(call) { answer.wait(until: monotonicNow() + 6_000_000_000) { $0 } ?? false }
  }

  private func request(
    _ method: String, _ path: String, within limit: TimeSpan = .seconds(15), body: [UInt8]? = nil
  ) -> HTTPRequest {
    var request = HTTPRequest(method: method, url: url + path, body: body)
    request.headers = [HTTPHeader(StandbyProtocol.versionHeader, StandbyProtocol.version)]
    if body != nil { request.headers.append(HTTPHeader("Content-Type", "application/octet-stream")) }
    request.options.timeout = limit
    request.options.allowPrivate = true
    request.options.auth = .bearer(token)
    request.options.tls.caFile = caFile
    request.options.maxResponseBytes = 1 << 10
    request.options.cutsResponse = true
    return request
  }

  /// The connection that carries one store's data to the standby.
  private struct Link: StandbyLink {
    let replication: Replication
    let pipeline: String

    func send(
      _ request: StandbyRequest, of store: UInt64, _ done: @escaping @Sendable (StandbyAnswer) -> Void
    ) {
      let identity = "store=\(String(store, radix: 16))"
      let store = "/stores/\(StandbyProtocol.segment(pipeline))"
      let message =
        switch request {
        case .position: replication.request("GET", "\(store)?\(identity)")
        case .log(let salt, let from, let after, let isWhole, let bytes):
          replication.request(
            "PUT",
            "\(store)/log?\(identity)&salt=\(String(salt, radix: 16))&from=\(from)&whole=\(isWhole)"
              + (after.map { "&after=" + StandbyProtocol.text($0).replacing(" ", with: "+") } ?? ""), body: bytes)
        case .file(let offset, let total, let sending, let isWhole, let bytes):
          replication.request(
            "PUT",
            "\(store)/file?\(identity)&offset=\(offset)&total=\(total)&sending=\(String(sending, radix: 16))&whole=\(isWhole)",
            body: bytes)
        }
      let held = Guarded<(any Cancellable)?>(nil)
      let call = replication.client.send(message) { result in
        held.withLock { $0 = nil }
        done(Self.answer(result))
      }
      held.withLock { $0 = call }
    }

    private static func answer(_ result: Result<HTTPResponse, HTTPFailure>) -> StandbyAnswer {
      switch result {
      case .failure(let failure): return .failed(failure.message)
      case .success(let response):
        let text = String(decoding: response.body, as: UTF8.self).prefix { $0 != "\n" }
        switch response.status {
        case 204: return .taken
        case 200, 409:
          guard let position = StandbyProtocol.position(text) else {
            return .failed("it answered \(response.status) without a position: is it an rxd standby?")
          }
          return .position(position)
        case 410: return .promoted
        case 423: return .failed(String(text))
        case 401: return .failed("it answered 401: the token differs from that of the standby")
        default:
          return .failed(
            "it answered \(response.status)\(text.isEmpty ? "" : ": \(Printable.cut(String(text), limit: 200))")")
        }
      }
    }
  }
}
