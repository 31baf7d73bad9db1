/// The events and expressions that the tests count and the benchmark times.
public enum Workloads {
  /// 200 bytes.
  public static let event =
    #"{"id":81985529216486895,"time":"2026-01-31T12:00:00.125Z","method":"GET","path":"/catalogue/books/42","host":"shop.example","status":503,"bytes":18731,"agent":"curl/7.88.1","user":{"name":"ann","plan":"x"}}"#

  public static let twoTerms = "event.status >= 500 && event.method == 'GET'"
  public static let sixTerms =
    "event.status >= 500 && event.method == 'GET' && event.bytes > 1000 && event.host == 'shop.example' && event.user.plan != 'y' && event.id != 7"
  public static let fourFields =
    "{'id': event.id, 'status': event.status, 'host': event.host, 'who': event.user.name}"
  /// Reads the same paths and builds nothing.
  public static let fourReads =
    "event.id != 0 && event.status != 0 && event.host != '' && event.user.name != ''"

  public static let filterChain = "[ { filter: \"\(twoTerms)\" } ]"
  public static let readChain = "[ { filter: \"\(fourReads)\" } ]"
  public static let mapChain =
    "[ { map: { id: event.id, status: event.status, host: event.host, who: event.user.name } } ]"
  public static let longChain =
    "[ { filter: \"\(twoTerms)\" }, { map: { id: event.id, bytes: event.bytes } }, { scan: { start: 0, next: running + event.bytes } } ]"
}
