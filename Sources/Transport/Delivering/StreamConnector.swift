import PipelineCore

/// A connector that sends messages in order over one connection. The unit of its queue is not the event but the block: the framed messages of one
/// turn in one piece of memory, of which the destination takes one after the other. So an event costs no allocation.
///
/// The outcomes of all blocks come to the answer of ``DeliveryConnector/open(_:)``, in the order of the messages: ``DeliveryOutcome/passed(_:)`` and
/// ``DeliveryOutcome/refusedNext(_:)``.
package protocol StreamConnector: LastingConnector, BlockFraming {
  /// Prepares the destination before the first event. Returns the reason if nothing can ever be sent.
  func start() -> SignalFailure?
  /// Appends the message of an event, with its frame. Appends nothing if it throws.
  func append(_ event: Event, to block: OutputBuffer) throws(DeliveryRefusal)
  /// The same for a message that an earlier version has encoded.
  func append(message: UnsafeRawBufferPointer, to block: OutputBuffer) throws(DeliveryRefusal)
  /// Sends blocks after those under way.
  func send(_ blocks: [SentBlock])
}

extension StreamConnector {
  /// Blocks are encoded by `append`.
  package func encode(_ event: Event) throws(DeliveryRefusal) -> DeliveryPiece {
    let buffer = OutputBuffer()
    try append(event, to: buffer)
    return DeliveryPiece(.bytes(Array(buffer.bytes)), bytes: buffer.count)
  }
  package func deliver(_ batch: DeliveryBatch, _ answer: DeliveryAnswer) { send(batch.blocks) }
  package func close(handsOver: Bool) { if !handsOver { _ = end() } }
}

/// The block of the running turn.
final class BlockBuilder {
  let stream: any StreamConnector
  let buffer = OutputBuffer()
  var ends: [Int] = []

  init(_ stream: any StreamConnector) { self.stream = stream }

  @inline(__always)
  func append(_ event: Event) throws(DeliveryRefusal) {
    try stream.append(event, to: buffer)
    ends.append(buffer.count)
  }

  func append(message: UnsafeRawBufferPointer) throws(DeliveryRefusal) {
    try stream.append(message: message, to: buffer)
    ends.append(buffer.count)
  }

  /// The block; nil: it is empty.
  func take() -> DeliveryBlock? {
    guard !ends.isEmpty else { return nil }
    let block = DeliveryBlock(Array(buffer.bytes), ends, framer: stream)
    buffer.clear()
    ends.removeAll(keepingCapacity: ends.capacity <= 4096)
    return block
  }
}
