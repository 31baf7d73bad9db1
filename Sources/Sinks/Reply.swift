import PipelineCore

/// `reply`: answers HTTP requests.
package struct Reply: SinkComponent {
  package var status = ExpressionParameter()
  package var encode = EncodeParameter(.json)
  var headers = Table<TemplateParameter>()

  package init() {}

  package static let spec = ComponentSpec<Reply>(
    "reply",
    summary: "Answers the HTTP request that an event came from.",
    details: """
      The event is the body. It must come from an `httpServer`, directly or through steps that keep the origin of an \
      event; folds and lists of several events do not. Only the first answer to a request counts; a later one goes \
      to the errors output, as does an event that makes no valid answer: the client then receives 500, unless a \
      `reply` that reads the errors answers at once.
      """,
    parameters: [
      .init("encode", \.encode, primary: true, "How the event is encoded as the body."),
      .init("status", \.status, expecting: .int, "The status; 200 by default."),
      .init("headers", \.headers, "Further headers."),
    ],
    examples: [.snippet("as JSON", "reply: { encode: json }")],
    edges: EdgeCases(
      empty:
        """
        A request without an answering event gets 504 after `replyTimeout`, or 503 as soon as nothing can answer \
        it any more.
        """,
      error: "Ends the pipeline; requests under way get 503.", completion: "Requests under way are answered first.",
      disposal: "Requests under way are answered within the time limit for stopping."),
    knownAs: ["Benthos sync_response", "Node-RED http response"],
    useCases: [
      .init(.writing, "answer an HTTP request with the result of a chain", "reply"),
      .init(.writing, "choose the status of an answer", "reply: { status: \"event.found ? 200 : 404\" }"),
    ],
    seeAlso: ["httpServer"])

  package func validate(_ context: inout DecodingContext) { headers.validateHeaders(isRequest: false, &context) }

  package var answersEvents: Bool { true }
  package var confirmation: SinkConfirmation { .client }
  package var encoding: EncodeParameter? { encode }

  package var threads: String? { "encoded on the pipeline thread, sent by the threads of the HTTP server" }

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(self, nodeContext) }

  final class Node: RunningSink {
    private let parameters: Reply
    private let encoder: any EventEncoder
    private lazy var frame = makeFrame()
    private let buffer = OutputBuffer()

    init(_ parameters: Reply, _ nodeContext: NodeContext) {
      self.parameters = parameters
      var encode = parameters.encode
      encode.options.terminated = false
      encoder = encode.makeEncoder()
      super.init(nodeContext)
    }

    override func receive(_ event: Event) {
      guard let target = event.origin.takeUnretainedValue().reply else {
        reject(event, "the event does not come from an HTTP request")
        return
      }
      if let failure = frame.load(event) {
        reject(event, EventFrame.message(of: failure))
        target.reply(status: 500, headers: [], body: [])
        return
      }
      var status = 200
      if let program = parameters.status.program {
        let value = program.evaluate(frame.frame)
        guard value.is(.int), (200...599).contains(value.asInt) else {
          reject(
            event,
            value.isError
              ? program.failureMessage(value, frame.frame) : "the status must be a number from 200 to 599")
          target.reply(status: 500, headers: [], body: [])
          return
        }
        status = Int(value.asInt)
      }
      var headers: [(name: String, value: String)] = []
      if !parameters.headers.entries.contains(where: { $0.name.lowercased() == "content-type" }) {
        headers.append((name: "Content-Type", value: encoder.mediaType))
      }
      for header in parameters.headers.entries {
        buffer.clear()
        if header.value.render(frame, into: buffer) != nil {
          reject(event, "the header '\(header.name)' could not be computed")
          target.reply(status: 500, headers: [], body: [])
          return
        }
        let value = String(decoding: buffer.bytes, as: UTF8.self)
        guard value.utf8.allSatisfy({ $0 >= 0x20 || $0 == 0x09 }) else {
          reject(event, "the header '\(header.name)' would contain a line break or control character")
          target.reply(status: 500, headers: [], body: [])
          return
        }
        headers.append((header.name, value))
      }
      buffer.clear()
      encoder.reset()
      if let failure = encoder.append(event.value, to: buffer) {
        reject(event, because: failure)
        target.reply(status: 500, headers: [], body: [])
        return
      }
      let body = Array(buffer.bytes)
      guard execution.answersAfterCommits else {
        if target.reply(status: status, headers: headers, body: body) { delivered() } else { reject(event, Self.late) }
        return
      }
      // Effects that the answer confirms must be on the disk.
      let event = OwnedEvent(event)
      let receipt = take(1, bytes: body.count + event.byteCount)
      execution.whenCommitted { [weak self, headers] in
        let isFirst = target.reply(status: status, headers: headers, body: body)
        guard let self else { return }
        if isFirst {
          receipt.acknowledge(1)
          countSent(1)
        } else {
          reject(event.event, Self.late, on: receipt)
        }
      }
    }

    private static let late = "the request has already been answered, or its client has disconnected"
  }
}
