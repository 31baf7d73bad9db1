internal import CCurl
import PipelineCore
import Synchronization

/// The thread that runs all exchanges of a client.
final class CurlLoop: @unchecked Sendable {
  private struct Inbox {
    var added: [CurlExchange] = []
    var dropped: [CurlExchange] = []
    /// Paused exchanges that may receive more.
    var resumed: [CurlExchange] = []
    var closed = false
    var started = false
  }

  private let inbox = Mutex(Inbox())
  /// Used by the loop's thread, except for `rx_curl_multi_wakeup`. Made with the first exchange, before the thread
  /// starts, under the lock of the inbox: a process without requests does not wait for the set-up of TLS.
  private var multi: UnsafeMutableRawPointer?
  private var active: [UnsafeMutableRawPointer: CurlExchange] = [:]
  private var spare: [UnsafeMutableRawPointer] = []
  /// The number of idle connections that are kept: 16, and at least twice the highest number of exchanges under way
  /// together. By default libcurl keeps four for each exchange under way at the moment, so the last responses of many
  /// would close the connections that the next requests need.
  private var kept = 0
  private let library: @Sendable () -> HTTPFailure?
  /// The memory budget against which answers are counted; nil: they are not.
  let memory: MemoryBudget?

  /// - Parameters:
  ///   - memory: The memory budget of the process; nil: answers are not counted.
  ///   - library: Loads libcurl, or returns why it cannot; called for each exchange until it succeeds.
  init(_ memory: MemoryBudget?, _ library: @escaping @Sendable () -> HTTPFailure?) {
    self.memory = memory
    self.library = library
  }

  /// Only after the last exchange has been released and the thread has ended.
  deinit {
    for easy in spare { rx_curl_easy_cleanup(easy) }
    if let multi { rx_curl_multi_cleanup(multi) }
  }

  func add(_ exchange: CurlExchange) {
    let failure: HTTPFailure? = inbox.withLock { inbox in
      if !inbox.started {
        if multi == nil {
          if let fault = library() { return fault }
          multi = rx_curl_multi_init()
          if multi == nil { return HTTPFailure(.protocolError, "there is no memory for requests") }
        }
        do throws(PosixError) {
          _ = try OwnThread("rxd http") { self.run() }
        } catch {
          return HTTPFailure(.protocolError, "there is no thread for requests: \(PosixError.text(error.code))")
        }
        inbox.started = true
      }
      inbox.added.append(exchange)
      return nil
    }
    if let failure { exchange.complete(.failure(failure)) } else { wake() }
  }

  func drop(_ exchange: CurlExchange) {
    inbox.withLock { $0.dropped.append(exchange) }
    wake()
  }

  /// Resumes receiving.
  func resume(_ exchange: CurlExchange) {
    inbox.withLock { $0.resumed.append(exchange) }
    wake()
  }

  /// Ends the thread; exchanges under way are dropped without completion.
  func close() {
    inbox.withLock { $0.closed = true }
    wake()
  }

  private func wake() {
    guard let multi = inbox.withLock({ _ in self.multi }) else { return }
    rx_curl_multi_wakeup(multi)
  }

  private func run() {
    guard let multi else { preconditionFailure("the thread of a client without a handle") }
    while true {
      let (added, dropped, resumed, closed) = inbox.withLock { inbox in
        defer {
          inbox.added = []
          inbox.dropped = []
          inbox.resumed = []
        }
        return (inbox.added, inbox.dropped, inbox.resumed, inbox.closed)
      }
      for exchange in dropped {
        exchange.forget()
        release(exchange)
      }
      if closed {
        for exchange in added { exchange.forget() }
        for exchange in Array(active.values) {
          exchange.forget()
          release(exchange)
        }
        return
      }
      for exchange in added where !exchange.isCompleted { start(exchange) }
      for exchange in resumed where !exchange.isCompleted {
        if let easy = exchange.easy { rx_curl_easy_resume(easy) }
      }
      resumeWaiting()
      var running: Int32 = 0
      rx_curl_multi_perform(multi, &running)
      var remaining: Int32 = 0
      while let message = rx_curl_multi_info_read(multi, &remaining) {
        guard message.pointee.msg == CURLMSG_DONE, let easy = message.pointee.easy_handle,
          let exchange = active[easy]
        else { continue }
        finish(exchange, rx_curl_result(message))
      }
      // libcurl shortens the wait if it has a timer; it has none if no exchange is under way.
      rx_curl_multi_poll(multi, nil, 0, waiting.isEmpty ? Int32.max : Self.look, nil)
    }
  }

