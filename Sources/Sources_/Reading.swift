import PipelineCore
import Transport

/// What becomes of a line that is longer than allowed.
public enum WhenTooLong: String, ChoiceParameter {
  case cut, drop, reject
  public var help: String {
    switch self {
    case .cut: "its beginning is used as the line"
    case .drop: "it is dropped"
    case .reject: "its beginning goes to the errors output"
    }
  }
  var policy: LongLine.Policy { LongLine.Policy(rawValue: rawValue) ?? .reject }
}

extension BlockReader.Options.Mode {
  init(_ framing: Framing, limit: Int) {
    switch framing {
    case .lines: self = .lines
    case .whole: self = .whole(limit: limit)
    case .chunks: self = .bytes
    }
  }
}

extension Framing {
  /// Whether the decoder holds rows that only the end of the input completes. Otherwise each range that
  /// it is given is whole, and the end is nothing to tell it.
  var hasOpenEnd: Bool { self == .lines }
}

extension RunningSource {
  /// Reports a line that was not delivered whole.
  func rejectLong(_ line: LongLine, _ limit: ByteSize, _ origin: Origin) {
    guard line.policy == .reject else { return }
    line.head.withUnsafeBytes {
      rejectInput(
        $0, "the line has \(line.length) bytes, more than the \(limit.bytes) that 'maxLine' allows",
        origin: origin, position: line.offset)
    }
  }
}

extension BlockDecoding {
  /// What the end of the input decides of what came before.
  func finish(_ end: BlockReader.End) -> DecodedBlock? {
    guard case .finished(let offset) = end, framing.hasOpenEnd else { return nil }
    return decode(Slab(capacity: 0), offset: offset, isLast: true)
  }
}
