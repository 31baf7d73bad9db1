import Glibc

/// Clocks for measuring.
package enum Stopwatch {
  /// The processor time of this thread in nanoseconds: time that other threads of a busy machine take does not count.
  package static var now: Double {
    var time = timespec()
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return Double(time.tv_sec) * 1e9 + Double(time.tv_nsec)
  }

  /// Nanoseconds for one round of `body`, from each of `samples` samples of `count` rounds, sorted.
  package static func samples(_ samples: Int, _ count: Int, _ body: () -> Void) -> [Double] {
    body()
    return (0..<samples).map { _ in
      let start = now
      for _ in 0..<count { body() }
      return (now - start) / Double(count)
    }.sorted()
  }
}
