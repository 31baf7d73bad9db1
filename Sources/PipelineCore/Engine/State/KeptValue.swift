/// Encodes values in the format of saved states, for stores outside of them. Unlike JSON, the format preserves times,
/// durations, bytes, and the text of numbers.
package enum KeptValue {
  private static let format: UInt8 = 1

  /// Encodes a value; parts that are nested deeper than 128 become null.
  package static func encode(_ value: Value) -> [UInt8] {
    let context = StateWriter.Context(Executor(clock: VirtualTime()), StateTable.Builder(), .taken)
    var writer = StateWriter(context)
    writer.append(Self.format)
    writer.write(value: value)
    return writer.bytes
  }

  /// Decodes a value; nil: the bytes do not have this format.
  package static func decode(_ bytes: [UInt8]) -> OwnedValue? {
    var reader = StateReader(bytes, 0..<bytes.count, StateReader.Context(Executor(clock: VirtualTime())))
    guard (try? reader.byte()) == Self.format, let value = try? reader.ownedValue(), reader.isAtEnd else { return nil }
    return value
  }
}
