internal import CCurl
import Glibc
import PipelineCore
import Synchronization

/// HTTP requests through one libcurl multi handle on one thread of its own.
///
/// The thread starts with the first request and sleeps without waking while nothing is under way.
/// Connections are kept and used again, with HTTP/2 where TLS agrees on it. Completions are called on
/// that thread, so they must be quick. A kept connection that turns out to be closed before any byte
/// of the answer is replaced and the request sent again, once.
public final class CurlClient: HTTPClient {
  private let loop = CurlLoop()

  public init() {}

  deinit { loop.close() }

  public func send(
    _ request: HTTPRequest,
    _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
  ) -> any Cancellable {
    let exchange = CurlExchange(request, loop, completion)
    loop.add(exchange)
    return exchange
  }
}

/// One request and what has come of it. Fields without other remark belong to the loop's thread.
private final class CurlExchange: Cancellable, @unchecked Sendable {
  let request: HTTPRequest
  private let loop: CurlLoop
  /// Whether the completion has been called or must not be called any more; from any thread.
  private let settled = Atomic<Bool>(false)
  private var completion: (@Sendable (Result<HTTPResponse, HTTPFailure>) -> Void)?

  var easy: UnsafeMutableRawPointer?
  var headerList: UnsafeMutablePointer<curl_slist>?
  var url: OpaquePointer?
  let errorText = UnsafeMutablePointer<CChar>.allocate(capacity: Int(CURL_ERROR_SIZE))

  /// `host:port`, for messages.
  var peer = ""
  var origin = Origin()
  /// The host is an address, or `localhost`, or the pipeline file allows private ones.
  var mayBePrivate = false
  var started: Int64 = 0
  var redirects = 0

  var status = 0
  var headers: [HTTPHeader] = []
  var headerBytes = 0
  var headerLines = 0
  var inHeaders = false
  var body: [UInt8] = []
  /// Why a callback ended the exchange.
  var failure: HTTPFailure?

  struct Origin: Equatable {
    var scheme = ""
    var host = ""
    var port = ""
  }

  static let maxHeaderBytes = 64 << 10
  static let maxHeaderLines = 100
  static let freeRatioBytes = 1 << 20
  static let maxRatio = 100

  init(
    _ request: HTTPRequest, _ loop: CurlLoop,
    _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
  ) {
    self.request = request
    self.loop = loop
    self.completion = completion
    errorText[0] = 0
  }

  deinit {
    errorText.deallocate()
    curl_slist_free_all(headerList)
    curl_url_cleanup(url)
  }

  func cancel() {
    if !settled.exchange(true, ordering: .acquiringAndReleasing) { loop.drop(self) }
  }

  var isSettled: Bool { settled.load(ordering: .acquiring) }

  func complete(_ result: Result<HTTPResponse, HTTPFailure>) {
    let call = completion
    completion = nil
    if !settled.exchange(true, ordering: .acquiringAndReleasing) { call?(result) }
  }

  func forget() { completion = nil }

  // MARK: - Callbacks

  /// Takes a piece of the body; false ends the exchange.
  func receive(_ bytes: UnsafeRawBufferPointer) -> Bool {
    let total = body.count + bytes.count
    if total > request.options.maxResponseBytes {
      failure = HTTPFailure(
        .responseTooLarge,
        "the answer of \(peer) is longer than \(request.options.maxResponseBytes) bytes")
      return false
    }
    if request.options.acceptCompressed, total > Self.freeRatioBytes {
      var compressed: curl_off_t = 0
      if rx_curl_get_offset(easy, CURLINFO_SIZE_DOWNLOAD_T, &compressed) == CURLE_OK,
        compressed > 0, total / Self.maxRatio > Int(compressed)
      {
        failure = HTTPFailure(
          .responseTooLarge,
          "the answer of \(peer) is compressed more than \(Self.maxRatio) to 1")
        return false
      }
    }
    body.append(contentsOf: bytes)
    return true
  }

