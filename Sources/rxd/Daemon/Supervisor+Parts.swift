import CLinux
import PipelineCore
import PipelineRuntime
import Synchronization
import Transport

/// The parts of the supervisor's state, one for each of its tasks.
extension Supervisor {
  /// The messages of other threads; the supervisor's thread sleeps until one comes.
  final class Mailbox: Sendable {
    private let messages = Mutex<[Message]>([])
    let wake: WakeEvent

    init() throws(PosixError) { wake = try WakeEvent() }

    /// Posts a message. Called on any thread.
    func post(_ message: Message) {
      messages.withLock { $0.append(message) }
      wake.wake()
    }

    /// Takes the messages that have arrived since the last call.
    func take() -> [Message] {
      messages.withLock { box in
        defer { box = [] }
        return box
      }
    }
  }

  /// The end of the process.
  struct Stopping {
    /// The time at which a stopping process cancels the remaining pipelines; nil: the process is not stopping.
    var deadline: Instant?
    /// The time of the first request.
    var since: Instant?
    /// The time at which the log reports the reasons for which the stop waits.
    var saysLeftAt: Instant?
    /// Whether the limit for stopping has passed.
    var isCancelling = false
  }

  /// The results of reloads, and their time limits.
  struct Reloads {
    var last: ReloadVerdict? {
      didSet { if let result = last?.result { counts[result.rawValue, default: 0] += 1 } }
    }
    /// The number of reloads by result.
    private(set) var counts: [String: Int] = [:]
    /// The time at which listening sockets that were kept for new versions of their pipelines are closed.
    var keepingEnd: Instant?
    /// The time from which the verdict no longer waits for stores that are being read.
    var readingEnd: Instant?
  }

  /// The data of views of the process, apart from the counts of pipelines.
  struct Views {
    /// The number of snapshots so far.
    var count = 0
    let sourceLag = SourceLag()
    var lagAges = LagAges()
    var busyShares = BusyShares()
  }

  /// The periodic work.
  struct Upkeep {
    var watchdog: Watchdog?
    var nextSummary: Instant?
    /// The time at which to free memory that only the start needed.
    var forgetAt: Instant?
    /// A descriptor that is readable when the wall clock has been set.
    let clockWatch = rx_clock_watch()
  }

  /// The thread for work that may wait for a disk.
  struct Aside {
    private let thread = WorkThread("rxd aside")
    private var last = 0

    /// The number of the next job.
    mutating func next() -> Int {
      last += 1
      return last
    }

    func enqueue(_ job: @escaping @Sendable () -> Void) { thread.enqueue(job) }
  }
}
