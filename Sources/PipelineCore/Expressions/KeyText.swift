#if canImport(Glibc)
  import Glibc
#endif

/// The bytes that represent a value as a key: equal exactly for equal values of one kind.
///
/// Ints and uints are one kind. A text is represented by its code points, whatever its JSON form. Lists are equal if
/// their elements are. Maps, and other kinds that are rarely keys, are represented by their JSON text, so maps with
/// another order of members differ.
enum KeyText {
  /// More deeply nested lists are represented by their JSON text.
  private static let depthLimit = 16

  static func append(_ value: Value, to output: OutputBuffer, _ context: Context, depth: Int = 0) {
    switch value.what {
    case .absent, .null: append(.null, to: output)
    case .bool: append(value.asBool ? .yes : .no, to: output)
    case .int: append(.int, value.payload, to: output)
    case .uint: append(value.payload >> 63 == 0 ? .int : .uint, value.payload, to: output)
    case .double:
      append(.double, value.asDouble.isNaN ? Double.nan.bitPattern : value.payload, to: output)
    case .string: append(.text, context.plain(value).rawBytes, to: output)
    case .list, .jsonList:
      let list = context.expanded(value)
      guard list.is(.list), depth < depthLimit else { return appendOther(value, to: output) }
      append(.list, UInt64(list.length), to: output)
      for element in list.elements { append(element, to: output, context, depth: depth + 1) }
    default: appendOther(value, to: output)
    }
  }

  @inline(__always)
  private static func append(_ tag: KeyKind, to output: OutputBuffer) { output.append(tag.rawValue) }

  @inline(__always)
  static func append(_ tag: KeyKind, _ word: UInt64, to output: OutputBuffer) {
    output.append(count: 9) { target in
      target[0] = tag.rawValue
      UnsafeMutableRawPointer(target + 1).storeBytes(of: word, as: UInt64.self)
      return 9
    }
  }

  /// The length comes first, so that the end of one text cannot be mistaken for the start of the next.
  @inline(__always)
  static func append(_ tag: KeyKind, _ bytes: UnsafeRawBufferPointer, to output: OutputBuffer) {
    output.append(count: bytes.count &+ 5) { target in
      target[0] = tag.rawValue
      UnsafeMutableRawPointer(target + 1).storeBytes(of: UInt32(truncatingIfNeeded: bytes.count), as: UInt32.self)
      if let start = bytes.baseAddress { memcpy(target + 5, start, bytes.count) }
      return bytes.count &+ 5
    }
  }

  private static func appendOther(_ value: Value, to output: OutputBuffer) {
    let start = output.count
    append(.other, UnsafeRawBufferPointer(start: nil, count: 0), to: output)
    JSONWriter.appendKey(value, to: output)
    // The length is known only now.
    let length = UInt32(truncatingIfNeeded: output.count &- start &- 5)
    UnsafeMutableRawPointer(output.start + start + 1).storeBytes(of: length, as: UInt32.self)
  }
}
