import Glibc
import PipelineCore
import PipelineRuntime
import Storage

extension Supervisor {
  /// The answer to `GET /status`.
  var statusDocument: JSONText {
    .object([
      ("version", .string(Version.number)), ("pid", .int(Int(getpid()))),
      ("started", .string(StoredTime.text(startedAt))),
      ("status", .string(status)), ("daemon", .bool(options.isDaemon)), ("stopping", .bool(isStopping)),
      ("reloading", .bool(reload != nil)),
      ("pipelines", .array(slots.map(\.document))),
      ("broken_files", .array(broken.map(JSONText.string))),
      ("last_reload", lastReload?.json(complete: false) ?? .null),
    ])
  }
}

extension PipelineSlot {
  /// How the pipeline is, in a word of `GET /status`.
  var stateName: String {
    switch state {
    case .running: hasLaunched ? "running" : "starting"
    case .draining: isLeaving ? "leaving" : "stopping"
    case .waiting: "restarting"
    case .failed: "failed"
    case .over: hasFailed ? "failed" : "completed"
    }
  }

  /// How the pipeline is, for `GET /status`.
  fileprivate var document: JSONText {
    var members: [(String, JSONText)] = [
      ("name", .string(name)), ("file", .string(path)), ("state", .string(stateName)),
      ("since", .string(StoredTime.text(since))),
    ]
    if let failure { members.append(("last_failure", .string(failure))) }
    return .object(members)
  }
}
