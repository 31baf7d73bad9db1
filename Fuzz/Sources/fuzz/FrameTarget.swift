import PipelineCore

/// Frames of WebSockets. `WebSocketFrames.swift` is a link to the product's.
enum FrameTarget {
  /// The first byte chooses the side and the limits; the rest is read whole and in pieces: what comes of it must be the same.
  static func read(_ input: UnsafeRawBufferPointer) {
    guard let choice = input.first else { return }
    let content = UnsafeRawBufferPointer(rebasing: input.dropFirst())
    let whole = items(choice, content, by: max(content.count, 1))
    for step in [1, 3] {
      precondition(items(choice, content, by: step) == whole, "the way of cutting the frames changes what is read")
    }
  }

  private static func items(_ choice: UInt8, _ bytes: UnsafeRawBufferPointer, by step: Int) -> [WebSocketReader.Item] {
    var reader = WebSocketReader(
      isServer: choice & 1 == 0, maxMessage: choice & 2 == 0 ? 1 << 20 : 100, maxFrame: choice & 4 == 0 ? 1 << 20 : 50)
    var items: [WebSocketReader.Item] = []
    for start in stride(from: 0, to: bytes.count, by: step) {
      let piece = UnsafeRawBufferPointer(rebasing: bytes[start..<min(start + step, bytes.count)])
      reader.take(piece) { items.append($0) }
    }
    return items
  }
}
