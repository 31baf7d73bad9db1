import PipelineCore

/// A WebSocket message.
package struct WebSocketMessage: Sendable, Equatable {
  /// Whether the message is text, in valid UTF-8; otherwise it is binary.
  package var isText: Bool
  package var bytes: [UInt8]

  package init(isText: Bool, _ bytes: [UInt8]) {
    self.isText = isText
    self.bytes = bytes
  }
}

/// The reason why a WebSocket is closed (RFC 6455, 7.4).
enum WebSocketCode {
  static let normal = 1000
  static let goingAway = 1001
  static let protocolError = 1002
  /// Represents a missing code; never sent.
  static let none = 1005
  static let notText = 1007
  static let refused = 1008
  static let tooLarge = 1009
  static let tryAgainLater = 1013

  /// Whether a close frame may carry the code.
  static func isValid(_ code: Int) -> Bool {
    switch code {
    case 1000...1003, 1007...1014, 3000...4999: true
    default: false
    }
  }
}

/// Parses the bytes of one direction of a WebSocket (RFC 6455, 5), however they are split. Extensions are never
/// negotiated, so reserved bits are errors.
struct WebSocketReader {
  enum Item: Equatable {
    case message(WebSocketMessage)
    case ping([UInt8])
    case pong([UInt8])
    /// `code` is `WebSocketCode.none` if the frame has none.
    case close(code: Int, reason: String)
    /// The peer violates the protocol: the connection is closed with the code, and nothing more is read.
    case failed(code: Int, reason: String)
  }

  private enum State {
    case head
    case payload
    case over
  }

  private let isServer: Bool
  private let maxMessage: Int
  private let maxFrame: Int
  private var state = State.head
  private var head: [UInt8] = []
  private var opcode: UInt8 = 0
  private var isFinal = false
  private var mask: (UInt8, UInt8, UInt8, UInt8)?
  private var left = 0
  /// The number of payload bytes received: the offset for unmasking.
  private var at = 0
  /// The payload of a control frame.
  private var control: [UInt8] = []
  /// Whether the message under way is a text; nil: none is under way.
  private var isText: Bool?
  /// The content of that message so far.
  private var content: [UInt8] = []

  /// - Parameter isServer: Whether the peer is a client, whose frames are masked.
  init(isServer: Bool, maxMessage: Int, maxFrame: Int) {
    self.isServer = isServer
    self.maxMessage = maxMessage
    self.maxFrame = maxFrame
  }

  private var isControl: Bool { opcode & 0x8 != 0 }

  /// The memory of an incomplete message.
  var unfinished: Int { content.isEmpty ? 0 : content.capacity }

  /// Stops reading, and discards the incomplete message.
  mutating func stop() {
    state = .over
    content = []
  }

  mutating func take(_ bytes: UnsafeRawBufferPointer, _ emit: (Item) -> Void) {
    var bytes = bytes
    while true {
      switch state {
      case .over: return
      case .head:
        guard let byte = bytes.first else { return }
        bytes = UnsafeRawBufferPointer(rebasing: bytes.dropFirst())
        head.append(byte)
        if let failure = takeHead() {
          state = .over
          return emit(failure)
        }
        if state == .payload, left == 0, let end = endFrame(), finish(end, emit) { return }
      case .payload:
        guard !bytes.isEmpty else { return }
        let part = UnsafeRawBufferPointer(rebasing: bytes.prefix(left))
        bytes = UnsafeRawBufferPointer(rebasing: bytes.dropFirst(part.count))
        append(part)
        left -= part.count
        if left == 0, let end = endFrame(), finish(end, emit) { return }
      }
    }
  }

  /// Emits the item; returns true if it is the last one.
  private mutating func finish(_ item: Item, _ emit: (Item) -> Void) -> Bool {
    emit(item)
    switch item {
    case .close, .failed:
      state = .over
      return true
    default: return false
    }
  }

  /// Parses a head that may be incomplete, so that an error is reported at the first byte that shows it.
  private mutating func takeHead() -> Item? {
    func broken(_ reason: String) -> Item { .failed(code: WebSocketCode.protocolError, reason: reason) }
    if head.count == 1 {
      opcode = head[0] & 0x0F
      isFinal = head[0] & 0x80 != 0
      if head[0] & 0x70 != 0 { return broken("a frame has reserved bits") }
      switch opcode {
      case 0: if isText == nil { return broken("a fragment continues no message") }
      case 1, 2: if isText != nil { return broken("a message begins within another one") }
      case 8, 9, 10: if !isFinal { return broken("a control frame is fragmented") }
      default: return broken("a frame has the unknown opcode \(opcode)")
      }
      return nil
    }
    let isMasked = head[1] & 0x80 != 0
    let short = Int(head[1] & 0x7F)
    if head.count == 2 {
      if isMasked != isServer { return broken(isServer ? "a frame is not masked" : "a frame is masked") }
      if isControl, short > 125 { return broken("a control frame is longer than 125 bytes") }
    }
    let extra = short == 126 ? 2 : short == 127 ? 8 : 0
    guard head.count == 2 + extra + (isMasked ? 4 : 0) else { return nil }
    var length = UInt64(short)
    if extra > 0 { length = head[2..<(2 + extra)].reduce(0) { $0 << 8 | UInt64($1) } }
    if extra == 2 && length < 126 || extra == 8 && length < 65_536 || length >> 63 != 0 {
      return broken("a frame's length is not in its shortest form")
    }
    let sum = length.addingReportingOverflow(UInt64(content.count))
    if !isControl, length > UInt64(maxFrame) || sum.overflow || sum.partialValue > UInt64(maxMessage) {
      let what =
        length > UInt64(maxFrame) ? "a frame is longer than \(maxFrame)" : "a message is longer than \(maxMessage)"
      return .failed(code: WebSocketCode.tooLarge, reason: "\(what) bytes")
    }
    left = Int(length)
    at = 0
    mask = isMasked ? (head[2 + extra], head[3 + extra], head[4 + extra], head[5 + extra]) : nil
    head.removeAll(keepingCapacity: true)
    if opcode == 1 || opcode == 2 { isText = opcode == 1 }
    state = .payload
    return nil
  }

