import Foundation
import PipelineCore
import PipelineHost
import Synchronization
import Testing

@testable import Transport

/// Threads that run many jobs.
@Suite struct SharedThreadsTests {
  /// A thousand jobs run on the default number of threads; the turns of one job do not overlap, and a wake-up during a turn causes another
  /// turn.
  @Test func manyShareAFew() throws {
    let threads = SharedThreads("rxd test", usual: 3, most: 3)
    let count = 1000
    let turns = Mutex([Int](repeating: 0, count: count))
    let inside = Mutex([Bool](repeating: false, count: count))
    let overlaps = Atomic(0)
    let works = try (0..<count).map { index in
      try SerialWork(on: threads) {
        let isAlone = inside.withLock { inside in
          defer { inside[index] = true }
          return !inside[index]
        }
        if !isAlone { overlaps.add(1, ordering: .relaxed) }
        let turn = turns.withLock { turns in
          turns[index] += 1
          return turns[index]
        }
        inside.withLock { $0[index] = false }
        return turn >= 20 ? .over : .whenWoken
      }
    }
    let deadline = monotonicNow() + 60_000_000_000
    while monotonicNow() < deadline, turns.withLock({ $0.contains { $0 < 20 } }) {
      for work in works { work.wake() }
      #expect(threads.count <= 3)
      sched_yield()
    }
    #expect(turns.withLock { $0.allSatisfy { $0 == 20 } })
    #expect(overlaps.load(ordering: .relaxed) == 0)
    for work in works { work.wake() }
    #expect(turns.withLock { $0.allSatisfy { $0 == 20 } }, "work that is over has no further turn")
  }

  /// A blocking job keeps a thread to itself meanwhile, and the others continue, up to the limit.
  @Test func blockedWorkHoldsUpNobody() throws {
    let threads = SharedThreads("rxd test", usual: 1, most: 4)
    let gate = Guarded(false)
    let stuck = Guarded(0)
    let blocked = try (0..<3).map { _ in
      try SerialWork(on: threads) {
        stuck.withLock { $0 += 1 }
        stuck.notify()
        _ = gate.wait(until: nil) { $0 ? true : nil }
        return .over
      }
    }
    for work in blocked { work.wake() }
    let limit = monotonicNow() + 30_000_000_000
    #expect(stuck.wait(until: limit) { $0 == 3 ? true : nil } != nil)
    let done = Guarded(false)
    let other = try SerialWork(on: threads) {
      done.withLock { $0 = true }
      done.notify()
      return .over
    }
    other.wake()
    #expect(done.wait(until: limit) { $0 ? true : nil } != nil)
    #expect(threads.count <= 4)
    gate.withLock { $0 = true }
    gate.notify()
  }

  /// A turn scheduled for a time runs then, or earlier if it is woken; on shared threads and on its own.
  @Test(arguments: [false, true]) func turnsAtTimes(_ isOwn: Bool) throws {
    let threads = SharedThreads("rxd test", usual: 1, most: 1)
    let start = monotonicNow()
    let turns = Guarded<[Int64]>([])
    let body: SerialWork.Body = {
      let count = turns.withLock { turns in
        turns.append(monotonicNow() - start)
        return turns.count
      }
      turns.notify()
      return count == 1 ? .at(start + 50_000_000) : count == 2 ? .at(.max) : .over
    }
    let work = isOwn ? try SerialWork(onThread: "rxd test", body) : try SerialWork(on: threads, body)
    work.wake()
    let limit = start + 30_000_000_000
    #expect(turns.wait(until: limit) { $0.count == 2 ? true : nil } != nil)
    #expect(turns.withLock { $0.count == 2 && $0[1] >= 50_000_000 })
    work.wake()
    #expect(turns.wait(until: limit) { $0.count == 3 ? true : nil } != nil)
  }

  /// A job that is woken early has at most one timer, and each turn runs.
  @Test func timersAreReplaced() throws {
    let threads = SharedThreads("rxd test", usual: 2, most: 2)
    let start = monotonicNow() + 100_000_000
    let ended = Guarded<[Int]>([])
    let works = try (0..<100).map { index -> SerialWork in
      let due = start + Int64(index * 37 % 100) * 1_000_000
      return try SerialWork(on: threads) {
        guard monotonicNow() >= due else { return .at(due) }
        ended.withLock { $0.append(index) }
        ended.notify()
        return .over
      }
    }
    for work in works { work.wake() }
    while monotonicNow() < start {
      for work in works { work.wake() }
      sched_yield()
    }
    #expect(ended.wait(until: start + 30_000_000_000) { $0.count == 100 ? true : nil } != nil)
    #expect(ended.withLock { Set($0).count == 100 })
  }

  /// The files of many sinks are written by shared threads.
  @Test func filesShareThreads() throws {
    let folder = Scratch()
    let before = threadCount()
    let writers = try (0..<200).map { try FileWriter(.append(path: folder("\($0)"))) }
    for writer in writers { writer.write(Array("a line\n".utf8)) }
    #expect(threadCount() - before < 100)
    for writer in writers { writer.close() }
    #expect((0..<200).allSatisfy { folder.read("\($0)") == "a line\n" })
  }

  private func threadCount() -> Int {
    (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/task").count) ?? 0
  }
}
