internal import CCurl
import Glibc
import PipelineCore

/// Prepares the options of an exchange.
enum CurlSetup {
  /// Sets every option of the handle; a failure if the request is invalid.
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
      // Allocated for each request under way; most of the default of 16 KiB would be unused.
      && set(CURLOPT_BUFFERSIZE, 4096)
      && set(CURLOPT_PROXY, options.proxy ?? "")
      && set(CURLOPT_NOPROXY, "")
      && set(CURLOPT_CONNECTTIMEOUT_MS, milliseconds(options.connectTimeout))
      && set(CURLOPT_TIMEOUT_MS, exchange.isStreaming ? 0 : max(1, milliseconds(options.timeout) - Int(elapsed)))
      // Addresses and connections are both kept this long, so a change of the name takes effect within twice this time.
      && set(CURLOPT_DNS_CACHE_TIMEOUT, seconds(options.connectionLife))
      && set(CURLOPT_MAXLIFETIME_CONN, seconds(options.connectionLife))
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
    if let connections = options.connections {
      // A connection keeps the callback and the data of the request that made it. Opening a socket retains the counts,
      // closing it releases them.
      guard rx_curl_set_close(easy, closeSocket) == CURLE_OK,
        set(CURLOPT_CLOSESOCKETDATA, Unmanaged.passUnretained(connections).toOpaque())
      else { return HTTPFailure(.protocolError, "libcurl cannot count connections") }
    }
    if let path = options.unixSocket, !set(CURLOPT_UNIX_SOCKET_PATH, path) {
      return HTTPFailure(.badRequest, "libcurl cannot use the socket \(HTTPSyntax.printable(path))")
    }
    if options.acceptCompressed, !set(CURLOPT_ACCEPT_ENCODING, "gzip, deflate") {
      return HTTPFailure(.badRequest, "libcurl cannot decompress")
    }
    if let failure = tls(options.tls, set) { return failure }
    return message(easy, exchange, set)
  }

  /// Parses the URL, by libcurl's own rules, into the exchange.
  private static func parse(_ exchange: CurlExchange) -> HTTPFailure? {
    let url = rx_curl_url()
    exchange.url = url
    let code = rx_curl_url_set(
      url, CURLUPART_URL, exchange.request.url,
      UInt32(CURLU_DISALLOW_USER | CURLU_NON_SUPPORT_SCHEME))
    guard code == CURLUE_OK else {
      if code == CURLUE_USER_NOT_ALLOWED {
        return HTTPFailure(.badRequest, "the URL holds a user name; use the auth parameter")
      }
      let reason = String(cString: rx_curl_url_strerror(code))
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
    let address = AddressPolicy.bytes(ofHost: origin.host)
    exchange.mayBePrivate =
      AddressPolicy.maySayPrivate(host: origin.host) || exchange.request.options.allowPrivate
      || exchange.request.options.proxy != nil || exchange.request.options.unixSocket != nil
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
    guard rx_curl_url_get(url, part, &text, flags) == CURLUE_OK, let text else { return nil }
    defer { rx_curl_free(text) }
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
    guard HTTPHeader.isToken(request.method), request.method != "CONNECT" else {
      let method = HTTPSyntax.printable(request.method)
      return HTTPFailure(.badRequest, "\(method) is not a method that can be sent")
    }
    func long(_ option: CURLoption, _ value: Int) { rx_curl_set_long(easy, option, value) }
    if request.body != nil || request.method == "POST" {
      let body = request.body ?? []
      long(CURLOPT_POST, 1)
      rx_curl_set_offset(easy, CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(body.count))
      let copied = body.withUnsafeBytes { bytes in
        // A null pointer would make libcurl call the read callback.
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
    // libcurl adds these headers itself; without a value they are removed.
    var lines = ["Expect:"]
    func has(_ name: String) -> Bool { request.headers.contains { HTTPSyntax.same($0.name, name) } }
    if !has("content-type") { lines.append("Content-Type:") }
    if !has("user-agent") { lines.append("User-Agent: rxd") }
    for header in request.headers {
      guard HTTPHeader.isToken(header.name), !HTTPHeader.isFraming(header.name) else {
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
        return HTTPFailure(.badRequest, "libcurl does not accept the user name or password")
      }
      rx_curl_set_long(easy, CURLOPT_HTTPAUTH, 1)  // Basic
    case .bearer(let token):
      guard HTTPSyntax.isFieldValue(token.revealed) else {
        return HTTPFailure(.badRequest, "the bearer token holds a line break or NUL")
      }
      lines.append("Authorization: Bearer \(token.revealed)")
    case .oauth2: preconditionFailure("AccessTokens sends requests with a token")
    case .awsSigV4(let credentials):
      guard let signed = signed(exchange, credentials) else {
        return HTTPFailure(
          .unavailable,
          "signatures need the library libcrypto.so.3: install the package libssl3, or libssl3t64 where there is one")
      }
      lines += signed.map { "\($0.name): \($0.value)" }
    }
    rx_curl_slist_free_all(exchange.headerList)
    exchange.headerList = nil
    for line in lines {
      guard let longer = rx_curl_slist_append(exchange.headerList, line) else {
        return HTTPFailure(.badRequest, "there is no memory for the headers")
      }
      exchange.headerList = longer
    }
    rx_curl_set_list(easy, CURLOPT_HTTPHEADER, exchange.headerList)
    return nil
  }

  /// The headers that sign a request for its current URL; nil: a library is missing.
  private static func signed(_ exchange: CurlExchange, _ credentials: HTTPOptions.AWSSigV4) -> [HTTPHeader]? {
    let request = exchange.request
    let origin = exchange.origin
    let isUsual = origin.port == (origin.scheme == "https" ? "443" : "80")
    let written = part(exchange.url, CURLUPART_HOST) ?? origin.host
    let own = request.headers.first { HTTPSyntax.same($0.name, "host") }?.value
    var headers = AWSSignature.headers(
      credentials, method: request.method, host: own ?? (isUsual ? written : "\(written):\(origin.port)"),
      path: part(exchange.url, CURLUPART_PATH) ?? "/", query: part(exchange.url, CURLUPART_QUERY) ?? "",
      headers: request.headers, body: request.body ?? [], at: Int64(time(nil)))
    // The signed headers must equal the sent ones.
    if own == nil { headers?.append(HTTPHeader("Host", isUsual ? written : "\(written):\(origin.port)")) }
    return headers
  }

  private static func seconds(_ span: TimeSpan) -> Int { max(1, milliseconds(span) / 1000) }

  private static func milliseconds(_ span: TimeSpan) -> Int {
    // At least 1, because 0 means no limit to libcurl.
    Int(min(max(span.nanoseconds / 1_000_000, 1), Int64(Int32.max)))
  }
}

private func exchange(_ context: UnsafeMutableRawPointer?) -> CurlExchange? {
  // The loop retains the exchange while its handle is in use.
  context.map { Unmanaged<CurlExchange>.fromOpaque($0).takeUnretainedValue() }
}

private let receiveBody: rx_curl_data = { bytes, _, count, context in
  let piece = UnsafeRawBufferPointer(start: bytes, count: count)
  guard let exchange = exchange(context) else { return 0 }
  if exchange.isStreaming { return exchange.pass(piece) ? count : Int(CURL_WRITEFUNC_PAUSE) }
  return switch exchange.receive(piece) {
  case .taken: count
  case .later: Int(CURL_WRITEFUNC_PAUSE)
  case .ended: 0
  }
}

private let receiveHeader: rx_curl_data = { bytes, _, count, context in
  let line = UnsafeRawBufferPointer(start: bytes, count: count)
  return exchange(context)?.receiveHeader(line) == true ? count : 0
}

private let openSocket: rx_curl_open = { context, _, address in
  guard let exchange = exchange(context), let address else { return -1 }
  let family = address.pointee.family
  if family == AF_UNIX, exchange.request.options.unixSocket != nil {
    return makeSocket(exchange, address)
  }
  let bytes: [UInt8]
  switch family {
  case AF_INET:
    bytes = withUnsafeBytes(of: address.pointee.addr) {
      let offset = MemoryLayout<sockaddr_in>.offset(of: \.sin_addr) ?? 4
      return Array($0[offset..<(offset + 4)])
    }
  case AF_INET6:
    // The structure is longer than the field that contains it.
    let start = UnsafeRawPointer(address) + (MemoryLayout<curl_sockaddr>.offset(of: \.addr) ?? 0)
    let offset = MemoryLayout<sockaddr_in6>.offset(of: \.sin6_addr) ?? 8
    bytes = Array(UnsafeRawBufferPointer(start: start + offset, count: 16))
  default: bytes = []
  }
  guard exchange.mayUse(bytes) else { return -1 }
  exchange.failure = nil  // An earlier address of the same name may have been refused.
  return makeSocket(exchange, address)
}

private func makeSocket(_ exchange: CurlExchange, _ address: UnsafeMutablePointer<curl_sockaddr>) -> curl_socket_t {
  let made = socket(
    address.pointee.family, address.pointee.socktype | Int32(SOCK_CLOEXEC.rawValue), address.pointee.protocol)
  if made >= 0, let connections = exchange.request.options.connections {
    _ = Unmanaged.passRetained(connections)
    connections.count { $0.open += 1 }
  }
  return made
}

/// Closes a socket that `makeSocket` has made for a request with counts.
private let closeSocket: rx_curl_close = { context, socket in
  if let context {
    let connections = Unmanaged<HTTPConnections>.fromOpaque(context).takeRetainedValue()
    connections.count { $0.open -= 1 }
  }
  return close(socket)
}

/// Called when a connection, new or kept, is about to be used.
private let aboutToSend: rx_curl_ready = { context, remote, _, _, _ in
  guard let exchange = exchange(context) else { return Int32(CURL_PREREQFUNC_ABORT) }
  exchange.countConnection()
  if exchange.request.options.unixSocket != nil { return Int32(CURL_PREREQFUNC_OK) }
  guard let remote,
    let bytes = AddressPolicy.bytes(ofHost: String(cString: remote))
  else { return Int32(CURL_PREREQFUNC_ABORT) }
  guard exchange.mayUse(bytes) else { return Int32(CURL_PREREQFUNC_ABORT) }
  exchange.failure = nil  // Another address was refused, not this one.
  return Int32(CURL_PREREQFUNC_OK)
}
