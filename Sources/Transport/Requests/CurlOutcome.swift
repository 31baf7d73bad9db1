internal import CCurl
import PipelineCore

/// The outcome of an exchange.
enum CurlOutcome {
  case response(HTTPResponse)
  case failure(HTTPFailure)
  /// The receiver of the case owns the pointer.
  case redirect(OpaquePointer)

  static func result(
    of exchange: CurlExchange, _ easy: UnsafeMutableRawPointer, _ code: CURLcode, status: Int
  ) -> CurlOutcome {
    if code != CURLE_OK, !exchange.isCut || exchange.failure != nil { return .failure(failure(exchange, easy, code)) }
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
    return .response(
      HTTPResponse(status: status, headers: exchange.headers, body: exchange.body, charge: exchange.bodyCharge))
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
    guard let text, let target = rx_curl_url() else { return refuse("to no address") }
    let flags = UInt32(CURLU_DISALLOW_USER | CURLU_NON_SUPPORT_SCHEME)
    guard rx_curl_url_set(target, CURLUPART_URL, text, flags) == CURLUE_OK,
      let origin = CurlSetup.origin(of: target)
    else {
      rx_curl_url_cleanup(target)
      return refuse("to an address that cannot be used")
    }
    guard origin == exchange.origin else {
      rx_curl_url_cleanup(target)
      let shown = HTTPSyntax.printable("\(origin.scheme)://\(origin.host):\(origin.port)")
      return refuse("to another server, \(shown)")
    }
    return .redirect(target)
  }

  private static func failure(
    _ exchange: CurlExchange, _ easy: UnsafeMutableRawPointer, _ code: CURLcode
  ) -> HTTPFailure {
    if let failure = exchange.failure { return failure }
    let peer = exchange.peer
    let said = HTTPSyntax.printable(String(cString: exchange.errorText))
    let reason = said.isEmpty ? String(cString: rx_curl_easy_strerror(code)) : said
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
      return HTTPFailure(.tls, "cannot establish TLS with \(peer): \(reason)")
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
    let message =
      if ready == 0 {
        "cannot connect to \(exchange.peer) within \(min(options.connectTimeout, options.timeout))"
      } else if exchange.headerBytes == 0 {
        "no answer from \(exchange.peer) within \(options.timeout)"
      } else {
        "the answer of \(exchange.peer) was not complete within \(options.timeout)"
      }
    return HTTPFailure(.timeout, message)
  }
}
