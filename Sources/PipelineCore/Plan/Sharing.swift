/// How the references to a named source or signal share it: the option `share`.
public struct Sharing: RecordParameter, Equatable {
  /// When a shared signal starts.
  public enum Start: String, ChoiceParameter {
    case lazy, eager
    public var help: String {
      self == .lazy ? "with the first who refers to it" : "with the pipeline, even without listeners"
    }
  }
  /// When a shared signal stops.
  public enum Stop: String, ChoiceParameter {
    case unused, never
    public var help: String {
      self == .unused ? "when the last listener has left" : "only by its own end, or with the pipeline"
    }
  }

  /// How many events a late subscriber receives first.
  public var replay = 0
  /// The greatest age of these events.
  public var within: TimeSpan?
  public var start = Start.lazy
  public var stop = Stop.unused
  /// Whether a subscriber that comes after the end restarts the signal; otherwise it receives the kept events and the
  /// end.
  public var again = true

  public init() {}

  public static var fields: [RecordField<Sharing>] {
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
