/// The compiler's knowledge about the events of a signal.
public struct EventType: Sendable, Equatable {
  package var type: ExpressionType
  /// The names of the inputs, while the event is still the list of `combineLatest` or `zip`.
  package var tuple: [String]?
  package var elements: [ExpressionType] = []
  /// The source that reads the events as texts, while they are unchanged; nil: they may have any form.
  package var text: TextOrigin?
  /// Whether the events have event time.
  package var time = Time.none
  /// Whether later events change earlier ones.
  package var changes = Changes.none

  /// The origin of a signal's event time.
  package enum Time: Sendable, Equatable {
    /// No source or signal defines one.
    case none
    case given
    /// The step with this keyword does not preserve event time: its events have none.
    case ended(at: String, SourceLocation)
  }

  /// Whether the signal's events have event time.
  package var isTimed: Bool { time == .given }

  /// Events of this type.
  public init(_ type: ExpressionType, tuple: [String]? = nil, elements: [ExpressionType] = []) {
    self.type = type
    self.tuple = tuple
    self.elements = elements
  }
  /// Events of any type.
  public static let dyn = EventType(.dyn)

  /// Facts besides the type, for messages.
  var form: ExpressionScope.EventForm {
    if let tuple { return .parts(tuple) }
    return text.map { .text($0) } ?? .any
  }

  /// Events that a source reads as texts. Their type is not `string`, because a test of the pipeline may send other
  /// values in place of the source; but a text never has fields.
  static let text: EventType = {
    var type = EventType.dyn
    type.text = TextOrigin()
    return type
  }()
}

extension EventType {
  /// The type of events that come from several signals.
  static func either(_ inputs: [EventType]) -> EventType {
    let inputs = inputs.map { input in
      var input = input
      input.time = .none
      input.changes = .none
      return input
    }
    if let first = inputs.first, inputs.allSatisfy({ $0 == first }) { return first }
    return EventType(.either(inputs.map(\.type)))
  }

  /// The type of the lists that `combineLatest` and `zip` send.
  static func list(_ inputs: [EventType]) -> EventType {
    EventType(.list(inputs.isEmpty ? .dyn : .either(inputs.map(\.type))))
  }
}
