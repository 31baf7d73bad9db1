import Synchronization

/// The counts of the plugin behind one step, over all of its instances. Used on any thread.
package final class PluginMeter: Sendable {
  private let counted = Mutex(PipelineStatistics.Plugin())
  private let gauged = Mutex<[Holder: [Gauge: Double]]>([:])
  private let companions = Mutex<[ObjectIdentifier: any AnyObject & Sendable]>([:])
  /// The maximum number of names; a plugin that uses more is faulty, and further names are not counted.
  private static let mostNames = 100
  /// The maximum number of gauges of an instance.
  private static let mostGauges = 1_000

  /// The instance that has set a gauge: by itself, or by its number in a shared program.
  package struct Holder: Hashable, Sendable {
    package var object: ObjectIdentifier
    package var number: Int

    package init(_ object: AnyObject, _ number: Int = 0) {
      (self.object, self.number) = (ObjectIdentifier(object), number)
    }
  }

  /// The name of a gauge; `of` is its label.
  package struct Gauge: Hashable, Sendable {
    package var name: String
    package var of: String

    package init(name: String, of: String) {
      self.name = Printable.cut(name, limit: 100)
      self.of = Printable.cut(of, limit: 200)
    }
  }

  package init() {}

  package func update(_ body: (inout PipelineStatistics.Plugin) -> Void) { counted.withLock { body(&$0) } }

  /// Adds to a count that the plugin keeps itself, under its own name. Counts never fall: an amount below 1 is ignored.
  package func count(_ name: String, _ by: Int64) {
    guard by > 0 else { return }
    let name = Printable.cut(name, limit: 100)
    counted.withLock {
      guard $0.counts.count < Self.mostNames || $0.counts[name] != nil else { return }
      $0.counts[name, default: 0] &+= UInt64(by)
    }
  }

  /// Sets a gauge of an instance; nil removes it.
  package func gauge(_ gauge: Gauge, _ value: Double?, from holder: Holder) {
    gauged.withLock {
      guard let value else {
        $0[holder]?[gauge] = nil
        return
      }
      let known = $0[holder]
      guard known?[gauge] != nil || known?.count ?? 0 < Self.mostGauges else { return }
      $0[holder, default: [:]][gauge] = value
    }
  }

  /// Removes the gauges of an instance that has ended.
  package func forget(_ holder: Holder) { gauged.withLock { _ = $0.removeValue(forKey: holder) } }

  /// Removes the gauges of all instances of a program that has ended.
  package func forget(allOf program: AnyObject) {
    let object = ObjectIdentifier(program)
    gauged.withLock { gauged in
      for holder in gauged.keys where holder.object == object { gauged[holder] = nil }
    }
  }

  /// The sums over all instances.
  private var gauges: [String: [String: Double]] {
    var sums: [String: [String: Double]] = [:]
    gauged.withLock {
      for values in $0.values {
        for (gauge, value) in values where sums.count < Self.mostNames || sums[gauge.name] != nil {
          sums[gauge.name, default: [:]][gauge.of, default: 0] += value
        }
      }
    }
    return sums
  }

  /// An object of the plugin host that lives as long as the execution, one of each type; made at the first call.
  package func kept<Companion: AnyObject & Sendable>(_ make: () -> Companion) -> Companion {
    companions.withLock {
      if let kept = $0[ObjectIdentifier(Companion.self)] as? Companion { return kept }
      let made = make()
      $0[ObjectIdentifier(Companion.self)] = made
      return made
    }
  }

  /// The counts so far.
  package var now: PipelineStatistics.Plugin {
    var now = counted.withLock { $0 }
    now.gauges = gauges
    return now
  }
}

extension PipelineStatistics {
  /// The state of the plugin behind a step.
  package struct Plugin: Sendable, Equatable {
    /// The number of open instances: one, or one for each group or inner signal.
    package var instances = 0
    /// The process IDs of a program.
    package var processes: [Int32] = []
    /// How often a program was started again, because it had ended.
    package var restarts: UInt64 = 0
    /// Events that the plugin was given and has not answered; for a source, events with a token that are not
    /// acknowledged.
    package var inHand = 0
    /// Events given up because the plugin ended on them three times in a row.
    package var poisoned: UInt64 = 0
    /// Lines of the plugin's log, and of a program's standard error, that were dropped.
    package var missedLines: UInt64 = 0
    /// Bytes of memory of its processes; nil: unknown. Set by the reader of the statistics.
    package var memory: Int?
    /// The plugin's own counts, by name.
    package var counts: [String: UInt64] = [:]
    /// The plugin's gauges, by name and label.
    package var gauges: [String: [String: Double]] = [:]

    package init() {}

    /// Adds the counts of an earlier execution; current values stay.
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

extension JSONText {
  /// A gauge; null if it is infinite, which JSON numbers cannot express.
  package static func gauge(_ value: Double) -> JSONText {
    guard value.isFinite else { return .null }
    return Int(exactly: value).map(JSONText.int) ?? .document("\(value)")
  }
}
