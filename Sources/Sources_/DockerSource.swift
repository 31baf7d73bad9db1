public import PipelineCore
import Transport

/// `docker`: the logs of containers, or the events of Docker, over its socket.
public struct DockerSource: SourceComponent {
  enum Emission: String, ChoiceParameter {
    case logs, events
    var help: String {
      switch self {
      case .logs: "an event for each line that a container writes: `{ container, stream, message, time }`"
      case .events: "what happens to containers, images, networks and volumes: `{ type, action, id, attributes, time }`"
      }
    }
  }

  var socket = "/var/run/docker.sock"
  var emit = Emission.logs
  var containers: [String] = []
  var labels: [String] = []
  var since = TimeSpan.zero
  var maxLine = ByteSize(1 << 20)
  var reconnect = TimeSpan.seconds(1)
  var maxReconnect = TimeSpan.seconds(30)
  var timeout = TimeSpan.seconds(30)

  public init() {}

  public static let spec = ComponentSpec<DockerSource>(
    "docker",
    summary: "Reads the logs of Docker's containers, or Docker's events, over its socket.",
    details: """
      With `emit: logs`, all containers are read that `containers` and `labels` select, those that start later too: `container` has their `id`, `name`, `image` and `labels`, \
      `stream` is `stdout` or `stderr` (with a terminal all is `stdout`), and `time` is when Docker has read the line. A line that Docker has cut in parts is one line again; a line of more than `maxLine` bytes goes to the errors output. \
      What is no UTF-8 is replaced. A container whose logging driver cannot be read is left out, with a warning.

      The position is the time of the last line of each container, or of the last event: with a state directory, a restart goes on behind it, also for containers that have ended meanwhile, as long as they are there. \
      Of a line with exactly the same time, in nanoseconds, as the last one that was read before a new connection, it cannot be known whether it was read: it is left out. Lines that Docker's log rotation has removed are gone.

      If the connection ends, it is made again, after `reconnect`, which doubles with each failure in a row up to `maxReconnect`. Whoever can connect to the socket controls the machine: \
      rxd only sends GET requests, but the user that runs it needs the permission. Podman answers the same requests on its own socket. \
      This source is tested against a small server that gives the answers of Docker's documentation (API 1.24 and later), not against a running Docker.
      """,
    parameters: [
      .init("socket", \.socket, primary: true, "The path of Docker's socket."),
      .init("emit", \.emit, "What becomes an event."),
      .init("containers", \.containers, "Names of containers, with `*` for any text; by default all."),
      .init("labels", \.labels, "Labels that containers must have, each `NAME` or `NAME=VALUE`."),
      .init(
        "since", \.since, range: 0...Int64.max,
        "How far back the first start reads; by default only what comes after it."),
      .init("maxLine", \.maxLine, "The longest line."),
      .init("reconnect", \.reconnect, range: 1_000_000...Int64.max, "The first pause before a new connection."),
      .init("maxReconnect", \.maxReconnect, range: 1_000_000...Int64.max, "The longest pause."),
      .init("timeout", \.timeout, range: 1_000_000...Int64.max, "How long an answer may take that is no stream."),
    ],
    examples: [
      .snippet("what all containers write", "docker: /var/run/docker.sock"),
      .snippet(
        "of some, and of the last hour too", "docker: { containers: ['shop-*'], labels: [env=prod], since: 1h }"),
      .pipeline(
        "containers that end with an error",
        """
        name: deaths
        sources:
          docker: { docker: { emit: events } }
        signals:
          deaths:
            from: docker
            chain:
              - filter: event.type == 'container' && event.action == 'die' && event.attributes.?exitCode.orValue('0') != '0'
              - map: { name: "event.attributes.?name.orValue('')", exit: event.attributes.exitCode }
        sinks:
          out: { from: deaths, stdout: {} }
        tests:
          - name: one of two
            inputs:
              docker:
                marbles: "ab|"
                values:
                  a: { type: container, action: die, id: x, attributes: { name: web, exitCode: "0" }, time: "2026-01-02T03:04:05Z" }
                  b: { type: container, action: die, id: y, attributes: { name: db, exitCode: "137" }, time: "2026-01-02T03:04:05Z" }
            expect:
              deaths: { marbles: "-b|", values: { b: { name: db, exit: "137" } } }
        """),
    ],
    edges: EdgeCases(
      empty: "Nothing is sent until a container writes.",
      error: """
        A socket that is not there or does not answer is tried again, and a warning says so once. If libcurl is not installed, the pipeline ends.
        """,
      completion: "Only when the pipeline is stopped.", disposal: "Closes the connections."),
    memory: "The parts of one line for each container, and the position of each container.",
    persistence: .position(version: 1),
    lateness: .always("a line keeps its time") { _, _ in nil },
    knownAs: ["Vector docker_logs", "Telegraf docker_log", "Fluent Bit docker events", "Logspout"],
    useCases: [
      .init(.reading, "read the logs of containers", "docker: { containers: ['shop-*'] }"),
      .init(.reading, "know when containers start and end", "docker: { emit: events }"),
    ],
    seeAlso: ["journald", "file", "exec"])

