import DequeModule
import PipelineCore

extension HTTPSink {
  /// A waiting event: its bytes, and the event in case it is rejected.
  struct Item {
    var body: [UInt8]
    var event: OwnedEvent
    /// The receipt on which the sink took it.
    var receipt: Receipt
    /// The target, if the URL or a header depends on the event; nil: the common one.
    var target: Target?
    /// Its identity in every delivery, also after a restart; nil: it has none.
    var id: DeliveryID?
    /// When the sink took it.
    var since: Instant
    /// The time of day then, in nanoseconds since 1970.
    var takenAt: Int64
    /// Its number among all events of the queue.
    var order = 0
  }

  /// The URL and headers that templates gave an event, as a request without body. Events with the same one may share a request.
  final class Target: Sendable, Hashable {
    let message: HTTPRequest
    init(_ message: HTTPRequest) { self.message = message }

    static func == (a: Target, b: Target) -> Bool { a === b || a.message == b.message }
    func hash(into hasher: inout Hasher) {
      hasher.combine(message.url)
      for header in message.headers { hasher.combine(header.value) }
    }
  }

  /// The events that wait for a request to the same place, which go together.
  final class OpenBatch {
    let target: Target?
    var events = Deque<Item>()
    var bytes = 0
    init(_ target: Target?) { self.target = target }
  }

  /// Events of one request, from when they leave the queue until the server has answered for them.
  struct Request {
    /// The number of its first event among all events of the sink, from 0. No two requests share an event.
    let place: Int
    let items: [Item]
    /// 32 hexadecimal digits, the same in each attempt. Where its events have names, the same whenever the same events are sent in
    /// one request.
    let key: String
    /// The number of attempts.
    var attempts = 0
    /// Why the last attempt failed; nil: none has failed.
    var failure: String?
    /// The compressed body, if any.
    var compressed: [UInt8]?
    /// The index of the server that the last attempt went to.
    var server = 0
    /// Counted from 1 in the order in which requests are first tried; 0: it has not been tried.
    var number = 0
    /// The time of day of its first attempt, in nanoseconds since 1970.
    var time: Int64 = 0
  }

  /// The queue: requests to be repeated, or halves of a rejected one, followed by further events.
  struct Queue {
    /// The requests in order, at most as many as may be under way, and their halves.
    private(set) var requests = Deque<Request>()
    /// One for each place, in the order of the oldest event.
    private var batches: [OpenBatch] = []
    private var byTarget: [Target?: OpenBatch] = [:]
    /// Those that fill a request, in the order in which they became full.
    private var full = Deque<OpenBatch>()
    /// The number of the next request's first event.
    private var place = 0
    private var order = 0
    /// The events, and their bytes, that are in no request yet.
    private(set) var count = 0
    private(set) var bytes = 0
    /// The most events in a request; a response `413` reduces it.
    private var largest: Int
    private let largestBytes: Int
    private let mostBatches: Int

    init(_ batch: Batch) {
      largest = batch.count
      largestBytes = batch.bytes.bytes
      mostBatches = batch.open
    }

    /// The number of all events.
    var total: Int { count + requests.reduce(0) { $0 + $1.items.count } }
    /// When the oldest came, of those that no request has and of each waiting request.
    var oldest: [Instant] { [oldestEvent].compactMap { $0 } + requests.compactMap(\.items.first?.since) }
    var oldestEvent: Instant? { batches.first?.events.first?.since }
    var isEmpty: Bool { requests.isEmpty && count == 0 }
    /// Whether a request should be made now: the events for one place fill it, or there are too many places.
    var isFull: Bool { !full.isEmpty || batches.count > mostBatches }
    /// The events that are in no request yet, in order.
    var events: [Item] { batches.flatMap(\.events).sorted { $0.order < $1.order } }

    private func isFull(_ batch: OpenBatch) -> Bool { batch.events.count >= largest || batch.bytes >= largestBytes }

