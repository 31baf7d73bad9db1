import PipelineCore
import Transport

/// How the bytes of a stream are split into messages: `framing: nul`, `framing: { by: length, bytes: 2 }`.
struct FramingParameter: RecordParameter {
  enum Kind: String, ChoiceParameter {
    case lines, nul, length, octets, fixed, whole
    var help: String {
      switch self {
      case .lines: "each line is a message"
      case .nul: "a zero byte ends a message"
      case .length: "its length comes before a message, as a binary number of `bytes` bytes"
      case .octets: "its length comes before a message, in decimal digits and a space (RFC 6587)"
      case .fixed: "each message has `bytes` bytes"
      case .whole: "all that a connection sends is one message"
      }
    }
  }
  enum Order: String, ChoiceParameter {
    case big, little
    var help: String { "the \(self == .big ? "most" : "least") significant byte comes first" }
  }

  var by = Kind.lines
  var bytes: Int?
  var order = Order.big

  static var fields: [RecordField<FramingParameter>] {
    [
      .init("by", \.by, primary: true, required: true, "How the end of a message is recognized."),
      .init(
        "bytes", \.bytes, range: 1...(1 << 30), applies: .word("by", ["length", "fixed"]),
        "With `length`: how many bytes the length has, 2 or 4 (4 by default). With `fixed`: those of each message."),
      .init("order", \.order, applies: .word("by", ["length"]), "The order of the bytes of a `length`."),
    ]
  }

  var defaultText: String? { by.rawValue }

  /// The conditions of parameters that only a stream of lines has, in the short form and in the long one.
  static let ofLines: [Applicability] = {
    let others = Kind.allCases.filter { $0 != .lines }.map(\.rawValue)
    return [.notWord("/framing", others), .notWord("/framing.by", others)]
  }()

  func validate(_ node: YAMLNode, _ context: inout DecodingContext) {
    switch by {
    case .length where bytes.map({ $0 != 2 && $0 != 4 }) ?? false:
      context.badValue(
        node["bytes"] ?? node, "'bytes' of 'framing: length' is \(bytes ?? 0), but a length has 2 or 4 bytes",
        help: "Write 2 or 4")
    default: break
    }
  }

  /// Reports missing parameters, also in the short form.
  func check(_ context: inout DecodingContext) {
    guard by == .fixed, bytes == nil else { return }
    context.badValue(
      at: context.location(of: "framing"), "'framing: fixed' needs 'bytes', the size of each message",
      .missingParameter,
      help: "Write 'framing: { by: fixed, bytes: 64 }'")
  }

  var framing: MessageFraming {
    switch by {
    case .lines: .lines
    case .nul: .nul
    case .length: .length(bytes: bytes ?? 4, isLittle: order == .little)
    case .octets: .octets
    case .fixed: .fixed(bytes ?? 1)
    case .whole: .whole
    }
  }
}

/// Where a source listens: an address, or a socket of systemd.
struct ReceivingAddress: ParameterValue {
  var network: NetworkAddress?
  /// The name of a socket that the service manager opens.
  var activated: String?
  var location: SourceLocation?

  static func shape(range: ClosedRange<Int64>?) -> ParameterShape { NetworkAddress.shape(range: range) }
  var defaultText: String? { nil }

  static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> ReceivingAddress? {
    var address = ReceivingAddress()
    address.location = node.location
    if let text = node.string, text.hasPrefix("systemd:") {
      let name = String(text.dropFirst("systemd:".count))
      guard !name.isEmpty else {
        context.badValue(
          node, "'systemd:' needs the name of a socket",
          help: "Write the FileDescriptorName= of the .socket unit, such as systemd:logs")
        return nil
      }
      address.activated = name
      return address
    }
    guard let network = NetworkAddress.decode(node, &context) else { return nil }
    address.network = network
    return address
  }

  func endpoint(isDatagram: Bool) -> SocketEndpoint {
    if let activated { return .activated(name: activated, isDatagram: isDatagram) }
    return .network(host: network?.host ?? "127.0.0.1", port: network?.port ?? 0, isDatagram: isDatagram)
  }

  func listens(isDatagram: Bool) -> ListenAddress? {
    network.map { ListenAddress(host: $0.host, port: $0.port, location: $0.location, isDatagram: isDatagram) }
  }

  /// Whether other machines can reach it.
  var isOpenToOthers: Bool { network.map { !$0.isLoopback } ?? false }
}

/// The permissions of a Unix socket: who may connect or send to it, `mode: '0660'`.
struct SocketMode: ParameterValue {
  var bits: UInt32 = 0o600
  static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .text }
  var defaultText: String? { "0\(String(bits, radix: 8))" }

  static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> SocketMode? {
    guard let text = node.scalar?.string else {
      context.wrongType(node, wanted: "permissions such as '0660'")
      return nil
    }
    if node.scalar?.isPlaceholder == true { return SocketMode() }
    guard text.utf8.count >= 3, text.utf8.count <= 4, let bits = UInt32(text, radix: 8), bits <= 0o777 else {
      context.badValue(
        node, "'\(node.shown)' is not a valid mode of a socket",
        help: "Write three octal digits after a zero, such as '0660'")
      return nil
    }
    return SocketMode(bits: bits)
  }
}

extension DecoderOptions {
  /// The options for messages that arrive one by one, each with its own end.
  var ofMessages: DecoderOptions {
    var options = self
    options.unit = .body
    // A message may be one document or several.
    if format == .ndjson { options.format = .json }
    return options
  }
}

extension DecodingContext {
  /// Reports an address that other machines can reach without authentication.
  mutating func refuseOpenEndpoint(_ address: ReceivingAddress, isKnown: Bool, isAllowed: Bool, canUseTLS: Bool) {
    guard address.isOpenToOthers, !isKnown, !isAllowed else { return }
    badValue(
      at: location, "'\(component)' would accept events from anyone who can reach \(address.network?.host ?? "it")",
      .conflictingParameters,
      help: canUseTLS
        ? "Add 'tls' with 'clientCA', listen on 127.0.0.1, or set 'allowUnauthenticated: true'"
        : "Listen on 127.0.0.1, or set 'allowUnauthenticated: true'")
  }
}
