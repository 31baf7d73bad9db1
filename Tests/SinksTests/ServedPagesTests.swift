import PipelineHost
import PipelineTestSupport
import Testing
import Transport

@testable import PipelineCore
@testable import Sinks
@testable import Sources_

/// Every component that serves HTTP on a loopback address refuses requests from pages of other sites, before the pipeline sees
/// them.
@Suite struct ServedPagesTests {
  /// A server in a pipeline: its request, and whether its own parameter allows an origin.
  struct Served: CustomTestStringConvertible, Sendable {
    var name: String
    var isSource: Bool
    var parameters: String
    var request: String
    var origins = "origins: ['https://a.example']"
    var testDescription: String { name }
  }

  static let upgrade =
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
  static let all = [
    Served(
      name: "httpServer", isSource: true, parameters: "address: '127.0.0.1:0', decode: json, answer: accepted",
      request: "POST / HTTP/1.1\r\nContent-Length: 1\r\nHEADERS\r\n1"),
    Served(
      name: "webSocket source", isSource: true, parameters: "listen: '127.0.0.1:0', path: /in",
      request: "GET /in HTTP/1.1\r\n\(upgrade)HEADERS\r\n"),
    Served(
      name: "webSocket", isSource: false, parameters: "listen: '127.0.0.1:0', path: /in",
      request: "GET /in HTTP/1.1\r\n\(upgrade)HEADERS\r\n"),
    Served(
      name: "sse", isSource: false, parameters: "address: '127.0.0.1:0'",
      request: "GET /events HTTP/1.1\r\nHEADERS\r\n",
      origins: "allowOrigin: 'https://a.example'"),
    Served(
      name: "prometheusExporter", isSource: false, parameters: "listen: '127.0.0.1:0'",
      request: "GET /metrics HTTP/1.1\r\nHEADERS\r\n"),
  ]

  private func start(_ served: Served, _ further: String = "") throws -> RealPipeline {
    let name = served.name.split(separator: " ").first.map(String.init) ?? served.name
    let component = "{ \(name): { \(served.parameters)\(further.isEmpty ? "" : ", \(further)") } }"
    return try RealPipeline(
      served.isSource
        ? "sources: { in: \(component) }\nsinks: { out: { from: in, probe: {} } }"
        : "sources: { in: { never: {} } }\nsinks: { out: { from: in, \(component.dropFirst(2).dropLast(2)) } }")
  }

  private func status(_ pipeline: RealPipeline, _ served: Served, _ headers: String) throws -> String {
    let connection = try Connection(port: try #require(pipeline.port()))
    connection.send(served.request.replacing("HEADERS", with: headers))
    pipeline.run(within: .seconds(30)) { connection.waits(milliseconds: 0) }
    return connection.message(hasBody: false)?.head.split(separator: " ").dropFirst().first.map(String.init) ?? "none"
  }

  private func end(_ pipeline: RealPipeline) {
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.run(within: .seconds(30)) { pipeline.execution.hasClosed }
  }

  @Test(arguments: all) func pagesOfOtherSitesAreRefused(_ served: Served) throws {
    let pipeline = try start(served)
    let port = try #require(pipeline.port())
    #expect(try status(pipeline, served, "Host: rebind.example\r\nOrigin: http://rebind.example\r\n") == "421")
    #expect(try status(pipeline, served, "Host: 127.0.0.1:\(port)\r\nOrigin: https://evil.example\r\n") == "403")
    #expect(try status(pipeline, served, "Host: 127.0.0.1:\(port)\r\nOrigin: null\r\n") == "403")
    if served.isSource { #expect(pipeline.events == []) }
    let own = try status(pipeline, served, "Host: localhost:\(port)\r\nOrigin: http://localhost:\(port)\r\n")
    #expect(["101", "200", "202"].contains(own), "\(own)")
    end(pipeline)
  }

  @Test(arguments: all) func namesAndSitesCanBeAllowed(_ served: Served) throws {
    let pipeline = try start(served, "hosts: [rxd.example], \(served.origins)")
    for (headers, isTaken) in [
      ("Host: rxd.example\r\n", true), ("Host: other.example\r\n", false),
      ("Host: localhost\r\nOrigin: https://a.example\r\n", true),
      ("Host: localhost\r\nOrigin: https://b.example\r\n", false),
    ] {
      let found = try status(pipeline, served, headers)
      #expect(["101", "200", "202"].contains(found) == isTaken, "\(headers): \(found)")
    }
    end(pipeline)
  }

  @Test(arguments: all) func namesAreChecked(_ served: Served) {
    for (parameter, message) in [
      ("hosts: ['rxd.example:80']", "'rxd.example:80' is not a host name"),
      ("hosts: ['http://a']", "is not a host name"),
      ("hosts: ['::1']", "'::1' is not a host name"),
    ] {
      #expect(compile(served, parameter).contains { $0.contains(message) }, "\(parameter)")
    }
    for parameter in ["hosts: ['*']", "hosts: ['[fe80::1]', a.example, 10.0.0.1]"] {
      #expect(compile(served, parameter) == [], "\(parameter)")
    }
    guard served.name != "sse" else { return }
    #expect(compile(served, "origins: [a.example]").contains { $0.contains("'a.example' is not an origin") })
  }

  private func compile(_ served: Served, _ parameter: String) -> [String] {
    let name = served.name.split(separator: " ").first.map(String.init) ?? served.name
    let place = "\(name): { \(served.parameters), \(parameter) }"
    let text =
      served.isSource
      ? "sources: { in: { \(place) } }\nsinks: { out: { from: in, stdout: {} } }"
      : "sources: { in: { never: {} } }\nsinks: { out: { from: in, \(place) } }"
    return PipelineText.complaints(text)
  }
}