  /// Takes a header line with its line end; false ends the exchange.
  func receiveHeader(_ line: UnsafeRawBufferPointer) -> Bool {
    headerBytes += line.count
    headerLines += 1
    if headerBytes > Self.maxHeaderBytes || headerLines > Self.maxHeaderLines {
      failure = HTTPFailure(
        .responseTooLarge,
        "the headers of \(peer) are longer than \(Self.maxHeaderBytes >> 10) KiB or "
          + "\(Self.maxHeaderLines) lines")
      return false
    }
    var text = line
    while let last = text.last, last == 10 || last == 13 { text = .init(rebasing: text.dropLast()) }
    if text.starts(with: "HTTP/".utf8) && !inHeaders {
      inHeaders = true
      headers.removeAll(keepingCapacity: true)
      body.removeAll()
      return true
    }
    if text.isEmpty {
      inHeaders = false
      return true
    }
    guard inHeaders else { return true }  // Trailers are not asked for.
    guard !text.contains(where: { $0 == 0 || $0 == 13 }),
      let colon = text.firstIndex(of: UInt8(ascii: ":"))
    else { return malformed("a header line that is none") }
    let name = String(decoding: text[..<colon], as: UTF8.self)
    var value = text[(colon + 1)...]
    while let first = value.first, first == 32 || first == 9 { value = value.dropFirst() }
    while let last = value.last, last == 32 || last == 9 { value = value.dropLast() }
    let header = HTTPHeader(name, String(decoding: value, as: UTF8.self))
    if HTTPSyntax.same(name, "content-length"),
      headers.contains(where: { HTTPSyntax.same($0.name, name) && $0.value != header.value })
    {
      return malformed("two lengths")
    }
    if request.options.acceptCompressed, HTTPSyntax.same(name, "content-encoding"),
      header.value.utf8.contains(UInt8(ascii: ","))
        || headers.contains(where: { HTTPSyntax.same($0.name, name) })
    {
      return malformed("a body that is compressed twice")
    }
    headers.append(header)
    return true
  }

  private func malformed(_ what: String) -> Bool {
    failure = HTTPFailure(.protocolError, "\(peer) answers with \(what)")
    return false
  }

  /// Whether a connection to that address may be used; says why not.
  func mayUse(_ address: [UInt8]) -> Bool {
    switch AddressPolicy.judge(address) {
    case .allowed: return true
    case .privateNetwork where mayBePrivate: return true
    case .privateNetwork:
      failure = HTTPFailure(
        .forbidden,
        "\(origin.host) leads to a loopback or private address; write the address itself, "
          + "or allow private addresses")
    case .forbidden:
      failure = HTTPFailure(
        .forbidden, "\(peer) is a link-local, multicast or reserved address, which is never used")
    }
    return false
  }
}

// MARK: - The loop

private final class CurlLoop: @unchecked Sendable {
  private struct Inbox {
    var added: [CurlExchange] = []
    var dropped: [CurlExchange] = []
    var closed = false
    var started = false
  }

  private let inbox = Mutex(Inbox())
  /// Used by the loop's thread, but for `curl_multi_wakeup`. Set once, before the thread starts, by
  /// whoever holds the inbox.
  private let multi: UnsafeMutableRawPointer?
  private var active: [UnsafeMutableRawPointer: CurlExchange] = [:]
  private var spare: [UnsafeMutableRawPointer] = []

  private static let initialized = curl_global_init(Int(CURL_GLOBAL_DEFAULT)) == CURLE_OK

  init() {
    multi = Self.initialized ? curl_multi_init() : nil
  }

  /// Only when no exchange refers to the loop any more and its thread has ended.
  deinit {
    for easy in spare { curl_easy_cleanup(easy) }
    curl_multi_cleanup(multi)
  }

  func add(_ exchange: CurlExchange) {
    inbox.withLock { inbox in
      inbox.added.append(exchange)
      guard !inbox.started else { return }
      inbox.started = true
      do throws(PosixError) {
        _ = try OwnThread("rxd http") { self.run() }
      } catch {
        // The request waits for a thread; the next one tries again.
        inbox.started = false
      }
    }
    curl_multi_wakeup(multi)
  }

  func drop(_ exchange: CurlExchange) {
    inbox.withLock { $0.dropped.append(exchange) }
    curl_multi_wakeup(multi)
  }

  /// Ends the thread; exchanges under way are forgotten without completion.
  func close() {
    inbox.withLock { $0.closed = true }
    curl_multi_wakeup(multi)
  }

