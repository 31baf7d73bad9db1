/// Evaluates the expressions of a ``MappingParameter`` outside the core.
package final class MappedValues {
  private let builder: ValueBuilder

  /// Nil: the parameter is not given.
  package init?(_ mapping: MappingParameter) {
    guard mapping.isGiven else { return nil }
    guard let builder = mapping.makeBuilder() else { preconditionFailure("a mapping was not bound") }
    self.builder = builder
  }

  /// The value for the event that the frame has loaded, or the reason, as a sentence, why there is no value.
  package func value(_ frame: EventFrame) -> Result<Value, MappingFailure> {
    var failing: Unmanaged<Program>?
    let value = builder.build(frame, &failing)
    guard value.isError else { return .success(value.unwrapped) }
    let message = failing?.takeUnretainedValue().failureMessage(value, frame.frame)
    return .failure(MappingFailure(message: message ?? "the value cannot be made"))
  }
}

/// The values that a sink sends for events, for a stub or a printed form.
package final class SentValues {
  private let values: MappedValues
  private let frame: EventFrame

  /// Nil: the sink sends the event itself.
  package init?(_ sink: (any SinkDeclaration)?, _ frame: @autoclosure () -> EventFrame) {
    guard let mapping = sink?.sentValue, let values = MappedValues(mapping) else { return nil }
    self.values = values
    self.frame = frame()
  }

  package func value(of event: Event) -> Result<Value, MappingFailure> {
    if let failure = frame.load(event) { return .failure(MappingFailure(message: EventFrame.message(of: failure))) }
    return values.value(frame)
  }
}

/// The reason why an event has no mapped values.
package struct MappingFailure: Error, Sendable {
  package var message: String
}
