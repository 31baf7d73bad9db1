import Testing

@testable import PipelineCore
@testable import PipelineDiagnostics

@Suite struct SuggestionTests {
  static let known = [
    "map", "filter", "throttle", "distinctUntilChanged", "combineLatest", "flattenMap", "take",
    "takeLast", "takeUntil", "scan", "aggregate", "sample", "rateLimit", "log", "do", "chain",
    "from",
    "combinePrevious", "switchToLatest", "collect", "withLatestFrom",
  ]

  @Test(arguments: [
    ("trottle", "throttle"), ("thortle", "throttle"), ("fitler", "filter"), ("mapp", "map"),
    ("Filter", "filter"), ("combinelatest", "combineLatest"), ("takelst", "takeLast"),
    ("xyzzy", nil), ("m", nil), ("", nil), (String(repeating: "a", count: 500), nil),
  ])
  func nearest(_ name: String, _ expected: String?) {
    #expect(Suggestion.nearest(to: name, among: Self.known) == expected)
  }

  @Test(arguments: [
    ("debounce", "throttle"), ("debounceTime", "throttle"), ("debounce_time", "throttle"),
    ("throttleTime", "rateLimit"), ("flatMap", "flattenMap"), ("switchMap", "flattenMap"),
    ("switch_map", "flattenMap"), ("tap", "do"), ("pairwise", "combinePrevious"),
    ("toArray", "collect"), ("fold", "aggregate"), ("dedupe", "distinctUntilChanged"),
    ("where", "filter"), ("combine_latest", "combineLatest"), ("take-last", "takeLast"),
    ("steps", "chain"), ("withLatest", "withLatestFrom"), ("inputs", "from"), ("auditTime", "rateLimit"),
  ])
  func knownAs(_ name: String, _ ours: String) {
    #expect(Suggestion.correction(for: name, among: Self.known)?.name == ours)
  }

  @Test func policiesAreNamed() {
    let help = Suggestion.correction(for: "switchMap", among: Self.known)?.help
    #expect(help?.contains("policy: latest") == true)
  }

  @Test func aRivalThatThePlaceDoesNotKnowIsNotNamed() {
    #expect(Suggestion.correction(for: "debounce", among: ["filter"]) == nil)
  }

  @Test func distances() {
    func distance(_ a: String, _ b: String) -> Int? {
      Suggestion.distance(Array(a.utf8), Array(b.utf8), atMost: 9)
    }
    #expect(distance("", "") == 0)
    #expect(distance("ab", "ba") == 1)
    #expect(distance("kitten", "sitting") == 3)
    #expect(distance("", "abc") == 3)
    #expect(Suggestion.distance(Array("abcdef".utf8), Array("ghijkl".utf8), atMost: 2) == nil)
  }

  @Test func lists() {
    #expect(Suggestion.list([String]()) == "")
    #expect(Suggestion.list(["a"]) == "'a'")
    #expect(Suggestion.list(["a", "b", "c"]) == "'a', 'b' and 'c'")
    #expect(Suggestion.list(["a", "b", "c", "d"], limit: 2) == "'a', 'b' and 2 more")
    #expect(Suggestion.list(["a", "b", "c"], limit: 2) == "'a', 'b' and 'c'")
  }
}
