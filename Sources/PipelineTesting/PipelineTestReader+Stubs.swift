import PipelineCore

// The stubbed answers to HTTP requests, and the stubbed ends of programs.

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

  static let answerKeys = ["reply", "after", "fail", "hang"]

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
        .testStep, "the stub names no requests", node.location,
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
    stub.answers = answers(node, "json: ...", fails: "connection refused") { reader, reply in
      reader.response(reply)
    } failure: { reason in
      HTTPFailure(HTTPFailure.Kind(rawValue: reason) ?? .connect, reason)
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

  /// The answers of a stub: one, or a sequence.
  mutating func answers<Reply, Failure>(
    _ node: YAMLNode, _ example: String, fails: String,
    reply: (inout PipelineTestReader, YAMLNode) -> Reply?, failure: (String) -> Failure
  ) -> [Stub<Reply, Failure>.Answer] {
    guard let sequence = node["sequence"] else {
      return answer(node, example, fails: fails, reply: reply, failure: failure).map { [$0] } ?? []
    }
    if let other = node.entries?.first(where: { Self.answerKeys.contains($0.name) }) {
      report(
        .testStep, "a stub has 'sequence' or '\(other.name)', not both", other.key.location,
        help: "Move it into the sequence")
      return []
    }
    guard let items = sequence.items, !items.isEmpty else {
      report(.testStep, "'sequence' takes a list of answers", sequence.location)
      return []
    }
    return items.compactMap { item in
      guard let entries = item.entries else {
        report(.testStep, "an answer is a mapping, not \(item.kindName)", item.location)
        return nil
      }
      guard check(keys: entries, Self.answerKeys, "an answer") else { return nil }
      return answer(item, example, fails: fails, reply: reply, failure: failure)
    }
  }

  private mutating func answer<Reply, Failure>(
    _ node: YAMLNode, _ example: String, fails: String,
    reply: (inout PipelineTestReader, YAMLNode) -> Reply?, failure: (String) -> Failure
  ) -> Stub<Reply, Failure>.Answer? {
    var answer = Stub<Reply, Failure>.Answer(.silence)
    if let after = node["after"] { answer.after = duration(after, "'after'") ?? .zero }
    var kinds = 0
    if let given = node["reply"] {
      kinds += 1
      guard let made = reply(&self, given) else { return nil }
      answer.what = .reply(made)
    }
    if let fail = node["fail"] {
      kinds += 1
      guard let reason = text(fail, "'fail'") else { return nil }
      answer.what = .failure(failure(reason))
    }
    if let hang = node["hang"], flag(hang, "'hang'") { kinds += 1 }
    guard kinds == 1 else {
      report(
        .testStep,
        kinds == 0 ? "there is no answer" : "an answer is one of 'reply', 'fail' and 'hang'", node.location,
        help: "Write 'reply: { \(example) }', 'fail: \(fails)' or 'hang: true'")
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
    response.body = body(node)
    if node["json"] != nil, response.header("Content-Type") == nil {
      response.headers.append(HTTPHeader("Content-Type", "application/json"))
    }
    return response
  }

  /// The body given by `json` or `text`.
  private mutating func body(_ node: YAMLNode) -> [UInt8] {
    guard let json = node["json"] else { return node["text"].map { Array((text($0, "'text'") ?? "").utf8) } ?? [] }
    if let text = node["text"] { report(.testStep, "a reply has 'json' or 'text', not both", text.location) }
    let arena = Arena()
    let buffer = OutputBuffer()
    JSONWriter.append(LiteralParameter.value(of: json, in: arena), to: buffer)
    return Array(buffer.bytes)
  }

  // MARK: Programs

  mutating func programs(_ node: YAMLNode) -> [ProgramStub] {
    guard let items = node.items else {
      report(
        .testStep, "'exec' takes a list of stubs, not \(node.kindName)", node.location,
        help: "Write - { command: \"*/uptime*\", reply: { text: up } }")
      return []
    }
    return items.compactMap { program($0) }
  }

  private mutating func program(_ node: YAMLNode) -> ProgramStub? {
    guard let entries = node.entries else {
      report(
        .testStep, "a stub is a mapping, not \(node.kindName)", node.location,
        help: "Write { command: \"*/uptime*\", reply: { text: up } }")
      return nil
    }
    guard check(keys: entries, ["command", "sequence"] + Self.answerKeys, "a stub of a program") else { return nil }
    guard let command = node["command"] else {
      report(
        .testStep, "the stub names no program", node.location,
        help: "Add 'command:', the program and its arguments, in which * stands for any text")
      return nil
    }
    guard let pattern = text(command, "'command'") else { return nil }
    let answers = answers(node, "text: up", fails: "cannot be started") { reader, reply in
      reader.ending(reply)
    } failure: { reason in
      ProgramFailure(.start, reason)
    }
    return answers.isEmpty ? nil : ProgramStub(command: pattern, answers: answers, location: node.location)
  }

  private mutating func ending(_ node: YAMLNode) -> ProgramResult? {
    guard let entries = node.entries else {
      report(
        .testStep, "'reply' takes a mapping, not \(node.kindName)", node.location,
        help: "Write 'reply: { text: ... }' or 'reply: { exit: 1 }'")
      return nil
    }
    guard check(keys: entries, ["exit", "errors", "json", "text"], "'reply'") else { return nil }
    var result = ProgramResult()
    if let exit = node["exit"] {
      switch exit.decodeInt("'exit'", in: 0...255) {
      case .success(let number): result.exit = Int(number)
      case .failure(let diagnostic): diagnostics.report(diagnostic)
      }
    }
    if let errors = node["errors"] { result.errors = Array((text(errors, "'errors'") ?? "").utf8) }
    result.output = body(node)
    return result
  }

  // MARK: Databases

  mutating func databases(_ node: YAMLNode) -> [DatabaseStub] {
    guard let items = node.items else {
      report(
        .testStep, "'sqlite' takes a list of stubs, not \(node.kindName)", node.location,
        help: "Write - { query: \"*FROM users*\", reply: { rows: [ { id: 1 } ] } }")
      return []
    }
    return items.compactMap { database($0) }
  }

  private mutating func database(_ node: YAMLNode) -> DatabaseStub? {
    guard let entries = node.entries else {
      report(
        .testStep, "a stub is a mapping, not \(node.kindName)", node.location,
        help: "Write { query: \"*FROM users*\", reply: { rows: [ { id: 1 } ] } }")
      return nil
    }
    guard check(keys: entries, ["query", "sequence"] + Self.answerKeys, "a stub of a database") else { return nil }
    guard let query = node["query"] else {
      report(
        .testStep, "the stub names no queries", node.location,
        help: "Add 'query:', the statement, in which * stands for any text")
      return nil
    }
    guard let pattern = text(query, "'query'") else { return nil }
    let answers = answers(node, "rows: [ { id: 1 } ]", fails: "database is locked") { reader, reply in
      reader.rows(reply)
    } failure: { reason in
      DatabaseFailure(.failed, reason)
    }
    return answers.isEmpty ? nil : DatabaseStub(query: pattern, answers: answers, location: node.location)
  }

  /// Reads rows as mappings from column to value; a list or mapping is stored as JSON.
  private mutating func rows(_ node: YAMLNode) -> DatabaseRows? {
    guard let entries = node.entries, check(keys: entries, ["rows"], "'reply'"), let items = node["rows"]?.items else {
      report(
        .testStep, "'reply' of a database takes 'rows', a list", node.location,
        help: "Write 'reply: { rows: [ { id: 1 } ] }'")
      return nil
    }
    var result = DatabaseRows(columns: [], rows: [])
    let arena = Arena()
    for item in items {
      guard let members = item.entries else {
        report(.testStep, "a row is a mapping, not \(item.kindName)", item.location)
        return nil
      }
      for member in members where !result.columns.contains(member.name) { result.columns.append(member.name) }
    }
    for item in items {
      result.rows.append(
        result.columns.map { column in item[column].map { Self.stored($0, arena) } ?? .null })
    }
    return result
  }

  private static func stored(_ node: YAMLNode, _ arena: Arena) -> DatabaseValue {
    let value = LiteralParameter.value(of: node, in: arena)
    switch value.what {
    case .null: return .null
    case .bool: return .int(value.asBool ? 1 : 0)
    case .int: return .int(value.asInt)
    case .double: return .real(value.asDouble)
    case .string: return .text(Array(value.rawBytes))
    default:
      let buffer = OutputBuffer()
      JSONWriter.append(value, to: buffer)
      return .text(Array(buffer.bytes))
    }
  }
}
