import Synchronization

/// Why an encoder of a plugin refuses an event: a number, so that a result of an encoder needs no reference counts.
///
/// The texts of the last 256 refusals of the process are kept, which suffices because each is read at once.
package struct PluginEncodingFault: Sendable, Equatable {
  private let number: UInt32

  private struct Texts {
    var next: UInt32 = 0
    var texts: [String] = []
  }
  private static let texts = Mutex(Texts())
  private static let kept = 256

  package init(_ message: String) {
    number = Self.texts.withLock { texts in
      let number = texts.next
      texts.next &+= 1
      let index = Int(number) % Self.kept
      if index < texts.texts.count { texts.texts[index] = message } else { texts.texts.append(message) }
      return number
    }
  }

  package var message: String {
    Self.texts.withLock { texts in
      texts.next &- number <= UInt32(Self.kept)
        ? texts.texts[Int(number) % Self.kept] : "the encoder of a plugin refuses the event"
    }
  }
}
