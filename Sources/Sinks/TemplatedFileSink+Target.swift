import PipelineCore
import Synchronization
import Transport

extension TemplatedFileSink {
  /// One file, open or closed.
  final class Target {
    let file: FilesWriter.File
    let encoder: any EventEncoder
    /// The position of the file in the state of an earlier execution, if there is one.
    let restored: Restored?
    /// The events of this turn; nil: there are none.
    var buffer: OutputBuffer?
    var events = 0
    /// The same events, if the file is not known to be open.
    var kept: [OwnedEvent] = []
    /// The number of bytes encoded for it, and how many of these have been handed to the writer.
    var count: Int64
    var handedOver: Int64
    /// The number of times that it was opened.
    var opening = 0
    var isOpen = false
    /// The target's counts at requested marks of the sink, if changed since; ascending.
    var marks: [(mark: Int64, count: Int64)] = []
    /// The time of the target's last event; `order` distinguishes events of one turn.
    var lastUse = Instant(nanoseconds: 0)
    /// The same by the wall clock, in nanoseconds since 1970; nil: it has had none since it was rotated.
    var lastTime: Int64?
    var order: UInt64 = 0

    init(_ file: FilesWriter.File, _ encoder: any EventEncoder, _ restored: Restored? = nil) {
      self.file = file
      self.encoder = encoder
      self.restored = restored
      count = restored?.file.count ?? 0
      handedOver = count
    }

    /// The target's count at that mark.
    func count(at mark: Int64) -> Int64 {
      if let first = marks.firstIndex(where: { $0.mark >= mark }) {
        marks.removeFirst(first)
      } else {
        marks = []
      }
      return marks.first?.count ?? count
    }
  }

  struct Restored {
    var file: SavedFile
    var memory: [String]
  }

  /// The data for rejecting a block. Read in turns only.
  struct Held: @unchecked Sendable {
    let events: [OwnedEvent]
    let receipt: Receipt
    let target: Target
    let opening: Int
  }

  /// The number of blocks that wait for their files to be opened. Changed by the writing thread, read in turns.
  final class Unsure: Sendable {
    private let count = Atomic(0)
    var isAny: Bool { count.load(ordering: .acquiring) > 0 }
    func change(by number: Int) { count.add(number, ordering: .acquiringAndReleasing) }
  }
}