  public func validate(_ context: inout DecodingContext) {
    if !socket.hasPrefix("/") || socket.utf8.count > 107 || socket.utf8.contains(0) {
      context.badValue(
        at: context.location(of: "socket"), "'socket' of 'docker' must be an absolute path of at most 107 bytes",
        help: "Write a path such as /var/run/docker.sock")
    }
    if reconnect > maxReconnect {
      context.badValue(
        at: context.location(of: "reconnect"), "'reconnect' is \(reconnect), longer than 'maxReconnect'",
        .conflictingParameters, help: "Give 'maxReconnect' a value of at least \(reconnect)")
    }
    if emit == .events, !containers.isEmpty {
      context.badValue(
        at: context.location(of: "containers"),
        "'containers' selects logs, and 'emit: events' gives what happens to all things",
        .conflictingParameters, help: "Put 'filter: event.attributes.name == ...' behind it")
    }
  }

  public var outputType: EventType {
    let texts = ExpressionType.map(.string, .string)
    switch emit {
    case .logs:
      let container = ExpressionType.object(
        fields: [
          .init("id", .string), .init("name", .string), .init("image", .string), .init("labels", texts),
        ], open: false)
      var stream = ExpressionType.Field("stream", .string)
      stream.choices = ["stdout", "stderr"]
      return EventType(
        .object(
          fields: [.init("container", container), stream, .init("message", .string), .init("time", .timestamp)],
          open: false))
    case .events:
      return EventType(
        .object(
          fields: [
            .init("type", .string), .init("action", .string), .init("id", .string), .init("attributes", texts),
            .init("time", .timestamp),
          ], open: false))
    }
  }

  public var recovery: SourceRecovery { .position }
  public func threads(_ limit: Int?) -> String? {
    "received by the thread of all HTTP requests, taken apart on the pipeline thread"
  }