  private func run() {
    while true {
      let (added, dropped, closed) = inbox.withLock { inbox in
        defer {
          inbox.added = []
          inbox.dropped = []
        }
        return (inbox.added, inbox.dropped, inbox.closed)
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
      for exchange in added where !exchange.isSettled { start(exchange) }
      var running: Int32 = 0
      curl_multi_perform(multi, &running)
      var remaining: Int32 = 0
      while let message = curl_multi_info_read(multi, &remaining) {
        guard message.pointee.msg == CURLMSG_DONE, let easy = message.pointee.easy_handle,
          let exchange = active[easy]
        else { continue }
        finish(exchange, rx_curl_result(message))
      }
      // libcurl shortens the wait to its own timers; with nothing under way it has none.
      curl_multi_poll(multi, nil, 0, Int32.max, nil)
    }
  }

  private func start(_ exchange: CurlExchange) {
    guard multi != nil, let easy = spare.popLast() ?? curl_easy_init() else {
      return exchange.complete(.failure(HTTPFailure(.protocolError, "libcurl cannot be started")))
    }
    if exchange.started == 0 { exchange.started = monotonicNow() }
    exchange.easy = easy
    if let failure = CurlSetup.prepare(easy, exchange) {
      release(exchange)
      return exchange.complete(.failure(failure))
    }
    guard curl_multi_add_handle(multi, easy) == CURLM_OK else {
      release(exchange)
      return exchange.complete(.failure(HTTPFailure(.protocolError, "libcurl takes no request")))
    }
    active[easy] = exchange
  }

  /// Takes the exchange's handle away from it.
  private func release(_ exchange: CurlExchange) {
    guard let easy = exchange.easy else { return }
    exchange.easy = nil
    if active.removeValue(forKey: easy) != nil { curl_multi_remove_handle(multi, easy) }
    if spare.count < 16 {
      curl_easy_reset(easy)
      spare.append(easy)
    } else {
      curl_easy_cleanup(easy)
    }
  }

  private func finish(_ exchange: CurlExchange, _ code: CURLcode) {
    guard let easy = exchange.easy else { return }
    var status = 0
    rx_curl_get_long(easy, CURLINFO_RESPONSE_CODE, &status)
    let result = CurlOutcome.result(of: exchange, easy, code, status: status)
    if case .redirect(let target) = result {
      release(exchange)
      return follow(exchange, to: target)
    }
    release(exchange)
    switch result {
    case .response(let response): exchange.complete(.success(response))
    case .failure(let failure): exchange.complete(.failure(failure))
    case .redirect: break
    }
  }

  /// `target` has the origin of the request.
  private func follow(_ exchange: CurlExchange, to target: OpaquePointer) {
    exchange.redirects += 1
    curl_url_cleanup(exchange.url)
    exchange.url = target
    exchange.headers = []
    exchange.body = []
    exchange.failure = nil
    exchange.errorText[0] = 0
    start(exchange)
  }
}

// MARK: - Before the exchange

private enum CurlSetup {
  /// Sets every option of the handle; a failure if the request cannot be made.
  static func prepare(_ easy: UnsafeMutableRawPointer, _ exchange: CurlExchange) -> HTTPFailure? {
    if exchange.url == nil, let failure = parse(exchange) { return failure }
    let options = exchange.request.options
    let context = Unmanaged.passUnretained(exchange).toOpaque()
    func set(_ option: CURLoption, _ value: Int) -> Bool {
      rx_curl_set_long(easy, option, value) == CURLE_OK
    }
    func set(_ option: CURLoption, _ value: String) -> Bool {
      rx_curl_set_string(easy, option, value) == CURLE_OK
    }
    func set(_ option: CURLoption, _ value: UnsafeMutableRawPointer?) -> Bool {
      rx_curl_set_pointer(easy, option, value) == CURLE_OK
    }
    let elapsed = (monotonicNow() &- exchange.started) / 1_000_000
    let safe =
      rx_curl_set_url(easy, exchange.url) == CURLE_OK
      && set(CURLOPT_PROTOCOLS_STR, "http,https")
      && set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https")
      && set(CURLOPT_FOLLOWLOCATION, 0)
      && set(CURLOPT_MAXREDIRS, 0)
      && set(CURLOPT_UNRESTRICTED_AUTH, 0)
      && set(CURLOPT_DISALLOW_USERNAME_IN_URL, 1)
      && set(CURLOPT_NETRC, 0)
      && set(CURLOPT_NOSIGNAL, 1)
      && set(CURLOPT_QUICK_EXIT, 1)
      && set(CURLOPT_PROXY, options.proxy ?? "")
      && set(CURLOPT_NOPROXY, "")
      && set(CURLOPT_CONNECTTIMEOUT_MS, milliseconds(options.connectTimeout))
      && set(CURLOPT_TIMEOUT_MS, max(1, milliseconds(options.timeout) - Int(elapsed)))
      && set(CURLOPT_LOW_SPEED_LIMIT, 100)
      && set(CURLOPT_LOW_SPEED_TIME, max(1, milliseconds(options.stallTimeout) / 1000))
      && set(CURLOPT_MAXLIFETIME_CONN, 300)
      && set(CURLOPT_TCP_KEEPALIVE, 1)
      && set(CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_2TLS))
      && set(CURLOPT_HTTP09_ALLOWED, 0)
      && set(CURLOPT_SSLVERSION, Int(CURL_SSLVERSION_TLSv1_2))
      && set(CURLOPT_SSL_VERIFYPEER, options.tls.verify ? 1 : 0)
      && set(CURLOPT_SSL_VERIFYHOST, options.tls.verify ? 2 : 0)
      && set(CURLOPT_ERRORBUFFER, UnsafeMutableRawPointer(exchange.errorText))
      && rx_curl_set_open(easy, openSocket) == CURLE_OK
      && set(CURLOPT_OPENSOCKETDATA, context)
      && rx_curl_set_ready(easy, aboutToSend) == CURLE_OK
      && set(CURLOPT_PREREQDATA, context)
      && rx_curl_set_data(easy, CURLOPT_WRITEFUNCTION, receiveBody) == CURLE_OK
      && set(CURLOPT_WRITEDATA, context)
      && rx_curl_set_data(easy, CURLOPT_HEADERFUNCTION, receiveHeader) == CURLE_OK
      && set(CURLOPT_HEADERDATA, context)
    guard safe else {
      return HTTPFailure(.protocolError, "libcurl does not know an option that safety needs")
    }
    if options.acceptCompressed, !set(CURLOPT_ACCEPT_ENCODING, "gzip, deflate") {
      return HTTPFailure(.badRequest, "libcurl cannot decompress")
    }
    if let failure = tls(options.tls, set) { return failure }
    return message(easy, exchange, set)
  }

