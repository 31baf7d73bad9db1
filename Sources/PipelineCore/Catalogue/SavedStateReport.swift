/// The contents of a saved state, for inspection. Needs no pipeline file.
package struct SavedStateReport {
  /// The state of one step, in all of its subscriptions outside of inner signals; an inner signal counts with the step that made it.
  package struct Step: Sendable {
    /// The name of the step in the state: signal and keyword, or the `name:` that the file gives it.
    package var name: String
    /// The version of its state format.
    package var version: Int
    package var bytes: Int
    /// How far a source has read; empty: the step is not a source, or its positions cannot be interpreted.
    package var positions: [SavedPosition]
    /// Whether the state is used even if the step's parameters have changed.
    package var fitsOtherParameters: Bool
  }

  /// The wall-clock time of saving, in nanoseconds since 1970.
  package let savedAt: Int64
  /// The size of the whole state, in bytes.
  package let bytes: Int
  package let steps: [Step]
  /// The sinks, and whether their input has ended.
  package let sinks: [(name: String, hasEnded: Bool)]

  /// The named sources, signals and commands.
  package let signals: Set<String>

  /// Whether the state belongs to a pipeline with such a sink, or with such a source, signal or command.
  package func has(_ name: String, isSink: Bool) -> Bool {
    isSink ? sinks.contains { $0.name == name } : signals.contains(name)
  }

  /// - Parameters:
  ///   - catalogue: Interprets the positions of sources.
  ///   - clock: For times since the saving.
  /// - Throws: Not a saved state, a newer format, or damaged.
  package init(_ bytes: [UInt8], catalogue: Catalogue, clock: any Clock) throws(StateFault) {
    let context = StateReader.Context(Executor(clock: clock))
    let contents = try StateContents(bytes, context)
    savedAt = contents.savedAt
    signals = Set(contents.definitions.keys)
    self.bytes = bytes.count
    var steps: [Int: Step] = [:]
    var sinks: [(String, Bool)] = []
    for (entry, reader) in contents.root.records {
      guard contents.entries.indices.contains(entry) else { throw StateFault("a record has no owner") }
      let about = contents.entries[entry]
      guard about.isStep else {
        if about.name.hasPrefix("sinks."), reader.remaining == 1 {
          var reader = reader
          sinks.append((String(about.name.dropFirst(6)), try reader.byte() != SinkStatus.open.rawValue))
        }
        continue
      }
      var step =
        steps[entry]
        ?? Step(
          name: about.name, version: about.version, bytes: 0, positions: [],
          fitsOtherParameters: about.fitsOtherParameters)
      step.bytes += reader.remaining
      step.positions += Self.positions(about, reader, catalogue)
      steps[entry] = step
    }
    for owner in contents.owners { steps[owner.entry]?.bytes += owner.bytes }
    self.sinks = sinks
    self.steps = steps.sorted { $0.key < $1.key }.map(\.value)
  }

  private static func positions(
    _ entry: StateTable.Entry, _ record: StateReader, _ catalogue: Catalogue
  ) -> [SavedPosition] {
    guard let read = catalogue.component(.source, Restoration.keyword(entry.name))?.savedPositions else { return [] }
    var reader = record.reader(version: entry.version, target: nil)
    do throws(StateFault) {
      // The number of the subscription.
      _ = try reader.read(UInt64.self)
      return try read(&reader)
    } catch {
      return []
    }
  }

  /// The state without that of the step, and the number of removed bytes; nil: the state has no such step.
  ///
  /// - Throws: The bytes are not a saved state, have a newer format, or are damaged.
  package static func removing(
    _ step: String, from bytes: [UInt8], clock: any Clock
  ) throws(StateFault) -> (state: [UInt8], removed: Int)? {
    let context = StateReader.Context(Executor(clock: clock))
    let contents = try StateContents(bytes, context)
    guard let entry = contents.entries.firstIndex(where: { $0.isStep && $0.name == step }) else { return nil }
    let removed =
      contents.root.records.reduce(0) { $0 + ($1.entry == entry ? $1.reader.remaining : 0) }
      + contents.owners.reduce(0) { $0 + ($1.entry == entry ? $1.bytes : 0) }
    return (contents.removing(entry, from: bytes, context), removed)
  }
}
