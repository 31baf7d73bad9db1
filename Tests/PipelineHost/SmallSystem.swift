import Foundation
import Glibc

/// A file system of a few megabytes.
package struct SmallSystem {
  package let path: String

  package static func canBeMade(isDisk: Bool) -> Bool {
    // Removed after the file system in it is unmounted.
    let folder = Scratch()
    return withExtendedLifetime(folder) {
      guard geteuid() == 0, let system = SmallSystem(folder, megabytes: 12, isDisk: isDisk) else { return false }
      system.unmount()
      return true
    }
  }

  /// Nil: this user cannot mount one.
  package init?(_ folder: Scratch, megabytes: Int, isDisk: Bool) {
    path = folder("small")
    mkdir(path, 0o700)
    var words = ["mount", "-t", "tmpfs", "-o", "size=\(megabytes)m,mode=700", "tmpfs", path]
    if isDisk {
      let image = folder("image")
      guard Self.run(["truncate", "-s", "\(megabytes)M", image]),
        Self.run(["mkfs.ext4", "-q", "-F", "-b", "1024", image])
      else { return nil }
      words = ["mount", "-o", "loop", image, path]
    }
    guard Self.run(words) else { return nil }
  }

  /// Writes a file until there is no room; returns its path.
  package func fill() -> String {
    let file = path + "/rest"
    let number = Glibc.open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
    defer { close(number) }
    for bytes in [65_536, 512] {
      let block = [UInt8](repeating: 1, count: bytes)
      while write(number, block, block.count) > 0 {}
    }
    return file
  }

  package func unmount() { _ = Self.run(["umount", path]) }

  private static func run(_ words: [String]) -> Bool {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = words
    process.standardError = FileHandle.nullDevice
    guard (try? process.run()) != nil else { return false }
    process.waitUntilExit()
    return process.terminationStatus == 0
  }
}
