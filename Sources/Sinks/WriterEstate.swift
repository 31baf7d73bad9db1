import PipelineCore
import Synchronization
import Transport

/// The target of a sink that writes a stream.
struct StreamTarget {
  var target: FileWriter.Target
  var sync: FileWriter.Sync
}

/// A sink whose writer may go to its next version.
protocol StreamSinkComponent: SinkComponent {
  /// Nil: it writes several files, or replaces one.
  var streamTarget: StreamTarget? { get }
}

/// The numbers of events and bytes that a sink has handed to its writer, and their outcome.
struct Counts {
  /// The number of events handed to the writer; of these, how many have been counted as delivered.
  var handedOver = 0
  private var counted = 0
  private var countedBytes = 0
  let delivery = Delivery()

  /// The number of events that are neither written nor lost.
  var open: Int { handedOver - delivery.delivered }

  /// The events and bytes that were delivered since the last call.
  mutating func takeNew() -> (events: Int, bytes: Int) {
    let (delivered, written) = (delivery.delivered, delivery.written)
    defer { (counted, countedBytes) = (delivered, written) }
    return (delivered - counted, written - countedBytes)
  }
}

/// The writer that a sink leaves to its next version in a reload, because its reader may have stalled: the reload does
/// not wait for it, and it continues writing between the two versions.
final class WriterEstate: SinkEstate {
  /// The writers left during the reload that is under way.
  private static let all = KeptItems<WriterEstate> { $0.blocks.failSenders() }

  struct Contents: @unchecked Sendable {
    let target: FileWriter.Target
    let writer: FileWriter
    let blocks: OpenBlocks
    let counts: Counts
    /// The rows of the outbox that hold these events.
    let rows: [GivenRows]
  }
  private let contents: Mutex<Contents?>
  private let blocks: OpenBlocks
  private let name: String

  init(_ contents: Contents, name: String) {
    self.contents = Mutex(contents)
    blocks = contents.blocks
    self.name = name
    // Outside of a reload no successor would end it.
    if !Self.all.keep([self], for: name) { blocks.failSenders() }
  }

  var unsaved: Int { blocks.unsaved }

  /// The contents, for the next version; nil: they are taken already.
  func take() -> Contents? {
    for other in Self.all.take(name) where other !== self { other.blocks.failSenders() }
    return contents.withLock { $0.take() }
  }

  func discard() {
    guard let left = take() else { return }
    left.blocks.failSenders()
    // Ending may take a moment, so it must not happen in a turn.
    _ = try? OwnThread("rxd close") { left.writer.close(within: .zero) }
  }
}

extension StreamSink {
  /// Takes over the writer of the previous execution.
  func takeEstate() {
    // A writer that this sink does not take belongs to the state of the previous version.
    guard !isOver else { return }
    let left = (execution.takeEstate(of: nodeContext.step) as? WriterEstate)?.take()
    if let left, left.target.isSame(as: target) {
      take(left.rows)
      (writer, blocks, counts) = (left.writer, left.blocks, left.counts)
      blocks.goOn(with: self)
    } else {
      if let left { giveUp(left) }
      openTarget()
    }
    if writer != nil { tookEstate() }
  }

  /// Gives up the writer of a version with another target: an earlier successor, which did not start, had the same one.
  private func giveUp(_ left: WriterEstate.Contents) {
    let lost = left.blocks.unsaved
    left.blocks.failSenders()
    closeBeside({ left.writer.close(within: .milliseconds(500)) }, then: {})
    guard lost > 0 else { return }
    countUndelivered(lost)
    log(.warning, "\(Printable.count(lost, "event")) left to \(left.target.name), which this version does not write to")
  }
}
