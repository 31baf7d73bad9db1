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
      "throttle", "Use 'throttle' with 'edge: leading', or 'both'",
      "debounceLeading debounceImmediate debounceBoth"
    ),
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
    (
      "rateLimit", "Use 'rateLimit'; 'mode: bucket' is a token bucket",
      "rate_limit tokenBucket leakyBucket rateLimiter limitRate smooth"
    ),
    (
      "rateLimit",
      "For the newest event at the end of a period that an event begins use 'rateLimit' with 'mode: trailing'",
      "audit auditTime"
    ),
    ("sample", "For the newest event at each tick use 'sample'", "sampleTime"),
    ("interval", "", "timer every tick schedule generate"),
    ("timeout", "", "timeoutWith"),
    (
      "timeoutBetween", "For the time between events use 'timeoutBetween'; 'timeout' is that up to the completion",
      "timeoutEach idleTimeout"
    ),
    (
      "absence", "Use 'absence'; with 'repeat: true' it is a heartbeat",
      "heartbeat keepAlive watchdog deadman silence expired"
    ),
    ("bufferWithTime", "", "bufferTime bufferTimeout batch"),
    ("bufferWithCount", "", "bufferCount buffer chunk chunked chunks grouped"),
    (
      "window", "Use 'window': 'every' for windows of time, 'count' for numbers, 'gap' for sessions",
      "windowTime windowCount windowToggle windowWhen tumblingWindow slidingWindow sessionWindow tumble hop "
        + "session sliding tumbling bufferToggle bufferWhen"
    ),

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
    (
      "flattenMap", "The elements of a list are sent one by one by 'flattenMap: event'",
      "flatten mergeAll concatAll exhaustAll unwrap explode unnest splitList"
    ),
    ("then", "", "andThen sequenceNext thenReturn"),

    // Folds
    (
      "aggregate",
      "A fold over time is 'aggregate' (one event at the end) or 'scan' (one at each step)",
      "fold accumulate foldLeft aggregateWithStart summarize"
    ),
    ("scan", "", "scanWithStart runningFold reductions accumulateAll"),
    ("combinePrevious", "", "pairwise combinePreviousWithStart zipWithPrevious"),
    ("collect", "", "toArray toList"),
    ("count", "", "countAll howMany"),
    ("any", "", "some contains anySatisfy exists isEmpty"),
    ("all", "", "every allSatisfy forall"),

    // Choosing
    (
      "distinctUntilChanged", "",
      "dedupe removeDuplicates skipRepeats unique uniq deduplicate"
    ),
    ("distinct", "", "distinctBy seen once bloom dedupeAll"),
    ("filter", "", "where grep accept route"),
    ("map", "", "select transform remap mapping apply bloblang project jq"),
    ("mapReplace", "", "mapTo constant always"),
    ("tryMap", "", "attemptMap mapThrowing"),
    ("try", "", "attempt assert check verify validate tryFilter"),
    ("not", "", "negate invert"),
    ("startWith", "", "prepend"),
    ("concat", "", "append endWith"),
    ("skip", "", "drop dropFirst skipFirst"),
    ("take", "", "first head limit prefix"),
    ("takeLast", "", "last tail suffix"),
    ("skipWhile", "", "dropWhile"),
    ("skipUntil", "", "dropUntil skipUntilBlock skipUntilOutputFrom"),
    ("takeWhile", "", "prefixWhile takeWhileBlock"),
    ("takeUntil", "", "takeUntilBlock prefixUntil stopWhen takeUntilSignal"),
    ("ignoreValues", "", "ignoreElements ignoreOutput"),

    // Several
    ("race", "", "amb ambiguous firstOf"),
    ("combineLatest", "", "combineLatestWith combineLatestAll"),
    ("withLatestFrom", "", "withLatest sampleWith latestFrom attachLatest"),
    (
      "combineLatest", "Use 'combineLatest' with 'settle: true', which sends once for each event of a source",
      "combineLatestSettled combineTransparent glitchFree"
    ),
    ("join", "", "intervalJoin windowJoin streamJoin correlate"),
    ("gate", "", "pausable pause valve holdWhen pausableBuffered bufferWhile passWhile"),
    ("circuitBreaker", "", "breaker circuit_breaker hystrix"),
    ("zip", "", "zipWith zipAll"),
    ("merge", "", "mergeWith fanIn"),
    ("merge", "Several signals may refer to one; 'merge' is the reverse", "tee broadcast fanOut"),
    ("groupBy", "", "partition keyBy"),

    // Errors, side effects, sharing
    ("catch", "", "catchError catchTo rescue onErrorResumeNext flatMapError"),
    ("retry", "", "retryWhen retryUpTo"),
    ("materialize", "", "materialise asEvents notifications"),
    ("dematerialize", "", "dematerialise fromEvents"),
    ("if", "", "iif cond conditional"),
    ("switch", "", "case choose match"),
    ("deliverOn", "", "observeOn receiveOn publishOn"),
    ("subscribeOn", "", "subscribe_on startOn"),
    (
      "do", "Side effects are 'do'; to print events use 'log'",
      "tap doOnNext doNext handleEvents peek inspect forEach on"
    ),
    ("log", "", "tap debug print logAll logNext"),
    ("finally", "", "finalize onEnd doFinally ensure"),
    ("initially", "", "onStart doOnSubscribe"),
    (
      "share", "Names are shared; how is said by the option 'share', e.g. 'share: { replay: 1 }'",
      "publish multicast shareReplay replay replayLast replayLazily refCount autoconnect connectable"
    ),
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
