import Glibc
import PipelineCore

/// Blocks the thread of a source until the pipeline has room.
package final class SemaphoreGate: InputQueue.Gate, @unchecked Sendable {
  private let semaphore: UnsafeMutablePointer<sem_t>

  package init() {
    semaphore = .allocate(capacity: 1)
    sem_init(semaphore, 0, 0)
  }

  deinit {
    sem_destroy(semaphore)
    semaphore.deallocate()
  }

  package func wait() {
    while sem_wait(semaphore) != 0 && errno == EINTR {}
  }

  package func signal() { sem_post(semaphore) }
}
