import Glibc
import PipelineCore
import Synchronization
import Testing

@testable import Transport

@Suite struct WorkThreadTests {
  private final class Notes: Sendable {
    let all = Mutex<[Int]>([])
    let threads = Mutex<Set<pthread_t>>([])
    func add(_ number: Int) {
      all.withLock { $0.append(number) }
      threads.withLock { _ = $0.insert(pthread_self()) }
    }
  }

  /// Waits, with a limit that only a bug reaches.
  private func wait(for gate: Guarded<Bool>) -> Bool {
    gate.wait(until: monotonicNow() &+ 60_000_000_000) { $0 ? true : nil } ?? false
  }

  private func open(_ gate: Guarded<Bool>) {
    gate.withLock { $0 = true }
    gate.notify()
  }

  @Test func worksInOrderOnOneOtherThread() {
    let worker = WorkThread("test work")
    let notes = Notes()
    let gate = Guarded(false)
    for number in 0..<10_000 { worker.enqueue { notes.add(number) } }
    worker.enqueue { open(gate) }
    #expect(wait(for: gate))
    #expect(notes.all.withLock { $0 } == Array(0..<10_000))
    let threads = notes.threads.withLock { $0 }
    #expect(threads.count == 1 && !threads.contains(pthread_self()))
  }

  @Test func whatHasNotBegunIsDroppedWithIt() {
    let notes = Notes()
    let (begun, gate, freed) = (Guarded(false), Guarded(false), Guarded(false))
    final class Token: Sendable {
      let freed: @Sendable () -> Void
      init(_ freed: @escaping @Sendable () -> Void) { self.freed = freed }
      deinit { freed() }
    }
    var worker: WorkThread? = WorkThread("test work")
    worker?.enqueue {
      open(begun)
      _ = wait(for: gate)
      notes.add(1)
    }
    #expect(wait(for: begun))
    do {
      let token = Token { open(freed) }
      worker?.enqueue {
        notes.add(2)
        _ = token
      }
    }
    worker = nil
    #expect(wait(for: freed), "it is dropped while the first one is still being done")
    open(gate)
    #expect(notes.all.withLock { !$0.contains(2) })
  }
}