  /// Reads the URL, by libcurl's own rules, into the exchange.
  private static func parse(_ exchange: CurlExchange) -> HTTPFailure? {
    let url = curl_url()
    exchange.url = url
    let code = curl_url_set(
      url, CURLUPART_URL, exchange.request.url,
      UInt32(CURLU_DISALLOW_USER | CURLU_NON_SUPPORT_SCHEME))
    guard code == CURLUE_OK else {
      if code == CURLUE_USER_NOT_ALLOWED {
        return HTTPFailure(.badRequest, "the URL holds a user name; use the auth parameter")
      }
      let reason = String(cString: curl_url_strerror(code))
      return HTTPFailure(.badRequest, "the URL cannot be used: \(reason)")
    }
    guard let origin = origin(of: url) else {
      return HTTPFailure(.badRequest, "the URL has no host")
    }
    guard origin.scheme == "http" || origin.scheme == "https" else {
      let scheme = HTTPSyntax.printable(origin.scheme)
      return HTTPFailure(.badRequest, "the URL's scheme is \(scheme), but must be http or https")
    }
    exchange.origin = origin
    exchange.peer = HTTPSyntax.printable("\(origin.host):\(origin.port)")
    let address = addressBytes(origin.host)
    let lowered = origin.host.lowercased()
    let isLocal = lowered == "localhost" || lowered.hasSuffix(".localhost")
    exchange.mayBePrivate =
      address != nil || isLocal || exchange.request.options.allowPrivate
      || exchange.request.options.proxy != nil
    if let address, !exchange.mayUse(address) { return exchange.failure }
    return nil
  }

  static func origin(of url: OpaquePointer?) -> CurlExchange.Origin? {
    guard let scheme = part(url, CURLUPART_SCHEME), let host = part(url, CURLUPART_HOST),
      !host.isEmpty
    else { return nil }
    return CurlExchange.Origin(
      scheme: scheme.lowercased(), host: host.lowercased(),
      port: part(url, CURLUPART_PORT, UInt32(CURLU_DEFAULT_PORT)) ?? "")
  }

  private static func part(_ url: OpaquePointer?, _ part: CURLUPart, _ flags: UInt32 = 0) -> String? {
    var text: UnsafeMutablePointer<CChar>?
    guard curl_url_get(url, part, &text, flags) == CURLUE_OK, let text else { return nil }
    defer { curl_free(text) }
    return String(cString: text)
  }

