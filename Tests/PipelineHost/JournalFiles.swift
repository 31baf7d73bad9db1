import Foundation

/// Journal files written by Debian's systemd-journal-remote: usable where no journald runs, and with entries of any
/// content.
package final class JournalFiles {
  private static func path(_ name: String) -> String? {
    ["/lib/systemd/", "/usr/lib/systemd/", "/usr/bin/", "/bin/"].map { $0 + name }.first { access($0, X_OK) == 0 }
  }
  package static var canBeMade: Bool { path("systemd-journal-remote") != nil && path("journalctl") != nil }

  package struct Entry {
    package var fields: [(name: String, value: [UInt8])]
    /// In microseconds since 1970; nil: one second after the previous entry.
    package var time: UInt64?

    package init(_ fields: KeyValuePairs<String, String>, at time: UInt64? = nil) {
      self.fields = fields.map { ($0.key, Array($0.value.utf8)) }
      self.time = time
    }
  }

  package let folder = Scratch()
  package var path: String { folder.path }
  private var writer: Process?
  private var input: FileHandle?
  private var files = 0
  package private(set) var time: UInt64 = 1_700_000_000_000_000
  package static let boot = "0123456789abcdef0123456789abcdef"

  package init() {}
  deinit { close() }

  private static func text(_ entry: Entry, _ time: UInt64) -> [UInt8] {
    var text = Array("__REALTIME_TIMESTAMP=\(time)\n__MONOTONIC_TIMESTAMP=\(time / 1000)\n_BOOT_ID=\(boot)\n".utf8)
    for (name, value) in entry.fields {
      text += Array(name.utf8)
      if value.contains(0x0A) || value.contains(where: { $0 < 0x20 || $0 > 0x7E }) {
        text.append(0x0A)
        withUnsafeBytes(of: UInt64(value.count).littleEndian) { text += $0 }
      } else {
        text.append(UInt8(ascii: "="))
      }
      text += value
      text.append(0x0A)
    }
    return text + [0x0A]
  }

  /// Adds entries to the current file, which is created if necessary. They appear in it some time later.
  package func write(_ entries: [Entry]) throws {
    if writer == nil { try start() }
    var text: [UInt8] = []
    for entry in entries {
      time = entry.time ?? time + 1_000_000
      text += Self.text(entry, time)
    }
    try input?.write(contentsOf: Data(text))
  }

  /// Entries with these messages.
  package func write(messages: some Sequence<String>) throws { try write(messages.map { Entry(["MESSAGE": $0]) }) }

  private func start() throws {
    let (process, pipe) = (Process(), Pipe())
    process.executableURL = URL(fileURLWithPath: Self.path("systemd-journal-remote") ?? "")
    process.arguments = ["--split-mode=none", "-o", folder("system.journal"), "-"]
    process.standardInput = pipe
    process.standardOutput = FileHandle.nullDevice
    process.standardError = FileHandle.nullDevice
    try process.run()
    try? pipe.fileHandleForReading.close()
    writer = process
    input = pipe.fileHandleForWriting
  }

  /// Waits until everything is in the file, and completes it.
  package func close() {
    try? input?.close()
    writer?.waitUntilExit()
    (writer, input) = (nil, nil)
  }

  /// Completes the file and renames it to an archive, as journald does; the next entry starts a new file.
  package func rotate() throws {
    close()
    files += 1
    func hex(_ number: UInt64, _ digits: Int) -> String {
      let text = String(number, radix: 16)
      return String(repeating: "0", count: digits - text.count) + text
    }
    let name = "system@\(hex(UInt64(files), 32))-\(hex(UInt64(files), 16))-\(hex(time, 16)).journal"
    try FileManager.default.moveItem(atPath: folder("system.journal"), toPath: folder(name))
  }

  /// Removes archives, the oldest first, until `count` are left.
  package func vacuum(keeping count: Int) throws {
    _ = try Self.run("journalctl", "-D", path, "--vacuum-files=\(count)")
  }

  /// What journalctl prints.
  package func journalctl(_ arguments: String...) throws -> String {
    try Self.run("journalctl", ["-D", path, "-q", "--no-pager"] + arguments)
  }

  @discardableResult
  package static func run(_ name: String, _ arguments: String...) throws -> String { try run(name, arguments) }

  private static func run(_ name: String, _ arguments: [String]) throws -> String {
    let (process, pipe) = (Process(), Pipe())
    process.executableURL = URL(fileURLWithPath: path(name) ?? "")
    process.arguments = arguments
    process.standardOutput = pipe
    process.standardError = FileHandle.nullDevice
    try process.run()
    let output = pipe.fileHandleForReading.readDataToEndOfFile()
    process.waitUntilExit()
    return String(decoding: output, as: UTF8.self)
  }
}

/// A journald in a namespace of its own, with its own sockets and files. Only root can start one.
package final class JournalDaemon {
  package static var canRun: Bool {
    geteuid() == 0 && access("/lib/systemd/systemd-journald", X_OK) == 0 && access("/etc/machine-id", R_OK) == 0
  }
  package let name = "rxdtest\(getpid())\(UInt16.random(in: 0 ... .max))"
  private let process = Process()

  package init() throws {
    process.executableURL = URL(fileURLWithPath: "/lib/systemd/systemd-journald")
    process.arguments = [name]
    process.standardOutput = FileHandle.nullDevice
    process.standardError = FileHandle.nullDevice
    try process.run()
    Polling.until { access(socket, F_OK) == 0 && directory != nil }
  }

  package var socket: String { "/run/systemd/journal.\(name)/socket" }

  /// The directory of its files.
  package var directory: String? {
    let machine = (try? String(contentsOfFile: "/etc/machine-id", encoding: .utf8))?.trimmingCharacters(in: .newlines)
    return ["/var/log/journal", "/run/log/journal"].map { "\($0)/\(machine ?? "").\(name)" }
      .first { access($0 + "/system.journal", F_OK) == 0 }
  }

  /// Makes it start new files.
  package func rotate() { kill(process.processIdentifier, SIGUSR2) }

  deinit {
    let directory = directory
    kill(process.processIdentifier, SIGKILL)
    process.waitUntilExit()
    if let directory { try? FileManager.default.removeItem(atPath: directory) }
    try? FileManager.default.removeItem(atPath: "/run/systemd/journal.\(name)")
  }
}
