import Synchronization

/// The counts of the plugin behind one step, over all of its instances. Used on any thread.
public final class PluginMeter: Sendable {
  private let counted = Mutex(PipelineStatistics.Plugin())
  private let companion = Mutex<(any AnyObject & Sendable)?>(nil)
  /// More names than this are a mistake of the plugin; further ones are not counted.
  private static let mostNames = 100

  public init() {}

  public func update(_ body: (inout PipelineStatistics.Plugin) -> Void) { counted.withLock { body(&$0) } }

  /// Adds to a count that the plugin keeps itself, under its own name. Counts never fall: an amount below 1 is ignored.
  public func count(_ name: String, _ by: Int64) {
    guard by > 0 else { return }
    let name = Printable.cut(name, limit: 100)
    counted.withLock {
      guard $0.counts.count < Self.mostNames || $0.counts[name] != nil else { return }
      $0.counts[name, default: 0] &+= UInt64(by)
    }
  }

  /// An object of the plugin host that lives as long as the execution; made at the first call.
  public func kept<Companion: AnyObject & Sendable>(_ make: () -> Companion) -> Companion {
    companion.withLock {
      if let kept = $0 as? Companion { return kept }
      let made = make()
      $0 = made
      return made
    }
  }

  /// The counts so far.
  public var now: PipelineStatistics.Plugin { counted.withLock { $0 } }
}

extension PipelineStatistics {
  /// The state of the plugin behind a step.
  public struct Plugin: Sendable, Equatable {
    /// The number of open instances: one, or one for each group or inner signal.
    public var instances = 0
    /// The process IDs of a program.
    public var processes: [Int32] = []
    /// How often a program was started again, because it had ended.
    public var restarts: UInt64 = 0
    /// Events that the plugin was given and has not answered; of a source, events with a token that are not acknowledged.
    public var inHand = 0
    /// Events given up after the program had ended with them three times.
    public var poisoned: UInt64 = 0
    /// Lines of a program's standard error that were not logged.
    public var missedLines: UInt64 = 0
    /// Bytes of memory of its processes; nil: unknown. Set by the reader of the statistics.
    public var memory: Int?
    /// The plugin's own counts, by name.
    public var counts: [String: UInt64] = [:]

    public init() {}

    /// Adds the counts of an earlier execution; present values stay.
    mutating func add(_ earlier: Plugin) {
      restarts &+= earlier.restarts
      poisoned &+= earlier.poisoned
      missedLines &+= earlier.missedLines
      counts.merge(earlier.counts) { $0 &+ $1 }
    }

    /// The counts since `earlier`.
    func since(_ earlier: Plugin) -> Plugin {
      var more = self
      more.restarts &-= earlier.restarts
      more.poisoned &-= earlier.poisoned
      more.missedLines &-= earlier.missedLines
      for (name, count) in earlier.counts { more.counts[name] = (counts[name] ?? count) &- count }
      return more
    }
  }
}

extension NodeContext {
  /// The counts of the plugin behind the step; nil: there is none.
  public var pluginMeter: PluginMeter? { execution.meters.plugins[step.number]?.meter }
}
