import PipelineCore
import Transport

extension HTTPSink.Connector {
  /// The outcome of an answer, or of its absence, for the events of a request.
  func outcome(of reply: any Sendable, to batch: DeliveryBatch) -> DeliveryOutcome? {
    guard let reply = reply as? Result<HTTPResponse, HTTPFailure> else { return nil }
    switch reply {
    case .failure(let reason):
      switch reason.kind {
      case .unavailable: return .impossible(failure(reason.message))
      case .badRequest, .forbidden, .redirect: return broken(batch, failure(reason.message))
      default: return again(batch, reason.message, after: nil)
      }
    case .success(let response):
      let text = "\(call(batch)) answered \(response.status)"
      switch meaning(of: response, batch.items.count) {
      case .meaning(let meaning): return outcome(of: meaning, batch, response)
      case .unknown(let value):
        return broken(
          batch,
          failure(
            "\(text), and 'answer' gave '\(value)', which is not a meaning of an answer", status: response.status))
      case .byStatus: return outcome(ofStatusOf: response, batch, text)
      }
    }
  }

  /// Decides by the result of the parameter `answer` for a response.
  private func outcome(of meaning: HTTPSink.Meaning, _ batch: DeliveryBatch, _ response: HTTPResponse)
    -> DeliveryOutcome
  {
    let body = Printable.cut(String(decoding: response.body.prefix(1000), as: UTF8.self), limit: 300)
    let text = "\(call(batch)) answered \(response.status)\(body.isEmpty ? "" : ": \(body)")"
    switch meaning {
    case .ok: return taken(batch)
    case .retry: return again(batch, text, after: pause(of: response, batch.items.count))
    case .refuse: return refused(batch, response)
    case .partial where parameters.partial.isGiven: return settled(batch, response)
    case .partial:
      return broken(
        batch,
        failure(
          "'answer' says 'partial' of \(text), and it is not known which events were taken: add 'partial'",
          status: response.status))
    case .fail: return broken(batch, failure(text, status: response.status))
    }
  }

  private func outcome(ofStatusOf response: HTTPResponse, _ batch: DeliveryBatch, _ text: String) -> DeliveryOutcome {
    switch response.status {
    case 200..<300 where parameters.partial.isGiven: return settled(batch, response)
    case 200..<300: return taken(batch)
    case 501, 505:
      return broken(batch, failure("\(text): the server does not know such requests", status: response.status))
    case 408, 425, 429, 500...: return again(batch, text, after: pause(of: response, batch.items.count))
    case 400, 413, 422: return refused(batch, response)
    case 415 where attempt(batch).compressed != nil:
      let format = parameters.compress.format.rawValue
      return broken(
        batch,
        failure(
          "\(text), so the server does not accept bodies compressed with \(format): leave 'compress' out",
          status: response.status))
    default:
      return broken(
        batch,
        failure(
          "\(text)\(parameters.urls.isEmpty ? " at \(parameters.shownServer(0))" : ""), which will not change for other events: check the URL and 'auth'",
          status: response.status))
    }
  }

  /// The method, and the server if there are several, for messages.
  private func call(_ batch: DeliveryBatch) -> String {
    let method = parameters.method.rawValue
    return parameters.urls.isEmpty ? method : "\(method) \(parameters.shownServer(server(batch)))"
  }

  /// The new version of the pipeline may have fewer servers.
  private func server(_ batch: DeliveryBatch) -> Int { min(attempt(batch).server, servers.count - 1) }

  /// The server has answered; no retry is needed.
  private func answered(_ batch: DeliveryBatch) {
    if servers.succeeded(server(batch), executor.now), servers.count > 1 {
      log(.info, "\(parameters.shownServer(server(batch))) accepts requests again")
    }
  }

  private func taken(_ batch: DeliveryBatch) -> DeliveryOutcome {
    answered(batch)
    return .answered()
  }

  private func broken(_ batch: DeliveryBatch, _ failure: SignalFailure) -> DeliveryOutcome {
    answered(batch)
    return .broken(failure)
  }

  /// Which events of a request the server has accepted.
  private func settled(_ batch: DeliveryBatch, _ response: HTTPResponse) -> DeliveryOutcome {
    switch verdicts(of: batch, response) {
    case .unclear(let reason):
      answered(batch)
      let text = "the server answered \(response.status), and it is not clear which events it took: \(reason)"
      return .answered(refused: batch.items.indices.map { .init($0, text) })
    case .each(let verdicts):
      var again: [Int] = []
      var refused: [DeliveryOutcome.Refused] = []
      for (index, verdict) in verdicts.enumerated() {
        switch verdict {
        case .accepted: break
        case .again: again.append(index)
        case .refused(let reason): refused.append(.init(index, reason))
        }
      }
      if again.isEmpty { answered(batch) }
      return .answered(
        again: again, refused: refused,
        reason:
          "\(call(batch)) answered \(response.status), and \(Printable.count(again.count, "event")) must be sent again",
        after: again.isEmpty ? nil : pause(of: response, batch.items.count))
    }
  }

  /// The server rejects these events: as one batch or, if there is only one, for good.
  private func refused(_ batch: DeliveryBatch, _ response: HTTPResponse) -> DeliveryOutcome {
    answered(batch)
    let answer = String(decoding: response.body.prefix(4096), as: UTF8.self)
    return .refused(
      "the server refused the event with \(response.status)\(answer.isEmpty ? "" : ": \(answer)")",
      isTooLarge: response.status == 413)
  }

  /// - Parameter after: The pause that the server asks for.
  private func again(_ batch: DeliveryBatch, _ reason: String, after: TimeSpan?) -> DeliveryOutcome {
    let now = executor.now
    let closed = servers.failed(server(batch), now, after: after)
    if let closed, closed.isNew, servers.count > 1 || parameters.circuitBreaker != nil {
      let whom = servers.count > 1 ? "\(parameters.shownServer(server(batch))) gets" : "the server gets"
      log(.warning, "\(reason); \(whom) no request for \(closed.pause)")
    }
    guard servers.count > 1 else { return .down(reason, after: closed?.pause ?? after, usesAttempt: true) }
    // Another server may take it at once.
    let hasOther = servers.hasOpen(now)
    return .down(reason, after: hasOther ? .zero : servers.opensAt - now, usesAttempt: true, hasOther: hasOther)
  }
}
