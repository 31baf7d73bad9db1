/// The encoder of a plugin: a pure function that makes text or bytes of each event.
final class PluginEncoder: EventEncoder {
  private let function: any ForeignFunction
  let mediaType: String
  /// Whether a line feed ends each event.
  private let endsLines: Bool
  private let arena = Arena()

  init(_ format: PluginFormat, terminated: Bool) {
    function = format.function
    mediaType = format.mediaType
    endsLines = terminated && format.framing == .lines
  }

  func append(_ value: Value, to output: OutputBuffer) -> EncodingFailure? {
    let opened: any PluginRowFunction
    switch function.open() {
    case .success(let function): opened = function
    case .failure(let refusal): return .plugin(PluginEncodingFault("the plugin cannot be used: \(refusal.message)"))
    }
    defer { arena.reset() }
    var value = value
    switch opened.call(&value, nil, arena) {
    case .pass, .last: break
    case .drop, .finish: return nil
    case .failed(let message): return .plugin(PluginEncodingFault(message))
    }
    guard value.is(.string) || value.is(.bytes) else {
      return .plugin(
        PluginEncodingFault("the encoder returned \(value.kindName), but only texts and bytes can be written"))
    }
    let start = output.count
    if let failure = appendBare(value, to: output) { return failure }
    if endsLines {
      guard output.bytes.part(start, output.count).offset(of: 0x0A) == nil else {
        output.truncate(to: start)
        return .plugin(PluginEncodingFault("the encoder returned a text with a line break, and its spec says lines"))
      }
      output.append(UInt8(ascii: "\n"))
    }
    return nil
  }
}
