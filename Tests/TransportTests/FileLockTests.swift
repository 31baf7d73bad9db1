import Glibc
import PipelineCore
import PipelineHost
import Testing

@testable import Transport

@Suite struct FileLockTests {
  private let folder = ScratchDirectory()

  private func open() -> Int32 { Glibc.open(folder("lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0o600) }

  /// Whether a thread of this process waits in flock(2) for the file: such lines of /proc/locks begin with an arrow.
  private func isAwaited(_ descriptor: Int32) -> Bool {
    var status = stat()
    guard fstat(descriptor, &status) == 0, let file = fopen("/proc/locks", "r") else { return false }
    defer { fclose(file) }
    var line = [CChar](repeating: 0, count: 512)
    while fgets(&line, 512, file) != nil {
      let text = String(decoding: line.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
      if text.contains("-> FLOCK"), text.contains(":\(status.st_ino) ") { return true }
    }
    return false
  }

  @Test func theWaitEndsWhenTheLockIsFree() throws {
    let (holder, waiter) = (open(), open())
    defer { close(waiter) }
    #expect(FileLock.take(holder, within: .zero) == 0)
    let result = Guarded<Int32?>(nil)
    _ = try OwnThread("test") {
      let code = FileLock.take(waiter, within: .seconds(600))
      result.withLock { $0 = code }
      result.notify()
    }
    #expect(Polling.until { isAwaited(waiter) })
    close(holder)
    #expect(result.wait(until: monotonicNow() + 240_000_000_000) { $0 } == 0)
    #expect(FileLock.take(waiter, within: .zero) == 0)
  }

  /// A lock that is granted after the time limit is released.
  @Test func theLimitEndsTheWait() throws {
    let (holder, waiter, third) = (open(), open(), open())
    defer { close(third) }
    #expect(FileLock.take(holder, within: .zero) == 0)
    #expect(FileLock.take(waiter, within: .milliseconds(1)) == EWOULDBLOCK)
    #expect(FileLock.take(waiter, within: .zero) == EWOULDBLOCK)
    close(waiter)
    close(holder)
    #expect(FileLock.take(third, within: .seconds(240)) == 0)
  }

  @Test func anErrorIsReturned() {
    #expect(FileLock.take(-1, within: .seconds(1)) == EBADF)
  }
}
