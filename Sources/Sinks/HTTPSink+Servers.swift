import PipelineCore

extension HTTPSink {
  enum Balance: String, ChoiceParameter {
    case failover, roundRobin
    var help: String {
      self == .failover ? "the first one that accepts requests" : "in turn, those that accept requests"
    }
  }

  /// `circuitBreaker`: when a server gets no requests, and for how long.
  struct CircuitBreaker: RecordParameter {
    var failures = 5
    var pause = TimeSpan.seconds(30)
    static var fields: [RecordField<CircuitBreaker>] {
      [
        .init("failures", \.failures, range: 1...10_000, "How many failed requests in a row open the breaker."),
        .init(
          "pause", \.pause, range: 1_000_000...Int64.max,
          "How long the server gets no request then. One request tries it after that; if it fails, another pause follows."
        ),
      ]
    }
  }

  /// Chooses the server for the next request.
  struct Servers {
    private struct Server {
      /// Failures in a row.
      var failures = 0
      /// The server gets no request before this time.
      var closedUntil = Instant(nanoseconds: .min)
      var isDown = false
    }

    private var all: [Server]
    private let balance: Balance
    private let breaker: CircuitBreaker?
    private var last = -1

    /// With several servers, one that fails is avoided at once, for ten seconds.
    init(_ count: Int, _ balance: Balance, _ breaker: CircuitBreaker?) {
      all = Array(repeating: Server(), count: max(1, count))
      self.balance = balance
      var usual = CircuitBreaker()
      usual.failures = 1
      usual.pause = .seconds(10)
      self.breaker = breaker ?? (count > 1 ? usual : nil)
    }

    var count: Int { all.count }

    /// Whether a server accepts a request now.
    func hasOpen(_ now: Instant) -> Bool { all.contains { $0.closedUntil <= now } }

    /// When the first of the servers accepts a request again.
    var opensAt: Instant { all.lazy.map(\.closedUntil).min() ?? Instant(nanoseconds: 0) }

    /// The server for a request; if none accepts any, the one that will do so first.
    mutating func choose(_ now: Instant) -> Int {
      if all.count == 1 { return 0 }
      let first = balance == .failover ? 0 : last + 1
      for offset in all.indices {
        let index = (first + offset) % all.count
        if all[index].closedUntil <= now {
          last = index
          return index
        }
      }
      return all.indices.min { all[$0].closedUntil < all[$1].closedUntil } ?? 0
    }

    /// Returns whether the server had been down. An answer that arrives while the server gets no requests does not show
    /// its current state.
    mutating func succeeded(_ index: Int, _ now: Instant) -> Bool {
      guard all[index].closedUntil <= now else { return false }
      defer { all[index] = Server() }
      return all[index].isDown
    }

    /// Returns how long the server gets no request; nil: its breaker is closed, and it asks for no pause. `isNew`: it was not down before.
    mutating func failed(_ index: Int, _ now: Instant, after pause: TimeSpan?) -> (pause: TimeSpan, isNew: Bool)? {
      all[index].failures += 1
      var longest = pause
      if let breaker, all[index].failures >= breaker.failures { longest = max(longest ?? breaker.pause, breaker.pause) }
      guard let longest else { return nil }
      let isNew = !all[index].isDown
      all[index].closedUntil = max(all[index].closedUntil, now + longest)
      all[index].isDown = true
      return (longest, isNew)
    }
  }
}