  // MARK: Answers while the memory of the process is used up

  /// The one exchange whose answer may still grow then. There is only one, so that partial answers do not block each
  /// other.
  private var growing: CurlExchange?
  /// The exchanges whose answers are paused until there is room.
  private var waiting: [CurlExchange] = []
  /// The interval at which paused exchanges check for room, in milliseconds.
  private static let look: Int32 = 100

  /// Whether the body of an answer may grow; false: the exchange is paused, and the bytes are offered again later.
  func mayGrow(_ exchange: CurlExchange, by count: Int) -> Bool {
    guard let memory, exchange.body.count + count > MemoryBudget.leastOfInput, count > memory.room(.max) else {
      return true
    }
    if growing == nil { growing = exchange }
    if growing === exchange { return true }
    waiting.append(exchange)
    return false
  }

  private func resumeWaiting() {
    guard !waiting.isEmpty else { return }
    let all = waiting
    waiting = []
    for exchange in all {
      if let easy = exchange.easy { rx_curl_easy_resume(easy) }
    }
  }

  private func start(_ exchange: CurlExchange) {
    guard let easy = spare.popLast() ?? rx_curl_easy_init() else {
      return exchange.complete(.failure(HTTPFailure(.protocolError, "there is no memory for a request")))
    }
    if exchange.started == 0 { exchange.started = monotonicNow() }
    exchange.easy = easy
    exchange.connects = 0
    if let failure = CurlSetup.prepare(easy, exchange) {
      release(exchange)
      return exchange.complete(.failure(failure))
    }
    guard rx_curl_multi_add_handle(multi, easy) == CURLM_OK else {
      release(exchange)
      return exchange.complete(.failure(HTTPFailure(.protocolError, "libcurl accepts no request")))
    }
    active[easy] = exchange
    if active.count * 2 > kept {
      kept = max(16, active.count * 4)
      rx_curl_multi_set_long(multi, CURLMOPT_MAXCONNECTS, kept)
    }
  }

  /// Detaches the handle from the exchange. Only the handle of an exchange that ended well is used again: after a name
  /// that was not resolved, libcurl 7.88 keeps the receive buffer over `curl_easy_reset`, and refuses
  /// `CURLOPT_BUFFERSIZE` of every later exchange of the handle.
  private func release(_ exchange: CurlExchange, endedWell: Bool = false) {
    guard let easy = exchange.easy else { return }
    exchange.easy = nil
    if growing === exchange { growing = nil }
    waiting.removeAll { $0 === exchange }
    if active.removeValue(forKey: easy) != nil { rx_curl_multi_remove_handle(multi, easy) }
    if endedWell, spare.count < 16 {
      rx_curl_easy_reset(easy)
      spare.append(easy)
    } else {
      rx_curl_easy_cleanup(easy)
    }
  }

  private func finish(_ exchange: CurlExchange, _ code: CURLcode) {
    guard let easy = exchange.easy else { return }
    var status = 0
    rx_curl_get_long(easy, CURLINFO_RESPONSE_CODE, &status)
    let result = CurlOutcome.result(of: exchange, easy, code, status: status)
    if case .redirect(let target) = result {
      release(exchange, endedWell: code == CURLE_OK)
      return follow(exchange, to: target)
    }
    release(exchange, endedWell: code == CURLE_OK)
    switch result {
    case .response(let response): exchange.complete(.success(response))
    case .failure(let failure):
      if [.connect, .tls, .timeout, .protocolError].contains(failure.kind) {
        exchange.request.options.connections?.count { $0.broken &+= 1 }
      }
      exchange.complete(.failure(failure))
    case .redirect: break
    }
  }

  /// `target` has the same origin as the request.
  private func follow(_ exchange: CurlExchange, to target: OpaquePointer) {
    exchange.redirects += 1
    rx_curl_url_cleanup(exchange.url)
    exchange.url = target
    exchange.headers = []
    exchange.clearBody()
    exchange.failure = nil
    exchange.errorText[0] = 0
    start(exchange)
  }
}
