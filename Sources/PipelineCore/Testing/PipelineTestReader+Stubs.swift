// The stubbed answers to HTTP requests.

extension PipelineTestReader {
  mutating func stubs(_ node: YAMLNode) -> [HTTPStub] {
    guard let items = node.items else {
      report(
        .testStep, "'http' takes a list of stubs, not \(node.kindName)", node.location,
        help: "Write - { url: \"*/search*\", reply: { json: {} } }")
      return []
    }
    return items.compactMap { stub($0) }
  }

  private static let answerKeys = ["reply", "after", "fail", "hang"]

  private mutating func stub(_ node: YAMLNode) -> HTTPStub? {
    guard let entries = node.entries else {
      report(
        .testStep, "a stub is a mapping, not \(node.kindName)", node.location,
        help: "Write { url: \"*/search*\", reply: { json: {} } }")
      return nil
    }
    guard check(keys: entries, ["url", "sink", "method", "sequence"] + Self.answerKeys, "a stub") else {
      return nil
    }
    guard node["url"] != nil || node["sink"] != nil else {
      report(
        .testStep, "the stub does not say which requests it answers", node.location,
        help: "Add 'url:', in which * stands for any text, or 'sink:' for the requests of an http sink")
      return nil
    }
    var stub = HTTPStub(url: "*", answers: [], location: node.location)
    if let url = node["url"] {
      guard let pattern = text(url, "'url'") else { return nil }
      stub.url = pattern
    }
    if let sink = node["sink"] {
      guard let name = self.sink(sink) else { return nil }
      stub.sink = name
    }
    if let method = node["method"] { stub.method = text(method, "'method'") }
    if let sequence = node["sequence"] {
      if let other = entries.first(where: { Self.answerKeys.contains($0.name) }) {
        report(
          .testStep, "a stub has 'sequence' or '\(other.name)', not both", other.key.location,
          help: "Move it into the sequence")
        return nil
      }
      guard let items = sequence.items, !items.isEmpty else {
        report(.testStep, "'sequence' takes a list of answers", sequence.location)
        return nil
      }
      stub.answers = items.compactMap { item in
        guard let entries = item.entries else {
          report(.testStep, "an answer is a mapping, not \(item.kindName)", item.location)
          return nil
        }
        guard check(keys: entries, Self.answerKeys, "an answer") else { return nil }
        return answer(item)
      }
    } else if let answer = answer(node) {
      stub.answers = [answer]
    }
    return stub.answers.isEmpty ? nil : stub
  }

  private mutating func sink(_ node: YAMLNode) -> String? {
    guard let name = text(node, "'sink'") else { return nil }
    let sinks = plan.sinks.filter(\.component.sendsRequests).map(\.name)
    if sinks.contains(name) { return name }
    report(
      .unknownSubject,
      plan.sinks.contains { $0.name == name }
        ? "the sink '\(name)' sends no requests" : "there is no sink '\(Printable.cut(name))'", node.location,
      help: known(name, sinks, "Requests are sent by"))
    return nil
  }

  private mutating func answer(_ node: YAMLNode) -> HTTPStub.Answer? {
    var answer = HTTPStub.Answer(.silence)
    if let after = node["after"] { answer.after = duration(after, "'after'") ?? .zero }
    var kinds = 0
    if let reply = node["reply"] {
      kinds += 1
      guard let response = response(reply) else { return nil }
      answer.what = .reply(response)
    }
    if let fail = node["fail"] {
      kinds += 1
      guard let reason = text(fail, "'fail'") else { return nil }
      answer.what = .failure(HTTPFailure(HTTPFailure.Kind(rawValue: reason) ?? .connect, reason))
    }
    if let hang = node["hang"], flag(hang, "'hang'") { kinds += 1 }
    guard kinds == 1 else {
      report(
        .testStep,
        kinds == 0 ? "there is no answer" : "an answer is one of 'reply', 'fail' and 'hang'", node.location,
        help: "Write 'reply: { json: ... }', 'fail: connection refused' or 'hang: true'")
      return nil
    }
    return answer
  }

  private mutating func response(_ node: YAMLNode) -> HTTPResponse? {
    guard let entries = node.entries else {
      report(
        .testStep, "'reply' takes a mapping, not \(node.kindName)", node.location,
        help: "Write 'reply: { json: ... }' or 'reply: { status: 503 }'")
      return nil
    }
    guard check(keys: entries, ["status", "headers", "json", "text"], "'reply'") else { return nil }
    var response = HTTPResponse(status: 200)
    if let status = node["status"] {
      switch status.decodeInt("'status'", in: 100...599) {
      case .success(let number): response.status = Int(number)
      case .failure(let diagnostic): diagnostics.report(diagnostic)
      }
    }
    for header in node["headers"]?.entries ?? [] {
      if let value = text(header.value, "the header '\(header.key.shown)'") {
        response.headers.append(HTTPHeader(header.name, value))
      }
    }
    if let json = node["json"] {
      if let text = node["text"] {
        report(.testStep, "a reply has 'json' or 'text', not both", text.location)
      }
      let arena = Arena()
      let buffer = OutputBuffer()
      JSONWriter.append(LiteralParameter.value(of: json, in: arena), to: buffer)
      response.body = Array(buffer.bytes)
      if response.header("Content-Type") == nil {
        response.headers.append(HTTPHeader("Content-Type", "application/json"))
      }
    } else if let text = node["text"] {
      response.body = Array((self.text(text, "'text'") ?? "").utf8)
    }
    return response
  }
}
