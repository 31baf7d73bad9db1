import CLinux
import Glibc
import PipelineCore

/// Writes messages to the standard input of a program. A message has passed when the program has read it; the connection is lost when the program
/// ends.
package final class ProgramSender: SharedStateSender {
  package struct Options: Sendable {
    /// How long the program may run after the end of its input.
    package var stopTimeout = TimeSpan.seconds(10)
    /// Whether the program is restarted when it ends before its input does.
    package var restarts = true
    /// The exit statuses that count as success at the end.
    package var success: [Int] = [0]
    package init() {}
  }

  package enum Notice: Sendable, Equatable {
    /// A line of standard output or standard error.
    case said(Services.Level, String)
    /// The program has ended after its input with an unexpected status, or had to be ended.
    case badEnd(String)
  }

  private let call: ProgramCall
  private let path: String
  private let options: Options
  package let state = Guarded(SenderState())
  private let wake: WakeEvent
  private let notify: @Sendable (Notice) -> Void

  /// - Parameters:
  ///   - call: The program to start; its input, timeout and output limit are ignored.
  ///   - notify: Called on the sending thread.
  package init(
    _ call: ProgramCall, _ options: Options, notify: @escaping @Sendable (Notice) -> Void
  ) throws(ProgramFailure) {
    self.call = call
    self.options = options
    self.notify = notify
    path = try ChildProgram.path(of: call)
    do throws(PosixError) {
      wake = try WakeEvent()
      _ = try OwnThread("rxd exec") { [self] in
        var work = Work(self)
        work.run()
        ended()
      }
    } catch {
      throw ProgramFailure(.start, "cannot be started: \(error.message)")
    }
  }

  package var connections: PipelineStatistics.Connections? { nil }

  package func wakeUp() { wake.wake() }

  // MARK: - The thread

  private struct Work {
    private let owner: ProgramSender
    private let options: Options
    /// Blocks that are being written or read; with the position of the start of each in the program's input.
    private var open: [(block: SentBlock, start: Int)] = []
    /// Bytes that the program's pipe has taken.
    private var written = 0
    private var standardOutput = ErrorLines("stdout")
    private var standardError = ErrorLines()
    /// The time between two checks of the pipe, in milliseconds.
    private var pace: Int64 = 1

    private enum Outcome {
      /// Everything is read, and the program has ended after its input.
      case done
      case cancelled
      /// The program ended by itself.
      case ended(String)
    }

    init(_ owner: ProgramSender) {
      self.owner = owner
      options = owner.options
    }

    private var isCancelled: Bool { owner.state.withLock(\.isCancelled) }

    mutating func run() {
      while true {
        owner.wake.clear()
        let (isOver, isWanted) = owner.state.withLock { state -> (Bool, Bool) in
          defer { state.isNew = false }
          return (state.isCancelled || state.isClosing && !state.isNew, state.isNew)
        }
        if isOver { return }
        if isWanted { if runOnce() { return } } else { _ = rx_wait_two(-1, 0, owner.wake.descriptor, -1) }
      }
    }

    /// Returns whether nothing is left to do.
    private mutating func runOnce() -> Bool {
      var reason: String
      (open, written, pace) = ([], 0, 1)
      do throws(ProgramFailure) {
        var child = try ChildProgram(owner.call, at: owner.path)
        owner.state.withLock { $0.tell(.opened) }
        switch serve(&child) {
        case .done, .cancelled: return true
        case .ended(let why): reason = why
        }
      } catch {
        reason = error.message
      }
      let isClosing = owner.state.withLock { state -> Bool in
        state.lose(options.restarts ? .lost(reason) : .ended(reason))
        return state.isClosing
      }
      // No work is left for another program.
      if isClosing { owner.notify(.badEnd(reason)) }
      return isClosing
    }

    /// Writes messages to the program until it has ended.
    private mutating func serve(_ child: inout ChildProgram) -> Outcome {
      /// The reason for ending the program; nil: it is not being ended.
      var ending: String?
      while true {
        owner.wake.clear()
        let (isClosing, isCancelled) = owner.state.withLock { ($0.isClosing, $0.isCancelled) }
        let now = monotonicNow()
        say(now)
        if isCancelled, ending == nil {
          ending = ""
          child.end(patience: .seconds(1))
        }
        if child.wasSignalled, child.input < 0, ending == nil {
          ending = "had not ended \(options.stopTimeout) after the end of its input"
        }
        if let status = child.status() {
          // The program has closed its input: what is left in the pipe stays unread.
          confirm(child)
          while read(&child, .output) {}
          while read(&child, .errors) {}
          standardOutput.end(now, log)
          standardError.end(now, log)
          if isCancelled { return .cancelled }
          let exit = status & 0x7F == 0 ? Int(status >> 8 & 0xFF) : nil
          // A program that has stopped reading may be about to exit.
          if ending == Self.readsNoMore, exit != nil { ending = nil }
          let why = ending ?? exit.map { "exited with \($0)" } ?? "was ended by signal \(status & 0x7F)"
          guard child.input < 0 else { return .ended(why + lastWords) }
          if ending != nil || exit.map(options.success.contains) != true { owner.notify(.badEnd(why + lastWords)) }
          return .done
        }
        confirm(child)
        if child.input >= 0, ending == nil {
          refill()
          if let failure = write(child) {
            ending = failure
            child.end()
          } else if isClosing, open.isEmpty, owner.state.withLock(\.queue.isEmpty) {
            child.closeInput()
            child.end(in: options.stopTimeout)
          }
        }
        var due = open.isEmpty ? Int64.max : now &+ pace * 1_000_000
        for lines in [standardOutput, standardError] { if let next = lines.due { due = min(due, next) } }
        let ready = child.wait(
          wakenBy: isCancelled ? -1 : owner.wake.descriptor, writes: hasMore && ending == nil, until: due)
        if ready.contains(.output) { _ = read(&child, .output) }
        if ready.contains(.errors) { _ = read(&child, .errors) }
      }
    }

    private var lastWords: String {
      standardError.last.isEmpty ? "" : ", after it had written: \(Printable.cut(standardError.last, limit: 200))"
    }

    /// Moves blocks from the queue to the writer, as many as the pipe may soon accept.
    private mutating func refill() {
      let end = open.last.map { $0.start + $0.block.bytes.count } ?? written
      guard end - written < 64 << 10 else { return }
      let more = owner.state.withLock { state -> [SentBlock] in
        var count = 0
        var bytes = end - written
        while count < state.queue.count, bytes < 256 << 10 {
          bytes += state.queue[count].bytes.count
          count += 1
        }
        defer { state.queue.removeFirst(count) }
        return Array(state.queue.prefix(count))
      }
      var next = end
      for block in more {
        // Messages that an earlier program has read are not written again.
        let start = next - block.start(block.first)
        open.append((block, start))
        next = start + block.bytes.count
      }
    }

    private var hasMore: Bool { open.last.map { $0.start + $0.block.bytes.count > written } ?? false }

    private static let readsNoMore = "reads no more"

    /// Writes as much as the pipe accepts. Returns the reason if nothing more can be written; nil: more can be.
    private mutating func write(_ child: borrowing ChildProgram) -> String? {
      for (block, start) in open where start + block.bytes.count > written {
        while written < start + block.bytes.count {
          guard let end = child.write(block.bytes, from: written - start) else { return Self.readsNoMore }
          // The pipe is full.
          guard start + end > written else { return nil }
          written = start + end
          pace = 1
        }
      }
      return nil
    }

    /// Confirms messages that the program has read.
    private mutating func confirm(_ child: borrowing ChildProgram) {
      guard !open.isEmpty, child.input >= 0 else { return }
      let read = written - max(0, Int(rx_unread(child.input)))
      var passed = 0
      while let (block, start) = open.first {
        let done = block.ends[block.first...].prefix { start + $0 <= read }.count
        passed += done
        guard block.first + done == block.ends.count else {
          open[0].block.first += done
          break
        }
        open.removeFirst()
      }
      if passed > 0 { owner.state.withLock { $0.pass(passed) } }
      pace = passed > 0 ? 1 : min(pace * 2, 64)
    }

    // MARK: Its output

    private func log(_ level: Services.Level, _ text: String) { owner.notify(.said(level, text)) }

    private mutating func say(_ now: Int64) {
      standardOutput.flush(now, log)
      standardError.flush(now, log)
    }

    /// Returns whether any bytes were read.
    private mutating func read(_ child: inout ChildProgram, _ stream: ChildProgram.Stream) -> Bool {
      guard let bytes = child.read(stream) else { return false }
      switch stream {
      case .output: standardOutput.take(bytes[...], monotonicNow(), log)
      case .errors: standardError.take(bytes[...], monotonicNow(), log)
      }
      return true
    }
  }
}
