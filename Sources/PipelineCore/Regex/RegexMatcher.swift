import Synchronization

/// Matches one program. Safe to share between threads: during a match, each uses its own automaton.
final class RegexMatcher: Sendable {
  let program: RegexProgram
  private let idle = Mutex<[Idle]>([])

  /// An automaton is used only by the thread that has taken it.
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
