import PipelineCore
import Transport

extension DockerSource {
  final class Node: RunningSource {
    private struct Container {
      var id: String
      var name: String
      var image: String
      var labels: [(name: String, value: String)]
      var lines: DockerLines
      /// Lines up to this time were read before a restart.
      var resumed: Int64
      var call: (any HTTPStream)?
      var number: Int
      var epoch: PartLedgers<Int64>.Epoch
      var part: InputPart
      var isReading = false
    }

    private let parameters: DockerSource
    private var options = HTTPOptions()
    private let requests = HTTPConnections()
    /// The time of the first start, in nanoseconds since 1970: containers of which no line has been sent are read from then on. 0: not
    /// started.
    private var begun: Int64 = 0
    /// The time of the last line of each container, by the container's ID; as `eventsPart`, the time of the last event.
    private let parts = PartLedgers<Int64>()
    private static let eventsPart = ""
    private var events: (any HTTPStream)?
    private var calls: [Int: any Cancellable] = [:]
    /// The number of the last request; parts of earlier requests are ignored.
    private var next = 0
    private var eventText: [UInt8] = []
    private var containers: [String: Container] = [:]
    /// Containers whose logs have been read to the end.
    private var ended: Set<String> = []
    private lazy var session = SourceSession(
      of: self, Attempts(parameters.reconnect, most: parameters.maxReconnect),
      silence: .init(
        limit: parameters.timeout, reason: "Docker has not answered within \(parameters.timeout)", isForOpening: true)
    ) { [unowned self] number in
      open(number)
    } close: { [unowned self] in
      events?.cancel()
      events = nil
    }
    private var recheck = Wake.none
    /// The maximum size of one of Docker's events in bytes.
    private static let longestEvent = 1 << 20

    init(_ parameters: DockerSource, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(nodeContext, downstream: downstream)
      options.unixSocket = parameters.socket
      options.connections = requests
      options.timeout = parameters.timeout
    }

    override var connections: PipelineStatistics.Connections? { .init(requests) }

    override func dryRun() {
      if let fault = execution.services.http.fault {
        endPipeline(because: SignalFailure(.source, fault.message, at: nodeContext.location))
      }
    }

    override var isEndless: Bool { true }
    override func begin() {
      begun = executor.wallTime &- parameters.since.nanoseconds
      session.connect()
    }
    override func resume() { begun == 0 ? begin() : session.connect() }

    // MARK: Requests

    private func request(_ path: String) -> HTTPRequest {
      var request = HTTPRequest(url: "http://docker\(path)")
      request.options = options
      return request
    }

    /// Formats `1700000000.000000001`.
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
      return parts.isEmpty ? "" : "&filters=" + FormText.escaped("{\(parts.joined(separator: ","))}")
    }

    private func open(_ number: Int) {
      let query =
        parameters.emit == .events
        ? "since=\(Self.time(max(0, parts.taken[Self.eventsPart] ?? begun)))\(filters())"
        : "since=\(Self.time(max(0, executor.wallTime)))\(filters(#""type":["container"],"event":["start"]"#))"
      eventText = []
      ended = []
      let executor = executor
      let node = Weak(self)
      events = execution.services.http.stream(request("/events?\(query)")) { part in
        executor.postBatch { node.object?.takeEvents(part, number) }
      }
    }

    private func lost(_ reason: String) {
      // The host of the URL is a placeholder, because requests go to the socket.
      session.lost(reason.replacing("docker:80", with: parameters.socket))
    }

    override func woke(_ token: Int) {
      recheck = .none
      list()
    }

    private func listLater() {
      if !recheck.isSet { recheck = wake(after: parameters.reconnect) }
    }

