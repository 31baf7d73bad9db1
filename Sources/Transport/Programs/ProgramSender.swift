import CLinux
import Glibc
import PipelineCore

/// A sender of blocks of messages, with its own thread.
package protocol MessageSender: AnyObject, Sendable {
  /// The number of waiting bytes.
  var queuedBytes: Int { get }
  /// Adds messages. `done` is called once or more, on the sending thread, until all of them have been counted.
  func send(_ block: SocketSender.Block, done: @escaping @Sendable (_ sent: Int, _ givenUp: Int) -> Void)
  /// Sends the waiting messages, without a time limit, then ends. Not called on the sending thread.
  func close()
  /// Ends soon, without sending the waiting messages.
  func cancel()
  /// Waits until the thread has ended; false: the limit passed first.
  func waitForEnd(within limit: TimeSpan) -> Bool
}

extension SocketSender: MessageSender {}

/// Writes messages to the standard input of a program, and restarts the program when it ends.
///
/// A message counts as sent when the program has read it. When a program ends, the messages that it has not read completely go to the next
/// one.
package final class ProgramSender: MessageSender {
  package struct Options: Sendable {
    /// The pauses before a restart. They begin again after a program has run for the longest pause.
    package var attempts = Attempts(.milliseconds(100), most: .seconds(10))
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
    /// The program could not be started, or has ended, and is restarted.
    case failing(String)
    case restarted(failures: Int)
    /// The program has ended and is not restarted.
    case ended(String)
    /// It has ended behind its input with another status than it should, or had to be ended.
    case badEnd(String)
  }

  private struct Entry: Sendable {
    var block: SocketSender.Block
    var done: @Sendable (Int, Int) -> Void
    /// The first message that has not been counted.
    var first = 0
  }

  private struct State {
    var queue: [Entry] = []
    var bytes = 0
    var isClosing = false
    var isCancelled = false
    var hasEnded = false
  }

  private let call: ProgramCall
  private let path: String
  private let options: Options
  private let state = Guarded(State())
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
        let left = state.withLock { state in
          state.hasEnded = true
          defer { (state.queue, state.bytes) = ([], 0) }
          return state.queue
        }
        for entry in left { entry.done(0, entry.block.ends.count - entry.first) }
        state.notify()
      }
    } catch {
      throw ProgramFailure(.start, "cannot be started: \(error.message)")
    }
  }

  package var queuedBytes: Int { state.withLock(\.bytes) }

  package func send(_ block: SocketSender.Block, done: @escaping @Sendable (Int, Int) -> Void) {
    let isTaken = state.withLock { state in
      guard !state.hasEnded, !state.isCancelled else { return false }
      state.queue.append(Entry(block: block, done: done))
      state.bytes += block.bytes.count
      return true
    }
    guard isTaken else { return done(0, block.ends.count) }
    wake.wake()
  }

  package func close() {
    state.withLock { $0.isClosing = true }
    wake.wake()
    let ended: (inout State) -> Bool? = { $0.hasEnded ? true : nil }
    _ = state.wait(until: nil, ended)
  }

  package func cancel() {
    state.withLock { $0.isCancelled = true }
    wake.wake()
  }

  package func waitForEnd(within limit: TimeSpan) -> Bool {
    let ended: (inout State) -> Bool? = { $0.hasEnded ? true : nil }
    return state.wait(until: monotonicNow() &+ limit.nanoseconds, ended) ?? false
  }

  private func freed(_ bytes: Int) { state.withLock { $0.bytes -= bytes } }

  // MARK: - The thread

  private struct Work {
    private let owner: ProgramSender
    private let options: Options
    /// Blocks that are being written or read; with the position of the start of each in the program's input.
    private var open: [(entry: Entry, start: Int)] = []
    /// Bytes that the program's pipe has taken.
    private var written = 0
    private var attempts: Attempts
    private var standardOutput = ErrorLines("stdout")
    private var standardError = ErrorLines()
    /// The time between two checks of the pipe, in milliseconds.
    private var pace: Int64 = 1

    private enum Outcome {
      /// Everything is read, and the program has ended behind its input.
      case done
      case cancelled
      /// The program ended by itself.
      case ended(String)
    }

    init(_ owner: ProgramSender) {
      self.owner = owner
      options = owner.options
      attempts = owner.options.attempts
    }

    private var isCancelled: Bool { owner.state.withLock(\.isCancelled) }

    mutating func run() {
      while !isCancelled {
        let began = monotonicNow()
        var reason: String
        do throws(ProgramFailure) {
          var child = try ChildProgram(owner.call, at: owner.path)
          if attempts.failures > 0 { owner.notify(.restarted(failures: attempts.failures)) }
          switch serve(&child) {
          case .done, .cancelled: return requeue()
          case .ended(let why): reason = why
          }
        } catch {
          reason = error.message
        }
        requeue()
        guard options.restarts else { return owner.notify(.ended(reason)) }
        // Nothing is left for another program to do.
        if owner.state.withLock({ $0.isClosing && $0.queue.isEmpty }) { return owner.notify(.badEnd(reason)) }
        if monotonicNow() &- began >= attempts.maxDelay.nanoseconds { attempts.succeed() }
        attempts.fail()
        owner.notify(.failing(reason))
        attempts.wait(for: owner.wake) { [owner] in owner.state.withLock(\.isCancelled) }
      }
    }

    /// Puts unread messages back at the head of the queue.
    private mutating func requeue() {
      let again = open.map { one -> Entry in
        var entry = one.entry
        guard entry.first > 0 else { return entry }
        let start = entry.block.ends[entry.first - 1]
        entry.block = SocketSender.Block(
          bytes: Array(entry.block.bytes[start...]), ends: entry.block.ends[entry.first...].map { $0 - start })
        entry.first = 0
        return entry
      }
      let less = open.reduce(0) { $0 + $1.entry.block.bytes.count } - again.reduce(0) { $0 + $1.block.bytes.count }
      open = []
      written = 0
      owner.state.withLock { state in
        state.queue.insert(contentsOf: again, at: 0)
        state.bytes -= less
      }
    }

    /// Gives the program messages until it has ended.
    private mutating func serve(_ child: inout ChildProgram) -> Outcome {
      /// Why the program is being ended; nil: it is not.
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
          // Nobody reads on: the rest of the pipe stays unread.
          confirm(child)
          while read(&child, .output) {}
          while read(&child, .errors) {}
          standardOutput.end(now, log)
          standardError.end(now, log)
          if isCancelled { return .cancelled }
          let exit = status & 0x7F == 0 ? Int(status >> 8 & 0xFF) : nil
          // A program that reads no more may be about to exit.
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

    /// Takes blocks from the queue as far as the pipe may soon take them.
    private mutating func refill() {
      let end = open.last.map { $0.start + $0.entry.block.bytes.count } ?? written
      guard end - written < 64 << 10 else { return }
      let more = owner.state.withLock { state -> [Entry] in
        var count = 0
        var bytes = end - written
        while count < state.queue.count, bytes < 256 << 10 {
          bytes += state.queue[count].block.bytes.count
          count += 1
        }
        defer { state.queue.removeFirst(count) }
        return Array(state.queue.prefix(count))
      }
      var start = end
      for entry in more {
        open.append((entry, start))
        start += entry.block.bytes.count
      }
    }

    private var hasMore: Bool {
      open.last.map { $0.start + $0.entry.block.bytes.count > written } ?? false
    }

    private static let readsNoMore = "reads no more"

    /// Writes as much as the pipe takes. Returns why nothing more can be written; nil: it can.
    private mutating func write(_ child: borrowing ChildProgram) -> String? {
      for (entry, start) in open where start + entry.block.bytes.count > written {
        while written < start + entry.block.bytes.count {
          guard let end = child.write(entry.block.bytes, from: written - start) else { return Self.readsNoMore }
          // The pipe is full.
          guard start + end > written else { return nil }
          written = start + end
          pace = 1
        }
      }
      return nil
    }

    /// Counts messages that the program has read.
    private mutating func confirm(_ child: borrowing ChildProgram) {
      guard !open.isEmpty, child.input >= 0 else { return }
      let read = written - max(0, Int(rx_unread(child.input)))
      var hasRead = false
      while let (head, start) = open.first {
        var entry = head
        let done = entry.block.ends[entry.first...].prefix { start + $0 <= read }.count
        if done > 0 {
          hasRead = true
          entry.first += done
          entry.done(done, 0)
        }
        guard entry.first == entry.block.ends.count else {
          open[0].entry = entry
          break
        }
        open.removeFirst()
        owner.freed(entry.block.bytes.count)
      }
      pace = hasRead ? 1 : min(pace * 2, 64)
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
