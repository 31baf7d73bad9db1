/// A parsed dead letter, as ``Execution/reject(_:step:)`` wrote it.
package struct DeadLetterDocument {
  /// The reason, one sentence.
  package let error: String
  /// `RX504`.
  package let code: String
  /// The name of the step that rejected the event: `out/http`, `books/filter`; as written by older versions `out http`,
  /// `books/2 filter`.
  package let step: String
  /// The location of the step in the pipeline file.
  package let at: String
  /// The name of the source; nil: unknown.
  package let source: String?
  /// The file, URL or peer that the event came from; nil: unknown.
  package let path: String?
  /// The position in that input; nil: unknown.
  package let offset: Int64?
  /// The event as JSON text.
  package let event: [UInt8]
  /// The time and the pipeline, from a line of a dead-letter file; nil: the document has none.
  package let time: String?
  package let pipeline: String?

  /// Nil: it is not a dead letter.
  package init?(_ document: [UInt8]) {
    let arena = Arena()
    let output = OutputBuffer()
    let found = document.withUnsafeBytes { bytes -> DeadLetterDocument? in
      let map = JSONParser().open(bytes)
      guard map.is(.jsonMap) else { return nil }
      func member(_ name: StaticString) -> Value {
        JSONParser.lookup(map, key: UnsafeRawBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount))
      }
      func text(_ name: StaticString) -> String? {
        let value = member(name)
        guard value.is(.string) else { return nil }
        let plain = value.isEscaped ? JSONParser.unescape(value, into: arena) : value
        return plain.is(.string) ? String(decoding: plain.rawBytes, as: UTF8.self) : nil
      }
      guard let error = text("error"), let code = text("code"), let step = text("step") else { return nil }
      let event = member("event")
      guard !event.isAbsent, !event.isError, JSONWriter.appendAsItCame(event, to: output) == nil else { return nil }
      let offset = member("offset")
      return DeadLetterDocument(
        error: error, code: code, step: step, at: text("at") ?? "", source: text("source"), path: text("path"),
        offset: offset.is(.int) ? offset.asInt : nil, event: Array(output.bytes), time: text("time"),
        pipeline: text("pipeline"))
    }
    guard let found else { return nil }
    self = found
  }

  private init(
    error: String, code: String, step: String, at: String, source: String?, path: String?, offset: Int64?,
    event: [UInt8], time: String?, pipeline: String?
  ) {
    self.error = error
    self.code = code
    self.step = step
    self.at = at
    self.source = source
    self.path = path
    self.offset = offset
    self.event = event
    self.time = time
    self.pipeline = pipeline
  }

  /// The sink that could not deliver the event; nil: another step or a decoder rejected it.
  package var sink: String? {
    guard code == Diagnostic.Code.eventNotDeliverable.name else { return nil }
    let parts = step.split(separator: " ", maxSplits: 1, omittingEmptySubsequences: false)
    if parts.count == 2 { return parts[0].isEmpty || parts[0].contains("/") ? nil : String(parts[0]) }
    let name = step.prefix { $0 != "/" }
    return name.isEmpty ? nil : String(name)
  }

  /// Whether the sink answers requests; the request of this event is gone.
  package var isOfReply: Bool { step.hasSuffix(" reply") || step.hasSuffix("/reply") }

  /// Why the event is only a part of the rejected input; nil: it is complete.
  package var isCutBecause: String? {
    // Only the start of a line longer than 'maxLine' is kept.
    guard code == Diagnostic.Code.inputNotDecodable.name,
      event.count >= RunningSource.shownInputBytes || error.contains("'maxLine'")
    else { return nil }
    var shown = [source.map { "the source '\($0)'" }, path].compactMap { $0 }.joined(separator: ", ")
    if let offset { shown += "\(shown.isEmpty ? "" : ", ")offset \(offset)" }
    return "it has only the beginning of the input" + (shown.isEmpty ? "" : "; all of it is at its origin: \(shown)")
  }

  /// A row of the outbox with the event, for its sink.
  ///
  /// The event is the one of the dead letter: values without a JSON form (bytes, times, durations) have become text,
  /// and its metadata are the source, path and offset.
  /// - Parameters:
  ///   - number: The number of the row.
  ///   - receivedAt: The time of the dead letter, in nanoseconds since 1970.
  /// - Throws: The event is nested too deep.
  package func row(
    _ number: Int64, for sink: String, receivedAt: Int64, clock: any Clock
  ) throws(StateFault) -> OutboxRow {
    var writer = EventRowWriter(Executor(clock: clock))
    let origin = Origin(source: source ?? "", path: path, receivedAt: receivedAt)
    let fault = event.withUnsafeBytes { text -> StateFault? in
      let value = JSONParser().open(text)
      if value.isError { return StateFault("its event is not JSON") }
      return withExtendedLifetime(origin) {
        writer.append(Event(value, origin: source == nil ? .none : origin, position: offset ?? -1))
      }
    }
    if let fault { throw fault }
    return OutboxRow(number: number, sink: sink, events: 1, bytes: writer.finish())
  }
}
