import DequeModule
import PipelineCore

extension HTTPSink {
  /// An event on its way: its bytes, and itself in case it is refused.
  struct Item {
    var body: [UInt8]
    var event: OwnedEvent
    /// What waits for it to be delivered. Given up without a word if the sink ends before.
    var ack: Ack?
  }

  /// Events that go together, from when they leave the queue until the server has answered for them.
  struct Request {
    /// The number of its first event among all that the sink took, from 0. No two requests share an event.
    let place: Int
    let items: [Item]
    /// 32 hexadecimal digits, the same each time that it is sent.
    let key: String
    /// How often it has been sent.
    var attempts = 0
    /// Why the last attempt has not delivered it; nil: there was none that failed.
    var failure: String?
    /// Its body, if that was compressed.
    var compressed: [UInt8]?
  }

  /// What is to be sent: requests that are to be repeated, or are parts of one that was refused, and events behind them.
  struct Queue {
    /// In the order of their places. There are at most as many as may be under way, and their parts.
    private(set) var requests = Deque<Request>()
    private(set) var events = Deque<Item>()
    /// The place of the first of `events`.
    private var place = 0
    /// Bytes of the events that are in no request yet.
    private(set) var bytes = 0
    /// The most events of a request; what `413` has taught makes it less.
    private var largest: Int
    private let largestBytes: Int

    init(_ batch: Batch) {
      largest = batch.count
      largestBytes = batch.bytes.bytes
    }

    /// How many events are in no request yet.
    var count: Int { events.count }
    var isEmpty: Bool { requests.isEmpty && events.isEmpty }
    /// The events make a whole request.
    var isFull: Bool { count >= largest || bytes >= largestBytes }

    mutating func append(_ item: Item) {
      events.append(item)
      bytes += item.body.count
    }

    /// Puts a request back, before all that is younger.
    mutating func insert(_ request: Request) {
      let index = requests.lastIndex { $0.place < request.place }.map { $0 + 1 } ?? 0
      requests.insert(request, at: index)
    }

    /// Puts a request of a saved state behind all others. There are no events yet.
    mutating func insert(key: String, attempts: Int, _ items: [Item]) {
      requests.append(Request(place: place, items: items, key: key, attempts: attempts))
      place += items.count
    }

    /// The oldest of the requests that are here again.
    mutating func popRequest() -> Request? { requests.popFirst() }

    /// Takes out everything, with the events of `others`, in the order in which the sink took them. `failure`: why the
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

    /// Makes a request of the oldest events, of which there must be one.
    mutating func makeRequest(key: String) -> Request {
      var items: [Item] = []
      var size = 0
      while items.count < largest, let first = events.first {
        if !items.isEmpty, size + first.body.count > largestBytes { break }
        size += first.body.count
        items.append(events.removeFirst())
      }
      bytes -= size
      defer { place += items.count }
      return Request(place: place, items: items, key: key)
    }

    /// Puts both halves of a request of two or more events in its place.
    mutating func halve(_ request: Request, key: () -> String) {
      let middle = request.items.count / 2
      insert(Request(place: request.place, items: Array(request.items[..<middle]), key: key()))
      insert(Request(place: request.place + middle, items: Array(request.items[middle...]), key: key()))
    }

    /// The server does not take so many events in a request.
    mutating func refused(_ count: Int) { largest = max(1, min(largest, count / 2)) }
  }

  /// Makes the bodies of requests.
  struct BodyWriter {
    private let encoder: any EventEncoder
    private let form: Batch.Form
    /// Each body begins with the header that its format has.
    private let hasHeader: Bool
    private let buffer = OutputBuffer()

    init(_ encode: EncodeParameter, _ form: Batch.Form) {
      var encode = encode
      hasHeader = encode.options.format == .csv && encode.options.csv.header
      encode.options.csv.header = false
      encoder = encode.makeEncoder()
      self.form = form
    }

    var mediaType: String { form == .array ? "application/json" : "\(encoder.mediaType)" }

    /// The bytes of one event, or why it has none.
    func bytes(of event: Event) -> Result<[UInt8], EncodingFailure> {
      buffer.clear()
      if let failure = encoder.append(event.value, to: buffer) { return .failure(failure) }
      return .success(Array(buffer.bytes))
    }

    func body(of items: [Item]) -> [UInt8] {
      buffer.clear()
      guard form == .array else {
        if hasHeader { encoder.appendHeader(to: buffer) }
        for item in items { buffer.append(item.body) }
        return Array(buffer.bytes)
      }
      for (index, item) in items.enumerated() {
        buffer.append(UInt8(ascii: index == 0 ? "[" : ","))
        buffer.append(item.body)
        if item.body.last == 0x0A { buffer.truncate(to: buffer.count - 1) }
      }
      buffer.append(UInt8(ascii: "]"))
      return Array(buffer.bytes)
    }
  }
}
