import CLinux
import Glibc
import PipelineCore

/// A thread for blocking work; never a thread of the cooperative pool.
///
/// The thread blocks all signals: they go to the threads that the daemon chose for them.
package final class OwnThread: @unchecked Sendable {
  private var handle: pthread_t
  private var joined = false

  private final class Start {
    let name: String
    let body: @Sendable () -> Void
    init(_ name: String, _ body: @escaping @Sendable () -> Void) {
      self.name = name
      self.body = body
    }
  }

  /// Starts the thread. `name` shows in `top -H`, its first 15 bytes.
  package init(_ name: String, stackBytes: Int = 2 << 20, _ body: @escaping @Sendable () -> Void)
    throws(PosixError)
  {
    var attributes = pthread_attr_t()
    pthread_attr_init(&attributes)
    defer { pthread_attr_destroy(&attributes) }
    pthread_attr_setstacksize(&attributes, stackBytes)
    // A new thread inherits the signal mask: it is set here, so that no signal reaches the thread before it runs.
    var all = sigset_t()
    var previous = sigset_t()
    sigfillset(&all)
    for fault in [SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT] { sigdelset(&all, fault) }
    pthread_sigmask(SIG_SETMASK, &all, &previous)
    defer { pthread_sigmask(SIG_SETMASK, &previous, nil) }
    let start = Unmanaged.passRetained(Start(name, body))
    handle = 0
    let code = pthread_create(
      &handle, &attributes,
      { pointer in
        guard let pointer else { return nil }
        let start = Unmanaged<Start>.fromOpaque(pointer).takeRetainedValue()
        rx_name_thread(start.name)
        start.body()
        return nil
      }, start.toOpaque())
    guard code == 0 else {
      start.release()
      joined = true
      throw PosixError("start thread", name, code: code, detail: Self.reason(code))
    }
  }

  /// The reason why the thread cannot be started, with the limit that has been reached.
  private static func reason(_ code: Int32) -> String {
    let text = PosixError.text(code)
    guard code == EAGAIN else { return text }
    // The control group of the process, `0::/system.slice/rxd.service`.
    let groups = SystemFile.read("/proc/self/cgroup", limit: 1 << 16).map { String(decoding: $0, as: UTF8.self) } ?? ""
    if let own = groups.split(separator: "\n").first(where: { $0.hasPrefix("0::") }) {
      let group = "/sys/fs/cgroup" + own.dropFirst(3)
      if let most = number(in: group + "/pids.max"), let now = number(in: group + "/pids.current"), now >= most - 1 {
        return "\(text): the control group may have \(most) threads (TasksMax= of the unit)"
      }
    }
    var limit = rlimit()
    if getrlimit(__rlimit_resource_t(__RLIMIT_NPROC.rawValue), &limit) == 0,
      limit.rlim_cur < limit.rlim_max || limit.rlim_cur < 1 << 20
    {
      return
        "\(text): the user may have \(limit.rlim_cur) threads (LimitNPROC= of the unit, ulimit -u), or memory is short"
    }
    return "\(text): a limit of threads (kernel.threads-max, pids.max) or of memory is reached"
  }

  private static func number(in path: String) -> Int? {
    SystemFile.read(path, limit: 64).flatMap { Int(String(decoding: $0.prefix { $0 > 32 }, as: UTF8.self)) }
  }

  /// Waits until the thread has ended. Called at most once, and never on the thread itself.
  package func join() {
    precondition(!joined, "a thread is joined once")
    joined = true
    pthread_join(handle, nil)
  }

  deinit {
    if !joined { pthread_detach(handle) }
  }
}

extension Guarded {
  /// Waits until the work of another thread is done. After `limit` the work's current call is cancelled; 2 s later the
  /// thread is left behind, because a device that hangs in the kernel may keep it until the process ends.
  ///
  /// - Parameters:
  ///   - cancel: Makes the work end soon.
  ///   - hasEnded: Whether the work is done.
  func waitForEnd(within limit: TimeSpan, cancel: () -> Void, hasEnded: (Value) -> Bool) {
    let (deadline, overflow) = monotonicNow().addingReportingOverflow(limit.nanoseconds)
    if wait(until: overflow ? nil : deadline, { hasEnded($0) ? true : nil }) != nil { return }
    cancel()
    _ = wait(until: monotonicNow() &+ 2_000_000_000) { hasEnded($0) ? true : nil }
  }
}
