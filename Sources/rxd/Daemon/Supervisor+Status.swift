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
      ("reload", reloads.last?.json(complete: false) ?? .null),
    ])
  }

  /// Notifies the service manager when all requested changes are done.
  func reportIfReady() {
    guard !isStopping, slots.allSatisfy(\.isSettled) else { return }
    if !isReady {
      isReady = true
      upkeep.forgetAt = now + .seconds(1)
      notify?.send("READY=1\nSTATUS=\(status)")
    }
    if let reload { finish(reload) }
  }

  /// `3 pipelines running, 1 failed (search)`.
  var status: String {
    func names(_ slots: [PipelineSlot]) -> String {
      slots.prefix(5).map(\.name).joined(separator: ", ") + (slots.count > 5 ? ", ..." : "")
    }
    let running = slots.count { $0.run != nil && !$0.isLeaving }
    let failed = slots.filter { $0.state == .failed || $0.state == .over && $0.hasFailed }
    let waiting = slots.filter { $0.state == .waiting }
    var parts = ["\(running) pipeline\(running == 1 ? "" : "s") running"]
    if !waiting.isEmpty { parts.append("\(waiting.count) restarting (\(names(waiting)))") }
    if !failed.isEmpty { parts.append("\(failed.count) failed (\(names(failed)))") }
    if !broken.isEmpty {
      parts.append(
        Printable.count(broken.count, "broken file")
          + " (\(broken.prefix(5).joined(separator: ", "))\(broken.count > 5 ? ", ..." : ""))")
    }
    return parts.joined(separator: ", ")
  }

  func reportStatus() {
    if isReady, !isStopping { notify?.send("STATUS=\(status)") }
  }
}

extension PipelineSlot {
  /// The state of the pipeline, as one word of `GET /status`.
  var stateName: String {
    switch state {
    case .running: hasLaunched ? "running" : "starting"
    case .draining: isLeaving ? "leaving" : "stopping"
    case .waiting: "restarting"
    case .failed: "failed"
    case .over: hasFailed ? "failed" : "completed"
    }
  }

  /// The state of the pipeline, for `GET /status`.
  fileprivate var document: JSONText {
    var members: [(String, JSONText)] = [
      ("name", .string(name)), ("file", .string(path)), ("state", .string(stateName)),
      ("since", .string(StoredTime.text(since))),
    ]
    if let failureDocument { members.append(("failure", failureDocument)) }
    let troubles = (run?.troubles.all ?? [:]).sorted { $0.key.utf8.lexicographicallyPrecedes($1.key.utf8) }
    if !troubles.isEmpty {
      members.append(
        ("sinks", .array(troubles.map { .object([("name", .string($0.key)), ("trouble", $0.value.document)]) })))
    }
    return .object(members)
  }

  /// The last failure, for `GET /status` and `GET /stats`; nil: no run has failed.
  var failureDocument: JSONText? { failure?.document(waits: restarts.at != nil) }
}

extension PipelineSlot.Failure {
  /// - Parameter waits: Whether the next try is still to come.
  fileprivate func document(waits: Bool) -> JSONText {
    var members: [(String, JSONText)] = [
      ("reason", .string(Printable.cut(reason, limit: 1000))), ("at", .string(StoredTime.text(at))),
    ]
    if waits, let nextTry { members.append(("next_try", .string(StoredTime.text(nextTry)))) }
    members.append(("attempt", .int(attempt)))
    return .object(members)
  }
}
