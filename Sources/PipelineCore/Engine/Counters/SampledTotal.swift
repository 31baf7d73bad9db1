/// A total that is estimated from samples.
///
/// It never falls. Each update adds the number of events since the last update times the mean of the samples since
/// then, or times the previous mean if there are no samples.
struct SampledTotal {
  /// The sum of the measurements since the last update, and their number.
  private(set) var sum: UInt64 = 0
  private(set) var count: UInt64 = 0
  /// The events that were measured before the last update.
  private var earlier: UInt64 = 0
  private var total: UInt64 = 0
  /// The number of events in the total.
  private var events: UInt64 = 0
  /// The last mean, as a fraction.
  private var mean: (sum: UInt64, count: UInt64) = (0, 0)

  /// All events that were measured.
  var samples: UInt64 { earlier &+ count }

  mutating func add(_ measured: UInt64, of events: UInt64 = 1) {
    sum &+= measured
    count &+= events
  }

  /// The estimated total of all events; nil: none was measured.
  mutating func total(of all: UInt64) -> UInt64? {
    if count > 0 {
      mean = (sum, count)
      earlier &+= count
      (sum, count) = (0, 0)
    }
    guard mean.count > 0 else { return nil }
    if all > events {
      let product = mean.sum.multipliedFullWidth(by: all &- events)
      let more = product.high < mean.count ? mean.count.dividingFullWidth(product).quotient : .max
      let (sum, overflow) = total.addingReportingOverflow(more)
      total = overflow ? .max : sum
      events = all
    }
    return total
  }
}
