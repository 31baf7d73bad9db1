/// The decoder of a plugin: a pure function that makes an event, a list of events or nothing of each line or whole input.
///
/// The plugin is opened when the first unit is decoded, because checking a file makes decoders, too.
final class PluginDecoder: EventDecoder {
  private let function: any ForeignFunction
  private let makesList: Bool
  let framing: Framing
  private let readsLines: Bool

  init(_ format: PluginFormat, _ options: DecoderOptions) {
    function = format.function
    makesList = format.makesList
    readsLines = format.framing == .lines && options.unit != .row
    framing = readsLines ? .lines : .whole
  }

  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch
  ) {
    let input = slab.bytes.part(range.lowerBound, range.upperBound)
    guard readsLines else { return decode(input, offset, arena, rows) }
    input.forEachLine(from: offset == 0 ? input.byteOrderMarkLength : 0) { line, at in
      decode(line, offset &+ Int64(at), arena, rows)
    }
  }

  private func decode(_ unit: UnsafeRawBufferPointer, _ offset: Int64, _ arena: Arena, _ rows: RowBatch) {
    let opened: any PluginRowFunction
    switch function.open() {
    case .success(let function): opened = function
    case .failure(let refusal):
      return rows.reject(unit, offset: offset, .plugin("the plugin cannot be used: \(refusal.message)"))
    }
    var value = Value.bytes(unit)
    switch opened.call(&value, nil, arena) {
    case .pass, .last:
      guard makesList else { return rows.append(value, offset: offset) }
      guard value.is(.list) else {
        return rows.reject(unit, offset: offset, .plugin("the decoder returned no list of events, as its spec says"))
      }
      for event in value.elements { rows.append(event, offset: offset) }
    case .drop, .finish: break
    case .failed(let message): rows.reject(unit, offset: offset, .plugin(message))
    }
  }
}
