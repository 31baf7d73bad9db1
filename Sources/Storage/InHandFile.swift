import Glibc
import PipelineCore

/// The memory of an ``InHand``: a small file beside the store of the pipeline, mapped into memory. The system writes it at any time, which
/// is enough: an event that ends the process does not end the system.
final class InHandFile {
  let memory: UnsafeMutableRawPointer

  /// Nil: it cannot be made or mapped.
  init?(_ path: String) {
    let number = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
    guard number >= 0 else { return nil }
    defer { Glibc.close(number) }
    // Without the room a write to the memory would end the process.
    guard posix_fallocate(number, 0, off_t(InHand.byteCount)) == 0,
      let memory = mmap(nil, InHand.byteCount, PROT_READ | PROT_WRITE, MAP_SHARED, number, 0), memory != MAP_FAILED
    else { return nil }
    self.memory = memory
  }

  deinit { munmap(memory, InHand.byteCount) }
}

extension InHand {
  /// That of the store at a path; nil: it cannot be recorded there.
  package static func beside(_ store: String) -> InHand? {
    InHandFile(store + ".hand").map { InHand($0.memory, heldBy: $0) }
  }
}
