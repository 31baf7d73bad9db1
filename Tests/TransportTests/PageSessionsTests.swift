import Foundation
import PipelineCore
import Synchronization
import Testing

@testable import Transport

/// A key opens one session; a session needs its cookie and its seal.
@Suite struct PageSessionsTests {
  private final class Clock: Sendable {
    let now = Mutex<Int64>(0)
    func pass(_ span: TimeSpan) { now.withLock { $0 += span.nanoseconds } }
  }

  private let clock = Clock()
  private let sessions: PageSessions

  init() {
    let clock = clock
    sessions = PageSessions { clock.now.withLock { $0 } }
  }

  private func cookie(_ key: String, replacing former: String? = nil) throws -> String {
    guard case .opened(let cookie) = sessions.exchange(key, replacing: former) else {
      throw Refused()
    }
    return cookie
  }
  private struct Refused: Error {}

  @Test func aKeyWorksOnce() throws {
    let key = sessions.key(lasting: nil)
    #expect(key.utf8.count == 32)
    let cookie = try cookie(key)
    #expect(sessions.exchange(key, replacing: nil) == .refused)
    let seal = try #require(sessions.seal(cookie))
    #expect(sessions.admits(cookie: cookie, seal: seal))
    // The three are different.
    #expect(Set([key, cookie, seal]).count == 3)
    #expect(
      sessions.exchange(cookie, replacing: nil) == .refused && sessions.exchange(seal, replacing: nil) == .refused)
  }

  /// Of concurrent uses, one opens a session.
  @Test func oneOfManyUsesAtATimeSucceeds() {
    for _ in 0..<50 {
      let key = sessions.key(lasting: nil)
      let opened = Mutex(0)
      DispatchQueue.concurrentPerform(iterations: 8) { _ in
        if case .opened = sessions.exchange(key, replacing: nil) { opened.withLock { $0 += 1 } }
      }
      #expect(opened.withLock { $0 } == 1)
      clock.pass(.seconds(1))
    }
  }

  /// A cookie alone is not enough: browsers also send it to programs on other ports of the machine.
  @Test func aCookieAloneAdmitsNobody() throws {
    let cookie = try cookie(sessions.key(lasting: nil))
    for seal in ["", "0", cookie] { #expect(!sessions.admits(cookie: cookie, seal: seal)) }
    let seal = try #require(sessions.seal(cookie))
    #expect(sessions.seal(cookie) == nil)
    #expect(!sessions.admits(cookie: "", seal: seal) && !sessions.admits(cookie: seal, seal: cookie))
    #expect(sessions.seal("") == nil && sessions.seal(seal) == nil)
    // Each of two sessions has its own.
    let other = try self.cookie(sessions.key(lasting: nil))
    #expect(!sessions.admits(cookie: other, seal: seal))
    #expect(sessions.admits(cookie: cookie, seal: seal))
  }

  @Test func keysExpire() throws {
    let (short, endless) = (sessions.key(lasting: .seconds(900)), sessions.key(lasting: nil))
    let inTime = sessions.key(lasting: .seconds(901))
    clock.pass(.seconds(900))
    #expect(sessions.exchange(short, replacing: nil) == .refused)
    _ = try cookie(inTime)
    clock.pass(.seconds(86_400 * 400))
    _ = try cookie(endless)
    _ = sessions.key(lasting: TimeSpan(nanoseconds: .max))
  }

  /// Wrong keys are limited to a few per second; a right one still works.
  @Test func guessesAreLimited() throws {
    let key = sessions.key(lasting: nil)
    for _ in 0..<PageSessions.mostGuesses { #expect(sessions.exchange("0", replacing: nil) == .refused) }
    #expect(sessions.exchange("0", replacing: nil) == .tooMany)
    #expect(sessions.exchange(key, replacing: nil) == .tooMany)
    clock.pass(.seconds(1))
    _ = try cookie(key)
    for wrong in ["", String(key.dropLast()), key + "0", key.lowercased(), String(key.reversed())] {
      #expect(sessions.exchange(wrong, replacing: nil) == .refused, "\(wrong)")
    }
  }

  @Test func numbersAreBounded() throws {
    let first = sessions.key(lasting: nil)
    for _ in 0..<PageSessions.mostKeys { _ = sessions.key(lasting: nil) }
    #expect(sessions.exchange(first, replacing: nil) == .refused)
    var open: [(cookie: String, seal: String)] = []
    for _ in 0..<PageSessions.mostSessions { open.append(sessions.open()) }
    let one = try #require(open.first)
    let second = try #require(open.dropFirst().first)
    #expect(sessions.admits(cookie: one.cookie, seal: one.seal))
    _ = sessions.open()
    // The session that was used least recently.
    #expect(sessions.has(one.cookie) && !sessions.has(second.cookie))
  }

  /// An open page has one answer for hours, while other browsers open their sessions.
  @Test func aSessionWithAnOpenAnswerGivesWayToNoOther() {
    let page = sessions.open()
    do {
      let use = sessions.use(page.cookie)
      for _ in 0..<PageSessions.mostSessions * 2 { _ = sessions.open() }
      #expect(sessions.has(page.cookie))
      withExtendedLifetime(use) {}
    }
    // Its last use was the end of the answer.
    for _ in 1..<PageSessions.mostSessions { _ = sessions.open() }
    #expect(sessions.has(page.cookie))
    _ = sessions.open()
    #expect(!sessions.has(page.cookie))
    for none in ["", page.cookie] where sessions.use(none) != nil { Issue.record("a use of no session: \(none)") }
  }

  /// Expired keys do not displace a valid one.
  @Test func expiredKeysTakeNoRoom() throws {
    let endless = sessions.key(lasting: nil)
    for _ in 0..<PageSessions.mostKeys {
      _ = sessions.key(lasting: .seconds(1))
      clock.pass(.seconds(1))
    }
    _ = try cookie(endless)
  }

  /// The cookie of a new session replaces the browser's former one.
  @Test func aNewLinkEndsTheFormerSessionOfTheBrowser() throws {
    let former = try cookie(sessions.key(lasting: nil))
    let other = try cookie(sessions.key(lasting: nil))
    let new = try cookie(sessions.key(lasting: nil), replacing: former)
    #expect(!sessions.has(former) && sessions.has(other) && sessions.has(new))
    #expect(sessions.exchange("wrong", replacing: new) == .refused && sessions.has(new))
  }
}