  private static func tls(_ tls: TLSOptions, _ set: (CURLoption, String) -> Bool) -> HTTPFailure? {
    let files = [
      (CURLOPT_CAINFO, tls.caFile), (CURLOPT_SSLCERT, tls.certificateFile),
      (CURLOPT_SSLKEY, tls.keyFile),
    ]
    for case (let option, let path?) in files where !set(option, path) {
      return HTTPFailure(.tls, "libcurl cannot use the file \(HTTPSyntax.printable(path))")
    }
    return nil
  }

  private static func message(
    _ easy: UnsafeMutableRawPointer, _ exchange: CurlExchange, _ set: (CURLoption, String) -> Bool
  ) -> HTTPFailure? {
    let request = exchange.request
    guard HTTPSyntax.isToken(request.method), request.method != "CONNECT" else {
      let method = HTTPSyntax.printable(request.method)
      return HTTPFailure(.badRequest, "\(method) is not a method that can be sent")
    }
    func long(_ option: CURLoption, _ value: Int) { rx_curl_set_long(easy, option, value) }
    if request.body != nil || request.method == "POST" {
      let body = request.body ?? []
      long(CURLOPT_POST, 1)
      rx_curl_set_offset(easy, CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(body.count))
      let copied = body.withUnsafeBytes { bytes in
        // A null pointer would mean "ask the read callback".
        let start = bytes.baseAddress ?? UnsafeRawPointer(exchange.errorText)
        return rx_curl_set_pointer(
          easy, CURLOPT_COPYPOSTFIELDS, UnsafeMutableRawPointer(mutating: start))
      }
      guard copied == CURLE_OK else {
        return HTTPFailure(.badRequest, "there is no memory for a body of \(body.count) bytes")
      }
    } else if request.method == "HEAD" {
      long(CURLOPT_NOBODY, 1)
    } else {
      long(CURLOPT_HTTPGET, 1)
    }
    if request.method != "HEAD" || request.body != nil {
      _ = set(CURLOPT_CUSTOMREQUEST, request.method)
    }
    return headers(easy, exchange, set)
  }

  private static func headers(
    _ easy: UnsafeMutableRawPointer, _ exchange: CurlExchange, _ set: (CURLoption, String) -> Bool
  ) -> HTTPFailure? {
    let request = exchange.request
    // libcurl adds these by itself; without a value they are taken out.
    var lines = ["Expect:"]
    func has(_ name: String) -> Bool { request.headers.contains { HTTPSyntax.same($0.name, name) } }
    if !has("content-type") { lines.append("Content-Type:") }
    if !has("user-agent") { lines.append("User-Agent: rxd") }
    for header in request.headers {
      guard HTTPSyntax.isToken(header.name), !HTTPSyntax.isFraming(header.name) else {
        let name = HTTPSyntax.printable(header.name)
        return HTTPFailure(.badRequest, "the header \(name) cannot be set")
      }
      guard HTTPSyntax.isFieldValue(header.value) else {
        return HTTPFailure(
          .badRequest, "the value of the header \(header.name) holds a line break or NUL")
      }
      lines.append(header.value.isEmpty ? "\(header.name);" : "\(header.name): \(header.value)")
    }
    switch request.options.auth {
    case .none: break
    case .basic(let user, let password):
      guard set(CURLOPT_USERNAME, user), set(CURLOPT_PASSWORD, password.revealed) else {
        return HTTPFailure(.badRequest, "libcurl does not take the user name or password")
      }
      rx_curl_set_long(easy, CURLOPT_HTTPAUTH, 1)  // Basic
    case .bearer(let token):
      guard HTTPSyntax.isFieldValue(token.revealed) else {
        return HTTPFailure(.badRequest, "the bearer token holds a line break or NUL")
      }
      lines.append("Authorization: Bearer \(token.revealed)")
    }
    curl_slist_free_all(exchange.headerList)
    exchange.headerList = nil
    for line in lines {
      guard let longer = curl_slist_append(exchange.headerList, line) else {
        return HTTPFailure(.badRequest, "there is no memory for the headers")
      }
      exchange.headerList = longer
    }
    rx_curl_set_list(easy, CURLOPT_HTTPHEADER, exchange.headerList)
    return nil
  }

