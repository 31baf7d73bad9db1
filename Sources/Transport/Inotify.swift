import Glibc

/// Kernel events of directories and files.
package final class Inotify {
  package struct Event {
    var watch: Int32
    var mask: UInt32
    /// Pairs the two events of a rename.
    var cookie: UInt32
    /// The entry, for events of a directory.
    var name: String
    func has(_ bits: Int) -> Bool { mask & UInt32(truncatingIfNeeded: bits) != 0 }
  }

  /// Entries of a directory are created, removed, renamed or change their permissions; or the directory itself.
  static let directoryEvents = UInt32(
    IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF)
  /// The same, and what is written to the entries.
  package static let contentEvents = directoryEvents | UInt32(IN_MODIFY | IN_CLOSE_WRITE)
  static let fileEvents = UInt32(IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF)

  package let descriptor: Int32
  private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 8)

  package init() throws(PosixError) {
    descriptor = inotify_init1(Int32(IN_CLOEXEC) | Int32(IN_NONBLOCK))
    if descriptor < 0 {
      buffer.deallocate()
      throw PosixError("watch", "files")
    }
  }

  deinit {
    close(descriptor)
    buffer.deallocate()
  }

  /// Watches the file at the path; the same file gives the same number.
  package func watch(_ path: String, _ events: UInt32) throws(PosixError) -> Int32 {
    let watch = inotify_add_watch(descriptor, path, events)
    if watch < 0 { throw PosixError("watch", path) }
    return watch
  }

  package func unwatch(_ watch: Int32) { inotify_rm_watch(descriptor, watch) }

  /// The events since the last call, in order. Never waits.
  package func read() -> [Event] {
    var events: [Event] = []
    while true {
      let count = uninterrupted { Glibc.read(descriptor, buffer.baseAddress, buffer.count) }
      guard count > 0 else { return events }
      var at = 0
      let head = MemoryLayout<inotify_event>.size
      while at + head <= count {
        let watch = buffer.loadUnaligned(fromByteOffset: at, as: Int32.self)
        let mask = buffer.loadUnaligned(fromByteOffset: at + 4, as: UInt32.self)
        let cookie = buffer.loadUnaligned(fromByteOffset: at + 8, as: UInt32.self)
        let length = Int(buffer.loadUnaligned(fromByteOffset: at + 12, as: UInt32.self))
        let name = buffer[(at + head)..<min(at + head + length, count)].prefix { $0 != 0 }
        events.append(
          Event(
            watch: watch, mask: mask, cookie: cookie, name: length == 0 ? "" : String(decoding: name, as: UTF8.self)))
        at += head + length
      }
      // The kernel fills the buffer: if another event would have fitted, there is none.
      if buffer.count - count > head + Int(NAME_MAX) + 1 { return events }
    }
  }
}