  private mutating func append(_ part: UnsafeRawBufferPointer) {
    let offset = at
    at &+= part.count
    func unmask(_ target: inout [UInt8]) {
      let start = target.count
      target.append(contentsOf: part)
      guard let mask else { return }
      target.withUnsafeMutableBufferPointer { target in
        for index in 0..<part.count {
          let key =
            switch (offset &+ index) & 3 {
            case 0: mask.0
            case 1: mask.1
            case 2: mask.2
            default: mask.3
            }
          target[start &+ index] ^= key
        }
      }
    }
    if isControl { unmask(&control) } else { unmask(&content) }
  }

  /// The meaning of a complete frame; nil: further fragments are needed.
  private mutating func endFrame() -> Item? {
    state = .head
    guard isControl else {
      guard isFinal, let isText else { return nil }
      let whole = WebSocketMessage(isText: isText, content)
      self.isText = nil
      content = []
      if whole.isText, !whole.bytes.withUnsafeBytes({ UTF8Text.isValid($0) }) {
        return .failed(code: WebSocketCode.notText, reason: "a text message is not UTF-8")
      }
      return .message(whole)
    }
    let content = control
    control = []
    switch opcode {
    case 9: return .ping(content)
    case 10: return .pong(content)
    default: return close(content)
    }
  }

  private func close(_ content: [UInt8]) -> Item {
    if content.isEmpty { return .close(code: WebSocketCode.none, reason: "") }
    guard content.count >= 2 else {
      return .failed(code: WebSocketCode.protocolError, reason: "a close frame has half a code")
    }
    let code = Int(content[0]) << 8 | Int(content[1])
    guard WebSocketCode.isValid(code) else {
      return .failed(code: WebSocketCode.protocolError, reason: "a close frame has the code \(code)")
    }
    let reason = Array(content[2...])
    guard reason.withUnsafeBytes({ UTF8Text.isValid($0) }) else {
      return .failed(code: WebSocketCode.notText, reason: "the reason of a close frame is not UTF-8")
    }
    return .close(code: code, reason: String(decoding: reason, as: UTF8.self))
  }
}

/// Frames as they are sent, each a whole message.
package enum WebSocketFrame {
  enum Opcode: UInt8 {
    case text = 1
    case binary = 2
    case close = 8
    case ping = 9
    case pong = 10
  }

  /// - Parameter mask: A client's mask, unpredictable and different for each frame; nil: a server's frame.
  static func bytes(_ opcode: Opcode, _ payload: some Collection<UInt8>, mask: UInt32?) -> [UInt8] {
    var frame: [UInt8] = []
    let count = payload.count
    frame.reserveCapacity(count + 14)
    frame.append(0x80 | opcode.rawValue)
    let flag: UInt8 = mask == nil ? 0 : 0x80
    if count < 126 {
      frame.append(flag | UInt8(count))
    } else {
      let bytes = count < 65_536 ? 2 : 8
      frame.append(flag | (bytes == 2 ? 126 : 127))
      for index in (0..<bytes).reversed() { frame.append(UInt8(truncatingIfNeeded: count >> (8 * index))) }
    }
    guard let mask else { return frame + payload }
    let keys = (0..<4).map { UInt8(truncatingIfNeeded: mask >> (8 * UInt32($0))) }
    frame += keys
    for (index, byte) in payload.enumerated() { frame.append(byte ^ keys[index & 3]) }
    return frame
  }

  /// A message from a server; its frame is the same for all clients.
  package static func ofServer(isText: Bool, _ payload: some Collection<UInt8>) -> [UInt8] {
    bytes(isText ? .text : .binary, payload, mask: nil)
  }

  /// A close frame; a reason that is too long is cut.
  static func close(_ code: Int, _ reason: String, mask: UInt32?) -> [UInt8] {
    var payload =
      code == WebSocketCode.none ? [] : [UInt8(truncatingIfNeeded: code >> 8), UInt8(truncatingIfNeeded: code)]
    if !payload.isEmpty {
      for scalar in reason.unicodeScalars {
        let text = Array(String(scalar).utf8)
        if payload.count + text.count > 125 { break }
        payload += text
      }
    }
    return bytes(.close, payload, mask: mask)
  }
}
