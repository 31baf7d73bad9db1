internal import CCurl
import PipelineCore
import Synchronization

/// One request and its response so far. Fields belong to the loop's thread unless noted.
final class CurlExchange: HTTPStream, @unchecked Sendable {
  let request: HTTPRequest
  private let loop: CurlLoop
  /// Whether the completion has been called or must no longer be called; read on any thread.
  private let completed = Atomic<Bool>(false)
  private var completion: (@Sendable (Result<HTTPResponse, HTTPFailure>) -> Void)?

  var easy: UnsafeMutableRawPointer?
  var headerList: UnsafeMutablePointer<curl_slist>?
  var url: OpaquePointer?
  let errorText = UnsafeMutablePointer<CChar>.allocate(capacity: Int(CURL_ERROR_SIZE))

  /// `host:port`, for messages.
  var peer = ""
  var origin = Origin()
  /// Whether private addresses are allowed: the host is an address or `localhost`, or the pipeline file allows them.
  var mayBePrivate = false
  var started: Int64 = 0
  /// The number of connections made for the current transfer that have been counted.
  var connects = 0
  var redirects = 0

  var status = 0
  var headers: [HTTPHeader] = []
  var headerBytes = 0
  var headerLines = 0
  var inHeaders = false
  var body: [UInt8] = []
  /// Counts the body against the memory budget of the process.
  private(set) var bodyCharge: MemoryCharge?
  /// Whether the received part of the response suffices.
  var isCut = false
  /// The reason why a callback ended the exchange.
  var failure: HTTPFailure?

  struct Origin: Equatable {
    var scheme = ""
    var host = ""
    var port = ""
  }

  static let maxHeaderBytes = 64 << 10
  static let maxHeaderLines = 100
  static let freeRatioBytes = 1 << 20
  static let maxRatio = 100

  init(
    _ request: HTTPRequest, _ loop: CurlLoop,
    _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
  ) {
    self.request = request
    self.loop = loop
    self.completion = completion
    errorText[0] = 0
  }

  deinit {
    endCounting()
    errorText.deallocate()
    rx_curl_slist_free_all(headerList)
    rx_curl_url_cleanup(url)
  }

  func cancel() {
    endCounting()
    if !completed.exchange(true, ordering: .acquiringAndReleasing) { loop.drop(self) }
  }

  /// A connection, new or kept, is about to be used.
  func countConnection() {
    guard let connections = request.options.connections, let easy else { return }
    var made = 0
    rx_curl_get_long(easy, CURLINFO_NUM_CONNECTS, &made)
    let new = made - connects
    connects = made
    connections.count { counts in
      if new > 0 { counts.opened &+= UInt64(new) } else { counts.reused &+= 1 }
    }
  }

  // MARK: - Streamed answers

  /// Receives the parts of the answer; nil: the answer is not streamed.
  private var receiver: (@Sendable (HTTPStreamPart) -> Void)?
  private(set) var isStreaming = false
  private var hasHead = false
  /// The number of bytes that have been passed on and not handled. This and the next one are used on any thread.
  private let underWay = Atomic<Int>(0)
  /// Whether libcurl has paused the answer.
  private let isPaused = Atomic<Bool>(false)
  /// The maximum number of unhandled bytes; less while the memory of the process is used up.
  private static let room = 256 << 10

  convenience init(
    streaming request: HTTPRequest, _ loop: CurlLoop, _ receive: @escaping @Sendable (HTTPStreamPart) -> Void
  ) {
    self.init(request, loop) { _ in }
    isStreaming = true
    receiver = receive
  }

  /// Passes on a part of the body; false: libcurl must pause and offer it again.
  func pass(_ bytes: UnsafeRawBufferPointer) -> Bool {
    let most = loop.memory.map { max(MemoryBudget.leastOfInput, $0.room(min(Self.room, $0.limit / 8))) } ?? Self.room
    if underWay.load(ordering: .acquiring) >= most {
      isPaused.store(true, ordering: .sequentiallyConsistent)
      // Checks again, because a call of `handled` in between did not see the flag.
      if underWay.load(ordering: .sequentiallyConsistent) >= most { return false }
      isPaused.store(false, ordering: .sequentiallyConsistent)
    }
    underWay.add(bytes.count, ordering: .acquiringAndReleasing)
    count(bytes.count)
    guard !isCompleted else { return true }
    passHead()
    receiver?(.bytes(Array(bytes)))
    return true
  }

  /// The unhandled bytes that are counted against the memory budget of the process, until the exchange is cancelled.
  private let counted = Mutex((bytes: 0, isOver: false))

  private func count(_ more: Int) {
    guard let memory = loop.memory else { return }
    counted.withLock { counted in
      if counted.isOver { return }
      counted.bytes += more
      memory.add(more)
    }
  }

  private func endCounting() {
    counted.withLock { counted in
      loop.memory?.add(-counted.bytes)
      counted = (0, true)
    }
  }

  /// Passes on the head as soon as it is complete: the body may come much later.
  private func passHead() {
    guard !hasHead, !isCompleted else { return }
    var status = 0
    if let easy { rx_curl_get_long(easy, CURLINFO_RESPONSE_CODE, &status) }
    // Skips interim answers, and a proxy's answer to CONNECT, which has no status here.
    guard status >= 200 else { return }
    hasHead = true
    receiver?(.head(HTTPResponse(status: status, headers: headers)))
  }

  func handled(_ bytes: Int) {
    count(-bytes)
    let left = underWay.subtract(bytes, ordering: .sequentiallyConsistent).newValue
    if left <= Self.room / 2, isPaused.exchange(false, ordering: .sequentiallyConsistent) { loop.resume(self) }
  }

