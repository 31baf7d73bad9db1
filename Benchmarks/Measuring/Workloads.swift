/// The events and expressions that tests count and benchmarks time.
package enum Workloads {
  /// An event of 200 bytes.
  package static let event =
    #"{"id":81985529216486895,"time":"2026-01-31T12:00:00.125Z","method":"GET","path":"/catalogue/books/42","host":"shop.example","status":503,"bytes":18731,"agent":"curl/7.88.1","user":{"name":"ann","plan":"x"}}"#

  package static let twoTerms = "event.status >= 500 && event.method == 'GET'"
  package static let sixTerms =
    "event.status >= 500 && event.method == 'GET' && event.bytes > 1000 && event.host == 'shop.example' && event.user.plan != 'y' && event.id != 7"
  package static let fourFields =
    "{'id': event.id, 'status': event.status, 'host': event.host, 'who': event.user.name}"
  /// Reads the same paths and builds nothing.
  package static let fourReads =
    "event.id != 0 && event.status != 0 && event.host != '' && event.user.name != ''"

  /// Functions, and pairs of expressions: one calls them, the other has their bodies written out.
  package static let functions = """
    functions:
      failed: { parameters: { status: dyn, method: dyn }, value: status >= 500 && method == 'GET' }
      failedTyped: { parameters: { status: int, method: string }, value: status >= 500 && method == 'GET' }
      who: { parameters: { user: map }, value: user.name + '/' + user.plan }
      kilo: { parameters: { n: double }, value: n / 1000.0 }
    """
  package static let calls: [(name: String, call: String, written: String)] = [
    ("two terms, parameters of any type", "failed(event.status, event.method)", twoTerms),
    ("two terms, typed parameters", "failedTyped(event.status, event.method)", twoTerms),
    ("two fields of a map", "who(event.user) == 'ann/x'", "event.user.name + '/' + event.user.plan == 'ann/x'"),
    ("a double", "kilo(event.bytes) > 18.0", "event.bytes / 1000.0 > 18.0"),
  ]

  package static let filterChain = "[ { filter: \"\(twoTerms)\" } ]"
  package static let readChain = "[ { filter: \"\(fourReads)\" } ]"
  package static let mapChain =
    "[ { map: { id: event.id, status: event.status, host: event.host, who: event.user.name } } ]"
  package static let longChain =
    "[ { filter: \"\(twoTerms)\" }, { map: { id: event.id, bytes: event.bytes } }, { scan: { start: 0, next: running + event.bytes } } ]"

  /// Four events of two hosts and two statuses; no two neighbours are equal.
  package static let events = [(503, "shop"), (200, "shop"), (503, "news"), (200, "news")].map { status, host in
    #"{"id":81985529216486895,"time":"2026-01-31T12:00:00.125Z","method":"GET","host":"\#(host).example","status":\#(status),"bytes":18731,"user":{"name":"ann","plan":"x"}}"#
  }

  /// A chain whose events neither allocate nor retain and release, apart from the known exceptions.
  package struct Counted: Sendable {
    package var name: String
    /// The YAML of the chain.
    package var text: String
    /// The known number of retains and releases per event, which should be 0.
    package var references = 0

    init(_ name: String, _ text: String, references: Int = 0) {
      self.name = name
      self.text = text
      self.references = references
    }
  }

  /// Chains over ``events``.
  package static let chains = [
    Counted("filter", filterChain),
    Counted("map to four fields", mapChain),
    Counted("filter, map, scan", longChain),
    Counted(
      "map with a text put together of two", "[ { map: { id: event.id, what: \"event.method + ' ' + event.host\" } } ]"),
    Counted("set a field", "[ { set: { status: event.status + 1 } } ]", references: 2),
    Counted("unset two fields", "[ { unset: [bytes, user.plan] } ]", references: 4),
    Counted("ignore", "[ { ignore: event.status < 500 } ]"),
    Counted("distinctUntilChanged by a field", "[ { distinctUntilChanged: event.host } ]"),
    Counted("distinct by a field", "[ { distinct: { by: event.host, memory: 100 } } ]", references: 2),
    Counted("aggregate of two figures", "[ \(twoFigures) ]", references: 2),
    Counted(
      "groupBy a field, a filter and a scan in each group",
      "[ { groupBy: { key: event.host, chain: [ { filter: event.status >= 500 }, { scan: { start: 0, next: running + event.bytes } } ] } } ]"
    ),
    Counted(
      "groupBy two fields, an aggregate of two figures in each group, map",
      "[ { groupBy: { key: \"[event.host, event.status]\", chain: [ \(twoFigures) ] } }, { map: { host: \"meta.key[0]\", count: event.count } } ]",
      references: 2),
  ]
  private static let twoFigures =
    "{ aggregate: { start: { count: 0, sum: 0.0 }, next: \"{'count': running.count + 1, 'sum': running.sum + double(event.bytes)}\" } }"

  /// Chains over integers.
  package static let integerChains = [
    Counted("scan", "[ { scan: { start: 0, next: running + event } } ]"),
    Counted("distinctUntilChanged", "[ distinctUntilChanged ]"),
    Counted("combinePrevious", "[ { combinePrevious: { start: 0, next: event - previous } } ]"),
    Counted("mapReplace", "[ { mapReplace: 1 } ]"),
    Counted("skip and take, neither at its end", "[ { skip: 1 }, { take: 1000000000 } ]"),
    Counted(
      "groupBy, a scan in each of ten groups",
      "[ { groupBy: { key: event % 10, chain: [ { scan: { start: 0, next: running + event } } ] } } ]"),
    Counted("flattenMap, a list of one", "[ { flattenMap: \"[event]\" } ]", references: 4),
  ]
}
