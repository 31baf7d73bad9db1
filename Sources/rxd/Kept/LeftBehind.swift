import Glibc
import PipelineCore
import PipelineRuntime
import Storage

/// Events in a state directory that no pipeline of the files delivers.
struct LeftBehind {
  enum Reason: String {
    /// No file has a pipeline of this name.
    case noPipeline = "no_pipeline"
    /// The pipeline delivers nothing from the directory.
    case bestEffort = "best_effort"
    /// The pipeline has no such sink that delivers from the directory.
    case noSink = "no_sink"
  }

  var pipeline: String
  var sink: String
  var events: Int
  var reason: Reason

  /// The waiting events and the reason, as a clause.
  var what: String {
    let waits =
      "\(Printable.count(events, "event")) for the sink '\(sink)' \(events == 1 ? "waits" : "wait") in the state of '\(pipeline)'"
    return switch reason {
    case .noPipeline: "\(waits), and no file has a pipeline of this name"
    case .bestEffort: "\(waits), and 'delivery: bestEffort' delivers nothing from there"
    case .noSink: "\(waits), and its file has no such sink, or one whose delivery is best effort"
    }
  }

  /// Advice, a clause.
  var advice: String {
    switch reason {
    case .noPipeline:
      "give a pipeline this 'name', or stop rxd and use 'rxd state rename \(pipeline) NEW' to deliver them, or 'rxd state delete \(pipeline)' to drop them"
    case .bestEffort:
      "leave 'delivery: bestEffort' out to deliver them, or stop rxd and use 'rxd state reset \(pipeline) --outbox \(sink)' to drop them"
    case .noSink:
      "give the sink 'movedFrom: \(sink)' if it has another name now, give a sink this name, or stop rxd and use 'rxd state reset \(pipeline) --outbox \(sink)' to drop them"
    }
  }

  var line: String { "\(what): \(advice)" }

  /// The sinks of each pipeline that deliver from a state directory; empty: the pipeline delivers nothing from there.
  typealias Takers = [String: Set<String>]

  /// The events in the store of a pipeline that are not delivered. `takers`: the sinks that deliver from the store;
  /// nil: there is no pipeline of this name.
  static func find(_ pipeline: String, _ backlogs: [String: OutboxBacklog], _ takers: Set<String>?) -> [LeftBehind] {
    backlogs.sorted { $0.key < $1.key }.compactMap { sink, backlog in
      guard backlog.rows > 0, takers?.contains(sink) != true else { return nil }
      let reason: Reason = takers.map { $0.isEmpty ? .bestEffort : .noSink } ?? .noPipeline
      return LeftBehind(pipeline: pipeline, sink: sink, events: backlog.events, reason: reason)
    }
  }

  /// The events in the stores of a directory that are not delivered, without the stores of `open`. A store that cannot
  /// be read is omitted, too.
  static func find(in folder: StateFolder, _ takers: Takers, except open: Set<String> = []) -> [LeftBehind] {
    let names = (try? folder.pipelines()) ?? []
    return names.filter { !open.contains($0) }.flatMap { name -> [LeftBehind] in
      guard let backlogs = try? StoreReader(folder.store(name)).backlogs() else { return [] }
      return find(name, backlogs, takers[name])
    }
  }
}

extension Plan {
  /// The sinks that deliver from a state directory, and their former names.
  var sinksOfStore: Set<String> {
    guard delivery(hasStateDirectory: true) != .bestEffort else { return [] }
    let names = sinks.filter { !isBestEffort($0.step) }.map(\.name)
    return Set(names + names.compactMap { formerName(ofSink: $0) })
  }
}
