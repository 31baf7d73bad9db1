import Synchronization

/// What is counted of the plugin behind one step, over all of its instances. Used on any thread.
public final class PluginMeter: Sendable {
  private let counted = Mutex(PipelineStatistics.Plugin())
  private let companion = Mutex<(any AnyObject & Sendable)?>(nil)
  /// More names than this are a mistake of the plugin; further ones are not counted.
  private static let mostNames = 100

  public init() {}

  public func update(_ body: (inout PipelineStatistics.Plugin) -> Void) { counted.withLock { body(&$0) } }

  /// Counts what the plugin counts itself, under a name of its own. Counts never fall: below 1 nothing is counted.
  public func count(_ name: String, _ by: Int64) {
    guard by > 0 else { return }
    let name = Printable.cut(name, limit: 100)
    counted.withLock {
      guard $0.counts.count < Self.mostNames || $0.counts[name] != nil else { return }
      $0.counts[name, default: 0] &+= UInt64(by)
    }
  }

  /// What the host of the plugin keeps for the step as long as the execution lives; made when it is first asked for.
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
  /// What is known of the plugin behind a step.
  public struct Plugin: Sendable, Equatable {
    /// Its instances that are open: one, or one for each group or inner signal.
    public var instances = 0
    /// The process IDs of a program.
    public var processes: [Int32] = []
    /// How often a program was started again, because it had ended.
    public var restarts: UInt64 = 0
    /// Events that it has been given and has not answered, and of a source those with a token that are not settled.
    public var inHand = 0
    /// Events that were given up because the program had ended with them three times.
    public var poisoned: UInt64 = 0
    /// Lines of a program's standard error that were not logged.
    public var missedLines: UInt64 = 0
    /// Bytes of memory of its processes; nil: unknown. Set by whoever looks.
    public var memory: Int?
    /// What it has counted, by names of its own.
    public var counts: [String: UInt64] = [:]

    public init() {}

    /// Adds what an earlier execution has counted; what there is now stays.
    mutating func add(_ earlier: Plugin) {
      restarts &+= earlier.restarts
      poisoned &+= earlier.poisoned
      missedLines &+= earlier.missedLines
      counts.merge(earlier.counts) { $0 &+ $1 }
    }

    /// What was counted since then.
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
  /// Where the counts of the plugin behind the step are kept; nil: there is none.
  public var pluginMeter: PluginMeter? { execution.meters.plugins[step.number]?.meter }
}
