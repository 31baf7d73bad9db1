import PipelineCore
import Transport

extension HTTPSink.Node {
  // MARK: Answers

  func answered(_ place: Int, _ answer: HTTPSink.AnswerWay) {
    guard !isOver, exchanges[place]?.answer === answer, let result = answer.take() else { return }
    guard let request = exchanges.removeValue(forKey: place)?.request else { return }
    switch result {
    case .failure(let failure):
      let reason = SignalFailure(.sink, failure.message, at: nodeContext.location)
      switch failure.kind {
      case .unavailable: stop(with: reason, request)
      case .badRequest, .forbidden, .redirect: refuseAll(request, reason)
      default: again(request, failure.message, after: nil)
      }
    case .success(let response):
      let text = "\(call(request)) answered \(response.status)"
      switch meaning(of: response, request.items.count) {
      case .meaning(let meaning): act(on: meaning, request, response)
      case .unknown(let value):
        refuseAll(
          request,
          SignalFailure(
            .sink, "\(text), and 'answer' made '\(value)' of it, which is no meaning of an answer",
            at: nodeContext.location, details: [.init("status", Int64(response.status))]))
      case .byStatus: act(onStatusOf: response, request, text)
      }
    }
    sendNext()
  }

  /// Acts on the meaning that `answer` gives to an answer.
  private func act(on meaning: HTTPSink.Meaning, _ request: HTTPSink.Request, _ response: HTTPResponse) {
    let body = Printable.cut(String(decoding: response.body.prefix(1000), as: UTF8.self), limit: 300)
    let text = "\(call(request)) answered \(response.status)\(body.isEmpty ? "" : ": \(body)")"
    switch meaning {
    case .ok: acknowledge(request)
    case .retry: again(request, text, after: pause(of: response, request.items.count))
    case .refuse: refuse(request, response)
    case .partial where parameters.partial.isGiven: settle(request, response)
    case .partial:
      refuseAll(
        request,
        SignalFailure(
          .sink, "'answer' says 'partial' of \(text), and it is not known which events were taken: add 'partial'",
          at: nodeContext.location, details: [.init("status", Int64(response.status))]))
    case .fail:
      refuseAll(
        request,
        SignalFailure(.sink, text, at: nodeContext.location, details: [.init("status", Int64(response.status))]))
    }
  }

