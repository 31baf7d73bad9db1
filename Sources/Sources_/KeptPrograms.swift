import PipelineCore
import Synchronization
import Transport

/// Programs between two versions of a pipeline: they run on, and the next version reads on.
enum KeptPrograms {
  struct Entry: Sendable {
    var call: ProgramCall
    var program: StreamedProgram
    var output: FileDescriptor
    var input: KeptInput
    /// What `input` was decoded by.
    var options: DecoderOptions
  }

  private static let kept = Mutex<[String: [Entry]]>([:])

  /// Keeps a program until a reload is over; false: there is none. Several instances of one step are taken in the same order.
  static func keep(_ entry: Entry, for step: String) -> Bool {
    guard KeptListeners.whenOver({ end(step) }) else { return false }
    kept.withLock { $0[step, default: []].append(entry) }
    return true
  }

  static func take(_ step: String) -> Entry? {
    kept.withLock { kept in
      guard var entries = kept[step], !entries.isEmpty else { return nil }
      defer { kept[step] = entries.isEmpty ? nil : entries }
      return entries.removeFirst()
    }
  }

  /// Ends what nobody has taken.
  private static func end(_ step: String) {
    for entry in kept.withLock({ $0.removeValue(forKey: step) }) ?? [] { entry.program.cancel() }
  }
}
