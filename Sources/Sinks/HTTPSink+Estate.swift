import PipelineCore
import Synchronization
import Transport

extension HTTPSink {
  /// The way of an answer to the node that has its request now: in a reload that may be another one than the node that sent it.
  final class AnswerWay: Sendable {
    private struct State {
      var result: Result<HTTPResponse, HTTPFailure>?
      var notify: (@Sendable () -> Void)?
    }
    private let state = Mutex(State())

    /// The answer has come. From any thread.
    func put(_ result: Result<HTTPResponse, HTTPFailure>) {
      let notify = state.withLock { state in
        state.result = result
        return state.notify
      }
      notify?()
    }

    /// Calls `notify`, in place of an earlier closure, when the answer comes; at once if the answer has come and was not taken.
    func lead(_ notify: @escaping @Sendable () -> Void) {
      let hasCome = state.withLock { state in
        state.notify = notify
        return state.result != nil
      }
      if hasCome { notify() }
    }

    /// The answer, once; nil: it has been taken, or has not come.
    func take() -> Result<HTTPResponse, HTTPFailure>? { state.withLock { $0.result.take() } }
  }

  /// What a sink leaves to its next version in a reload: the queue as it is, with the senders that wait for answers and the requests under way.
  /// No request is repeated, and the reload waits for none. Used in turns of one execution after the other.
  final class Estate: @unchecked Sendable {
    /// Estates that no version takes fail: their senders send again.
    static let all = KeptItems<Estate> { $0.discard() }

    struct Item {
      var item: HTTPSink.Item
      /// Nil: the event is part of the saved state, and gets its receipt from there.
      var receipt: LeftReceipt?
    }
    struct Request {
      var request: HTTPSink.Request
      var items: [Item]
      /// The exchange under way; nil: the request waits.
      var exchange: Node.Exchange?
    }
    let requests: [Request]
    let events: [Item]
    /// The rows of the outbox that hold these events.
    let rows: [GivenRows]

    init(_ requests: [Request], _ events: [Item], _ rows: [GivenRows]) {
      self.requests = requests
      self.events = events
      self.rows = rows
    }

    private func discard() { for request in requests { request.exchange?.call?.cancel() } }
  }
}

extension HTTPSink.Node {
  typealias Estate = HTTPSink.Estate

  /// Leaves everything that is not delivered to the next execution.
  func leaveEstate() {
    var left: [ObjectIdentifier: LeftReceipt] = [:]
    func leave(_ item: HTTPSink.Item) -> Estate.Item {
      guard item.receipt.notifiesSender else {
        item.receipt.acknowledge(1)
        return Estate.Item(item: item, receipt: nil)
      }
      let receipt = ObjectIdentifier(item.receipt)
      if left[receipt] == nil { left[receipt] = item.receipt.leave() }
      return Estate.Item(item: item, receipt: left[receipt])
    }
    // One whose body is being compressed is not under way yet.
    let underWay = exchanges.filter { $0.value.call != nil }
    let requests = queue.all(beside: exchanges.values.map(\.request)).map { request in
      Estate.Request(request: request, items: request.items.map(leave), exchange: underWay[request.place])
    }
    let estate = Estate(requests, queue.events.map(leave), leftRows)
    exchanges = [:]
    _ = close()
    // Where no reload is under way any more, the senders learn of the failure when the estate is freed.
    if !Estate.all.keep([estate], for: execution.name(of: nodeContext.step)) {
      for exchange in underWay.values { exchange.call?.cancel() }
    }
  }

  /// Takes over what the execution before has left, in place of what the saved state has of it.
  func takeEstate() {
    awaitsEstate = false
    var known = restoredReceipts[...]
    restoredReceipts = []
    // What this sink does not take is discarded at the end of the reload.
    guard !isOver else { return }
    let estates = Estate.all.take(execution.name(of: nodeContext.step))
    guard !estates.isEmpty else { return }
    let new = queue.removeAll(beside: []).dropFirst(known.count { $0 != nil })
    var taken: [ObjectIdentifier: Receipt] = [:]
    func bytes(_ item: HTTPSink.Item) -> Int { item.body.count + item.event.byteCount + Self.bytesOfItem }
    func receipt(_ item: Estate.Item) -> Receipt {
      guard let left = item.receipt else {
        return known.popFirst().flatMap { $0 } ?? takeBack(1, bytes: bytes(item.item))
      }
      if let receipt = taken[ObjectIdentifier(left)] { return receipt }
      let receipt = take(left) ?? takeBack(left.events, bytes: left.bytes)
      taken[ObjectIdentifier(left)] = receipt
      return receipt
    }
    func adopt(_ left: Estate.Item, isUnderWay: Bool = false) -> HTTPSink.Item? {
      var item = left.item
      item.receipt = receipt(left)
      if isUnderWay { return item }
      item.event.keep(in: executor.arena)
      // The new version may write the event in another way.
      switch prepare(item.event.event) {
      case .success((let bytes, let target)):
        item.body = bytes
        item.target = target
        return item
      case .failure(let failure):
        reject(item.event.event, failure.message, on: item.receipt)
        return nil
      }
    }
    for estate in estates {
      take(estate.rows)
      for left in estate.requests {
        let items = left.items.compactMap { adopt($0, isUnderWay: left.exchange != nil) }
        guard !items.isEmpty else { continue }
        var request = queue.makeRequest(of: items, like: left.request)
        request.server = min(request.server, servers.count - 1)
        guard let exchange = left.exchange, let answer = exchange.answer else {
          queue.insert(request)
          continue
        }
        exchanges[request.place] = Exchange(request: request, call: exchange.call, answer: answer)
        lead(answer, to: request.place)
      }
      for left in estate.events { if let item = adopt(left) { queue.append(item) } }
    }
    for receipt in known { receipt?.acknowledge(1) }
    for (item, _) in new { queue.append(item) }
    updatePressure()
  }
}
