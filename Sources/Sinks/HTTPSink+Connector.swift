import PipelineCore
import Transport

extension HTTPSink {
  package func makeSink(_ nodeContext: NodeContext) -> RunningSink {
    Connector(self, nodeContext).sink(nodeContext)
  }

  /// The URL and headers that templates gave an event, as a request without body. Events with the same one may share a request.
  final class Target: DeliveryTarget {
    let message: HTTPRequest
    init(_ message: HTTPRequest) { self.message = message }

    override func isSame(as other: DeliveryTarget) -> Bool { message == (other as? Target)?.message }
    override func hash(into hasher: inout Hasher) {
      hasher.combine(message.url)
      for header in message.headers { hasher.combine(header.value) }
    }
  }

  /// The data of a request that is kept from one attempt to the next.
  final class Attempt {
    /// The body until it is sent.
    var body: [UInt8] = []
    /// The compressed body, if any.
    var compressed: [UInt8]?
    /// The index of the server that the last attempt went to.
    var server = 0
    var call: (any Cancellable)?
  }

  /// A batch is a request.
  final class Connector: DeliveryConnector {
    let traits: DeliveryTraits
    let parameters: HTTPSink
    let nodeContext: NodeContext
    private let writer: BodyWriter
    private var options = HTTPOptions()
    private let requests = HTTPConnections()
    /// Compresses bodies; used by the worker alone; nil: no compression.
    private var compressor: Compressor?
    private var worker: (any Worker)?
    var servers: Servers
    /// Evaluates the expressions; made when one of them is needed.
    lazy var frame = EventFrame.make(nodeContext)
    /// The URL or a header depends on the event.
    private let hasTargets: Bool
    /// The URL or a header depends on the request.
    private let namesRequests: Bool
    /// The value for the body of an event; nil: the event.
    private let values: MappedValues?
    /// The target of the last event, which the next one often shares.
    private var lastTarget: Target?

    init(_ parameters: HTTPSink, _ nodeContext: NodeContext, _ form: (any RequestForm)? = nil) {
      self.parameters = parameters
      self.nodeContext = nodeContext
      writer = BodyWriter(parameters, form)
      values = MappedValues(parameters.body)
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
      traits = parameters.traits
    }

    var execution: Execution { nodeContext.execution }
    var executor: Executor { nodeContext.execution.executor }
    var connections: PipelineStatistics.Connections? { .init(requests) }

    func open(_ answer: DeliveryAnswer) -> Bool {
      guard let choice = parameters.compress.choice else { return true }
      compressor = Compressor(choice.format, level: choice.level)
      worker = nodeContext.worker("compress")
      if compressor == nil { answer.put(.impossible(missing(choice.format))) }
      return compressor != nil
    }

    private func missing(_ format: Compressor.Format) -> SignalFailure {
      failure("bodies cannot be compressed: the library \(format.library) is not installed")
    }

    func dryRun() -> SignalFailure? {
      if let choice = parameters.compress.choice, Compressor(choice.format, level: choice.level) == nil {
        return missing(choice.format)
      }
      return execution.services.http.fault.map { failure($0.message) }
    }

    func failure(_ message: String, status: Int? = nil) -> SignalFailure {
      SignalFailure(
        .sink, message, at: nodeContext.location, details: status.map { [.init("status", Int64($0))] } ?? [])
    }

    func log(_ level: Services.Level, _ message: String) {
      execution.services.log(level, execution.plan.steps[nodeContext.step.number].label, message)
    }

    // MARK: Events

    func encode(_ event: Event) throws(DeliveryRefusal) -> DeliveryPiece {
      if values != nil || hasTargets, let failure = frame.load(event) {
        throw DeliveryRefusal(EventFrame.message(of: failure))
      }
      var value = event.value
      if let values {
        switch values.value(frame) {
        case .failure(let failure): throw DeliveryRefusal(failure.message)
        case .success(let made): value = made
        }
      }
      let bytes = try writer.bytes(of: event, value, wallTime: executor.wallTime).get()
      return DeliveryPiece(.bytes(bytes), bytes: bytes.count, target: hasTargets ? try target() : nil, naming: bytes)
    }

