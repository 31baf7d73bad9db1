import PipelineCore

/// A request while it is received: its head, the received part of its body, and its answer, if known.
struct IncomingRequest {
  /// Nil: none is under way.
  var head: RequestHead?
  /// Accounts for the memory of the request.
  var charge: ByteCharge?
  private(set) var body = IncomingBody()
  /// Whether the time limit of the body has been set.
  var isBodyLimited = false
  /// Bytes of the body so far, including discarded ones.
  private var received = 0
  var coding: Decompressor.Format?
  /// The maximum size of the body in bytes.
  var mostBytes = 0
  /// Whether the request is complete and waits for the server that replaces its own.
  var isComplete = false
  /// The answer to send at the end of the request, whatever its body.
  var verdict: ServerAnswer?

  mutating func begin(_ head: RequestHead) {
    self.head = head
    isComplete = false
    received = 0
    verdict = nil
    coding = nil
    isBodyLimited = false
  }

  /// Takes back a request that the pipeline has not taken: another server gets it.
  mutating func takeBack(_ waiting: ServerRequest) {
    head = waiting.head
    body = IncomingBody(waiting.body)
    charge = waiting.charge
    coding = waiting.coding
  }

  enum Piece { case taken, tooLarge, noRoom }

  /// Takes a piece of the body, unless its answer is known already.
  mutating func take(_ bytes: UnsafeRawBufferPointer) -> Piece {
    received += bytes.count
    if received > mostBytes { return .tooLarge }
    guard verdict == nil, let head else { return .taken }
    return body.append(bytes, of: head, most: mostBytes, charge) ? .taken : .noRoom
  }

  /// Gives up the memory of the request; its receiver, if any, owns it.
  mutating func release() {
    body = IncomingBody()
    charge = nil
  }
}