  private static func milliseconds(_ span: TimeSpan) -> Int {
    // 0 would mean no limit to libcurl.
    Int(min(max(span.nanoseconds / 1_000_000, 1), Int64(Int32.max)))
  }
}

/// The bytes of an IPv4 or IPv6 address in its text form, brackets and zone allowed.
private func addressBytes(_ text: String) -> [UInt8]? {
  var text = Substring(text)
  if text.utf8.first == UInt8(ascii: "[") { text = text.dropFirst() }
  if text.utf8.last == UInt8(ascii: "]") { text = text.dropLast() }
  if let zone = text.utf8.firstIndex(of: UInt8(ascii: "%")) { text = text[..<zone] }
  var v4 = in_addr()
  if inet_pton(AF_INET, String(text), &v4) == 1 { return withUnsafeBytes(of: v4) { Array($0) } }
  var v6 = in6_addr()
  if inet_pton(AF_INET6, String(text), &v6) == 1 { return withUnsafeBytes(of: v6) { Array($0) } }
  return nil
}

private func exchange(_ context: UnsafeMutableRawPointer?) -> CurlExchange? {
  // The loop keeps the exchange as long as its handle is in use.
  context.map { Unmanaged<CurlExchange>.fromOpaque($0).takeUnretainedValue() }
}

private let receiveBody: rx_curl_data = { bytes, _, count, context in
  let piece = UnsafeRawBufferPointer(start: bytes, count: count)
  return exchange(context)?.receive(piece) == true ? count : 0
}

private let receiveHeader: rx_curl_data = { bytes, _, count, context in
  let line = UnsafeRawBufferPointer(start: bytes, count: count)
  return exchange(context)?.receiveHeader(line) == true ? count : 0
}

private let openSocket: rx_curl_open = { context, _, address in
  guard let exchange = exchange(context), let address else { return -1 }
  let family = address.pointee.family
  let bytes: [UInt8]
  switch family {
  case AF_INET:
    bytes = withUnsafeBytes(of: address.pointee.addr) {
      let offset = MemoryLayout<sockaddr_in>.offset(of: \.sin_addr) ?? 4
      return Array($0[offset..<(offset + 4)])
    }
  case AF_INET6:
    // The structure is longer than the field that it lies in.
    let start = UnsafeRawPointer(address) + (MemoryLayout<curl_sockaddr>.offset(of: \.addr) ?? 0)
    let offset = MemoryLayout<sockaddr_in6>.offset(of: \.sin6_addr) ?? 8
    bytes = Array(UnsafeRawBufferPointer(start: start + offset, count: 16))
  default: bytes = []
  }
  guard exchange.mayUse(bytes) else { return -1 }
  exchange.failure = nil  // An earlier address of the same name may have been refused.
  return socket(
    family, address.pointee.socktype | Int32(SOCK_CLOEXEC.rawValue), address.pointee.protocol)
}

/// Called when a connection, new or kept, is about to be used.
private let aboutToSend: rx_curl_ready = { context, remote, _, _, _ in
  guard let exchange = exchange(context), let remote,
    let bytes = addressBytes(String(cString: remote))
  else { return Int32(CURL_PREREQFUNC_ABORT) }
  guard exchange.mayUse(bytes) else { return Int32(CURL_PREREQFUNC_ABORT) }
  exchange.failure = nil  // What was refused was another address.
  return Int32(CURL_PREREQFUNC_OK)
}

// MARK: - After the exchange

private enum CurlOutcome {
  case response(HTTPResponse)
  case failure(HTTPFailure)
  /// Whoever takes it owns it.
  case redirect(OpaquePointer)

  static func result(
    of exchange: CurlExchange, _ easy: UnsafeMutableRawPointer, _ code: CURLcode, status: Int
  ) -> CurlOutcome {
    if code != CURLE_OK { return .failure(failure(exchange, easy, code)) }
    let request = exchange.request
    if request.options.maxRedirects > 0, [301, 302, 303, 307, 308].contains(status),
      exchange.headers.contains(where: { HTTPSyntax.same($0.name, "location") })
    {
      return redirect(exchange, easy)
    }
    if let body = request.body, !body.isEmpty, (200..<300).contains(status) {
      var sent: curl_off_t = 0
      rx_curl_get_offset(easy, CURLINFO_SIZE_UPLOAD_T, &sent)
      if Int(sent) < body.count {
        return .failure(
          HTTPFailure(
            .protocolError, "\(exchange.peer) answered \(status) before it had the whole request"))
      }
    }
    return .response(HTTPResponse(status: status, headers: exchange.headers, body: exchange.body))
  }

