import Foundation
import PipelineCore
import PipelineHost
import PipelineTesting
import Synchronization
import Testing
import Transport

/// Clients receive the same answers in `rxd test` as from the server on loopback.
@Suite struct ReplyAgreementTests {
  struct Asked: Sendable {
    var method = "GET"
    var path = "/in"
    var authorization: String?
    var body: String?

    /// In the notation of a test's input.
    var event: String {
      var members = ["path: \(path)", "method: \(method)"]
      if let authorization { members.append("headers: { authorization: \(authorization) }") }
      if let body { members.append("body: '\(body)'") }
      return "{ \(members.joined(separator: ", ")) }"
    }

    func request(_ port: Int) -> HTTPRequest {
      var request = HTTPRequest(
        method: method, url: "http://127.0.0.1:\(port)\(path)", body: body.map { Array($0.utf8) })
      if let authorization { request.headers = [HTTPHeader("Authorization", authorization)] }
      request.options.timeout = .seconds(60)
      return request
    }
  }

  struct Agreement: Sendable, CustomTestStringConvertible {
    var server: String
    var chain: String
    var asked: [Asked]
    /// All requests at once; which client gets which answer is then not compared.
    var atOnce = false
    var statuses: [Int]
    var testDescription: String { "\(server), \(chain)" }
  }

  private static let held = "delay: 1h"

  static let agreements: [Agreement] = [
    .init(
      server: "path: /in, methods: [POST], maxBody: 8B", chain: "map: event.body",
      asked: [
        .init(method: "POST", body: "12345678"), .init(method: "POST", body: "123456789"),
        .init(method: "POST", path: "/out", body: "1"), .init(method: "GET"), .init(path: "/out"),
        .init(method: "POST", path: "/out", body: "123456789"),
      ], statuses: [200, 413, 404, 405, 404, 413]),
    .init(
      server: "auth: { bearer: tok }, path: /in", chain: "map: 1",
      asked: [
        .init(authorization: "Bearer tok"), .init(authorization: "Bearer tik"),
        .init(path: "/out", authorization: "Bearer tik"),
      ], statuses: [200, 401, 404]),
    .init(
      server: "replyTimeout: 100ms", chain: held, asked: [.init(), .init()], statuses: [504, 504]),
    .init(
      server: "replyTimeout: 100ms", chain: "delay: 150ms", asked: [.init(), .init()], statuses: [504, 504]),
    .init(
      server: "maxBody: 1MiB", chain: "filter: event.path == '/yes'", asked: [.init(path: "/no"), .init(path: "/yes")],
      statuses: [503, 200]),
    .init(
      server: "maxBody: 1MiB", chain: "map: event.none.none", asked: [.init()], statuses: [503]),
    .init(
      server: "maxBody: 1MiB", chain: "throttle: 200ms", asked: [.init(), .init(), .init()], atOnce: true,
      statuses: [200, 503, 503]),
    .init(
      server: "maxConnections: 2", chain: "delay: 500ms", asked: [.init(), .init(), .init()], atOnce: true,
      statuses: [200, 200, 503]),
    .init(
      server: "maxConnections: 1, replyTimeout: 300ms", chain: held, asked: [.init(), .init()], atOnce: true,
      statuses: [503, 504]),
    .init(
      server: "maxBody: 1MiB", chain: "execute: { command: work, answer: all }", asked: [.init(), .init()],
      statuses: [202, 409]),
    .init(
      server: "maxBody: 1MiB", chain: "execute: { command: closed }", asked: [.init(), .init()], statuses: [503, 503]),
    .init(
      server: "maxBody: 1MiB", chain: "take: 1", asked: [.init(), .init()], statuses: [200, 503]),
    .init(
      server: "answer: written", chain: "filter: event.path == '/no'", asked: [.init(), .init()], statuses: [200, 200]),
    .init(server: "answer: accepted", chain: held, asked: [.init(), .init()], statuses: [202, 202]),
    .init(
      server: "answer: written", chain: "try: event.path == '/no'", asked: [.init(path: "/no"), .init()],
      statuses: [200, 503]),
  ]

