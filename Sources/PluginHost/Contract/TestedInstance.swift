import PipelineCore
import PipelineTesting

/// An opened instance of a plugin under test.
final class TestedInstance {
  let number: Int
  let spec: PluginComponentSpec
  var isOpen = false
  /// The reason why `open` was refused.
  var refusal: String?

  // For operators.
  /// Whether the output has completed: the instance is given nothing more.
  var hasFinished = false

  // For sources.
  enum End: Equatable {
    case complete
    case failed(String)
  }
  var credit = 0
  var events: [(event: TestValue, token: Int64?, position: String?)] = []
  /// The names of events, if the source names them.
  var names: Set<String> = []
  var unacknowledged: Set<Int64> = []
  /// All events sent so far, in order.
  var tokens: [Int64] = []
  var end: End?

  // For sinks.
  var skipsUntilAgain = false
  /// Whether further inputs would get no answer.
  var takesNoMore: Bool { skipsUntilAgain || hasFinished }

  init(_ number: Int, _ spec: PluginComponentSpec) {
    self.number = number
    self.spec = spec
  }
}

/// One input of a plugin under test.
enum TestedStep: Sendable, Equatable {
  /// The members of the frame after `to`, beginning with a comma.
  case event(String)
  case timer(String)
  case save
  case complete

  var members: String {
    switch self {
    case .event(let members): members
    case .timer(let name): ",\"timer\":\(JSONText.string(name).text)"
    case .save: ",\"save\":true"
    case .complete: ",\"complete\":true"
    }
  }
}

/// The answer to one input.
final class TestedAnswer {
  let id: Int
  let instance: TestedInstance
  let step: TestedStep
  var isTaken = false
  var events: [TestValue] = []
  var error: String?
  var retry: String?
  var state: String?
  var finishes = false
  /// Nanoseconds from now; nil: cancelled.
  var timers: [String: Int64?] = [:]

  init(_ id: Int, _ instance: TestedInstance, _ step: TestedStep) {
    self.id = id
    self.instance = instance
    self.step = step
  }

  /// The part of the answer that another run must repeat.
  struct Outcome: Equatable {
    var events: [TestValue]
    var error: String?
    var retry: String?
    var timers: [String: Int64?]
    var finishes: Bool

    /// The timers of a batch may be set with any of its inputs.
    var withoutTimers: Outcome { Outcome(events: events, error: error, retry: retry, timers: [:], finishes: finishes) }

    var shown: String {
      var parts = events.map { Printable.cut($0.description, limit: 120) }
      if let error { parts.append("error \"\(Printable.cut(error, limit: 120))\"") }
      if let retry { parts.append("retry \"\(Printable.cut(retry, limit: 120))\"") }
      for (name, after) in timers.sorted(by: { $0.key < $1.key }) {
        parts.append("timer \(name) \(after.map { "in \(TimeSpan(nanoseconds: $0))" } ?? "cancelled")")
      }
      if finishes { parts.append("the end") }
      return parts.isEmpty ? "nothing" : parts.prefix(4).joined(separator: ", ") + (parts.count > 4 ? ", ..." : "")
    }
  }
  var outcome: Outcome { Outcome(events: events, error: error, retry: retry, timers: timers, finishes: finishes) }

  /// The input, for messages.
  var shown: String { Printable.cut("{\"id\":\(id)\(step.members)}", limit: 160) }
}
