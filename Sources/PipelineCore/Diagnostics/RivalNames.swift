/// What other libraries and daemons call our things.
///
/// None of them is accepted: a file has one spelling. They lead to a message that names ours.
enum RivalNames {
  struct Rival: Sendable {
    var ours: String
    /// A sentence for `help`.
    var help: String
  }

  /// A word may mean several things of ours, by its place; the first that the place knows is meant.
  static let table: [String: [Rival]] = {
    var table: [String: [Rival]] = [:]
    for (ours, help, names) in rows {
      let rival = Rival(ours: ours, help: help.isEmpty ? "It is called '\(ours)' here" : help)
      for name in names.split(separator: " ") { table[String(name), default: []].append(rival) }
    }
    return table
  }()

  /// Our name, what to do (empty: only the name differs), theirs.
  private static let rows: [(ours: String, help: String, names: String)] = [
    // Time
    (
      "throttle", "Waiting for a pause is called 'throttle' here, as in ReactiveCocoa",
      "debounce debounceTime throttleWithTimeout throttleWithMapper"
    ),
    (
      "rateLimit",
      "'throttle' waits for a pause; for the first of each interval use 'rateLimit', for the newest "
        + "'sample'",
      "throttleTime throttleFirst throttleLatest"
    ),
    ("sample", "For the newest event at each tick use 'sample'", "audit auditTime sampleTime"),
    ("interval", "", "timer every tick schedule generate"),
    ("timeout", "", "timeoutWith"),
    ("bufferWithTime", "", "bufferTime bufferTimeout batch"),

    // Signals of signals
    (
      "flattenMap", "Use 'flattenMap'; without a policy it merges",
      "flatMap mergeMap selectMany mergeMapTo flatMapMerge"
    ),
    (
      "flattenMap", "Use 'flattenMap' with 'policy: latest', which leaves the older signal",
      "switchMap flatMapLatest switchMapTo"
    ),
    (
      "flattenMap", "Use 'flattenMap' with 'policy: concat', which takes one after the other",
      "concatMap flatMapConcat concatMapTo"
    ),
    (
      "flattenMap", "Use 'flattenMap' with 'policy: exhaust', which ignores what comes meanwhile",
      "exhaustMap flatMapFirst"
    ),
    ("switchToLatest", "", "switchAll switchLatest flattenLatest"),
    ("flatten", "", "mergeAll concatAll unwrap explode unnest"),

    // Folds
    (
      "aggregate",
      "A fold over time is 'aggregate' (one event at the end) or 'scan' (one at each step)",
      "fold accumulate foldLeft aggregateWithStart summarize"
    ),
    ("scan", "", "scanWithStart runningFold reductions accumulateAll"),
    ("combinePrevious", "", "pairwise combinePreviousWithStart zipWithPrevious"),
    ("collect", "", "toArray toList"),

    // Choosing
    (
      "distinctUntilChanged", "",
      "dedupe distinct removeDuplicates skipRepeats unique uniq deduplicate"
    ),
    ("filter", "", "where grep accept route"),
    ("map", "", "select transform remap mapping apply bloblang project jq"),
    ("startWith", "", "prepend"),
    ("concat", "", "append endWith"),
    ("skip", "", "drop dropFirst skipFirst"),
    ("take", "", "first head limit prefix"),
    ("takeLast", "", "last tail suffix"),
    ("skipWhile", "", "dropWhile"),
    ("takeWhile", "", "prefixWhile"),
    ("ignoreValues", "", "ignoreElements ignoreOutput"),

    // Several
    ("race", "", "amb ambiguous firstOf"),
    ("combineLatest", "", "combineLatestWith combineLatestAll"),
    (
      "combineLatest",
      "Use 'combineLatest', and 'sample' if only one side shall drive; there is no 'withLatestFrom'",
      "withLatestFrom"
    ),
    ("zip", "", "zipWith zipAll"),
    ("merge", "", "mergeWith join fanIn"),
    ("merge", "Several signals may refer to one; 'merge' is the reverse", "tee broadcast fanOut"),
    ("groupBy", "", "partition keyBy"),

    // Errors, side effects, sharing
    ("catch", "", "catchError catchTo rescue onErrorResumeNext flatMapError"),
    ("retry", "", "retryWhen retryUpTo"),
    (
      "do", "Side effects are 'do'; to print events use 'log'",
      "tap doOnNext doNext handleEvents peek inspect forEach on"
    ),
    ("log", "", "tap debug print logAll logNext"),
    ("finally", "", "finalize onEnd doFinally ensure"),
    ("initially", "", "onStart doOnSubscribe"),
    ("share", "", "publish multicast shareReplay replay refCount autoconnect"),
    ("set", "", "setField addFields assign mutate"),
    ("unset", "", "removeFields deleteField dropFields omit"),

    // The grammar
    (
      "chain", "The operators of a signal stand below 'chain'",
      "steps operators pipe processors pipeline stages process transforms"
    ),
    ("sources", "", "inputs input source receivers producers"),
    ("sinks", "", "outputs output sink exporters destinations targets to"),
    ("signals", "", "transforms pipelines pipeline streams signal flows nodes filters processors"),
    ("from", "", "source input inputs upstream sources listen tee"),
    ("commands", "", "actions command"),
    ("description", "", "desc comment doc summary title"),
    ("expect", "", "outputs output expected assert then"),
    ("inputs", "", "input given sources"),
    ("stubs", "", "mocks mock fakes stub"),
    ("event", "Expressions call it 'event'", "value it this message record"),
  ]
}
