/// The behaviour of a component on empty input, error, completion and disposal, one sentence each.
///
/// The defaults describe most operators. If they apply, a test runs the steps of the examples over an empty and a
/// failing input.
public struct EdgeCases: Sendable {
  /// The behavior if the input ends without an event.
  public var empty: String
  /// The behavior if the input fails.
  public var error: String
  /// The behavior when the input completes.
  public var completion: String
  /// The behavior when the subscriber cancels.
  public var disposal: String

  /// On empty input: completes.
  public static let passesEmpty = "Completes too."
  /// On an error: passes it on at once.
  public static let passesError = "Passed on at once."
  /// On completion: passes it on at once.
  public static let passesCompletion = "Passed on at once."
  /// On disposal: unsubscribes.
  public static let leaves = "Unsubscribes from the input at once; nothing more is sent."

  /// The component's behaviour in each case, one sentence each; the defaults are the behaviour of most operators.
  public init(
    empty: String = passesEmpty, error: String = passesError, completion: String = passesCompletion,
    disposal: String = leaves
  ) {
    self.empty = empty
    self.error = error
    self.completion = completion
    self.disposal = disposal
  }

  /// The cases that have a text, with their headings.
  package var rows: [(title: String, text: String)] {
    [("Empty", empty), ("Error", error), ("Completion", completion), ("Disposal", disposal)].filter { !$0.1.isEmpty }
  }
}

/// A use case of a component: it completes "I want to ...".
public struct UseCase: Sendable {
  /// The heading under which the reference lists a use case.
  public enum Topic: String, Sendable, CaseIterable {
    case reading = "Bring events in"
    case choosing = "Choose events"
    case shaping = "Change events"
    case time = "Time and rate"
    case gathering = "Collect and fold"
    case combining = "Combine signals"
    case asking = "Request: signals made of events"
    case failing = "Errors and repetition"
    case living = "Begin, end and side effects"
    case sharing = "Share and schedule"
    case commanding = "Run on demand"
    case writing = "Send events out"
    case operating = "Write, test and run pipelines"
  }

  /// The section of the index that lists the task.
  public var topic: Topic
  /// Completes "I want to", without a full stop.
  public var text: String
  /// The YAML as written in a pipeline file, on one line; empty: the component alone.
  public var yaml: String

  /// A task, and the shortest text of a file that solves it.
  public init(_ topic: Topic, _ text: String, _ yaml: String = "") {
    self.topic = topic
    self.text = text
    self.yaml = yaml
  }
}
