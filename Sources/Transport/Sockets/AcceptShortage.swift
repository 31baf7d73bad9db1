import Glibc
import PipelineCore

/// While the system has no descriptor or memory for a connection, its listener stays ready: `accept` pauses, connections wait in the
/// backlog, and the owner is notified of the first failure and of the first success after it.
package struct AcceptShortage: Sendable {
  package enum Notice: Sendable, Equatable {
    /// The reason why connections cannot be accepted now; they wait in the backlog, and `accept` is tried again.
    case acceptPaused(String)
    /// Connections are accepted again.
    case acceptResumed
    /// The reason why a connection was set up without an option, or not at all.
    case fault(String)
  }

  /// The pause between two attempts.
  package static let pause = TimeSpan.milliseconds(250)

  /// Whether no connection has been accepted since the last failure.
  private var isShort = false

  package init() {}

  /// Whether an error of `accept` goes away when others free descriptors or memory.
  package static func isShortage(_ code: Int32) -> Bool { [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(code) }

  /// Whether `accept` would at once fail with this error again. False for errors that concern a single connection, or
  /// say that none is waiting.
  static func stops(_ code: Int32) -> Bool {
    ![EAGAIN, EINTR, ECONNABORTED, EPROTO, ENETDOWN, EHOSTDOWN, EHOSTUNREACH, ENETUNREACH, ENONET, ENOPROTOOPT]
      .contains(code)
  }

  package mutating func failed(_ code: Int32) -> Notice? {
    if isShort { return nil }
    isShort = true
    return .acceptPaused(PosixError.text(code))
  }

  package mutating func accepted() -> Notice? {
    guard isShort else { return nil }
    isShort = false
    return .acceptResumed
  }
}

extension AcceptShortage.Notice {
  /// The notice as a line of the log.
  package var line: (level: Services.Level, text: String) {
    switch self {
    case .acceptPaused(let reason):
      (
        .warning,
        "connections cannot be accepted (\(reason)) and wait; raise the limit of open files, or lower 'maxConnections'"
      )
    case .acceptResumed: (.info, "connections are accepted again")
    case .fault(let reason): (.warning, reason)
    }
  }
}

extension Services {
  package func report(_ notice: AcceptShortage.Notice, _ label: String) {
    let line = notice.line
    log(line.level, label, line.text)
  }
}