  public func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }

  private final class Node: RunningSource {
    /// How far it has read.
    private struct Place: Sendable, Equatable {
      /// Where the first start began, and of what is not in `last` all is read from, in nanoseconds since 1970; 0: it has not started.
      var begin: Int64 = 0
      /// The last time of each container by its ID, or of all events by "".
      var last: [String: Int64] = [:]
    }

    private struct Container {
      var id: String
      var name: String
      var image: String
      var labels: [(name: String, value: String)]
      var lines: DockerLines
      /// Lines up to this time have been read before.
      var resumed: Int64
      var call: (any HTTPStream)?
      var number: Int
      var isReading = false
    }

    private let parameters: DockerSource
    private var options = HTTPOptions()
    private var place = Place()
    private let ledger = PositionLedger(Place())
    private var events: (any HTTPStream)?
    private var calls: [Int: any Cancellable] = [:]
    /// Numbers requests: what comes of an earlier connection is of no interest.
    private var next = 0
    private var eventsNumber = -1
    private var eventText: [UInt8] = []
    private var containers: [String: Container] = [:]
    /// Containers whose logs have been read to their end.
    private var ended: Set<String> = []
    private var failures = 0
    private var timer = Wake.none
    private var recheck = Wake.none
    private static let reconnects = 1
    private static let rechecks = 2
    /// The longest event of Docker's own.
    private static let longestEvent = 1 << 20

    init(_ parameters: DockerSource, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(nodeContext, downstream: downstream)
      options.unixSocket = parameters.socket
      options.timeout = parameters.timeout
    }

    override func dryRun() {
      if let fault = execution.services.http.fault {
        endPipeline(because: SignalFailure(.source, fault.message, at: nodeContext.location))
      }
    }

    override var isEndless: Bool { true }
    override func begin() {
      place.begin = executor.wallTime &- parameters.since.nanoseconds
      ledger.reset(to: place)
      connect()
    }
    override func resume() { place.begin == 0 ? begin() : connect() }

    private func log(_ level: Services.Level, _ text: String) {
      execution.services.log(level, execution.plan.steps[nodeContext.step.number].label, text)
    }

    // MARK: Requests

    private func request(_ path: String) -> HTTPRequest {
      var request = HTTPRequest(url: "http://docker\(path)")
      request.options = options
      return request
    }

    private static func escaped(_ text: String) -> String {
      let digits = Array("0123456789ABCDEF".utf8)
      var bytes: [UInt8] = []
      for byte in text.utf8 {
        let isPlain = (byte | 0x20) &- 0x61 < 26 || byte &- 0x30 < 10 || byte == 0x2D || byte == 0x2E || byte == 0x5F
        if isPlain { bytes.append(byte) } else { bytes += [0x25, digits[Int(byte >> 4)], digits[Int(byte & 15)]] }
      }
      return String(decoding: bytes, as: UTF8.self)
    }

    /// `1700000000.000000001`
    private static func time(_ nanoseconds: Int64) -> String {
      let rest = String(nanoseconds % 1_000_000_000)
      return "\(nanoseconds / 1_000_000_000).\(String(repeating: "0", count: 9 - rest.utf8.count))\(rest)"
    }

    private func filters(_ more: String = "") -> String {
      var parts = more.isEmpty ? [] : [more]
      if !parameters.labels.isEmpty {
        let buffer = OutputBuffer()
        _ = JSONWriter.append(arena.list(parameters.labels.map { arena.string($0) }), to: buffer)
        parts.append("\"label\":\(String(decoding: buffer.bytes, as: UTF8.self))")
      }
      return parts.isEmpty ? "" : "&filters=" + Self.escaped("{\(parts.joined(separator: ","))}")
    }

    private func connect() {
      guard !isClosed else { return }
      cancelWake(&timer)
      let query =
        parameters.emit == .events
        ? "since=\(Self.time(max(0, place.last[""] ?? place.begin)))\(filters())"
        : "since=\(Self.time(max(0, executor.wallTime)))\(filters(#""type":["container"],"event":["start"]"#))"
      next += 1
      eventsNumber = next
      eventText = []
      let number = next
      let executor = executor
      let node = Weak(self)
      events = execution.services.http.stream(request("/events?\(query)")) { part in
        executor.postBatch { node.object?.takeEvents(part, number) }
      }
      // Nothing comes of the events before the first one. Those of containers that have been started meanwhile will.
      ended = []
      if parameters.emit == .logs { list() }
    }

    private func isConnected() {
      if failures > 0 { log(.info, "connected again") }
      failures = 0
    }

    private func connectAgain(_ reason: String) {
      eventsNumber = -1
      events?.cancel()
      events = nil
      failures += 1
      // The URL has a host that nobody looks up.
      let reason = reason.replacing("docker:80", with: parameters.socket)
      if failures == 1 { log(.warning, "\(reason); connecting again") }
      var span = parameters.reconnect
      for _ in 1..<max(1, min(failures, 40)) where span < parameters.maxReconnect { span = span.scaled(by: 2) }
      let share = Double(execution.services.random() >> 11) / Double(1 << 53)
      cancelWake(&timer)
      timer = wake(after: min(span, parameters.maxReconnect).scaled(by: 0.5 + share / 2), Self.reconnects)
    }

    override func woke(_ token: Int) {
      if token == Self.rechecks {
        recheck = .none
        list()
      } else {
        timer = .none
        connect()
      }
    }

    /// Asks for something small. `body` runs in a turn.
    private func get(_ path: String, _ body: @escaping (Node, Result<HTTPResponse, HTTPFailure>) -> Void) {
      next += 1
      let number = next
      let executor = executor
      let node = Weak(self)
      nonisolated(unsafe) let body = body
      calls[number] = execution.services.http.send(request(path)) { result in
        executor.post {
          guard let node = node.object, node.calls.removeValue(forKey: number) != nil, !node.isClosed else { return }
          body(node, result)
        }
      }
    }

    // MARK: Docker's events

    private func takeEvents(_ part: HTTPStreamPart, _ number: Int) {
      guard number == eventsNumber, !isClosed else { return }
      switch part {
      case .head(let response):
        guard response.status == 200 else { return connectAgain("Docker answered \(response.status)") }
        if parameters.emit == .events { isConnected() }
      case .bytes(let bytes):
        eventText += bytes
        while let end = eventText.firstIndex(of: 0x0A), !isClosed {
          let line = Array(eventText[..<end])
          eventText.removeFirst(end + 1)
          if !line.isEmpty { takeEvent(line) }
        }
        if eventText.count > Self.longestEvent {
          return connectAgain("an event of Docker is longer than \(Self.longestEvent) bytes")
        }
        if number == eventsNumber { events?.handled(bytes.count) }
      case .end(let failure):
        if failure?.kind == .unavailable, let failure {
          return endPipeline(because: SignalFailure(.source, failure.message, at: nodeContext.location))
        }
        connectAgain(failure?.message ?? "Docker has ended the answer")
      }
    }

    private func takeEvent(_ line: [UInt8]) {
      let document = line.withUnsafeBytes { execution.json.parse(arena.copy($0), into: arena) }
      guard !document.isError else {
        return line.withUnsafeBytes { rejectInput($0, "the event of Docker is no JSON") }
      }
      let actor = member(document, "Actor")
      let id = text(member(actor, "ID")) ?? ""
      guard parameters.emit == .events else {
        if text(member(document, "Action")) == "start" {
          ended.remove(id)
          inspect(id)
        }
        return
      }
      let time = member(document, "timeNano")
      let nanoseconds = time.is(.int) ? time.asInt : 0
      if let last = place.last[""], nanoseconds <= last { return }
      beginPiece(of: ledger) { [self] in place }
      place.last[""] = nanoseconds
      produce(
        arena.map([
          "type": arena.string(text(member(document, "Type")) ?? ""),
          "action": arena.string(text(member(document, "Action")) ?? ""), "id": arena.string(id),
          "attributes": texts(pairs(member(actor, "Attributes"))), "time": .timestamp(wallTime: nanoseconds),
        ]), origin: makeOrigin())
    }

    private func makeOrigin() -> Origin {
      let origin = Origin(
        source: origin.source, path: parameters.socket, receivedAt: executor.wallTime, reply: origin.reply,
        identity: origin.identity)
      arena.keep(origin)
      return origin
    }

    // MARK: Containers

    private func list() {
      get("/containers/json?all=1\(filters())") { node, result in
        switch result {
        case .success(let response) where response.status == 200:
          let found = response.body.withUnsafeBytes { bytes in
            node.execution.json.parse(node.arena.copy(bytes), into: node.arena)
          }
          let items = node.execution.json.expand(found, into: node.arena)
          guard items.is(.list) else { return node.connectAgain("Docker has given no list of containers") }
          node.isConnected()
          var known: Set<String> = []
          for item in items.elements {
            guard let id = node.text(node.member(item, "Id")) else { continue }
            known.insert(id)
            let isRunning = node.text(node.member(item, "State")) == "running"
            if node.containers[id] == nil, isRunning || !node.ended.contains(id) { node.inspect(id) }
          }
          // Nobody asks for those that are gone any more.
          node.ended.formIntersection(known)
          node.place.last = node.place.last.filter { known.contains($0.key) || node.containers[$0.key] != nil }
        case .success(let response):
          node.connectAgain("Docker answered \(response.status) to a question for its containers")
        case .failure(let failure): node.connectAgain(failure.message)
        }
      }
    }

    private func inspect(_ id: String) {
      guard containers[id] == nil, !id.isEmpty else { return }
      get("/containers/\(Self.escaped(id))/json") { node, result in
        guard case .success(let response) = result, response.status == 200, node.containers[id] == nil else { return }
        let document = response.body.withUnsafeBytes { bytes in
          node.execution.json.parse(node.arena.copy(bytes), into: node.arena)
        }
        let config = node.member(document, "Config")
        var name = node.text(node.member(document, "Name")) ?? ""
        if name.hasPrefix("/") { name.removeFirst() }
        let patterns = node.parameters.containers
        guard patterns.isEmpty || patterns.contains(where: { Glob.matches($0, name) }) else { return }
        node.follow(
          Container(
            id: id, name: name, image: node.text(node.member(config, "Image")) ?? "",
            labels: node.pairs(node.member(config, "Labels")),
            lines: DockerLines(
              hasTerminal: node.member(config, "Tty").isTrue, limit: node.parameters.maxLine.bytes),
            resumed: node.place.last[id] ?? node.place.begin - 1, number: 0))
      }
    }

    private func follow(_ container: Container) {
      next += 1
      let number = next
      var container = container
      container.number = number
      let since = Self.time(max(0, container.resumed))
      let path = "/containers/\(Self.escaped(container.id))/logs?follow=1&stdout=1&stderr=1&timestamps=1&since=\(since)"
      let executor = executor
      let node = Weak(self)
      let id = container.id
      containers[id] = container
      let call = execution.services.http.stream(request(path)) { part in
        executor.postBatch { node.object?.takeLogs(part, id, number) }
      }
      containers[id]?.call = call
    }

    private func takeLogs(_ part: HTTPStreamPart, _ id: String, _ number: Int) {
      guard !isClosed, let container = containers[id], container.number == number else { return }
      switch part {
      case .head(let response):
        containers[id]?.isReading = response.status == 200
        guard response.status != 200 else { return }
        log(
          .warning, "the logs of '\(Printable.cut(container.name))' cannot be read: Docker answered \(response.status)")
        leave(id, isOver: true)
      case .bytes(let bytes):
        guard container.isReading else { return }
        var lines = container.lines
        // Only one owner, so that nothing is copied.
        containers[id]?.lines = DockerLines(hasTerminal: false, limit: 0)
        var found: [DockerLines.Line] = []
        let isFine = lines.take(bytes) { found.append($0) }
        containers[id]?.lines = lines
        send(found, container)
        guard !isClosed else { return }
        if !isFine {
          log(
            .warning, "the logs of '\(Printable.cut(container.name))' are not as Docker's API says: they are read anew")
          return leave(id, isOver: false)
        }
        containers[id]?.call?.handled(bytes.count)
      case .end(let failure):
        var lines = container.lines
        var found: [DockerLines.Line] = []
        // A line that a failure has cut is read again.
        if failure == nil, container.isReading { lines.finish { found.append($0) } }
        send(found, container)
        guard !isClosed else { return }
        leave(id, isOver: failure == nil)
      }
    }

    /// The answer with a container's logs is over; `isOver`: the container has ended, as far as that is known.
    private func leave(_ id: String, isOver: Bool) {
      containers.removeValue(forKey: id)?.call?.cancel()
      if isOver { ended.insert(id) }
      if !recheck.isSet { recheck = wake(after: parameters.reconnect, Self.rechecks) }
    }

    private func send(_ lines: [DockerLines.Line], _ container: Container) {
      guard !lines.isEmpty else { return }
      let origin = makeOrigin()
      beginPiece(of: ledger) { [self] in place }
      let shown = arena.map([
        "id": arena.string(container.id), "name": arena.string(container.name),
        "image": arena.string(container.image), "labels": texts(container.labels),
      ])
      for line in lines {
        if isClosed { return }
        let time = line.time ?? executor.wallTime
        if line.time != nil, time <= container.resumed { continue }
        place.last[container.id] = max(place.last[container.id] ?? 0, time)
        if let length = line.cut {
          line.text.withUnsafeBytes {
            rejectInput(
              $0, "the line has \(length) bytes, more than the \(parameters.maxLine.bytes) that 'maxLine' allows",
              origin: origin)
          }
          finishEvent()
          continue
        }
        produce(
          arena.map([
            "container": shown, "stream": line.isError ? .literal("stderr") : .literal("stdout"),
            "message": arena.string(String(decoding: line.text, as: UTF8.self)), "time": .timestamp(wallTime: time),
          ]), origin: origin)
      }
    }

    // MARK: JSON

    private func member(_ value: Value, _ name: StaticString) -> Value {
      let map = execution.json.expand(value.unwrapped, into: arena)
      guard map.is(.map) else { return .null }
      let wanted = UnsafeRawBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount)
      for entry in map.entries where entry.key.rawBytes.elementsEqual(wanted) {
        return execution.json.expand(entry.value.unwrapped, into: arena)
      }
      return .null
    }

    private func text(_ value: Value) -> String? {
      guard value.is(.string) else { return nil }
      return String(decoding: JSONParser.unescape(value, into: arena).rawBytes, as: UTF8.self)
    }

    private func pairs(_ value: Value) -> [(name: String, value: String)] {
      guard value.is(.map) else { return [] }
      return value.entries.compactMap { entry in
        guard let name = text(entry.key), let content = text(execution.json.expand(entry.value.unwrapped, into: arena))
        else { return nil }
        return (name, content)
      }
    }

    private func texts(_ pairs: [(name: String, value: String)]) -> Value {
      arena.map(pairs.map { (key: arena.string($0.name), value: arena.string($0.value)) })
    }

    // MARK: State

    override var hasPosition: Bool { place.begin != 0 }

    override func save(_ state: inout StateWriter) {
      let place = state.positions == .acknowledged ? ledger.acknowledged : place
      state.write("\(parameters.socket) \(parameters.emit.rawValue)")
      state.write(place.begin)
      state.write(each: place.last.sorted { $0.key < $1.key }) { state, entry in
        state.write(entry.key)
        state.write(entry.value)
      }
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      let key = try state.read(String.self)
      var place = Place()
      place.begin = try state.read()
      for _ in 0..<(try state.count()) {
        let id = try state.read(String.self)
        let time: Int64 = try state.read()
        place.last[id] = time
      }
      if key == "\(parameters.socket) \(parameters.emit.rawValue)" { self.place = place }
      ledger.reset(to: self.place)
    }

    // MARK: The end

    private func disconnect() {
      eventsNumber = -1
      events?.cancel()
      events = nil
      for call in calls.values { call.cancel() }
      calls = [:]
      for container in containers.values { container.call?.cancel() }
      containers = [:]
      cancelWake(&timer)
      cancelWake(&recheck)
    }

    override func suspend() { disconnect() }

    override func drain() {
      disconnect()
      finish()
    }

    override func stop() { disconnect() }
  }
}
