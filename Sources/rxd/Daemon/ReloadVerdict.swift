import PipelineCore
import PipelineRuntime

/// The result of a reload.
struct ReloadVerdict {
  enum Result: String {
    /// The new files run.
    case reloaded
    /// The files have errors: nothing has changed.
    case refused
    /// The files have no errors, but at least one pipeline does not run from its new file.
    case failed
    /// The files have no errors; the change is under way.
    case accepted
  }

  /// The result for one pipeline.
  struct Change {
    enum Kind: String {
      /// The file means the same: the pipeline was not touched.
      case unchanged
      /// The pipeline runs from the new file, with its state.
      case reloaded
      /// The pipeline runs from the new file, and began without the state of the old one.
      case restarted
      case added, removed
      /// The pipeline does not run from its new file.
      case failed
      /// The result is not known yet.
      case pending
    }

    var kind: Kind
    var name: String
    var file: String
    /// The steps that continue from their state.
    var kept: [String] = []
    /// The state that could not be taken over, and why: one line each.
    var lost: [String] = []
    /// The events in the pipeline's store that the pipeline does not deliver: one line for each sink.
    var left: [String] = []
    /// Why the pipeline failed.
    var reason: String?

    fileprivate var json: JSONText {
      var members: [(String, JSONText)] = [
        ("name", .string(name)), ("file", .string(file)), ("result", .string(kind.rawValue)),
      ]
      if !kept.isEmpty { members.append(("kept", .array(kept.map(JSONText.string)))) }
      if !lost.isEmpty { members.append(("lost", .array(lost.map(JSONText.string)))) }
      if !left.isEmpty { members.append(("left", .array(left.map(JSONText.string)))) }
      if let reason { members.append(("reason", .string(reason))) }
      return .object(members)
    }

    fileprivate var text: String {
      let what =
        switch kind {
        case .unchanged: "unchanged"
        case .reloaded: "reloaded with its state"
        case .restarted: "restarted without its state"
        case .added: "added"
        case .removed: "removed"
        case .failed: "not reloaded"
        case .pending: "under way"
        }
      var lines = ["\(name): \(what)" + (reason.map { ": \($0)" } ?? "")]
      if !kept.isEmpty { lines.append("  goes on: \(kept.joined(separator: ", "))") }
      lines += lost.map { "  lost: \($0)" }
      lines += left.map { "  left: \($0)" }
      return lines.map { Printable.cut($0, limit: 8192) + "\n" }.joined()
    }
  }

  var result: Result
  /// The time of the reload: wall-clock nanoseconds since 1970.
  var at: Int64
  var duration: TimeSpan
  var changes: [Change] = []
  /// The diagnostics of `rxd check` for the files.
  var diagnostics: [Diagnostic] = []
  /// One sentence.
  var summary: String

  /// Why the new files do not run: the first error of each kind of refusal, in one line; nil: they run.
  var reason: String? {
    switch result {
    case .reloaded, .accepted: nil
    case .refused: diagnostics.first { $0.severity == .error }?.line ?? summary
    case .failed:
      changes.first { $0.kind == .failed }.map { "\($0.name): \($0.reason ?? "it does not start")" } ?? summary
    }
  }

  /// The HTTP status.
  var status: Int {
    switch result {
    case .reloaded: 200
    case .accepted: 202
    case .refused: 422
    case .failed: 500
    }
  }

  /// - Parameter complete: Whether to include the pipelines that have not changed and the report of `rxd check`.
  func json(complete: Bool = true) -> JSONText {
    var members: [(String, JSONText)] = [
      ("result", .string(result.rawValue)), ("at", .string(StoredTime.text(at))),
      ("milliseconds", .int(Int(duration.nanoseconds / 1_000_000))), ("summary", .string(summary)),
    ]
    if let reason { members.append(("reason", .string(Printable.cut(reason, limit: 1000)))) }
    let shown = complete ? changes : changes.filter { $0.kind != .unchanged }
    members.append(("pipelines", .array(shown.map(\.json))))
    if !diagnostics.isEmpty {
      members.append(("diagnostics", .array(diagnostics.prefix(200).map { .string($0.line) })))
      if complete { members.append(("report", .string(DiagnosticRenderer().text(diagnostics)))) }
    }
    return .object(members)
  }

  /// The verdict for a person: the report of `rxd check`, a line or more for each pipeline that has changed or leaves
  /// undelivered events, one for all others, and the result.
  func text(colors: Bool) -> String {
    let shown = changes.filter { $0.kind != .unchanged || !$0.left.isEmpty }
    let rest = changes.count - shown.count
    let sum =
      switch (rest, shown.count) {
      case (0, _): ""
      case (1, 0): "the pipeline is unchanged\n"
      case (_, 0): "all \(rest) pipelines are unchanged\n"
      case (1, _): "1 other pipeline is unchanged\n"
      default: "\(rest) other pipelines are unchanged\n"
      }
    return DiagnosticRenderer(colors: colors).text(diagnostics) + shown.map(\.text).joined() + sum + summary + "\n"
  }
}
