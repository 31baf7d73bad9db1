import Synchronization

/// Matches one program; safe to share between threads, each with its own automaton during a match.
final class RegexMatcher: Sendable {
  let program: RegexProgram
  private let idle = Mutex<[Idle]>([])

  /// Used only by the thread that took it.
  private struct Idle: @unchecked Sendable {
    let automaton: TaggedAutomaton
  }

  init(_ program: RegexProgram) { self.program = program }

  /// See ``TaggedAutomaton/find(_:from:anchored:mayGiveUp:into:)``.
  func find(
    _ text: UnsafeRawBufferPointer, from start: Int, anchored: Bool, mayGiveUp: Bool,
    into groups: UnsafeMutableBufferPointer<Int>
  ) -> Bool? {
    let own = idle.withLock { $0.popLast() } ?? Idle(automaton: TaggedAutomaton(program))
    defer { idle.withLock { $0.append(own) } }
    return own.automaton.find(text, from: start, anchored: anchored, mayGiveUp: mayGiveUp, into: groups)
  }
}
