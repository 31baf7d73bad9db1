import PipelineCore
import Synchronization

/// Who may read a page that a process serves: keys, each of which opens one session, and the sessions.
///
/// Keys and sessions are in memory, so they end with the process. A session has two secrets: a cookie, and a seal that the page asks for once and keeps
/// for its own origin. Browsers send cookies to all ports of a machine; a program on another port that gets one cannot use it. Callable from any thread.
package final class PageSessions: Sendable {
  /// The result of an exchange.
  package enum Exchange: Equatable {
    /// A session has been opened; its cookie.
    case opened(cookie: String)
    /// The key has been used, has expired, or was never given out.
    case refused
    /// Too many wrong keys within a second; this one was not looked at.
    case tooMany
  }

  /// Unused keys beyond this number: the oldest one ends.
  package static let mostKeys = 16
  /// The most sessions. For one more, the one that was used least recently ends; those with a ``Use`` end last.
  package static let mostSessions = 64
  /// Wrong keys within a second; after that none is looked at until it is over.
  package static let mostGuesses = 16

  private struct Key {
    var text: String
    /// In nanoseconds of the clock; nil: until it is used.
    var end: Int64?
  }

  private struct Session {
    var cookie: String
    var seal: String?
    var lastUse: UInt64
    /// How many ``Use`` it has.
    var open = 0
  }

  /// A request of a session, until its answer has ended: an open page has one answer for hours, and counts as used all the time.
  package final class Use: Sendable {
    private let sessions: PageSessions
    private let cookie: String

    fileprivate init(_ sessions: PageSessions, _ cookie: String) {
      self.sessions = sessions
      self.cookie = cookie
    }

    deinit { sessions.count(-1, of: cookie) }
  }

  private struct State {
    var keys: [Key] = []
    var sessions: [Session] = []
    var uses: UInt64 = 0
    /// Wrong keys of the current second, and when it began; nil: there was none yet.
    var guesses = 0
    var guessesSince: Int64?

    mutating func removeExpired(_ now: Int64) {
      keys.removeAll { key in key.end.map { $0 <= now } ?? false }
    }

    mutating func open(seal: String?) -> String {
      if sessions.count >= mostSessions,
        let least = sessions.indices.min(by: {
          (min(sessions[$0].open, 1), sessions[$0].lastUse) < (min(sessions[$1].open, 1), sessions[$1].lastUse)
        })
      {
        sessions.remove(at: least)
      }
      uses &+= 1
      let session = Session(cookie: PageSessions.secret(), seal: seal, lastUse: uses)
      sessions.append(session)
      return session.cookie
    }
  }

  private let state = Mutex(State())
  private let now: @Sendable () -> Int64

  /// - Parameter now: Nanoseconds of a clock that is never set.
  package init(now: @escaping @Sendable () -> Int64 = monotonicNow) { self.now = now }

  /// A new key, for a link.
  /// - Parameter lasting: How long it can be used; nil: until it is.
  package func key(lasting: TimeSpan?) -> String {
    let now = now()
    let key = Key(text: Self.secret(), end: lasting.map { Self.sum(now, $0.nanoseconds) })
    state.withLock { state in
      state.removeExpired(now)
      if state.keys.count >= Self.mostKeys { state.keys.removeFirst() }
      state.keys.append(key)
    }
    return key.text
  }

  /// Opens a session with a key. Of several uses of the same key, also at the same time, one does.
  /// - Parameter former: The cookie that the browser has by now; its session ends, since the new cookie takes its place.
  package func exchange(_ text: String, replacing former: String?) -> Exchange {
    let now = now()
    return state.withLock { state in
      if state.guessesSince.map({ now &- $0 >= 1_000_000_000 }) ?? true {
        (state.guesses, state.guessesSince) = (0, now)
      }
      guard state.guesses < Self.mostGuesses else { return .tooMany }
      state.removeExpired(now)
      guard let place = state.keys.firstIndex(where: { ServingRules.isEqual(text, $0.text) }) else {
        state.guesses += 1
        return .refused
      }
      state.keys.remove(at: place)
      if let former { state.sessions.removeAll { ServingRules.isEqual(former, $0.cookie) } }
      return .opened(cookie: state.open(seal: nil))
    }
  }

  /// The seal of a session, for its page: only once. Nil: the session has one, or there is no such session.
  package func seal(_ cookie: String) -> String? {
    state.withLock { state in
      guard let place = state.sessions.firstIndex(where: { ServingRules.isEqual(cookie, $0.cookie) }),
        state.sessions[place].seal == nil
      else { return nil }
      let seal = Self.secret()
      state.sessions[place].seal = seal
      return seal
    }
  }

  /// Opens a session for a client that has shown other credentials.
  package func open() -> (cookie: String, seal: String) {
    let seal = Self.secret()
    return (state.withLock { $0.open(seal: seal) }, seal)
  }

  /// Whether a session has this cookie.
  package func has(_ cookie: String) -> Bool {
    state.withLock { state in state.sessions.contains { ServingRules.isEqual(cookie, $0.cookie) } }
  }

  /// Whether a request with this cookie and seal is one of a session.
  package func admits(cookie: String, seal: String) -> Bool {
    state.withLock { state in
      guard
        let place = state.sessions.firstIndex(where: { session in
          ServingRules.isEqual(cookie, session.cookie) && session.seal.map { ServingRules.isEqual(seal, $0) } == true
        })
      else { return false }
      state.uses &+= 1
      state.sessions[place].lastUse = state.uses
      return true
    }
  }

  /// Counts a request as use of the session with this cookie, as long as the result is kept. Nil: there is no such session.
  package func use(_ cookie: String) -> Use? { count(1, of: cookie) ? Use(self, cookie) : nil }

  /// Whether there is the session.
  @discardableResult
  private func count(_ number: Int, of cookie: String) -> Bool {
    state.withLock { state in
      guard let place = state.sessions.firstIndex(where: { ServingRules.isEqual(cookie, $0.cookie) }) else {
        return false
      }
      state.uses &+= 1
      state.sessions[place].lastUse = state.uses
      state.sessions[place].open += number
      return true
    }
  }

  /// 128 random bits.
  private static func secret() -> String {
    var generator = SystemRandomNumberGenerator()
    return (0..<4).map { _ in Printable.hex(UInt32.random(in: 0 ... .max, using: &generator), digits: 8) }.joined()
  }

  private static func sum(_ one: Int64, _ other: Int64) -> Int64 {
    let (sum, overflow) = one.addingReportingOverflow(other)
    return overflow ? .max : sum
  }
}
