import PipelineCore
import Testing

@testable import Transport

@Suite struct CurlClientTests {
  let client = CurlClient()

  private func failure(_ request: HTTPRequest) async throws -> HTTPFailure {
    switch await client.answer(request) {
    case .failure(let failure): return failure
    case .success(let response):
      Issue.record("an answer came: \(response.status)")
      throw HTTPFailure(.badRequest, "an answer came")
    }
  }

  @Test func givesStatusHeadersAndBody() async throws {
    let server = try ScriptedServer { connection in
      while let request = connection.message() {
        let body = "\(request.head.prefix { $0 != "\r\n" }) \(request.body.count)"
        connection.send(
          "HTTP/1.1 201 Created\r\nX-A:  b \r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)")
      }
    }
    let request = HTTPRequest(method: "POST", url: server.url + "/p?q=1", body: [1, 2, 3])
    let response = try await client.answer(request).get()
    #expect(response.status == 201)
    #expect(response.header("x-a") == "b")
    #expect(String(decoding: response.body, as: UTF8.self) == "POST /p?q=1 HTTP/1.1 3")
  }

  @Test func saysWhyItCannotConnect() async throws {
    let failure = try await failure(HTTPRequest(url: "http://127.0.0.1:9/"))
    #expect(failure.kind == .connect)
    #expect(failure.message == "cannot connect to 127.0.0.1:9: Connection refused")
  }
}
