import Glibc
import PipelineCore
import Transport

/// The memory of an ``InHand``, which is also written to a small file alongside the pipeline's store. The file is not
/// mapped, because access to mapped memory ends the process if the file system cannot provide the page. Nothing is
/// synced: an event that ends the process does not end the system.
final class InHandFile: @unchecked Sendable {
  let memory: UnsafeMutableRawPointer
  private let number: Int32

  /// Nil if the file cannot be created or read.
  init?(_ path: String) {
    number = uninterrupted { open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600) }
    memory = .allocate(byteCount: InHand.byteCount, alignment: 8)
    memory.initializeMemory(as: UInt8.self, repeating: 0, count: InHand.byteCount)
    // Allocated now, so that later writes need no further space.
    guard number >= 0, posix_fallocate(number, 0, off_t(InHand.byteCount)) == 0,
      uninterrupted({ pread(number, memory, InHand.byteCount, 0) }) == InHand.byteCount
    else { return nil }
  }

  func record(_ from: Int, _ count: Int) {
    _ = uninterrupted { pwrite(number, memory + from, count, off_t(from)) }
  }

  deinit {
    if number >= 0 { Glibc.close(number) }
    memory.deallocate()
  }
}

extension InHand {
  /// The in-hand record of the store at this path; nil if it cannot be kept there.
  package static func beside(_ store: String) -> InHand? {
    InHandFile(store + ".hand").map { file in InHand(file.memory, heldBy: file) { file.record($0, $1) } }
  }
}
