import PipelineCore

/// One moment of a signal, in tests.
package enum SignalMoment: Sendable, Equatable {
  /// An event, given by its letter.
  case next(String)
  case complete
  case error
  case subscribe
  case cancel
}

/// A marble diagram of a signal: `-a-(bc) 300ms |`.
///
/// Each character is one tick. `-`: nothing; a letter or digit: an event; `(ab)`: several events at one instant, taking
/// one tick; `|`: completion; `#`: an error; `^` and `!`: the start and the cancellation of a subscription; a duration
/// between spaces lets that time pass. Spaces have no meaning.
package struct Marbles: Sendable, Equatable {
  /// One event of a diagram.
  package struct Entry: Sendable, Equatable {
    /// The time since the start of the diagram.
    package var at: TimeSpan
    package var moment: SignalMoment
    /// The byte offset in the text.
    package var offset: Int
    package init(at: TimeSpan, _ moment: SignalMoment, offset: Int = 0) {
      self.at = at
      self.moment = moment
      self.offset = offset
    }
  }

  package var entries: [Entry]
  /// The total time of the diagram.
  package var length: TimeSpan

  /// An error in a diagram.
  package struct Mistake: Error, Sendable, Equatable {
    package var message: String
    /// The byte offset in the text.
    package var offset: Int
  }

  package init(_ text: String, tick: TimeSpan = .milliseconds(1)) throws(Mistake) {
    let bytes = Array(text.utf8)
    var entries: [Entry] = []
    var now = TimeSpan.zero
    var group: Int?
    var index = 0
    while index < bytes.count {
      let byte = bytes[index]
      let start = index
      index += 1
      var moment: SignalMoment?
      switch byte {
      case UInt8(ascii: " "), UInt8(ascii: "\n"), UInt8(ascii: "\t"): continue
      case UInt8(ascii: "-"):
        if group != nil {
          throw Mistake(message: "time cannot pass inside a group ( )", offset: start)
        }
        now = now + tick
        continue
      case UInt8(ascii: "("):
        if group != nil { throw Mistake(message: "groups ( ) cannot be nested", offset: start) }
        group = start
        continue
      case UInt8(ascii: ")"):
        if group == nil { throw Mistake(message: "`)` without `(`", offset: start) }
        group = nil
        now = now + tick
        continue
      case UInt8(ascii: "|"): moment = .complete
      case UInt8(ascii: "#"): moment = .error
      case UInt8(ascii: "^"): moment = .subscribe
      case UInt8(ascii: "!"): moment = .cancel
      case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"),
        UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "*"), UInt8(ascii: "_"):
        if group == nil, let (span, end) = Self.pause(bytes, start) {
          now = now + span
          index = end
          continue
        }
        moment = .next(String(decoding: [byte], as: UTF8.self))
      default:
        throw Mistake(
          message:
            "`\(Printable.cut([byte]))` means nothing in marbles: use - a-z A-Z 0-9 ( ) | # ^ ! and pauses such as 300ms",
          offset: start)
      }
      if let moment {
        entries.append(Entry(at: now, moment, offset: start))
        if group == nil, moment != .subscribe, moment != .cancel { now = now + tick }
      }
    }
    if let group { throw Mistake(message: "the group `(` is not closed", offset: group) }
    self.entries = entries
    length = now
  }

  /// Reads a duration between spaces, or at the start or end: `300ms`.
  private static func pause(_ bytes: [UInt8], _ start: Int) -> (TimeSpan, Int)? {
    guard start == 0 || bytes[start - 1] == UInt8(ascii: " "), (48...57).contains(bytes[start]) else {
      return nil
    }
    var end = start
    while end < bytes.count, bytes[end] != UInt8(ascii: " ") { end += 1 }
    let word = LocatedText(String(decoding: bytes[start..<end], as: UTF8.self))
    guard case .success(let span) = Units.duration(word) else { return nil }
    return (span, end)
  }
}