  private static func redirect(_ exchange: CurlExchange, _ easy: UnsafeMutableRawPointer)
    -> CurlOutcome
  {
    func refuse(_ why: String) -> CurlOutcome {
      .failure(HTTPFailure(.redirect, "\(exchange.peer) redirects \(why)"))
    }
    if exchange.request.body != nil { return refuse("a request that had a body") }
    guard ["GET", "HEAD"].contains(exchange.request.method) else {
      return refuse("a request that is neither GET nor HEAD")
    }
    if exchange.redirects >= exchange.request.options.maxRedirects {
      return refuse("more than \(exchange.request.options.maxRedirects) times")
    }
    var text: UnsafeMutablePointer<CChar>?
    rx_curl_get_string(easy, CURLINFO_REDIRECT_URL, &text)
    guard let text, let target = curl_url() else { return refuse("to no address") }
    let flags = UInt32(CURLU_DISALLOW_USER | CURLU_NON_SUPPORT_SCHEME)
    guard curl_url_set(target, CURLUPART_URL, text, flags) == CURLUE_OK,
      let origin = CurlSetup.origin(of: target)
    else {
      curl_url_cleanup(target)
      return refuse("to an address that cannot be used")
    }
    guard origin == exchange.origin else {
      curl_url_cleanup(target)
      let place = HTTPSyntax.printable("\(origin.scheme)://\(origin.host):\(origin.port)")
      return refuse("to another place, \(place)")
    }
    return .redirect(target)
  }

  private static func failure(
    _ exchange: CurlExchange, _ easy: UnsafeMutableRawPointer, _ code: CURLcode
  ) -> HTTPFailure {
    if let failure = exchange.failure { return failure }
    let peer = exchange.peer
    let said = HTTPSyntax.printable(String(cString: exchange.errorText))
    let reason = said.isEmpty ? String(cString: curl_easy_strerror(code)) : said
    switch code {
    case CURLE_URL_MALFORMAT:
      return HTTPFailure(.badRequest, "the URL cannot be used: \(reason)")
    case CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_RESOLVE_PROXY:
      return HTTPFailure(.resolve, "cannot resolve \(exchange.origin.host): \(reason)")
    case CURLE_COULDNT_CONNECT:
      var number = 0
      rx_curl_get_long(easy, CURLINFO_OS_ERRNO, &number)
      let why = number == 0 ? reason : PosixError.text(Int32(truncatingIfNeeded: number))
      return HTTPFailure(.connect, "cannot connect to \(peer): \(why)")
    case CURLE_OPERATION_TIMEDOUT:
      return timeout(exchange, easy)
    case CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CERTPROBLEM,
      CURLE_SSL_CIPHER, CURLE_SSL_CACERT_BADFILE, CURLE_SSL_ISSUER_ERROR, CURLE_USE_SSL_FAILED,
      CURLE_SSL_INVALIDCERTSTATUS, CURLE_SSL_CRL_BADFILE, CURLE_SSL_CLIENTCERT:
      return HTTPFailure(.tls, "cannot speak TLS with \(peer): \(reason)")
    default:
      return HTTPFailure(.protocolError, "the exchange with \(peer) failed: \(reason)")
    }
  }

  private static func timeout(_ exchange: CurlExchange, _ easy: UnsafeMutableRawPointer)
    -> HTTPFailure
  {
    let options = exchange.request.options
    var ready: curl_off_t = 0
    rx_curl_get_offset(easy, CURLINFO_PRETRANSFER_TIME_T, &ready)
    let elapsed = TimeSpan(nanoseconds: monotonicNow() &- exchange.started)
    let message =
      if ready == 0 {
        "cannot connect to \(exchange.peer) within \(min(options.connectTimeout, options.timeout))"
      } else if elapsed < options.timeout {
        "\(exchange.peer) sent less than 100 bytes a second for \(options.stallTimeout)"
      } else if exchange.headerBytes == 0 {
        "no answer from \(exchange.peer) within \(options.timeout)"
      } else {
        "the answer of \(exchange.peer) was not complete within \(options.timeout)"
      }
    return HTTPFailure(.timeout, message)
  }
}
