/// One test of a pipeline file, understood: what goes in, what the world answers, what must come out.
public struct PipelineTest: Sendable {
  public var name: Located<String>
  /// All of the test in the file.
  public var location: SourceLocation
  /// How long one character of marbles lasts; also used to draw.
  public var tick = TimeSpan.milliseconds(1)
  /// When to stop; nil: when nothing more happens, see ``TestRunner``.
  public var until: TimeSpan?
  /// The time of day when it begins, in nanoseconds since 1970; nil: that of ``VirtualTime``.
  public var wallTime: Int64?
  /// The pipeline with the test's own environment; nil: as it is.
  public var plan: Plan?
  public var inputs: [Input] = []
  public var stubs: [HTTPStub] = []
  /// Where the stubs stand, for requests that none of them answers.
  public var stubsLocation: SourceLocation?
  public var expectations: [Expectation] = []

  /// What a named source sends.
  public struct Input: Sendable {
    /// The name of a source, or of a signal that begins with a source of its own.
    public var source: Located<String>
    /// The source's place in the plan.
    public var origin: SignalPlan
    public var history: SignalHistory
  }

  /// What must come out in one place.
  public struct Expectation: Sendable {
    public enum Target: Sendable, Equatable {
      case sink(String)
      /// A named source or signal, by its index in ``Plan/named``.
      case signal(Int)
      case errors(ErrorsOwner)
      case requests
      /// The answers that the clients of a named source get, by its index.
      case replies(Int)

      /// Whether what the test says of an event may be a part of it.
      var comparesParts: Bool {
        switch self {
        case .requests, .replies: true
        case .sink, .signal, .errors: false
        }
      }
    }

    public struct Item: Sendable {
      public enum Moment: Sendable, Equatable {
        case next(TestValue)
        case complete
        /// With a text that the message must contain; nil: any error.
        case error(String?)
        /// A source or signal is subscribed, and begins to run.
        case subscribe
        /// It is cancelled before its end.
        case cancel

        var isMark: Bool { self == .subscribe || self == .cancel }
      }
      /// Nil: at any time.
      public var at: TimeSpan?
      public var moment: Moment
      public var location: SourceLocation
    }

    public var subject: Located<String>
    public var target: Target
    /// In the order in which they must come.
    public var items: [Item] = []
    /// Whether others may come between and behind.
    public var allowsMore = false
    /// What the letters of the marbles stand for.
    public var letters: [(name: String, value: TestValue)] = []
    public var tick = TimeSpan.milliseconds(1)
    /// How the file says it.
    public var node: YAMLNode

    /// Whether subscribing and cancelling is spoken of.
    var hasMarks: Bool { items.contains { $0.moment.isMark } }
  }

  /// The last instant that the test speaks of.
  var horizon: TimeSpan {
    let inputs = inputs.compactMap { $0.history.entries.last?.at }
    let expected = expectations.flatMap { $0.items.compactMap(\.at) }
    return (inputs + expected).max() ?? .zero
  }

  var expectsError: Bool {
    expectations.contains {
      $0.items.contains { if case .error = $0.moment { true } else { false } }
    }
  }
}

/// What a test answers to HTTP requests.
public struct HTTPStub: Sendable {
  public struct Answer: Sendable {
    public enum What: Sendable {
      case reply(HTTPResponse)
      case failure(HTTPFailure)
      /// No answer: the request runs into its own timeout.
      case silence
    }
    /// How long after the request.
    public var after = TimeSpan.zero
    public var what: What

    public init(after: TimeSpan = .zero, _ what: What) {
      self.after = after
      self.what = what
    }
  }

  /// `*` stands for any bytes, every other character for itself.
  public var url: String
  /// Whose requests it answers, a sink's, which runs then; nil: those of sources.
  public var sink: String?
  /// Nil: any.
  public var method: String?
  /// One after the other; the last one again and again. At least one.
  public var answers: [Answer]
  public var location: SourceLocation?

  public init(url: String, method: String? = nil, answers: [Answer], location: SourceLocation? = nil) {
    self.url = url
    self.method = method
    self.answers = answers
    self.location = location
  }

  func matches(_ request: HTTPRequest) -> Bool {
    sink == request.options.sink && (method.map { $0 == request.method } ?? true) && Glob.matches(url, request.url)
  }
}

/// Patterns in which `*` stands for any bytes.
enum Glob {
  static func matches(_ pattern: String, _ text: String) -> Bool {
    let pattern = Array(pattern.utf8)
    let text = Array(text.utf8)
    var at = 0
    var position = 0
    // Where to go on after the last star, if what follows it does not fit.
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

  /// How many bytes must be inserted, removed or replaced in `text` until `pattern` matches; looks at the
  /// first 500 bytes of each.
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