  /// `tests` are at its end.
  private func yaml(_ row: Agreement, _ tests: String = "") -> String {
    """
    sources:
      requests: { httpServer: { address: '127.0.0.1:0', \(row.server) } }
    signals:
      answers: { from: requests, chain: [ { \(row.chain) } ] }
      others: { from: { values: [] }, chain: [ { execute: { command: work } }, { execute: { command: closed } } ] }
    commands:
      work: { run: { never: {} } }
      closed: { run: { values: [1] }, enabled: { from: { values: [false] } } }
    sinks:
      out: { from: answers, reply: {} }
      more: { from: others, discard: {} }
    \(tests)
    """
  }

  @Test(arguments: agreements) func hearTheSame(_ row: Agreement) throws {
    let imagined = try statusesInATest(row)
    let real = try statusesOnLoopback(row)
    #expect(row.atOnce ? imagined.sorted() == row.statuses : imagined == row.statuses)
    #expect(row.atOnce ? real.sorted() == row.statuses : real == row.statuses)
  }

  private func statusesInATest(_ row: Agreement) throws -> [Int] {
    // One after another: each has its answer before the next request.
    let steps = row.asked.enumerated().map { index, asked in
      "{ at: \(row.atOnce ? 1 : index * 10 + 1)s, next: \(asked.event) }"
    }
    let text = SourceText(
      name: "test.yaml",
      text: yaml(
        row,
        """
        tests:
          - name: x
            until: \(row.asked.count * 10 + 1)s
            inputs: { requests: [ \(steps.joined(separator: ", ")) ] }
            expect: { requests.replies: { events: [ { error: never } ], more: true } }
        """))
    let compiled = FrontEnd(PipelineText.catalogue).compile(text)
    let plan = try #require(compiled.plan, "\(DiagnosticRenderer().text(compiled.diagnostics))")
    var diagnostics = Diagnostics()
    let tests = compiled.tests(into: &diagnostics) { _ in nil }
    try #require(!diagnostics.hasErrors, "\(DiagnosticRenderer().text(diagnostics.all))")
    let result = TestRunner(plan).run(try #require(tests.first))
    let heard = try #require(result.failures.first { $0.expectation == 0 }).history.entries
    return try heard.map { entry in
      guard case .next(let value) = entry.moment else { throw CancellationError() }
      let answer = try JSONDecoder().decode(Answer.self, from: Data(value.description.utf8))
      if !row.atOnce { #expect(heard[answer.request - 1].moment == entry.moment) }
      return answer.status
    }
  }

  private struct Answer: Decodable {
    var request: Int
    var status: Int
  }

  private func statusesOnLoopback(_ row: Agreement) throws -> [Int] {
    let serving = try RealPipeline(yaml(row))
    let port = try #require(serving.port(), "\(serving.log)")
    let client = CurlClient()
    let heard = Mutex<[Int: Int]>([:])
    let ring = serving.ring
    var exchanges: [any Cancellable] = []
    for (number, asked) in row.asked.enumerated() {
      exchanges.append(
        client.send(asked.request(port)) { result in
          let status = Self.status(result)
          heard.withLock { $0[number] = status }
          ring()
        })
      if !row.atOnce { #expect(serving.run { heard.withLock { $0[number] != nil } }) }
    }
    #expect(serving.run { heard.withLock { $0.count == row.asked.count } })
    withExtendedLifetime(exchanges) {}
    return row.asked.indices.compactMap { number in heard.withLock { $0[number] } }
  }

  /// If the server has closed, a test says 503; 0 is any other failure.
  private static func status(_ result: Result<HTTPResponse, HTTPFailure>) -> Int {
    switch result {
    case .success(let response): response.status
    case .failure(let failure): failure.kind == .connect ? 503 : 0
    }
  }
}
