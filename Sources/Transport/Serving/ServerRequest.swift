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
  package var query: [(name: String, value: String)] { head.query }
  /// What `meta` says of the request.
  package var facts: any OriginFacts { RequestFacts(head, peer: peer, subject: subject) }
  package var headers: [HTTPHeader] { head.fields.map { HTTPHeader(head.text($0.name), head.text($0.value)) } }
  /// The value of the first header with that name, in lower case.
  package func header(_ name: StaticString) -> String? { head.value(of: name) }
  /// The same value as bytes, valid as long as the request lives.
  package func headerBytes(_ name: StaticString) -> UnsafeRawBufferPointer? { head.bytes(of: name) }
}

/// What `meta` says of a request: its method, path, query and peer, and the subject of the client's certificate.
private final class RequestFacts: OriginFacts {
  private let head: RequestHead
  private let peer: String
  private let subject: String?

  init(_ head: RequestHead, peer: String, subject: String?) {
    self.head = head
    self.peer = peer
    self.subject = subject
  }

  var byteCount: Int { head.byteCount }

  var fields: OwnedValue {
    // All texts that are not in the head, one after another.
    var texts: [UInt8] = []
    func add(_ text: String) -> Range<Int> {
      let start = texts.count
      texts.append(contentsOf: text.utf8)
      return start..<texts.count
    }
    var pairs: [(name: String, ranges: (name: Range<Int>, value: Range<Int>))] = []
    // If a name is repeated, its first value counts.
    for pair in head.query where !pairs.contains(where: { $0.name == pair.name }) {
      pairs.append((pair.name, (add(pair.name), add(pair.value))))
    }
    let peer = add(peer)
    let subject = subject.map(add)
    return texts.withUnsafeBytes { texts in
      func value(_ range: Range<Int>) -> Value { .string(UnsafeRawBufferPointer(rebasing: texts[range])) }
      let query = pairs.map { Entry(key: value($0.ranges.name), value: value($0.ranges.value)) }
      return query.withUnsafeBufferPointer { query in
        var members = [
          Entry(key: .literal("method"), value: .string(head[head.method])),
          Entry(key: .literal("path"), value: .string(head[head.path])),
          Entry(key: .literal("query"), value: Value(kind: .map, pointer: query.baseAddress, length: query.count)),
          Entry(key: .literal("peer"), value: value(peer)),
        ]
        if let subject { members.append(Entry(key: .literal("subject"), value: value(subject))) }
        return members.withUnsafeBufferPointer {
          OwnedValue(Value(kind: .map, pointer: $0.baseAddress, length: $0.count))
        }
      }
    }
  }
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
