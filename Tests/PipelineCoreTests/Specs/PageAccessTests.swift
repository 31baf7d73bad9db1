import Testing

@testable import PipelineCore

/// The host names that a server answers to, and the sites whose pages may send it requests.
@Suite struct PageAccessTests {
  private func status(
    _ host: String?, _ origin: String? = nil, _ change: (inout PageAccess) -> Void = { _ in }
  ) -> Int {
    var access = PageAccess(isLocal: true)
    change(&access)
    return access.refusal(host: host, origin: origin)?.status ?? 200
  }

  @Test(arguments: [
    "localhost", "LocalHost", "localhost:8080", "127.0.0.1", "127.0.0.1:80", "127.255.3.9:1", "[::1]", "[::1]:65535",
  ]) func theMachinesOwnNamesAreServed(_ host: String) {
    #expect(status(host) == 200)
  }

  @Test(arguments: [
    "", ":80", "rebind.example", "rebind.example:80", "127.0.0.1.example.org", "127.1", "127.0.0.1.", "127.0.0.256",
    "127..0.1",
    "127.0.0.1234", "128.0.0.1", "10.0.0.1", "[::2]", "[::1", "[::1].example", "localhost.example", "localhost.",
    "xlocalhost", "::1",
    "127.0.0.1\u{0}.example", "user@localhost",
  ]) func otherNamesAreNot(_ host: String) {
    #expect(status(host) == 421)
    // On an address other than loopback all names are accepted.
    #expect(status(host) { $0.isLocal = false } == 200)
    #expect(status(host) { $0.hosts = ["*"] } == 200)
  }

  @Test func namesCanBeAllowed() {
    let allow: (inout PageAccess) -> Void = { $0.hosts = ["rxd.example.org", "[fe80::1]"] }
    for host in ["rxd.example.org", "RXD.example.org:8443", "localhost", "[fe80::1]:80"] {
      #expect(status(host, nil, allow) == 200)
    }
    for host in ["x.rxd.example.org", "rxd.example.org.evil", "[fe80::2]"] { #expect(status(host, nil, allow) == 421) }
    // On another address only these are accepted.
    #expect(
      status("10.0.0.1") {
        $0.isLocal = false
        $0.hosts = ["rxd.example.org"]
      } == 421)
    // No browser speaks HTTP/1.0.
    #expect(status(nil) == 200)
  }

  @Test func pagesOfOtherSitesMaySendNothing() {
    let host = "127.0.0.1:8080"
    for origin in ["http://127.0.0.1:8080", "HTTP://127.0.0.1:8080", "https://127.0.0.1:8080"] {
      #expect(status(host, origin) == 200, "\(origin)")
    }
    for origin in [
      "https://evil.example", "http://127.0.0.1", "http://127.0.0.1:8081", "http://localhost:8080", "null", "",
      "127.0.0.1:8080",
      "http:/127.0.0.1:8080", "http://127.0.0.1:8080.evil.example",
    ] {
      #expect(status(host, origin) == 403, "\(origin)")
      #expect(status(host, origin) { $0.isLocal = false } == 200, "\(origin)")
      #expect(
        status(host, origin) {
          $0.isLocal = false
          $0.alwaysChecksOrigins = true
        } == 403, "\(origin)")
      #expect(status(host, origin) { $0.origins = ["*"] } == 200, "\(origin)")
    }
    #expect(status(host, "https://a.example") { $0.origins = ["https://a.example"] } == 200)
    #expect(status(host, "http://a.example") { $0.origins = ["https://a.example"] } == 403)
    #expect(status(host, "http://127.0.0.1:8080") { $0.origins = ["https://a.example"] } == 200)
    // On another address they apply if there are any.
    #expect(
      status("rxd.example", "https://evil.example") {
        $0.isLocal = false
        $0.origins = ["https://a.example"]
      } == 403)
  }

  /// Requests for images and scripts have no Origin header; browsers report another site in a different header.
  @Test func whatAPageFetchesIsRefused() {
    var access = PageAccess(isLocal: true)
    let headers = PageAccess.Headers(isOfOtherPage: true)
    #expect(access.refusal(headers)?.status == 403)
    access.origins = ["*"]
    #expect(access.refusal(headers) == nil)
    access.origins = []
    access.isLocal = false
    #expect(access.refusal(headers) == nil)
  }
}