  /// Passes on the end.
  private func completeStream(_ result: Result<HTTPResponse, HTTPFailure>) {
    let receive = receiver
    receiver = nil
    guard !completed.exchange(true, ordering: .acquiringAndReleasing), let receive else { return }
    switch result {
    case .success(let response):
      if !hasHead { receive(.head(response)) }
      receive(.end(nil))
    case .failure(let failure): receive(.end(failure))
    }
  }

  var isCompleted: Bool { completed.load(ordering: .acquiring) }

  func complete(_ result: Result<HTTPResponse, HTTPFailure>) {
    if isStreaming { return completeStream(result) }
    let call = completion
    completion = nil
    if !completed.exchange(true, ordering: .acquiringAndReleasing) { call?(result) }
  }

  func forget() {
    completion = nil
    receiver = nil
  }

  // MARK: - Callbacks

  enum Taken { case taken, later, ended }

  /// Takes a part of the body: `later` if it must be offered again when there is room, `ended` if the exchange ends.
  func receive(_ bytes: UnsafeRawBufferPointer) -> Taken {
    if body.count + bytes.count <= request.options.maxResponseBytes, !loop.mayGrow(self, by: bytes.count) {
      return .later
    }
    guard takes(bytes) else { return .ended }
    if let memory = loop.memory {
      if let bodyCharge { bodyCharge.set(body.count) } else { bodyCharge = MemoryCharge(body.count, of: memory) }
    }
    return .taken
  }

  /// Discards the body, because another answer follows.
  func clearBody() {
    body = []
    bodyCharge = nil
  }

  private func takes(_ bytes: UnsafeRawBufferPointer) -> Bool {
    let total = body.count + bytes.count
    if total > request.options.maxResponseBytes, request.options.cutsResponse {
      body.append(contentsOf: bytes.prefix(request.options.maxResponseBytes - body.count))
      isCut = true
      return false
    }
    if total > request.options.maxResponseBytes {
      failure = HTTPFailure(
        .responseTooLarge,
        "the answer of \(peer) is longer than \(request.options.maxResponseBytes) bytes")
      return false
    }
    if request.options.acceptCompressed, total > Self.freeRatioBytes {
      var compressed: curl_off_t = 0
      if rx_curl_get_offset(easy, CURLINFO_SIZE_DOWNLOAD_T, &compressed) == CURLE_OK,
        compressed > 0, total / Self.maxRatio > Int(compressed)
      {
        failure = HTTPFailure(
          .responseTooLarge,
          "the answer of \(peer) is compressed more than \(Self.maxRatio) to 1")
        return false
      }
    }
    if body.isEmpty { reserve() }
    body.append(contentsOf: bytes)
    return true
  }

  /// Reserves the announced size of the body, so that a long body is not copied repeatedly. Unused pages cost no
  /// memory.
  private func reserve() {
    let encoded = request.options.acceptCompressed && headers.contains { HTTPSyntax.same($0.name, "content-encoding") }
    guard !encoded, let text = headers.first(where: { HTTPSyntax.same($0.name, "content-length") })?.value,
      let length = Int(text), length > 0
    else { return }
    body.reserveCapacity(min(length, request.options.maxResponseBytes))
  }

  /// Takes a header line with its line end; false ends the exchange.
  func receiveHeader(_ line: UnsafeRawBufferPointer) -> Bool {
    headerBytes += line.count
    headerLines += 1
    if headerBytes > Self.maxHeaderBytes || headerLines > Self.maxHeaderLines {
      failure = HTTPFailure(
        .responseTooLarge,
        "the headers of \(peer) are longer than \(Self.maxHeaderBytes >> 10) KiB or "
          + "\(Self.maxHeaderLines) lines")
      return false
    }
    var text = line
    while let last = text.last, last == 10 || last == 13 { text = .init(rebasing: text.dropLast()) }
    if text.starts(with: "HTTP/".utf8) && !inHeaders {
      inHeaders = true
      headers.removeAll(keepingCapacity: true)
      clearBody()
      return true
    }
    if text.isEmpty {
      inHeaders = false
      if isStreaming { passHead() }
      return true
    }
    guard inHeaders else { return true }  // Ignores trailers.
    guard !text.contains(where: { $0 == 0 || $0 == 13 }),
      let colon = text.firstIndex(of: UInt8(ascii: ":"))
    else { return malformed("an invalid header line") }
    let name = String(decoding: text[..<colon], as: UTF8.self)
    var value = text[(colon + 1)...]
    while let first = value.first, first == 32 || first == 9 { value = value.dropFirst() }
    while let last = value.last, last == 32 || last == 9 { value = value.dropLast() }
    let header = HTTPHeader(name, String(decoding: value, as: UTF8.self))
    if HTTPSyntax.same(name, "content-length"),
      headers.contains(where: { HTTPSyntax.same($0.name, name) && $0.value != header.value })
    {
      return malformed("two lengths")
    }
    if request.options.acceptCompressed, HTTPSyntax.same(name, "content-encoding"),
      header.value.utf8.contains(UInt8(ascii: ","))
        || headers.contains(where: { HTTPSyntax.same($0.name, name) })
    {
      return malformed("a body that is compressed twice")
    }
    headers.append(header)
    return true
  }

  private func malformed(_ what: String) -> Bool {
    failure = HTTPFailure(.protocolError, "\(peer) answers with \(what)")
    return false
  }

  /// Whether a connection to the address is allowed; if not, records why.
  func mayUse(_ address: [UInt8]) -> Bool {
    guard
      let reason = AddressPolicy.refusal(
        of: address, host: HTTPSyntax.printable(origin.host), port: HTTPSyntax.printable(origin.port),
        mayBePrivate: mayBePrivate)
    else { return true }
    failure = HTTPFailure(.forbidden, reason)
    return false
  }
}
