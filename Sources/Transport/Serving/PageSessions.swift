import PipelineCore
import Synchronization

/// The keys and sessions that control access to a page served by a process: each key opens one session.
///
/// Keys and sessions are in memory, so they end with the process. A session has two secrets: a cookie, and a seal that
/// the page requests once and keeps for its own origin. Browsers send cookies to all ports of a machine; a program on
/// another port that gets one cannot use it. Callable from any thread.
package final class PageSessions: Sendable {
  /// The result of exchanging a key for a session.
  package enum Exchange: Equatable {
    /// A session has been opened; its cookie.
    case opened(cookie: String)
    /// The key has been used, has expired, or was never issued.
    case refused
    /// Too many wrong keys within a second; this key was not checked.
    case tooMany
  }

  /// The maximum number of unused keys. One more invalidates the oldest.
  package static let mostKeys = 16
  /// The maximum number of sessions. One more ends the least recently used; sessions with a ``Use`` end last.
  package static let mostSessions = 64
  /// The maximum number of wrong keys within a second. After that, no key is checked until the second is over.
  package static let mostGuesses = 16

  private struct Key {
    var text: String
    /// When the key expires, in nanoseconds of the clock; nil: never before it is used.
    var end: Int64?
  }

  private struct Session {
    var cookie: String
    var seal: String?
    var lastUse: UInt64
    /// The number of its live ``Use`` objects.
    var open = 0
  }

  /// Keeps a session in use while one of its requests is being answered: an open page receives one answer for hours,
  /// and its session counts as used all that time.
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
    /// The number of wrong keys in the current second, and when that second began; nil: no key has been tried yet.
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

  /// Makes a new key, for a link.
  /// - Parameter lasting: How long the key is valid; nil: until it is used.
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

  /// Opens a session with a key. If a key is used several times, even concurrently, only one use opens a session.
  /// - Parameter former: The cookie that the browser already has; its session ends, because the new cookie replaces it.
  package func exchange(_ text: String, replacing former: String?) -> Exchange {
    let now = now()
    return state.withLock { state in
      if state.guessesSince.map({ now &- $0 >= 1_000_000_000 }) ?? true {
        (state.guesses, state.guessesSince) = (0, now)
      }
      guard state.guesses < Self.mostGuesses else { return .tooMany }
      state.removeExpired(now)
      guard let index = state.keys.firstIndex(where: { ServingRules.isEqual(text, $0.text) }) else {
        state.guesses += 1
        return .refused
      }
      state.keys.remove(at: index)
      if let former { state.sessions.removeAll { ServingRules.isEqual(former, $0.cookie) } }
      return .opened(cookie: state.open(seal: nil))
    }
  }

  /// Creates the seal of a session, for its page. Nil: the session already has one, or there is no such session.
  package func seal(_ cookie: String) -> String? {
    state.withLock { state in
      guard let index = state.sessions.firstIndex(where: { ServingRules.isEqual(cookie, $0.cookie) }),
        state.sessions[index].seal == nil
      else { return nil }
      let seal = Self.secret()
      state.sessions[index].seal = seal
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

  /// Whether a request with this cookie and seal belongs to a session.
  package func admits(cookie: String, seal: String) -> Bool {
    state.withLock { state in
      guard
        let index = state.sessions.firstIndex(where: { session in
          ServingRules.isEqual(cookie, session.cookie) && session.seal.map { ServingRules.isEqual(seal, $0) } == true
        })
      else { return false }
      state.uses &+= 1
      state.sessions[index].lastUse = state.uses
      return true
    }
  }

  /// Keeps the session with this cookie in use as long as the result lives. Nil: there is no such session.
  package func use(_ cookie: String) -> Use? { count(1, of: cookie) ? Use(self, cookie) : nil }

  /// Adds `number` to the session's count of uses; false: there is no such session.
  @discardableResult
  private func count(_ number: Int, of cookie: String) -> Bool {
    state.withLock { state in
      guard let index = state.sessions.firstIndex(where: { ServingRules.isEqual(cookie, $0.cookie) }) else {
        return false
      }
      state.uses &+= 1
      state.sessions[index].lastUse = state.uses
      state.sessions[index].open += number
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
