/// Alternatives to steps that have no equivalent.
enum Advice {
  static func forStep(_ keyword: String) -> String {
    steps[keyword] ?? "Leave it to rxd, before or after the exported part"
  }

  private static let steps: [String: String] = {
    var all: [String: String] = [:]
    func give(_ advice: String, _ keywords: String...) {
      for keyword in keywords { all[keyword] = advice }
    }
    give(
      "It uses the clock: leave it to rxd, after the exported part; for aggregates over time use 'window' with event time",
      "throttle", "delay", "sample", "rateLimit", "timeout", "timeoutBetween", "absence", "bufferWithTime")
    give(
      "It depends on the order in which events arrive, which a table does not have: use 'topN' by a time, or leave it to rxd",
      "skip", "take", "takeLast", "skipWhile", "takeWhile", "combinePrevious", "distinctUntilChanged", "bufferWithCount"
    )
    give(
      "A running value depends on the order in which events arrive: use 'groupBy' with 'aggregate', or 'window' with event time",
      "scan")
    give("Use 'aggregate: { n: count() }'", "count")
    give("Use 'aggregate' with figures", "collect", "reduce", "any", "all")
    give(
      "Use 'join' with 'within', or with 'asOf: true' for the value of that time", "combineLatest", "zip",
      "withLatestFrom")
    give("Use 'merge': a table has no order", "concat", "then", "startWith", "race")
    give("Use 'map' with literals", "mapReplace")
    give("Use 'filter' with the opposite condition", "ignore")
    give("Use 'filter' and the conditional '? :' in 'map'", "if", "not", "and", "or", "gate", "switchToLatest")
    give("A list within an event is not a table: let rxd send its elements as events of their own", "flattenMap")
    give(
      "Effects are not rows: leave it to rxd, after the exported part", "execute", "exec", "do", "log",
      "circuitBreaker")
    give(
      "Rows that fail are left out, and Flink starts a job again by its own rules: remove it",
      "retry", "catch", "try", "tryMap", "repeat", "materialize", "dematerialize", "finally", "initially")
    give("Flink decides where work runs: remove it", "deliverOn", "subscribeOn")
    return all
  }()
}