  /// Acts on the status of an answer.
  private func act(onStatusOf response: HTTPResponse, _ request: HTTPSink.Request, _ text: String) {
    switch response.status {
    case 200..<300 where parameters.partial.isGiven: settle(request, response)
    case 200..<300: acknowledge(request)
    case 408, 425, 429, 500...:
      again(request, text, after: pause(of: response, request.items.count))
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

  /// The method, and the server if there are several, for messages.
  func call(_ request: HTTPSink.Request) -> String {
    let method = parameters.method.rawValue
    return parameters.urls.isEmpty ? method : "\(method) \(parameters.shownServer(request.server))"
  }

  /// Determines which events of a request the server has accepted.
  func settle(_ request: HTTPSink.Request, _ response: HTTPResponse) {
    switch verdicts(of: request, response) {
    case .unclear(let reason):
      answered(request)
      reject(
        request.items, "the server answered \(response.status), and it is not clear which events it took: \(reason)")
    case .each(let verdicts):
      let items = zip(request.items, verdicts)
      let accepted = items.filter { $1 == .accepted }.map(\.0)
      let later = items.filter { $1 == .again }.map(\.0)
      if later.isEmpty { answered(request) }
      accepts()
      countSent(accepted.count)
      countBytes(accepted.reduce(0) { $0 + $1.body.count })
      acknowledge(accepted)
      for case (let item, .refused(let reason)) in items { reject([item], reason) }
      guard !later.isEmpty else { return }
      let rest = queue.makeRequest(of: later, from: request, key: newKey)
      let reason =
        "\(call(request)) answered \(response.status), and \(Printable.count(later.count, "event")) must be sent again"
      again(rest, reason, after: pause(of: response, request.items.count), isPartial: true)
    }
  }

  /// The request has been answered and need not be repeated.
  func answered(_ request: HTTPSink.Request) {
    if servers.succeeded(request.server, executor.now), servers.count > 1 {
      log(.info, "\(parameters.shownServer(request.server)) takes requests again")
    }
    let wasInTrouble = pace.isInTrouble
    pace.answered(request.place)
    guard wasInTrouble, !pace.isInTrouble else { return }
    trouble.ends()
    let failures = failing.failures
    let lasted = (executor.now - failing.since).nanoseconds
    let unit: Int64 = lasted < 10_000_000_000 ? 1_000_000 : 1_000_000_000
    let span = TimeSpan(nanoseconds: (lasted + unit / 2) / unit * unit)
    log(
      .info,
      "the server responds again, after \(failures) failed request\(failures == 1 ? "" : "s") in \(span)"
    )
  }

  func log(_ level: Services.Level, _ message: String) {
    execution.services.log(level, execution.plan.steps[nodeContext.step.number].label, message)
  }

  func acknowledge(_ request: HTTPSink.Request) {
    answered(request)
    accepts()
    countSent(request.items.count)
    countBytes(request.items.reduce(0) { $0 + $1.body.count })
    acknowledge(request.items)
  }

  func acknowledge(_ items: [HTTPSink.Item]) {
    var count = 0
    for (index, item) in items.enumerated() {
      count += 1
      if index + 1 < items.count, items[index + 1].receipt === item.receipt { continue }
      item.receipt.acknowledge(count)
      count = 0
    }
  }

  /// The server has accepted events.
  private func accepts() {
    guard isRefused else { return }
    isRefused = false
    trouble.ends()
  }

  /// The server rejects these events: as one batch or, if there is only one, for good.
  func refuse(_ request: HTTPSink.Request, _ response: HTTPResponse) {
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
  func refuseAll(_ request: HTTPSink.Request, _ failure: SignalFailure) {
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
    trouble.begins(failure.message)
    reject(request.items, failure.message)
  }

  /// Rejects events for good; their acknowledgements now belong to this turn.
  func reject(_ items: [HTTPSink.Item], _ message: String) {
    for item in items {
      item.event.keep(in: executor.arena)
      reject(item.event.event, message, on: item.receipt)
    }
  }

  /// - Parameter after: The pause that the server asks for.
  /// - Parameter isPartial: The server has answered, and has taken other events of the request.
  func again(_ request: HTTPSink.Request, _ reason: String, after: TimeSpan?, isPartial: Bool = false) {
    var request = request
    request.failure = reason
    let isLast = parameters.retry.attempts.map { request.attempts >= $0 } ?? false
    let giving = "\(reason); gave up after \(request.attempts) attempt\(request.attempts == 1 ? "" : "s")"
    if isLast, !errorsAreRead {
      stop(with: SignalFailure(.sink, giving, at: nodeContext.location), request)
      return
    }
    let closed = isPartial ? nil : servers.failed(request.server, executor.now, after: after)
    if let closed, closed.isNew, servers.count > 1 || parameters.circuitBreaker != nil {
      let whom = servers.count > 1 ? "\(parameters.shownServer(request.server)) gets" : "the server gets"
      log(.warning, "\(reason); \(whom) no request for \(closed.pause)")
    }
    if servers.count > 1, !isPartial, !isLast, !pace.isInTrouble, servers.hasOpen(executor.now) {
      // Another server may take it at once.
      countRetry()
      queue.insert(request)
      return
    }
    trouble.begins(reason)
    if !pace.isInTrouble {
      failing = (since: executor.now, failures: 0)
      log(.warning, isLast ? giving : "\(reason); trying again")
    }
    failing.failures += 1
    let pause = pace.pause(after: request.attempts, random: execution.services.random())
    pace.failed(
      request.place, executor.now, pause: isPartial ? after ?? pause : wait(closed?.pause, usual: after ?? pause))
    if !isLast {
      countRetry()
      queue.insert(request)
    }
    unset(&resumption)
    if let instant = pace.resumesAt { resumption = executor.schedule(at: instant, self, Self.resumes) }
    if isLast { reject(request.items, giving) }
  }

  /// How long no request starts after one has failed. `closed`: how long its server gets none.
  func wait(_ closed: TimeSpan?, usual: TimeSpan) -> TimeSpan {
    if servers.count == 1 { return closed ?? usual }
    return servers.hasOpen(executor.now) ? .zero : servers.opensAt - executor.now
  }
}
