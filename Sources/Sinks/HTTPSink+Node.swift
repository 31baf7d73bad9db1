import PipelineCore
import Transport

extension HTTPSink {
  package func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(self, nodeContext) }

  final class Node: RunningSink, TimerTarget {
    let parameters: HTTPSink
    private let writer: BodyWriter
    private var options = HTTPOptions()
    private let requests = HTTPConnections()
    var queue: Queue
    var pace: Pace
    /// The requests under way, by number.
    var exchanges: [Int: Exchange] = [:]
    /// When waiting events are sent even if they fill no request.
    private var flush = Wake.none
    private var flushAt: Instant?
    /// When requests may start again. Set exactly while there is a pause.
    var resumption = Wake.none
    /// Compresses bodies; used by the worker alone; nil: no compression.
    private var compressor: Compressor?
    private var worker: (any Worker)?
    private var isFinishing = false
    var isOver = false
    /// When requests started to fail, and how many have failed since.
    var failing = (since: Instant(nanoseconds: 0), failures: 0)
    /// The last response showed a wrong configuration, which has been logged.
    var isRefused = false
    var servers: Servers
    /// Evaluates the expressions; made when one of them is needed.
    lazy var frame = makeFrame()
    /// The URL or a header depends on the event.
    private let hasTargets: Bool
    /// The URL or a header depends on the request.
    private let namesRequests: Bool
    /// The value for the body of an event; nil: the event.
    private let values: MappedValues?
    /// How many requests have been tried.
    private var triedRequests = 0
    /// The target of the last event, which the next one often shares.
    private var lastTarget: Target?
    /// The receipt of the last event.
    private var receipt: Receipt?
    /// Why the sink ended before its input did.
    private var fault: String?
    /// Whether the pipeline is about to be suspended, so that no request begins.
    private var isSuspending = false
    /// The next execution gets everything that is not delivered (``Estate``).
    private var isHandingOver = false
    /// Nothing is sent before what the execution before has left is taken over.
    var awaitsEstate = false
    /// The receipts of the events of the saved state, in its order; nil: no request can be made of the event any more.
    var restoredReceipts: [Receipt?] = []
    /// The pipeline ends while a sender may wait: no batch waits for more events.
    private var isHurried = false
    /// Holds the execution until the requests under way are answered, until this is due.
    private var patience = Wake.none

    struct Exchange {
      var request: Request
      /// Nil while the body is being compressed.
      var call: (any Cancellable)?
      var answer: AnswerWay?
    }

    private static let flushes = 1
    static let resumes = 2
    private static let waitsNoLonger = 3
    /// How long a suspended pipeline waits for answers, at most.
    private static let longestWait = TimeSpan.seconds(2)
    /// The memory of a waiting event beside its bytes.
    static let bytesOfItem = 320

    init(_ parameters: HTTPSink, _ nodeContext: NodeContext, _ form: (any RequestForm)? = nil) {
      self.parameters = parameters
      writer = BodyWriter(parameters, form)
      values = MappedValues(parameters.body)
      queue = Queue(parameters.batch)
      pace = Pace(most: parameters.maxConcurrent, parameters.retry)
      servers = Servers(parameters.urls.count, parameters.balance, parameters.circuitBreaker)
      hasTargets = parameters.hasTargets
      namesRequests = parameters.namesRequests
      options.timeout = parameters.timeout
      options.connectTimeout = parameters.connectTimeout
      options.maxResponseBytes = parameters.readsAnswers ? 16 << 20 : 4096
      options.cutsResponse = true
      options.auth = parameters.auth?.value ?? .none
      options.tls = parameters.tls.value
      options.allowPrivate = parameters.allowPrivate
      options.proxy = parameters.proxy
      options.connections = requests
      options.sink = nodeContext.execution.plan.steps[nodeContext.step.number].owner
      super.init(nodeContext)
    }

    override func open() {
      if !execution.isDryRun, Estate.all.has(execution.name(of: nodeContext.step)) {
        awaitsEstate = true
        execution.whenBegun { [self] in takeEstate() }
      } else {
        restoredReceipts = []
      }
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
      switch prepare(event) {
      case .failure(let failure): reject(event, failure.message)
      case .success((let bytes, let target)):
        let id = deliveryID(of: event, bytes)
        let event = OwnedEvent(event)
        let receipt = take(1, bytes: bytes.count + event.byteCount + Self.bytesOfItem, joining: receipt)
        if isHandingOver, receipt !== self.receipt { receipt.announceHandover() }
        self.receipt = receipt
        queue.append(
          Item(
            body: bytes, event: event, receipt: receipt, target: target, id: id,
            since: executor.now, takenAt: executor.wallTime))
        updatePressure()
      }
    }

    /// The encoded form of an event until its request is sent, and its target.
    func prepare(_ event: Event) -> Result<([UInt8], Target?), FormFailure> {
      if values != nil || hasTargets, let failure = frame.load(event) {
        return .failure(FormFailure(message: EventFrame.message(of: failure)))
      }
      var value = event.value
      if let values {
        switch values.value(frame) {
        case .failure(let failure): return .failure(FormFailure(message: failure.message))
        case .success(let made): value = made
        }
      }
      return writer.bytes(of: event, value, wallTime: executor.wallTime).flatMap { bytes in
        guard hasTargets else { return .success((bytes, nil)) }
        return makeTarget().map { (bytes, $0) }.mapError { FormFailure(message: $0.message) }
      }
    }

    /// Renders the URL and the headers for the loaded event; fails if its data would leave their places.
    private func makeTarget() -> Result<Target, SignalFailure> {
      if namesRequests { frame.set(0, RequestVariable.unknown.value) }
      return template(parameters.url).render(frame).map { message in
        if let lastTarget, lastTarget.message == message { return lastTarget }
        let target = Target(message)
        lastTarget = target
        return target
      }
    }

    private func template(_ url: TemplateParameter) -> RequestTemplate {
      RequestTemplate(
        method: parameters.method.rawValue, url: url, headers: parameters.headers, body: TemplateParameter())
    }

    override func turnEnded() { sendNext() }

    override var connections: PipelineStatistics.Connections? { .init(requests) }

    override var queued: PipelineStatistics.Queue? {
      let underWay = exchanges.values.reduce(0) { $0 + $1.request.items.count }
      let oldest = (exchanges.values.lazy.compactMap(\.request.items.first?.since) + queue.oldest).min()
      return PipelineStatistics.Queue(
        events: queue.total + underWay, bytes: queue.bytes, inFlight: exchanges.count,
        oldest: oldest.map { executor.now - $0 })
    }

    func updatePressure() { bound(queue.count, parameters.queue) }

    // MARK: Sending

    /// Starts as many requests as allowed.
    func sendNext() {
      while !isOver, !isSuspending, !awaitsEstate, pace.admits(beside: exchanges.count), let request = next() {
        begin(request)
      }
      if isFinishing, !isOver, exchanges.isEmpty, queue.isEmpty { over() }
      if exchanges.isEmpty { waitNoLonger() }
    }

    /// The next request, if one is due.
    private func next() -> Request? {
      if let request = queue.popRequest() { return request }
      guard let oldest = queue.oldestEvent else { return nil }
      let due = oldest + parameters.batch.every
      // While the input waits, nothing more comes for the batches that are open.
      guard queue.isFull || due <= executor.now || isFinishing || waitsForRoom || isHurried else {
        if flushAt != due {
          unset(&flush)
          flushAt = due
          flush = executor.schedule(at: due, self, Self.flushes)
        }
        return nil
      }
      let request = queue.makeRequest(key: newKey)
      updatePressure()
      return request
    }

    /// A hexadecimal number of 128 bits: of the names of the events or, where they have none, random.
    func newKey(_ items: [Item]) -> String {
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
      var request = request
      if request.number == 0 {
        triedRequests += 1
        request.number = triedRequests
        request.time = executor.wallTime
      }
      if request.compressed != nil {
        pace.begun(request.place)
        return send(request, [])
      }
      let body: [UInt8]
      let variable = RequestVariable.value(of: request, in: executor.arena)
      switch writer.body(of: request.items, frame, variable, execution) {
      case .failure(let failure): return giveUp(request, failure)
      case .success(let made): body = made
      }
      pace.begun(request.place)
      guard let compressor, let worker, body.count >= parameters.compress.least.bytes else {
        return send(request, body)
      }
      let place = request.place
      exchanges[place] = Exchange(request: request)
      let executor = executor
      let node = Weak(self)
      worker.enqueue {
        let bytes = compressor.compress(body)
        executor.post { node.object?.compressed(place, bytes, body) }
      }
    }

    /// No body can be made of these events: of several, one may be the cause.
    private func giveUp(_ request: Request, _ failure: FormFailure) {
      if request.items.count > 1 {
        queue.halve(request, key: newKey)
      } else {
        reject(request.items, failure.message)
      }
    }

    /// - Parameter bytes: Nil if there was no memory for compression; the body is then sent uncompressed.
    private func compressed(_ place: Int, _ bytes: [UInt8]?, _ body: [UInt8]) {
      guard !isOver, var request = exchanges.removeValue(forKey: place)?.request else { return }
      request.compressed = bytes
      // Another request may have failed meanwhile.
      if !isSuspending, pace.confirms(place) { send(request, body) } else { queue.insert(request) }
      if isSuspending { sendNext() }
    }

    /// - Parameter body: The body, unless it is compressed.
    private func send(_ request: Request, _ body: [UInt8]) {
      var request = request
      let place = request.place
      request.server = servers.choose(executor.now)
      let rendered: Result<HTTPRequest, SignalFailure>
      if let target = request.items.first?.target, !namesRequests {
        rendered = .success(target.message)
      } else {
        if hasTargets, let item = request.items.first {
          item.event.keep(in: executor.arena)
          _ = frame.load(item.event.event, wallTime: item.takenAt)
        } else {
          frame.loadNothing()
        }
        if namesRequests { frame.set(0, RequestVariable.value(of: request, in: executor.arena)) }
        rendered = template(parameters.urls.isEmpty ? parameters.url : parameters.urls[request.server]).render(frame)
      }
      switch rendered {
      case .failure(let failure): stop(with: failure, request)
      case .success(var message):
        message.options = options
        message.body = request.compressed ?? body
        if request.compressed != nil {
          message.headers.append(HTTPHeader("Content-Encoding", parameters.compress.format.rawValue))
        }
        message.headers += writer.headers
        if !message.headers.contains(where: { $0.name.lowercased() == "content-type" }) {
          message.headers.append(HTTPHeader("Content-Type", writer.mediaType))
        }
        message.headers.append(HTTPHeader("Idempotency-Key", request.key))
        let answer = AnswerWay()
        lead(answer, to: place)
        let call = execution.services.http.send(message) { answer.put($0) }
        request.attempts += 1
        exchanges[place] = Exchange(request: request, call: call, answer: answer)
      }
    }

    func lead(_ answer: AnswerWay, to place: Int) {
      let executor = executor
      let node = Weak(self)
      answer.lead { executor.post { node.object?.answered(place, answer) } }
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
        flushAt = nil
      }
      sendNext()
    }

    // MARK: The end

    override func finish() {
      isFinishing = true
      sendNext()
    }

    /// - Parameter request: The request concerned, if it is no longer under way.
    func stop(with failure: SignalFailure, _ request: Request? = nil) {
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

    override var keepsNothing: Bool { exchanges.isEmpty && queue.isEmpty }

    override func save(_ state: inout StateWriter) {
      queue.save(to: &state, beside: exchanges.values.map(\.request), newKey: newKey)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      var restored = Queue(parameters.batch)
      var lost = 0
      do throws(StateFault) {
        try restored.restore(from: &state) { event in
          guard case .success((let bytes, let target)) = prepare(event.event) else {
            lost += 1
            restoredReceipts.append(nil)
            return nil
          }
          let receipt = takeBack(1, bytes: bytes.count + event.byteCount + Self.bytesOfItem)
          restoredReceipts.append(receipt)
          return Item(
            body: bytes, event: event, receipt: receipt, target: target, since: executor.now, takenAt: executor.wallTime
          )
        }
      } catch {
        restoredReceipts = []
        for (item, _) in restored.removeAll(beside: []) { item.receipt.acknowledge(1) }
        throw error
      }
      queue = restored
      countUndelivered(lost)
      if lost > 0 {
        log(
          .error,
          "\(hasTargets ? "there is no request for" : "'encode' cannot write") \(lost == 1 ? "an event that was" : "\(lost) events that were") waiting to be sent"
        )
      }
      updatePressure()
    }

    /// In a reload the next execution gets the queue as it is. Otherwise requests under way are answered soon, or repeated by the next
    /// execution; senders that wait for an answer must get it now.
    override func willSuspend() {
      guard !isOver, !handOverQueue() else { return }
      isHurried = queue.hasSender
      isSuspending = !isHurried
      guard !exchanges.isEmpty || isHurried else { return }
      execution.hold()
      patience = executor.schedule(at: executor.now + Self.longestWait, self, Self.waitsNoLonger)
      sendNext()
    }

    override func handOverQueue() -> Bool {
      guard !isOver, KeptListeners.isKeeping, execution.successor != nil else { return false }
      isSuspending = true
      isHandingOver = true
      var announced: Set<ObjectIdentifier> = []
      for receipt in queue.receipts(beside: exchanges.values.map(\.request))
      where announced.insert(ObjectIdentifier(receipt)).inserted {
        receipt.announceHandover()
      }
      return true
    }

    override func hurry() {
      guard !isHurried, !isSuspending else { return }
      isHurried = true
      sendNext()
    }

    private func waitNoLonger() {
      guard patience.isSet, !isHurried || queue.isEmpty else { return }
      unset(&patience)
      execution.release()
    }

    override func suspend() {
      if isHandingOver { return leaveEstate() }
      for (item, _) in close() {
        // Events that the state does not hold are sent again by their sender.
        item.receipt.acknowledge(1, item.receipt.notifiesSender ? .failed("the pipeline was suspended") : .acknowledged)
      }
    }

    /// Releases everything. Returns the unacknowledged events, in order, and why the request of each has failed.
    func close() -> [(item: Item, failure: String?)] {
      guard !isOver else { return [] }
      isOver = true
      unset(&flush)
      unset(&resumption)
      for exchange in exchanges.values { exchange.call?.cancel() }
      worker = nil
      let left = queue.removeAll(beside: exchanges.values.map(\.request))
      exchanges = [:]
      waitNoLonger()
      updatePressure()
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
      // A receipt knows its senders until it is acknowledged.
      let lost = left.count { !$0.item.receipt.notifiesSender }
      for (item, failure) in left { fail(item, failure) }
      reportUndelivered(left.count)
      countUndelivered(lost)
    }

    private func fail(_ item: Item, _ failure: String?) {
      item.receipt.acknowledge(
        1, .failed(failure ?? fault ?? "the server had not acknowledged it \(Self.unacknowledged)"))
    }

    private func reportUndelivered(_ left: Int) {
      // What is in the outbox is delivered later.
      guard left > 0, !isRepeatedLater else { return }
      log(.warning, "the server had not acknowledged \(left) event\(left == 1 ? "" : "s") \(Self.unacknowledged)")
    }

    func unset(_ timer: inout Wake) {
      if timer.isSet { executor.unschedule(timer) }
      timer = .none
    }
  }
}
