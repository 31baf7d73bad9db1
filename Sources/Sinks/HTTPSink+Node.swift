import PipelineCore
import Transport

extension HTTPSink {
  public func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(self, nodeContext) }

  final class Node: RunningSink, TimerTarget {
    private let parameters: HTTPSink
    private let writer: BodyWriter
    private var options = HTTPOptions()
    private var queue: Queue
    private var share: MemoryShare
    private var pace: Pace
    /// The requests under way, by number.
    private var exchanges: [Int: Exchange] = [:]
    /// When waiting events are sent even if they fill no request.
    private var flush = Wake.none
    private var isBatchDue = false
    /// When requests may start again. Set exactly while there is a pause.
    private var resumption = Wake.none
    /// Compresses bodies; used by the worker alone; nil: no compression.
    private var compressor: Compressor?
    private var worker: (any Worker)?
    private var isFinishing = false
    private var isOver = false
    private var isInputPaused = false
    /// When requests started to fail, and how many have failed since.
    private var trouble = (since: Instant(nanoseconds: 0), failures: 0)
    /// The last response showed a wrong configuration, which has been logged.
    private var isRefused = false
    /// The receipt of the last event.
    private var receipt: Receipt?
    /// Why the sink ended before its input did.
    private var fault: String?
    /// The pipeline is about to be suspended: no request begins any more.
    private var isSuspending = false
    /// Holds the execution until the requests under way are answered, until this is due.
    private var patience = Wake.none

    private struct Exchange {
      var request: Request
      /// Nil while the body is being compressed.
      var call: (any Cancellable)?
    }

    private static let flushes = 1
    private static let resumes = 2
    private static let waitsNoLonger = 3
    /// How long a suspended pipeline waits for answers, at most.
    private static let longestWait = TimeSpan.seconds(2)
    /// The limit of waiting bytes.
    private static let largestQueue = 16 << 20
    /// Smaller bodies fit in one packet without compression.
    private static let leastCompressed = 1 << 10

    init(_ parameters: HTTPSink, _ nodeContext: NodeContext) {
      self.parameters = parameters
      writer = BodyWriter(parameters.encode, parameters.batch.form)
      queue = Queue(parameters.batch)
      share = MemoryShare(of: nodeContext.execution.services.memory)
      pace = Pace(most: parameters.maxConcurrent, parameters.retry)
      options.timeout = parameters.timeout
      options.connectTimeout = parameters.connectTimeout
      options.maxResponseBytes = 4096
      options.cutsResponse = true
      options.auth = parameters.auth?.value ?? .none
      options.tls = parameters.tls.value
      options.allowPrivate = parameters.allowPrivate
      options.sink = nodeContext.execution.plan.steps[nodeContext.step.number].owner
      super.init(nodeContext)
    }

    override func open() {
      guard let choice = parameters.compress.choice else { return }
      compressor = Compressor(choice.format, level: choice.level)
      worker = execution.services.worker("compress")
      if compressor == nil {
        let failure = SignalFailure(
          .sink, "bodies cannot be compressed: the library \(choice.format.library) is not installed",
          at: nodeContext.location
        )
        stop(with: failure)
      }
    }

    override func dryRun() {
      open()
      if !isOver, let fault = execution.services.http.fault {
        fail(because: SignalFailure(.sink, fault.message, at: nodeContext.location))
      }
    }

    // MARK: Taking events in

    override func receive(_ event: Event) {
      guard !isOver else { return }
      switch writer.bytes(of: event) {
      case .failure(let failure): reject(event, because: failure)
      case .success(let bytes):
        let receipt = take(1, joining: receipt)
        self.receipt = receipt
        queue.append(
          Item(
            body: bytes, event: OwnedEvent(event), receipt: receipt, id: deliveryID(of: event, bytes),
            since: executor.now))
        updatePressure()
      }
    }

    override func turnEnded() { sendNext() }

    override var queued: PipelineStatistics.Queue? {
      let underWay = exchanges.values.reduce(0) { $0 + $1.request.items.count }
      let oldest = (exchanges.values.lazy.compactMap(\.request.items.first?.since) + queue.oldest).min()
      return PipelineStatistics.Queue(
        events: queue.total + underWay, bytes: queue.bytes, inFlight: exchanges.count,
        oldest: oldest.map { executor.now - $0 })
    }

    private func updatePressure() {
      let (count, bytes) = (queue.count, queue.bytes)
      share.set(bytes)
      let room = execution.services.memory.room(Self.largestQueue)
      if !isInputPaused, count > parameters.queue || bytes > room {
        isInputPaused = true
        pauseInput()
      } else if isInputPaused, count <= parameters.queue / 2, bytes <= room / 2 {
        isInputPaused = false
        resumeInput()
      }
    }

    // MARK: Sending

    /// Starts as many requests as allowed.
    private func sendNext() {
      while !isOver, !isSuspending, pace.admits(beside: exchanges.count), let request = next() { begin(request) }
      if isFinishing, !isOver, exchanges.isEmpty, queue.isEmpty { over() }
      if exchanges.isEmpty { waitNoLonger() }
    }

    /// The next request, if one is due.
    private func next() -> Request? {
      if let request = queue.popRequest() { return request }
      guard queue.count > 0 else { return nil }
      guard queue.isFull || isBatchDue || isFinishing || parameters.batch.every == .zero else {
        if !flush.isSet { flush = executor.schedule(at: executor.now + parameters.batch.every, self, Self.flushes) }
        return nil
      }
      isBatchDue = false
      unset(&flush)
      defer { updatePressure() }
      return queue.makeRequest(key: newKey)
    }

    /// A hexadecimal number of 128 bits: of the names of the events or, where they have none, random.
    private func newKey(_ items: [Item]) -> String {
      let digits = Array("0123456789abcdef".utf8)
      var text: [UInt8] = []
      for number in Self.names(items) ?? [execution.services.random(), execution.services.random()] {
        for shift in stride(from: 60, through: 0, by: -4) { text.append(digits[Int(number >> UInt64(shift) & 15)]) }
      }
      return String(decoding: text, as: UTF8.self)
    }

    /// The store of the events, and a number that only a request of the same events has.
    private static func names(_ items: [Item]) -> [UInt64]? {
      guard let store = items.first?.id?.store else { return nil }
      var print = Fingerprint()
      for item in items {
        guard let id = item.id else { return nil }
        print.add(UInt64(bitPattern: id.row))
        print.add(UInt64(bitPattern: Int64(id.index)))
      }
      return [store, print.value]
    }

    private func begin(_ request: Request) {
      pace.begun(request.place)
      guard let compressor, let worker, request.compressed == nil else { return send(request) }
      let body = writer.body(of: request.items)
      guard body.count >= Self.leastCompressed else { return send(request, body) }
      let place = request.place
      exchanges[place] = Exchange(request: request)
      let executor = executor
      let node = Weak(self)
      worker.enqueue {
        let bytes = compressor.compress(body)
        executor.post { node.object?.compressed(place, bytes) }
      }
    }

    /// - Parameter bytes: Nil if there was no memory for compression; the body is then sent uncompressed.
    private func compressed(_ place: Int, _ bytes: [UInt8]?) {
      guard !isOver, var request = exchanges.removeValue(forKey: place)?.request else { return }
      request.compressed = bytes
      // Another request may have failed meanwhile.
      if !isSuspending, pace.confirms(place) { send(request) } else { queue.insert(request) }
      if isSuspending { sendNext() }
    }

    /// - Parameter body: The body, if it has already been made.
    private func send(_ request: Request, _ body: [UInt8]? = nil) {
      var request = request
      let place = request.place
      let frame = makeFrame()
      frame.loadNothing()
      let template = RequestTemplate(
        method: parameters.method.rawValue, url: parameters.url, headers: parameters.headers,
        body: TemplateParameter())
      switch template.render(frame) {
      case .failure(let failure): stop(with: failure, request)
      case .success(var message):
        message.options = options
        message.body = request.compressed ?? body ?? writer.body(of: request.items)
        if request.compressed != nil {
          message.headers.append(HTTPHeader("Content-Encoding", parameters.compress.format.rawValue))
        }
        if !message.headers.contains(where: { $0.name.lowercased() == "content-type" }) {
          message.headers.append(HTTPHeader("Content-Type", writer.mediaType))
        }
        message.headers.append(HTTPHeader("Idempotency-Key", request.key))
        let executor = executor
        let node = Weak(self)
        let call = execution.services.http.send(message) { result in
          executor.post { node.object?.answered(place, result) }
        }
        request.attempts += 1
        exchanges[place] = Exchange(request: request, call: call)
      }
    }

    // MARK: Answers

    private func answered(_ place: Int, _ result: Result<HTTPResponse, HTTPFailure>) {
      guard !isOver, let request = exchanges.removeValue(forKey: place)?.request else { return }
      switch result {
      case .failure(let failure):
        let reason = SignalFailure(.sink, failure.message, at: nodeContext.location)
        switch failure.kind {
        case .unavailable: stop(with: reason, request)
        case .badRequest, .forbidden, .redirect: refuseAll(request, reason)
        default: again(request, failure.message, after: nil)
        }
      case .success(let response):
        let text = "\(parameters.method.rawValue) answered \(response.status)"
        switch response.status {
        case 200..<300: acknowledge(request)
        case 408, 425, 429, 500...:
          again(request, text, after: Pace.retryAfter(response, wallTime: executor.wallTime))
        case 400, 413, 422: refuse(request, response)
        case 415 where request.compressed != nil:
          let format = parameters.compress.format.rawValue
          refuseAll(
            request,
            SignalFailure(
              .sink,
              "\(text), so the server does not accept bodies compressed with \(format): leave 'compress' out",
              at: nodeContext.location, details: [.init("status", Int64(response.status))]))
        default:
          refuseAll(
            request,
            SignalFailure(
              .sink, "\(text), which will not change for other events: check the URL and 'auth'",
              at: nodeContext.location, details: [.init("status", Int64(response.status))]))
        }
      }
      sendNext()
    }

    /// The request has been answered and need not be repeated.
    private func answered(_ request: Request) {
      let wasInTrouble = pace.isInTrouble
      pace.answered(request.place)
      guard wasInTrouble, !pace.isInTrouble else { return }
      let failures = trouble.failures
      let lasted = (executor.now - trouble.since).nanoseconds
      let unit: Int64 = lasted < 10_000_000_000 ? 1_000_000 : 1_000_000_000
      let span = TimeSpan(nanoseconds: (lasted + unit / 2) / unit * unit)
      log(
        .info,
        "the server responds again, after \(failures) failed request\(failures == 1 ? "" : "s") in \(span)"
      )
    }

    private func log(_ level: Services.Level, _ message: String) {
      execution.services.log(level, execution.plan.steps[nodeContext.step.number].label, message)
    }

    private func acknowledge(_ request: Request) {
      answered(request)
      isRefused = false
      countSent(request.items.count)
      countBytes(request.items.reduce(0) { $0 + $1.body.count })
      acknowledge(request.items)
    }

    private func acknowledge(_ items: [Item]) {
      var count = 0
      for (index, item) in items.enumerated() {
        count += 1
        if index + 1 < items.count, items[index + 1].receipt === item.receipt { continue }
        item.receipt.acknowledge(count)
        count = 0
      }
    }

    /// The server rejects these events: as one batch or, if there is only one, for good.
    private func refuse(_ request: Request, _ response: HTTPResponse) {
      answered(request)
      if request.items.count > 1 {
        if response.status == 413 { queue.refused(request.items.count) }
        queue.halve(request, key: newKey)
        return
      }
      let answer = String(decoding: response.body.prefix(4096), as: UTF8.self)
      reject(
        request.items, "the server refused the event with \(response.status)\(answer.isEmpty ? "" : ": \(answer)")")
    }

    /// No event can be delivered with this configuration. If the errors output has a reader, the events of the request
    /// go there and the sink continues, because the server's configuration may be the wrong one; otherwise the pipeline
    /// ends.
    private func refuseAll(_ request: Request, _ failure: SignalFailure) {
      guard errorsAreRead else { return stop(with: failure, request) }
      answered(request)
      if !isRefused {
        log(
          .warning,
          """
          \(failure.message); events go to the errors output until the server accepts some
          """)
      }
      isRefused = true
      reject(request.items, failure.message)
    }

    /// Rejects events for good; their acknowledgements now belong to this turn.
    private func reject(_ items: [Item], _ message: String) {
      for item in items {
        item.event.keep(in: executor.arena)
        reject(item.event.event, message, on: item.receipt)
      }
    }

    /// - Parameter after: The pause that the server asks for.
    private func again(_ request: Request, _ reason: String, after: TimeSpan?) {
      var request = request
      request.failure = reason
      let isLast = parameters.retry.attempts.map { request.attempts >= $0 } ?? false
      let giving = "\(reason); gave up after \(request.attempts) attempt\(request.attempts == 1 ? "" : "s")"
      if isLast, !errorsAreRead {
        stop(with: SignalFailure(.sink, giving, at: nodeContext.location), request)
        return
      }
      if !pace.isInTrouble {
        trouble = (since: executor.now, failures: 0)
        log(.warning, isLast ? giving : "\(reason); trying again")
      }
      trouble.failures += 1
      let pause = pace.pause(after: request.attempts, random: execution.services.random())
      pace.failed(request.place, executor.now, pause: after ?? pause)
      if !isLast {
        countRetry()
        queue.insert(request)
      }
      unset(&resumption)
      if let instant = pace.resumesAt { resumption = executor.schedule(at: instant, self, Self.resumes) }
      if isLast { reject(request.items, giving) }
    }

    func woke(_ token: Int) {
      switch token {
      case Self.resumes:
        resumption = .none
        pace.resume()
      case Self.waitsNoLonger:
        patience = .none
        execution.release()
        return
      default:
        flush = .none
        isBatchDue = true
      }
      sendNext()
    }

    // MARK: The end

    override func finish() {
      isFinishing = true
      sendNext()
    }

    /// - Parameter request: The request concerned, if it is no longer under way.
    private func stop(with failure: SignalFailure, _ request: Request? = nil) {
      fault = failure.message
      if var request {
        request.failure = failure.message
        queue.insert(request)
      }
      fail(because: failure)
      cancel()
    }

    private func over() {
      _ = close()
      drained()
    }

    override var awaitsAnswers: Bool { !isOver && !(exchanges.isEmpty && queue.isEmpty) }

    // MARK: State

    override func save(_ state: inout StateWriter) {
      queue.save(to: &state, beside: exchanges.values.map(\.request), newKey: newKey)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      var restored = Queue(parameters.batch)
      var lost = 0
      do throws(StateFault) {
        try restored.restore(from: &state) { event in
          guard case .success(let bytes) = writer.bytes(of: event.event) else {
            lost += 1
            return nil
          }
          return Item(body: bytes, event: event, receipt: takeBack(1), since: executor.now)
        }
      } catch {
        for (item, _) in restored.removeAll(beside: []) { item.receipt.acknowledge(1) }
        throw error
      }
      queue = restored
      countUndelivered(lost)
      if lost > 0 {
        log(
          .error,
          "'encode' cannot write \(lost == 1 ? "an event that was" : "\(lost) events that were") waiting to be sent")
      }
      updatePressure()
    }

    /// Requests under way are answered soon, or repeated by the next execution.
    override func willSuspend() {
      isSuspending = true
      guard !isOver, !exchanges.isEmpty else { return }
      execution.hold()
      patience = executor.schedule(at: executor.now + Self.longestWait, self, Self.waitsNoLonger)
    }

    private func waitNoLonger() {
      guard patience.isSet else { return }
      unset(&patience)
      execution.release()
    }

    override func suspend() {
      for (item, _) in close() {
        // What the state does not hold, its sender sends again.
        item.receipt.acknowledge(1, item.receipt.notifiesSender ? .failed("the pipeline was suspended") : .acknowledged)
      }
    }

    /// Releases everything. Returns the unacknowledged events, in order, and why the request of each has failed.
    private func close() -> [(item: Item, failure: String?)] {
      guard !isOver else { return [] }
      isOver = true
      unset(&flush)
      unset(&resumption)
      for exchange in exchanges.values { exchange.call?.cancel() }
      worker = nil
      let left = queue.removeAll(beside: exchanges.values.map(\.request))
      exchanges = [:]
      waitNoLonger()
      if isInputPaused {
        isInputPaused = false
        resumeInput()
      }
      return left
    }

    private static let unacknowledged = "when the pipeline ended"

    override func rejectRemaining() -> Bool {
      let left = close()
      let lost = left.filter { !$0.item.receipt.notifiesSender }
      for (item, failure) in left where item.receipt.notifiesSender { fail(item, failure) }
      reportUndelivered(left.count - lost.count)
      for (item, failure) in lost {
        let reason = failure ?? fault
        // The request that ended the pipeline has been answered.
        let isAnswered = failure != nil && failure == fault
        let unacknowledged = "the server had not acknowledged the event \(Self.unacknowledged)"
        reject([item], isAnswered ? fault ?? "" : reason.map { "\(unacknowledged): \($0)" } ?? unacknowledged)
      }
      return !lost.isEmpty
    }

    override func cancel() {
      let left = close()
      for (item, failure) in left { fail(item, failure) }
      reportUndelivered(left.count)
      countUndelivered(left.count { !$0.item.receipt.notifiesSender })
    }

    private func fail(_ item: Item, _ failure: String?) {
      item.receipt.acknowledge(
        1, .failed(failure ?? fault ?? "the server had not acknowledged it \(Self.unacknowledged)"))
    }

    private func reportUndelivered(_ left: Int) {
      guard left > 0 else { return }
      log(.warning, "the server had not acknowledged \(left) event\(left == 1 ? "" : "s") \(Self.unacknowledged)")
    }

    private func unset(_ timer: inout Wake) {
      if timer.isSet { executor.unschedule(timer) }
      timer = .none
    }
  }
}
