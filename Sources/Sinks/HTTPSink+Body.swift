import PipelineCore
import Transport

extension HTTPSink {
  /// Makes the bodies of requests.
  struct BodyWriter {
    private let encoder: any EventEncoder
    private let form: Batch.Form
    /// Each body starts with the header of its format.
    private let hasHeader: Bool
    /// Whether a body is one JSON document rather than lines of them.
    private let isDocument: Bool
    private let buffer = OutputBuffer()
    /// Creates bodies that are not encoded events; nil: bodies are encoded events.
    private let request: (any RequestForm)?
    /// Evaluates `envelope` for the values of a request; nil: the values follow each other.
    private let envelope: MappedValues?

    init(_ parameters: HTTPSink, _ request: (any RequestForm)? = nil) {
      self.request = request
      var encode = parameters.encode
      hasHeader = encode.options.format == .csv && encode.options.csv.header
      encode.options.csv.header = false
      form = parameters.batch.form
      isDocument = form == .array || encode.options.format == .json && parameters.batch.count == 1
      // A final line feed would become part of the last value, and an event in an array is not a line.
      let isPart = isDocument && [.json, .ndjson].contains(encode.options.format)
      if encode.options.format == .form || isPart { encode.options.terminated = false }
      encoder = encode.makeEncoder()
      envelope = MappedValues(parameters.envelope)
    }

    /// Headers of each request.
    var headers: [HTTPHeader] { request?.headers ?? [] }

    var mediaType: String {
      if envelope != nil, encoder.mediaType == "application/x-ndjson" { return "application/json" }
      return isDocument ? "application/json" : encoder.mediaType
    }

    /// The encoded form of an event until its request is sent, or why it cannot be sent.
    ///
    /// - Parameter value: The value for the body.
    func bytes(of event: Event, _ value: Value, wallTime: Int64) -> Result<[UInt8], DeliveryRefusal> {
      if let request { return request.bytes(of: event, wallTime: wallTime) }
      buffer.clear()
      // An envelope is built from JSON values later, whatever the encoder.
      let failure = envelope == nil ? encoder.append(value, to: buffer) : JSONWriter.append(value, to: buffer)
      if let failure { return .failure(DeliveryRefusal("the event cannot be written: \(failure)")) }
      if isDocument, form == .lines { buffer.append(0x0A) }
      return .success(Array(buffer.bytes))
    }

    /// The body of a request, or why the envelope cannot be made for these events.
    func body(of items: [DeliveryItem], _ frame: EventFrame, _ request: Value, _ execution: Execution)
      -> Result<[UInt8], DeliveryRefusal>
    {
      if let envelope { return enclosed(items, in: envelope, frame, request, execution) }
      return .success(body(of: items))
    }

    private func body(of items: [DeliveryItem]) -> [UInt8] {
      if let request { return request.body(of: items.map(\.piece.bytes)) }
      buffer.clear()
      guard form == .array else {
        if hasHeader { encoder.appendHeader(to: buffer) }
        for item in items { buffer.append(item.piece.bytes) }
        return Array(buffer.bytes)
      }
      for (index, item) in items.enumerated() {
        buffer.append(UInt8(ascii: index == 0 ? "[" : ","))
        buffer.append(item.piece.bytes)
        if item.piece.bytes.last == 0x0A { buffer.truncate(to: buffer.count - 1) }
      }
      buffer.append(UInt8(ascii: "]"))
      return Array(buffer.bytes)
    }

    private func enclosed(
      _ items: [DeliveryItem], in envelope: MappedValues, _ frame: EventFrame, _ request: Value,
      _ execution: Execution
    ) -> Result<[UInt8], DeliveryRefusal> {
      let arena = execution.executor.arena
      let values = items.map { item in
        execution.json.parse(item.piece.bytes.withUnsafeBytes { arena.copy($0) }, into: arena)
      }
      frame.loadNothing()
      frame.set(0, arena.list(values))
      frame.set(1, request)
      switch envelope.value(frame) {
      case .failure(let failure): return .failure(DeliveryRefusal(failure.message))
      case .success(let value):
        buffer.clear()
        if let failure = encoder.append(value, to: buffer) {
          return .failure(DeliveryRefusal("'envelope' cannot be written: \(failure)"))
        }
        if isDocument, form == .lines { buffer.append(0x0A) }
        return .success(Array(buffer.bytes))
      }
    }
  }

  /// The variable `request` of templates and `envelope`.
  enum RequestVariable {
    static let name = "request"
    static let type = ExpressionType.object([("key", .string), ("time", .timestamp), ("number", .int)])

    static func value(of batch: DeliveryBatch, in arena: Arena) -> Value {
      arena.map([
        "key": arena.string(batch.key), "time": .timestamp(wallTime: batch.time), "number": .int(batch.number),
      ])
    }

    /// The value of `batch` before the event's request is known.
    static let unknown: OwnedValue = {
      let arena = Arena()
      return OwnedValue(arena.map(["key": arena.string(""), "time": .timestamp(wallTime: 0), "number": .int(0)]))
    }()
  }
}