    /// Renders the URL and the headers for the loaded event; fails if event data would reach beyond its part of the URL or header.
    private func target() throws(DeliveryRefusal) -> Target {
      if namesRequests { frame.set(0, RequestVariable.unknown.value) }
      switch template(parameters.url).render(frame) {
      case .failure(let failure): throw DeliveryRefusal(failure.message)
      case .success(let message):
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

    // MARK: Requests

    func attempt(_ batch: DeliveryBatch) -> Attempt {
      if let attempt = batch.memo as? Attempt { return attempt }
      let attempt = Attempt()
      batch.memo = attempt
      return attempt
    }

    /// Makes the body, and compresses it.
    func prepare(_ batch: DeliveryBatch, _ answer: DeliveryAnswer) -> Bool {
      let attempt = attempt(batch)
      guard attempt.compressed == nil else { return true }
      switch writer.body(of: batch.items, frame, variable(batch), execution) {
      case .failure(let failure):
        answer.put(.unsendable(failure.message))
        return false
      case .success(let body): attempt.body = body
      }
      guard let compressor, let worker, attempt.body.count >= parameters.compress.least.bytes else { return true }
      nonisolated(unsafe) let unsent = attempt
      let body = attempt.body
      worker.enqueue {
        // Nil if memory for compression was lacking; the body is then sent uncompressed.
        unsent.compressed = compressor.compress(body)
        answer.put(.answered())
      }
      return false
    }

    private func variable(_ batch: DeliveryBatch) -> Value { RequestVariable.value(of: batch, in: executor.arena) }

    func deliver(_ batch: DeliveryBatch, _ answer: DeliveryAnswer) {
      let attempt = attempt(batch)
      attempt.server = servers.choose(executor.now)
      let rendered: Result<HTTPRequest, SignalFailure>
      if let target = batch.target as? Target, !namesRequests {
        rendered = .success(target.message)
      } else {
        if hasTargets, let item = batch.items.first {
          item.event.keep(in: executor.arena)
          _ = frame.load(item.event.event, wallTime: item.takenAt)
        } else {
          frame.loadNothing()
        }
        if namesRequests { frame.set(0, variable(batch)) }
        rendered = template(parameters.urls.isEmpty ? parameters.url : parameters.urls[attempt.server]).render(frame)
      }
      switch rendered {
      case .failure(let failure): answer.put(.impossible(failure))
      case .success(var message):
        message.options = options
        message.body = attempt.compressed ?? attempt.body
        attempt.body = []
        if attempt.compressed != nil {
          message.headers.append(HTTPHeader("Content-Encoding", parameters.compress.format.rawValue))
        }
        message.headers += writer.headers
        if !message.headers.contains(where: { $0.name.lowercased() == "content-type" }) {
          message.headers.append(HTTPHeader("Content-Type", writer.mediaType))
        }
        message.headers.append(HTTPHeader("Idempotency-Key", batch.key))
        attempt.call = execution.services.http.send(message) { answer.put(.replied($0)) }
      }
    }

    func withdraw(_ batch: DeliveryBatch) { (batch.memo as? Attempt)?.call?.cancel() }

    func close(handsOver: Bool) { worker = nil }
  }
}

extension HTTPSink {
  fileprivate var traits: DeliveryTraits {
    var traits = DeliveryTraits(
      DeliveryWords(
        "the server", recovered: "the server responds again", failure: "failed request",
        left: "the server had not acknowledged"))
    traits.count = batch.count
    traits.bytes = batch.bytes.bytes
    traits.age = batch.every
    traits.openBatches = batch.open
    traits.queue = queue
    traits.concurrency = maxConcurrent
    traits.order = maxConcurrent > 1 ? .none : .lane
    traits.retry = Attempts(retry.delay, most: retry.maxDelay)
    traits.mostAttempts = retry.attempts
    traits.namesBatches = true
    traits.handsOver = true
    return traits
  }
}
