import PipelineCore

/// One parsed test of a pipeline: its inputs, the stubbed answers, and its expectations.
package struct PipelineTest: Sendable {
  package var name: Located<String>
  /// The location of the whole test in the file.
  package var location: SourceLocation
  /// The time of one marble character; also used for drawing.
  package var tick = TimeSpan.milliseconds(1)
  /// When to stop; nil: when nothing more happens (see ``TestRunner``).
  package var until: TimeSpan?
  /// The time of day at the start, in nanoseconds since 1970; nil: that of ``VirtualTime``.
  package var wallTime: Int64?
  /// The plan with the test's environment; nil: the original plan.
  package var plan: Plan?
  package var inputs: [Input] = []
  var stubs: [any StubSet] = []
  /// The location of the stubs, for unanswered requests.
  var stubsLocation: SourceLocation?
  package var expectations: [Expectation] = []

  /// The events of a named source.
  package struct Input: Sendable {
    /// The name of a source, or of a signal that starts with a source of its own.
    package var source: Located<String>
    /// The source in the plan.
    package var origin: SignalPlan
    /// The type of the source's events, to which its events are converted (``TypedInput``).
    package var type: ExpressionType
    package var history: SignalHistory
    /// What the test says of the origin of events, by the index of the entry in `history`.
    package var origins: [Int: ScriptedOrigin] = [:]
  }

  /// The expected events of one signal, sink or output.
  package struct Expectation: Sendable {
    /// Where the events are expected.
    package enum Target: Sendable, Equatable {
      case sink(String)
      /// A named source or signal, by its index in ``Plan/named``.
      case signal(Int)
      case errors(ErrorsOwner)
      case requests
      /// The answers to the clients of a named source, by the source's index.
      case replies(Int)

      /// Whether an expected value may give only a part of the actual one.
      var comparesParts: Bool {
        switch self {
        case .requests, .replies: true
        case .sink, .signal, .errors: false
        }
      }
    }

    /// One expected event.
    package struct Item: Sendable {
      /// The kind of an expected event.
      package enum Moment: Sendable, Equatable {
        case next(TestValue)
        case complete
        /// The message must contain the text; nil: any error.
        case error(String?)
        /// A source or signal is subscribed to and starts.
        case subscribe
        /// The signal is cancelled before its end.
        case cancel

        var isMark: Bool { self == .subscribe || self == .cancel }
      }
      /// Nil: at any time.
      package var at: TimeSpan?
      package var moment: Moment
      package var location: SourceLocation
      /// Of an input: members of `meta`.
      package var meta: YAMLNode?
    }

    package var subject: Located<String>
    package var target: Target
    /// The items, in the required order.
    package var items: [Item] = []
    /// Whether further items may appear between and after them.
    package var allowsMore = false
    /// The values that the letters of the marbles stand for.
    package var letters: [(name: String, value: TestValue)] = []
    package var tick = TimeSpan.milliseconds(1)
    /// The expectation in the file.
    package var node: YAMLNode

    /// Whether it contains subscriptions or cancellations.
    var hasMarks: Bool { items.contains { $0.moment.isMark } }
  }

  /// The last instant that the test mentions.
  var horizon: TimeSpan {
    let inputs = inputs.compactMap { $0.history.entries.last?.at }
    let expected = expectations.flatMap { $0.items.compactMap(\.at) }
    return max((inputs + expected).max() ?? .zero, stubs.map(\.horizon).max() ?? .zero)
  }

  var expectsError: Bool {
    expectations.contains {
      $0.items.contains { if case .error = $0.moment { true } else { false } }
    }
  }
}

/// Matches patterns in which `*` stands for any bytes.
enum Glob {
  static func matches(_ pattern: String, _ text: String) -> Bool {
    let pattern = Array(pattern.utf8)
    let text = Array(text.utf8)
    var at = 0
    var position = 0
    // Where to continue after the last `*` if the rest does not match.
    var star: (pattern: Int, text: Int)?
    while position < text.count {
      if at < pattern.count, pattern[at] == UInt8(ascii: "*") {
        star = (at + 1, position)
        at += 1
      } else if at < pattern.count, pattern[at] == text[position] {
        at += 1
        position += 1
      } else if let last = star {
        star = (last.pattern, last.text + 1)
        at = last.pattern
        position = last.text + 1
      } else {
        return false
      }
    }
    while at < pattern.count, pattern[at] == UInt8(ascii: "*") { at += 1 }
    return at == pattern.count
  }

  /// The number of bytes of `text` that must be inserted, removed or replaced until `pattern` matches; only the first
  /// 500 bytes of each are compared.
  static func distance(_ pattern: String, _ text: String) -> Int {
    let pattern = Array(pattern.utf8.prefix(500))
    let text = Array(text.utf8.prefix(500))
    var costs = Array(0...text.count)
    for letter in pattern {
      let isStar = letter == UInt8(ascii: "*")
      var diagonal = costs[0]
      if !isStar { costs[0] += 1 }
      for position in text.indices {
        let above = costs[position + 1]
        if isStar {
          costs[position + 1] = min(above, costs[position])
        } else {
          let same = letter == text[position] ? 0 : 1
          costs[position + 1] = min(diagonal + same, above + 1, costs[position] + 1)
        }
        diagonal = above
      }
    }
    return costs[text.count]
  }
}
