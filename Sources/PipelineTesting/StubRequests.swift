import PipelineCore

// Stubs of HTTP requests: `http: [ { url: "*/search*", reply: { json: {} } } ]`.

extension HTTPRequest: StubbedCall {
  typealias Reply = HTTPResponse

  static var form: StubForm {
    StubForm(
      key: "http", pattern: "url", keys: ["url", "sink", "method"], name: "a stub",
      needs: (
        ["url", "sink"], "the stub names no requests",
        "Add 'url:', in which * stands for any text, or 'sink:' for the requests of an http sink"
      ), example: "{ url: \"*/search*\", reply: { json: {} } }", reply: "json: ...", failure: "connection refused",
      first: "Add 'stubs: { http: [ { url: \"...\", reply: { ... } } ] }' to the test")
  }

  /// The sink whose requests it answers, which then runs, and the method.
  static func read(_ stub: inout Stub<HTTPRequest>, _ node: YAMLNode, _ reader: inout PipelineTestReader) -> Bool {
    if let sink = node["sink"] {
      guard let name = reader.text(sink, "'sink'") else { return false }
      let sinks = reader.plan.sinks.filter(\.component.sendsRequests).map(\.name)
      guard sinks.contains(name) else {
        reader.report(
          .unknownSubject,
          reader.plan.sinks.contains { $0.name == name }
            ? "the sink '\(name)' sends no requests" : "there is no sink '\(Printable.cut(name))'", sink.location,
          help: reader.known(name, sinks, "Requests are sent by"))
        return false
      }
      stub.receiver = name
    }
    if let given = node["method"], let method = reader.text(given, "'method'") {
      stub.only = ("\(method) ", { $0.method == method })
    }
    return true
  }

  static func reply(_ node: YAMLNode, _ reader: inout PipelineTestReader) -> HTTPResponse? {
    guard let entries = node.entries else {
      reader.report(
        .testStep, "'reply' takes a mapping, not \(node.kindName)", node.location,
        help: "Write 'reply: { json: ... }' or 'reply: { status: 503 }'")
      return nil
    }
    guard reader.check(keys: entries, ["status", "headers", "json", "text"], "'reply'") else { return nil }
    var response = HTTPResponse(status: reader.number(node, "status", in: 100...599) ?? 200)
    for header in node["headers"]?.entries ?? [] {
      if let value = reader.text(header.value, "the header '\(header.key.shown)'") {
        response.headers.append(HTTPHeader(header.name, value))
      }
    }
    response.body = reader.body(node)
    if node["json"] != nil, response.header("Content-Type") == nil {
      response.headers.append(HTTPHeader("Content-Type", "application/json"))
    }
    return response
  }

  static func failure(_ reason: String) -> HTTPFailure {
    HTTPFailure(HTTPFailure.Kind(rawValue: reason) ?? .connect, reason)
  }

  static func shown(_ stub: Stub<HTTPRequest>) -> String { "\(stub.only?.words ?? "")\(stub.pattern)" }
  static func serve(_ calls: StubCalls<HTTPRequest>, _ services: inout Services) { services.http = calls }

  var timeout: TimeSpan { options.timeout }
  var noAnswer: HTTPFailure { HTTPFailure(.timeout, "no answer within \(options.timeout)") }
  var noStub: HTTPFailure { HTTPFailure(.connect, "the test has no stub for \(method) \(Printable.cut(shownURL))") }
  var line: String { url }
  var receiver: String? { options.sink }
  func unanswered(_ at: TimeSpan) -> String {
    "no stub answers the request \(method) \(Printable.cut(shownURL, limit: 200)), made at \(at)"
  }
}

extension StubCalls: HTTPClient where Call == HTTPRequest {
  func send(_ request: HTTPRequest, _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void)
    -> any Cancellable
  { make(request, completion) }
}

extension StubCalls.Exchange where Call == HTTPRequest {
  /// `{method, url, headers?, body?}`; headers that identify the client are left out.
  var value: TestValue {
    var members: [TestValue.Member] = [
      .init(Array("method".utf8), .text(call.method)), .init(Array("url".utf8), .text(call.shownURL)),
    ]
    if !call.headers.isEmpty {
      members.append(
        .init(
          Array("headers".utf8),
          .object(
            unsorted: call.headers.map {
              let name = $0.name.lowercased()
              return .init(Array(name.utf8), .text($0.shown))
            })))
    }
    if let body = call.shownBody { members.append(.init(Array("body".utf8), TestValue(body: body))) }
    return .object(unsorted: members)
  }
}