    mutating func append(_ item: Item) {
      var item = item
      item.order = order
      order += 1
      let batch: OpenBatch
      if let open = byTarget[item.target] {
        batch = open
      } else {
        batch = OpenBatch(item.target)
        byTarget[item.target] = batch
        batches.append(batch)
      }
      let wasFull = isFull(batch)
      batch.events.append(item)
      batch.bytes += item.body.count
      count += 1
      bytes += item.body.count
      if !wasFull, isFull(batch) { full.append(batch) }
    }

    /// Returns a request to the queue, before all younger ones.
    mutating func insert(_ request: Request) {
      let index = requests.lastIndex { $0.place < request.place }.map { $0 + 1 } ?? 0
      requests.insert(request, at: index)
    }

    /// Appends a request of a saved state. There are no events yet.
    mutating func insert(key: String, attempts: Int, _ items: [Item]) {
      requests.append(Request(place: place, items: items, key: key, attempts: attempts))
      place += items.count
    }

    /// The oldest of the returned requests.
    mutating func popRequest() -> Request? { requests.popFirst() }

    /// Removes everything, with the events of `others`, in the order in which the sink took them. `failure`: why the
    /// request of the event has failed, if it has.
    mutating func removeAll(beside others: [Request]) -> [(item: Item, failure: String?)] {
      let all = all(beside: others).flatMap { request in request.items.map { (item: $0, failure: request.failure) } }
      let rest = events.map { (item: $0, failure: String?.none) }
      requests = []
      batches = []
      byTarget = [:]
      full = []
      count = 0
      bytes = 0
      return all + rest
    }

    /// Makes a request of events that go to the same place, of which there must be some: of those that fill it, or else of those with the oldest
    /// event.
    mutating func makeRequest(key: ([Item]) -> String) -> Request {
      let batch = full.popFirst() ?? batches[0]
      var items: [Item] = []
      var size = 0
      while items.count < largest, let first = batch.events.first {
        if !items.isEmpty, size + first.body.count > largestBytes { break }
        size += first.body.count
        items.append(batch.events.removeFirst())
      }
      batch.bytes -= size
      bytes -= size
      count -= items.count
      batches.removeAll { $0 === batch }
      if let next = batch.events.first {
        let index = batches.firstIndex { ($0.events.first?.order ?? 0) > next.order } ?? batches.count
        batches.insert(batch, at: index)
        if isFull(batch) { full.prepend(batch) }
      } else {
        byTarget[batch.target] = nil
      }
      defer { place += items.count }
      return Request(place: place, items: items, key: key(items))
    }

    /// The requests, also those of `others`, in order.
    func all(beside others: [Request]) -> [Request] { (others + requests).sorted { $0.place < $1.place } }

    /// The receipts of all events, those of `others` included, in order; one may come several times.
    func receipts(beside others: [Request]) -> [Receipt] {
      all(beside: others).flatMap { $0.items.map(\.receipt) } + events.map(\.receipt)
    }

    /// Whether a sender waits that must send an event again which is not delivered.
    var hasSender: Bool { receipts(beside: []).contains(where: \.notifiesSender) }

    /// The same request of an earlier queue, in this one.
    mutating func makeRequest(of items: [Item], like other: Request) -> Request {
      defer { place += items.count }
      var request = Request(
        place: place, items: items, key: other.key, attempts: other.attempts, failure: other.failure,
        server: other.server)
      request.number = other.number
      request.time = other.time
      return request
    }

    /// Makes a request of some events of another one, which is no longer under way.
    func makeRequest(of items: [Item], from request: Request, key: ([Item]) -> String) -> Request {
      Request(place: request.place, items: items, key: key(items), attempts: request.attempts, server: request.server)
    }

    /// Replaces a request of two or more events by its halves.
    mutating func halve(_ request: Request, key: ([Item]) -> String) {
      let middle = request.items.count / 2
      for part in [request.items[..<middle], request.items[middle...]] {
        insert(Request(place: request.place + part.startIndex, items: Array(part), key: key(Array(part))))
      }
    }

    /// The server does not accept this many events in a request.
    mutating func refused(_ count: Int) {
      largest = max(1, min(largest, count / 2))
      full = Deque(batches.filter(isFull))
    }
  }
}
