import DequeModule
import PipelineCore

extension HTTPSink {
  /// A waiting event: its bytes, and the event in case it is rejected.
  struct Item {
    var body: [UInt8]
    var event: OwnedEvent
    /// The receipt on which the sink took it.
    var receipt: Receipt
    /// Where it goes, if the URL or a header depends on the event; nil: where all events go.
    var target: Target?
    /// What it is called whenever it is sent again, also after a restart; nil: it has no such name.
    var id: DeliveryID?
    /// When the sink took it.
    var since: Instant
    /// The time of day then, in nanoseconds since 1970.
    var takenAt: Int64
  }

  /// The URL and headers that templates gave an event, as a request without body.
  final class Target: Sendable {
    let message: HTTPRequest
    init(_ message: HTTPRequest) { self.message = message }

    /// Whether two events may share a request.
    static func areSame(_ a: Target?, _ b: Target?) -> Bool { a === b || a?.message == b?.message }
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

  /// What is to be sent: requests to be repeated, or halves of a rejected one, followed by further events.
  struct Queue {
    /// The requests in order, at most as many as may be under way, and their halves.
    private(set) var requests = Deque<Request>()
    private(set) var events = Deque<Item>()
    /// The number of the first of `events`.
    private var place = 0
    /// Bytes of the events that are in no request yet.
    private(set) var bytes = 0
    /// The most events in a request; a response `413` reduces it.
    private var largest: Int
    private let largestBytes: Int

    init(_ batch: Batch) {
      largest = batch.count
      largestBytes = batch.bytes.bytes
    }

    /// The number of events that are in no request yet.
    var count: Int { events.count }
    /// The number of all events.
    var total: Int { events.count + requests.reduce(0) { $0 + $1.items.count } }
    /// When the oldest came, of those that no request has and of each waiting request.
    var oldest: [Instant] { [events.first?.since].compactMap { $0 } + requests.compactMap(\.items.first?.since) }
    var isEmpty: Bool { requests.isEmpty && events.isEmpty }
    /// Whether the events fill a request.
    var isFull: Bool { count >= largest || bytes >= largestBytes }

    mutating func append(_ item: Item) {
      events.append(item)
      bytes += item.body.count
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
      let begun = (others + requests).sorted { $0.place < $1.place }
      let all = begun.flatMap { request in request.items.map { (item: $0, failure: request.failure) } }
      let rest = events.map { (item: $0, failure: String?.none) }
      requests = []
      events = []
      bytes = 0
      return all + rest
    }

    /// How many events are looked at for those that share a request with the oldest.
    private static let leastWindow = 1000

    /// Makes a request of the oldest event, of which there must be one, and of those after it that go to the same place.
    mutating func makeRequest(key: ([Item]) -> String) -> Request {
      var items: [Item] = []
      var others: [Item] = []
      var size = 0
      let window = max(largest, Self.leastWindow)
      while items.count < largest, items.count + others.count < window, let first = events.first {
        guard items.isEmpty || Target.areSame(items[0].target, first.target) else {
          others.append(events.removeFirst())
          continue
        }
        if !items.isEmpty, size + first.body.count > largestBytes { break }
        size += first.body.count
        items.append(events.removeFirst())
      }
      for other in others.reversed() { events.prepend(other) }
      bytes -= size
      defer { place += items.count }
      return Request(place: place, items: items, key: key(items))
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
    mutating func refused(_ count: Int) { largest = max(1, min(largest, count / 2)) }
  }
}
