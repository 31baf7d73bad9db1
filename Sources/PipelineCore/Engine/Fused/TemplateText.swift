// Renders templates for an event.

extension TemplateParameter {
  /// The literal text before the first expression, with `(secret)` in place of each secret.
  package var shownPrefix: String { String(decoding: template?.shownPrefix ?? [], as: UTF8.self) }

  /// Renders the text for the loaded event. Returns the error value if that fails.
  package func render(_ frame: EventFrame, into buffer: OutputBuffer) -> Value? {
    program?.render(frame.frame, into: buffer)
  }

  /// Renders the text for logs, with `(secret)` in place of each secret.
  package func renderShown(_ frame: EventFrame, into buffer: OutputBuffer) -> Value? {
    program?.shown.render(frame.frame, into: buffer)
  }

  /// The text for logs for the loaded event; nil: the parameter is not given, or an expression fails.
  func shownText(_ frame: EventFrame) -> String? {
    guard isGiven else { return nil }
    let buffer = OutputBuffer()
    return renderShown(frame, into: buffer) == nil ? String(decoding: buffer.bytes, as: UTF8.self) : nil
  }

  /// Renders the text; `inserted` receives the ranges of the buffer that expressions have filled, in order.
  func render(_ frame: EventFrame, into buffer: OutputBuffer, inserted: inout [Range<Int>]) -> Value? {
    program?.render(frame.frame, into: buffer) { inserted.append($0) }
  }

  /// The text for the loaded event. `isShown`: for logs, with `(secret)` in place of each secret.
  package func text(_ frame: EventFrame, isShown: Bool = false) throws(SignalFailure) -> [UInt8] {
    let buffer = OutputBuffer()
    return try finished(frame, buffer, isShown ? renderShown(frame, into: buffer) : render(frame, into: buffer))
  }

  /// The text for the loaded event; `inserted` receives the ranges of the text that expressions have filled, in order.
  package func text(_ frame: EventFrame, inserted: inout [Range<Int>]) throws(SignalFailure) -> [UInt8] {
    let buffer = OutputBuffer()
    return try finished(frame, buffer, render(frame, into: buffer, inserted: &inserted))
  }

  /// Like ``text(_:inserted:)``, for logs.
  func shownText(_ frame: EventFrame, inserted: inout [Range<Int>]) throws(SignalFailure) -> [UInt8] {
    let buffer = OutputBuffer()
    return try finished(frame, buffer, program?.shown.render(frame.frame, into: buffer) { inserted.append($0) })
  }

  /// Renders the text for the loaded event into `buffer`, which is cleared first; `inserted` receives the ranges that
  /// expressions have filled, in order.
  package func render(
    _ frame: EventFrame, over buffer: OutputBuffer, inserted: inout [Range<Int>]
  ) throws(SignalFailure) {
    buffer.clear()
    inserted.removeAll(keepingCapacity: true)
    guard let error = render(frame, into: buffer, inserted: &inserted) else { return }
    throw SignalFailure(.expression, program?.failureMessage(error, frame.frame) ?? "a template failed", at: location)
  }

  private func finished(
    _ frame: EventFrame, _ buffer: OutputBuffer, _ error: Value?
  ) throws(SignalFailure) -> [UInt8] {
    if let error {
      throw SignalFailure(
        .expression, program?.failureMessage(error, frame.frame) ?? "a template failed", at: location)
    }
    return Array(buffer.bytes)
  }
}
