/// How the references to a named source or signal share it: the option `share`.
package struct Sharing: RecordParameter, Equatable {
  /// When a shared signal starts.
  package enum Start: String, ChoiceParameter {
    case lazy, eager
    package var help: String {
      self == .lazy ? "with the first who refers to it" : "with the pipeline, even without listeners"
    }
  }
  /// When a shared signal stops.
  package enum Stop: String, ChoiceParameter {
    case unused, never
    package var help: String {
      self == .unused ? "when the last listener has left" : "only by its own end, or with the pipeline"
    }
  }

  /// How many events a late subscriber receives first.
  package var replay = 0
  /// The greatest age of these events.
  package var within: TimeSpan?
  package var start = Start.lazy
  package var stop = Stop.unused
  /// Whether a subscriber that comes after the end restarts the signal; otherwise it receives the kept events and the
  /// end.
  package var again = true

  package init() {}

  package static var fields: [RecordField<Sharing>] {
    [
      .init("replay", \.replay, range: 0...1_000_000, "How many of the last events a late subscriber first receives."),
      .init("within", \.within, range: 1...(Int64.max / 4), "How old these may be."),
      .init("start", \.start, "When it starts."),
      .init("stop", \.stop, "When it stops."),
      .init(
        "again", \.again,
        "Whether a subscriber after the end makes it run again, or receives the last events and the end."),
    ]
  }

  /// Whether it equals the default.
  var isPlain: Bool { self == Sharing() }
}
