import PipelineCore

/// The lines of a program's standard error, or output, on their way to the log: at most 20 a second.
package struct ErrorLines {
  private var partial: [UInt8] = []
  /// The last line that was not empty.
  package private(set) var last: [UInt8] = []
  private var second: Int64 = 0
  private var lines = 0
  private var dropped = 0
  private static let most = 20

  /// Called for each line that is not logged.
  private let missed: @Sendable () -> Void
  /// The prefix of each line.
  private let stream: String

  package init(_ stream: String = "stderr", missed: @escaping @Sendable () -> Void = {}) {
    self.stream = stream
    self.missed = missed
  }

  /// When the number of dropped lines must be logged.
  package var due: Int64? { dropped > 0 ? (second + 1) * 1_000_000_000 : nil }

  package mutating func take(_ bytes: ArraySlice<UInt8>, _ now: Int64, _ log: (Services.Level, String) -> Void) {
    partial += bytes
    while let end = partial.firstIndex(of: 0x0A) {
      say(partial[..<end], now, log)
      partial.removeSubrange(...end)
    }
    if partial.count > 4096 {
      say(partial[...], now, log)
      partial = []
    }
  }

  package mutating func end(_ now: Int64, _ log: (Services.Level, String) -> Void) {
    if !partial.isEmpty { say(partial[...], now, log) }
    partial = []
    report(log)
  }

  package mutating func flush(_ now: Int64, _ log: (Services.Level, String) -> Void) {
    if now / 1_000_000_000 != second { report(log) }
  }

  private mutating func say(_ line: ArraySlice<UInt8>, _ now: Int64, _ log: (Services.Level, String) -> Void) {
    if now / 1_000_000_000 != second {
      report(log)
      second = now / 1_000_000_000
      lines = 0
    }
    lines += 1
    if !line.isEmpty { last = Array(line.prefix(400)) }
    if lines > Self.most {
      dropped += 1
      missed()
    } else if !line.isEmpty {
      log(.info, "\(stream): \(Printable.cut(line, limit: 2000))")
    }
  }

  private mutating func report(_ log: (Services.Level, String) -> Void) {
    guard dropped > 0 else { return }
    log(.warning, "\(stream): \(Printable.count(dropped, "further line")) within a second")
    dropped = 0
  }
}