    /// Sends a request with a short response. `body` runs in a turn.
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
      guard session.isCurrent(number) else { return }
      switch part {
      case .head(let response):
        guard response.status == 200 else { return lost("Docker answered \(response.status)") }
        session.opened()
        // Containers that start later are announced by events.
        if parameters.emit == .logs { list() }
      case .bytes(let bytes):
        eventText += bytes
        while let end = eventText.firstIndex(of: 0x0A), !isClosed {
          let line = Array(eventText[..<end])
          eventText.removeFirst(end + 1)
          if !line.isEmpty { takeEvent(line) }
        }
        if eventText.count > Self.longestEvent {
          return lost("an event of Docker is longer than \(Self.longestEvent) bytes")
        }
        if session.isCurrent(number) { events?.handled(bytes.count) }
      case .end(let failure):
        if failure?.kind == .unavailable, let failure {
          return endPipeline(because: SignalFailure(.source, failure.message, at: nodeContext.location))
        }
        lost(failure?.message ?? "Docker has ended the answer")
      }
    }

    private func takeEvent(_ line: [UInt8]) {
      let document = line.withUnsafeBytes { execution.json.parse(arena.copy($0), into: arena) }
      guard !document.isError else {
        return line.withUnsafeBytes { rejectInput($0, "the event of Docker is not JSON") }
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
      if let last = parts.epoch(of: Self.eventsPart).flatMap(parts.taken), nanoseconds <= last { return }
      let epoch = parts.epoch(of: Self.eventsPart) ?? parts.assign(Self.eventsPart, at: nanoseconds - 1)
      begin(epoch)
      parts.take(epoch, to: nanoseconds)
      produce(
        arena.map([
          "type": arena.string(text(member(document, "Type")) ?? ""),
          "action": arena.string(text(member(document, "Action")) ?? ""), "id": arena.string(id),
          "attributes": texts(pairs(member(actor, "Attributes"))), "time": .timestamp(wallTime: nanoseconds),
        ]), origin: makeOrigin())
    }

    /// Begins the piece of this turn.
    private func begin(_ epoch: PartLedgers<Int64>.Epoch) {
      guard let ledger = parts.ledger(epoch) else { return }
      beginPiece(of: ledger) { [self] in parts.taken(epoch) ?? ledger.taken }
    }

    private func makeOrigin(_ part: InputPart? = nil) -> Origin {
      let origin = Origin(
        source: origin.source, path: parameters.socket, receivedAt: executor.wallTime, reply: origin.reply,
        identity: origin.identity, part: part)
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
          guard items.is(.list) else { return node.lost("Docker has given no list of containers") }
          var known: Set<String> = []
          for item in items.elements {
            guard let id = node.text(node.member(item, "Id")) else { continue }
            known.insert(id)
            let isRunning = node.text(node.member(item, "State")) == "running"
            if node.containers[id] == nil, isRunning || !node.ended.contains(id) { node.inspect(id) }
          }
          // Containers that were removed must not be requested again.
          node.ended.formIntersection(known)
          for id in node.parts.names where !known.contains(id) && node.containers[id] == nil {
            if let epoch = node.parts.epoch(of: id) { node.parts.revoke(epoch) }
          }
          node.parts.forgetSettled()
        case .success(let response):
          node.lost("Docker answered \(response.status) to a question for its containers")
        case .failure(let failure): node.lost(failure.message)
        }
      }
    }

    private func inspect(_ id: String) {
      guard containers[id] == nil, !id.isEmpty else { return }
      get("/containers/\(FormText.escaped(id))/json") { node, result in
        guard case .success(let response) = result, response.status == 200 else {
          // The container may have been removed meanwhile, or Docker is too busy to answer.
          return node.listLater()
        }
        guard node.containers[id] == nil else { return }
        let document = response.body.withUnsafeBytes { bytes in
          node.execution.json.parse(node.arena.copy(bytes), into: node.arena)
        }
        let config = node.member(document, "Config")
        var name = node.text(node.member(document, "Name")) ?? ""
        if name.hasPrefix("/") { name.removeFirst() }
        let patterns = node.parameters.containers
        guard patterns.isEmpty || patterns.contains(where: { Glob.matches($0, name) }) else { return }
        let epoch = node.parts.epoch(of: id) ?? node.parts.assign(id, at: node.begun - 1)
        node.follow(
          Container(
            id: id, name: name, image: node.text(node.member(config, "Image")) ?? "",
            labels: node.pairs(node.member(config, "Labels")),
            lines: DockerLines(
              hasTerminal: node.member(config, "Tty").isTrue, limit: node.parameters.maxLine.bytes),
            resumed: node.parts.taken(epoch) ?? node.begun - 1, number: 0, epoch: epoch,
            part: InputPart(id, title: name)))
      }
    }

    private func follow(_ container: Container) {
      next += 1
      let number = next
      var container = container
      container.number = number
      let since = Self.time(max(0, container.resumed))
      let path =
        "/containers/\(FormText.escaped(container.id))/logs?follow=1&stdout=1&stderr=1&timestamps=1&since=\(since)"
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
        nodeContext.log(
          .warning, "the logs of '\(Printable.cut(container.name))' cannot be read: Docker answered \(response.status)")
        leave(id, isOver: true)
      case .bytes(let bytes):
        guard container.isReading else { return }
        var lines = container.lines
        // The array must have a single owner, so that it is not copied.
        containers[id]?.lines = DockerLines(hasTerminal: false, limit: 0)
        var found: [DockerLines.Line] = []
        let isFine = lines.take(bytes) { found.append($0) }
        containers[id]?.lines = lines
        send(found, container)
        guard !isClosed else { return }
        if !isFine {
          nodeContext.log(
            .warning, "the logs of '\(Printable.cut(container.name))' do not follow Docker's API: they are read again")
          return leave(id, isOver: false)
        }
        containers[id]?.call?.handled(bytes.count)
      case .end(let failure):
        var lines = container.lines
        var found: [DockerLines.Line] = []
        // A line that a failure has cut is read again later.
        if failure == nil, container.isReading { lines.finish { found.append($0) } }
        send(found, container)
        guard !isClosed else { return }
        leave(id, isOver: failure == nil)
      }
    }

    /// Handles the end of the response with a container's logs. `isOver`: whether the container has ended, as far as is
    /// known.
    private func leave(_ id: String, isOver: Bool) {
      if let container = containers.removeValue(forKey: id) {
        container.call?.cancel()
        partEnded(container.part)
      }
      if isOver { ended.insert(id) }
      listLater()
    }

    private func send(_ lines: [DockerLines.Line], _ container: Container) {
      guard !lines.isEmpty else { return }
      let origin = makeOrigin(container.part)
      begin(container.epoch)
      let shown = arena.map([
        "id": arena.string(container.id), "name": arena.string(container.name),
        "image": arena.string(container.image), "labels": texts(container.labels),
      ])
      for line in lines {
        if isClosed { return }
        let time = line.time ?? executor.wallTime
        if line.time != nil, time <= container.resumed { continue }
        parts.take(container.epoch, to: max(parts.taken(container.epoch) ?? 0, time))
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

    override var hasPosition: Bool { begun != 0 }

    override func save(_ state: inout StateWriter) {
      let last = state.positions == .acknowledged ? parts.acknowledged : parts.taken
      state.write("\(parameters.socket) \(parameters.emit.rawValue)")
      state.write(begun)
      state.write(each: last.sorted { $0.key < $1.key }) { state, entry in
        state.write(entry.key)
        state.write(entry.value)
      }
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      let key = try state.read(String.self)
      let begun: Int64 = try state.read()
      let isSame = key == "\(parameters.socket) \(parameters.emit.rawValue)"
      if isSame { self.begun = begun }
      for _ in 0..<(try state.count()) {
        let id = try state.read(String.self)
        let time: Int64 = try state.read()
        if isSame { parts.assign(id, at: time) }
      }
    }

    // MARK: The end

    private func disconnect() {
      session.end()
      for call in calls.values { call.cancel() }
      calls = [:]
      for container in containers.values { container.call?.cancel() }
      containers = [:]
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
