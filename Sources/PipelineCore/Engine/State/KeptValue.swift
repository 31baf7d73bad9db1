/// A value as bytes in the form of saved states, for whoever keeps values elsewhere. Unlike JSON they keep times, durations, bytes, and numbers as
/// they were written.
public enum KeptValue {
  private static let format: UInt8 = 1

  /// Nested deeper than 128, a part is null.
  public static func encode(_ value: Value) -> [UInt8] {
    let context = StateWriter.Context(Executor(clock: VirtualTime()), StateTable.Builder(), .taken)
    var writer = StateWriter(context)
    writer.append(Self.format)
    writer.write(value: value)
    return writer.bytes
  }

  /// Nil: they are no such bytes.
  public static func decode(_ bytes: [UInt8]) -> OwnedValue? {
    var reader = StateReader(bytes, 0..<bytes.count, StateReader.Context(Executor(clock: VirtualTime())))
    guard (try? reader.byte()) == Self.format, let value = try? reader.ownedValue(), reader.isAtEnd else { return nil }
    return value
  }
}
