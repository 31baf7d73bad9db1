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
    // The mask is inherited: set here, so that no signal reaches the thread before it runs.
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
      throw PosixError("start thread", name, code: code)
    }
  }

  /// Waits until the thread has ended. Called at most once, and never on the thread itself.
  package func join() {
    precondition(!joined, "a thread is joined once")
    joined = true
    pthread_join(handle, nil)
  }

  /// Waits until the work of a thread is done, and joins it. After `limit` its present call is cancelled; 2 s later it is left behind, because
  /// a device that hangs in the kernel keeps it until the process ends.
  ///
  /// - Parameters:
  ///   - thread: Nil: another caller joins it.
  ///   - hasEnded: Whether the thread's work is done.
  static func end<State>(
    _ thread: OwnThread?, of state: Guarded<State>, within limit: TimeSpan, cancelling cancellation: WakeEvent,
    _ hasEnded: (State) -> Bool
  ) {
    let (deadline, overflow) = monotonicNow().addingReportingOverflow(limit.nanoseconds)
    if state.wait(until: overflow ? nil : deadline, { hasEnded($0) ? true : nil }) == nil {
      cancellation.wake()
      if state.wait(until: monotonicNow() &+ 2_000_000_000, { hasEnded($0) ? true : nil }) == nil { return }
    }
    thread?.join()
  }

  deinit {
    if !joined { pthread_detach(handle) }
  }
}
