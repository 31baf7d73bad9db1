import PipelineCore

/// A complete request.
package final class ServerRequest: Sendable {
  let head: RequestHead
  /// The body, still in its content coding.
  package let body: Slab
  /// Address and port of the client.
  package let peer: String
  /// Answers the request. Releasing it without an answer sends 503.
  package let reply: any ReplyTarget
  let exchange: ServerExchange
  /// Accounts for the memory of the request.
  let charge: ByteCharge?
  /// The compression of the body, if any.
  package let coding: Decompressor.Format?
  /// The subject of the client's certificate; nil: the client has sent none.
  package let subject: String?

  init(
    head: RequestHead, body: Slab, peer: String, reply: any ReplyTarget, exchange: ServerExchange,
    charge: ByteCharge?, coding: Decompressor.Format?, subject: String?
  ) {
    self.subject = subject
    self.head = head
    self.body = body
    self.peer = peer
    self.reply = reply
    self.exchange = exchange
    self.charge = charge
    self.coding = coding
  }

  package var method: String { head.text(head.method) }
  /// The method, and the path without decoding, in ASCII; valid as long as the request lives.
  package var methodBytes: UnsafeRawBufferPointer { head[head.method] }
  package var pathBytes: UnsafeRawBufferPointer { head[head.path] }
  /// The target as it is in the request line.
  package var target: String { head.text(head.target) }
  /// The target up to the `?`, not decoded.
  package var path: String { head.text(head.path) }
  /// Names and values after the `?`, decoded, in order; bytes that are not UTF-8 are replaced.
  package var query: [(name: String, value: String)] {
    guard head.path.upperBound < head.target.upperBound else { return [] }
    return FormText.pairs(Array(head[(head.path.upperBound + 1)..<head.target.upperBound])[...])
  }
  package var headers: [HTTPHeader] { head.fields.map { HTTPHeader(head.text($0.name), head.text($0.value)) } }
  /// The value of the first header with that name, in lower case.
  package func header(_ name: StaticString) -> String? { head.value(of: name) }
  /// The same value as bytes, valid as long as the request lives.
  package func headerBytes(_ name: StaticString) -> UnsafeRawBufferPointer? { head.bytes(of: name) }
}

/// The head of a request whose body has not been read.
package struct ServerRequestHead {
  private let head: RequestHead

  init(_ head: RequestHead) { self.head = head }

  package var method: String { head.text(head.method) }
  /// The target up to the `?`, not decoded.
  package var path: String { head.text(head.path) }
  /// The value of the first header with that name, in lower case.
  package func header(_ name: StaticString) -> String? { head.value(of: name) }
}
