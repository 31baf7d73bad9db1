/// Names that other libraries and daemons use for components, keys and parameters.
///
/// None of them is accepted: everything has one name. They only lead to a message with that name.
enum ForeignNames {
  struct ForeignName: Sendable {
    var ours: String
    /// A sentence for `help`.
    var help: String
  }

  /// The alternative to a name without a counterpart, as a sentence.
  static func nothing(for name: String) -> String? {
    advice[name] ?? advice[Suggestion.camelCase(name)]
      ?? (name.hasPrefix("RAC") || name.hasPrefix("rac_")
        ? "docs/reactivecocoa.md has the counterpart of each name of ReactiveCocoa" : nil)
  }

  private static let advice: [String: String] = {
    var table: [String: String] = [:]
    for (help, names) in absent {
      for name in names.split(separator: " ") { table[String(name)] = help }
    }
    return table
  }()

  private static let absent: [(help: String, names: String)] = [
    (
      "Events end in a sink: 'sinks: { NAME: { from: SIGNAL, stdout: {} } }'",
      "subscribe subscribeNext subscribeError subscribeCompleted sink assign bindTo setKeyPath toProperty"
    ),
    (
      "Nothing waits here: 'then' continues after the end, and a process ends with its pipelines",
      "waitUntilCompleted asynchronouslyWaitUntilCompleted toPromise blockLast await"
    ),
    (
      "Expressions compute (docs/expressions.md); scripts and programs of your own are 'exec' or plugins (docs/plugins.md)",
      "lua python javascript wasm script ruby"
    ),
    (
      "Metrics are events like any other: make them with 'map', 'window' and 'aggregate'",
      "log_to_metric metric_to_log tag_cardinality_limit incremental_to_absolute trace_to_log"
    ),
    ("The plugin s3 reads and writes objects (Plugins/s3), and the preset 's3' writes them", "aws_s3"),
    (
      "There is no such sink: write to 'stdout' or a 'file', for a tool that sends it on",
      "aws_kinesis_firehose aws_cloudwatch_logs gcp_cloud_storage gcp_pubsub azure_blob databend mysql mongodb vector "
        + "statsd_sink"
    ),
    ("The presets 'sqs' and 'kinesis' send to them: 'use: sqs' ('rxd list --presets')", "aws_sqs aws_kinesis_streams"),
    (
      "What is left of a signal is skipped from its beginning ('skip', 'skipWhile'); its end is not known in advance",
      "skipLast dropLast"
    ),
    ("A signal has its name in the file, and steps have 'name'", "setNameWithFormat named"),
    (
      "Sources of the file send; nothing is sent by hand",
      "fromEvent fromEventPattern bindCallback bindNodeCallback subject"
    ),
    ("A running pipeline is not asked for values: name what you want in a sink", "toSequence sequence toTuple"),
    ("Signals have no elements to be sorted: collect them, then 'map: event.sort()'", "sort orderBy sortBy reverse"),
    ("The fields of an event are known by then: 'map', 'set' and 'unset' change it", "clone rewrite_tag modify"),
  ]

  /// A name may have several counterparts; the first one that is valid in the context is meant.
  static let table: [String: [ForeignName]] = {
    var table: [String: [ForeignName]] = [:]
    for (ours, help, names) in rows {
      let foreign = ForeignName(ours: ours, help: help.isEmpty ? "It is called '\(ours)' here" : help)
      for name in names.split(separator: " ") { table[String(name), default: []].append(foreign) }
    }
    return table
  }()

  /// The name here, the help (empty if only the name differs), and the foreign names.
  private static let rows: [(ours: String, help: String, names: String)] = [
    ("from", "", "inputs input"),
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
    ("sample", "For the newest event at each tick use 'sample'", "sampleTime throttleLast"),
    ("interval", "", "timer every tick schedule generate cron demo_logs inject"),
    (
      "delay",
      "A pause for each event is 'delay'; one that an event chooses is an inner signal of 'flattenMap' with a 'delay'",
      "sleep wait delayWhen delayElements delaySubscription"
    ),
    (
      "map", "The time of an event is 'now' in expressions: 'map: { at: now, value: event }'",
      "timestamp timeInterval attachTimestamp elapsed measureInterval"
    ),
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
      "flatMap mergeMap selectMany mergeMapTo flatMapMerge bind flatMapIterable concatMapEager workflow branch"
    ),
    (
      "flattenMap", "Use 'flattenMap' with 'policy: latest', which disposes of the older signal",
      "switchMap flatMapLatest switchMapTo"
    ),
    (
      "flattenMap", "Use 'flattenMap' with 'policy: concat', which runs them one after another",
      "concatMap flatMapConcat concatMapTo"
    ),
    (
      "flattenMap", "Use 'flattenMap' with 'policy: exhaust', which ignores events that arrive meanwhile",
      "exhaustMap flatMapFirst"
    ),
    (
      "flattenMap",
      "Inner signals are created each time: 'flattenMap' with 'signal', and 'cold: true' for a signal with a name",
      "defer using create createSignal startEagerlyWithScheduler startLazilyWithScheduler"
    ),
    (
      "execute", "A signal that is run on request is a command: 'commands:', and the step 'execute'",
      "expand recurse mergeScan switchScan scheduleRecursiveBlock"
    ),
    ("switchToLatest", "", "switchAll switchLatest flattenLatest exhaust"),
    (
      "flattenMap", "The elements of a list are sent one by one by 'flattenMap: event'",
      "flatten mergeAll concatAll exhaustAll unwrap explode unnest splitList split unarchive for_each"
    ),
    ("then", "", "andThen sequenceNext thenReturn"),

    // Folds
    (
      "aggregate",
      "A fold over time is 'aggregate' (one event at the end) or 'scan' (one at each step)",
      "fold accumulate foldLeft foldRight foldLeftWithStart foldRightWithStart aggregateWithStart summarize "
        + "aggregateWithStartFactory"
    ),
    (
      "aggregate", "One result for a whole signal is 'aggregate', for each piece of it 'window'",
      "max min sum avg average mean median percentile stats"
    ),
    ("scan", "", "scanWithStart runningFold reductions accumulateAll reduceWithIndex"),
    ("combinePrevious", "", "pairwise combinePreviousWithStart zipWithPrevious"),
    ("collect", "", "toArray toList"),
    ("count", "", "countAll howMany"),
    (
      "reduce", "The parts of 'combineLatest' and 'zip' are joined by 'reduce', which sees them by name",
      "reduceEach reduceApply mapTuple spread combineLatestReduce zipReduce"
    ),
    ("any", "", "some contains anySatisfy exists isEmpty"),
    ("all", "", "every allSatisfy forall"),

    // Choosing
    (
      "distinct",
      "'distinct' drops events that have occurred before; 'distinctUntilChanged' those that equal the previous event",
      "dedupe deduplicate unique uniq"
    ),
    (
      "distinctUntilChanged", "",
      "dedupe removeDuplicates skipRepeats unique uniq deduplicate rbe"
    ),
    (
      "distinctUntilChanged", "The field that counts is its parameter: 'distinctUntilChanged: event.key'",
      "distinctUntilKeyChanged"
    ),
    ("distinct", "", "distinctBy seen once bloom dedupeAll"),
    ("filter", "", "where grep accept"),
    (
      "filter", "Each way is a signal of its own that begins with a 'filter'",
      "route exclusive_route exclusiveRoute swimlanes partition splitWhen"
    ),
    (
      "filter", "'filter: has(event.field)' drops events without a value; 'map' follows",
      "compactMap mapNotNull filterMap ofType notNull"
    ),
    ("map", "", "select transform remap mapping apply bloblang project jq cast replaceNil"),
    ("map", "One field is 'map: event.field'", "pluck selectField"),
    (
      "set", "Functions parse texts: 'set: { fields: \"grok(event, '...')\" }'; 'rxd list' shows them",
      "grok dissect kv parse parse_json parse_grok date fingerprint rename convert"
    ),
    ("mapReplace", "", "mapTo constant always"),
    ("tryMap", "", "attemptMap mapThrowing"),
    ("try", "", "attempt assert check verify validate tryFilter"),
    ("not", "", "negate invert"),
    ("startWith", "", "prepend"),
    ("concat", "", "append endWith"),
    ("skip", "", "drop dropFirst skipFirst"),
    ("take", "", "head limit prefix limitRequest"),
    (
      "take", "The first event is 'take: 1'",
      "first firstOrDefault firstValueFrom single blockFirst asynchronousFirstOrDefault"
    ),
    ("take", "'filter' and 'take: 1' find the first that fits", "find findIndex firstWhere"),
    ("skip", "The event with number n is 'skip: n' and 'take: 1'", "elementAt nth output"),
    ("takeLast", "", "last tail suffix lastOrDefault lastValueFrom"),
    ("skipWhile", "", "dropWhile skipWhileBlock"),
    ("skipUntil", "", "dropUntil skipUntilBlock skipUntilOutputFrom"),
    ("takeWhile", "", "prefixWhile takeWhileBlock"),
    ("takeUntil", "", "takeUntilBlock prefixUntil stopWhen takeUntilSignal takeUntilOther read_until"),
    ("ignoreValues", "", "ignoreElements ignoreOutput"),

    // Several
    ("race", "", "amb ambiguous firstOf raceWith firstWithSignal"),
    ("combineLatest", "", "combineLatestWith combineLatestAll combineAll rac_liftSelector"),
    (
      "combineLatest", "'combineLatest' of signals that end with 'takeLast: 1' waits for all",
      "forkJoin allSettled waitAll"
    ),
    ("zip", "'zip' pairs the events of two signals, and 'all' compares the pairs", "sequenceEqual"),
    ("concat", "", "concatWith"),
    ("withLatestFrom", "", "withLatest sampleWith latestFrom attachLatest"),
    (
      "combineLatest", "Use 'combineLatest' with 'settle: true', which sends once for each event of a source",
      "combineLatestSettled combineTransparent glitchFree"
    ),
    ("join", "", "intervalJoin windowJoin streamJoin correlate groupJoin"),
    ("gate", "", "pausable pause valve holdWhen pausableBuffered bufferWhile passWhile"),
    ("circuitBreaker", "", "breaker circuit_breaker hystrix"),
    ("zip", "", "zipWith zipAll"),
    ("merge", "", "mergeWith fanIn broker"),
    ("merge", "Several signals may refer to one; 'merge' is the reverse", "tee broadcast fanOut"),
    ("groupBy", "", "keyBy group_by"),

    // Errors, side effects, sharing
    ("catch", "", "catchError catchTo rescue onErrorResumeNext flatMapError onErrorReturn onErrorResume replaceError"),
    ("retry", "", "retryWhen retryUpTo retryUntil"),
    ("repeat", "", "repeatWhen repeatUntil loop"),
    ("error", "", "throwError throw fail failWith failed"),
    (
      "any", "'any' finds out whether a signal sends anything; a following 'try: event' fails if it does not",
      "throwIfEmpty defaultIfEmpty switchIfEmpty replaceEmpty"
    ),
    ("materialize", "", "materialise asEvents notifications"),
    ("dematerialize", "", "dematerialise fromEvents"),
    ("if", "", "iif cond conditional"),
    ("switch", "", "case choose match"),
    ("deliverOn", "", "observeOn receiveOn publishOn receive"),
    (
      "deliverOn",
      "A pipeline has one thread, so that nothing has to be brought to it; queues of their own are 'deliverOn'",
      "deliverOnMainThread"
    ),
    ("subscribeOn", "", "subscribe_on startOn"),
    (
      "do", "Side effects are 'do'; to print events use 'log'",
      "tap doOnNext doNext handleEvents peek inspect forEach on injectObjectWeakly"
    ),
    (
      "do", "'do' runs a signal on the side, 'when' names the occasions: 'do: { when: [error], signal: NAME }'",
      "doError doCompleted doOnError doOnComplete doOnCompleted doOnTerminate doOnEach"
    ),
    ("log", "", "tap debug print logAll logNext breakpoint"),
    ("log", "'log' with 'when: [error]' or 'when: [completed]'", "logError logCompleted"),
    ("finally", "", "finalize onEnd doFinally ensure doDisposed doOnDispose"),
    ("initially", "", "onStart doOnSubscribe"),
    (
      "share", "Names are shared; the option 'share' sets how, e.g. 'share: { replay: 1 }'",
      "publish multicast shareReplay replay replayLast replayLazily replayAll refCount autoconnect connectable connect "
        + "publishBehavior publishLast publishReplay makeConnectable cache"
    ),
    ("set", "", "setField addFields assign mutate"),
    ("unset", "", "removeFields deleteField dropFields omit"),

    // Sources and sinks
    ("values", "", "return just of fromArray fromIterable fromIter single range justFrom sequence toSignal"),
    ("file", "'file' with 'follow: true' reads added lines", "tail filelog logfile"),
    (
      "file", "'file' with 'decode: container' reads them: '/var/log/containers/*.log'",
      "kubernetes_logs kubernetes container_logs"
    ),
    ("file", "Sources of lines, such as 'file', have the parameter 'join'", "multiline multiline_parser"),
    ("docker", "", "docker_logs docker_log docker_events logspout"),
    ("stdin", "", "console file_descriptor standardInput"),
    (
      "stdin", "Another program's output is read from 'stdin': journalctl -f -o json | rxd FILE",
      "pulsar"
    ),
    (
      "http", "", "http_client httpClient http_poller http_scrape prometheus_scrape scrape ajax fetch fromFetch request"
    ),
    (
      "httpServer", "",
      "http_server webhook http_listener listen heroku_logs logplex splunk_hec logstash fluent datadog_agent"
    ),
    ("tcp", "'tcp', 'udp' and 'unix' are sources and sinks of their own", "socket socket_server tcp_server tcp_input"),
    ("unix", "", "unix_socket unixSocket unixgram"),
    ("syslog", "", "syslog_sink syslog_server rsyslog"),
    ("host", "", "host_metrics node_exporter hostmetrics node_exporter_metrics diskio"),
    ("statsd", "", "dogstatsd statsd_exporter"),
    ("prometheusExporter", "", "prometheus_exporter prometheus_client"),
    ("journald", "", "journal systemd imjournal omjournal journalctl sd_journal"),
    ("exec", "", "command execute_process execd subprocess"),
    ("stdout", "", "console print screen terminal"),
    ("discard", "", "blackhole null devnull drop noop none"),
    (
      "http",
      "Presets know many services: 'use: elasticsearch' ('rxd list --presets'); others take events by 'http', with 'batch' and 'auth'",
      "elasticsearch opensearch loki splunk_hec_logs datadog_logs new_relic newrelic honeycomb clickhouse influxdb_logs "
        + "prometheus_remote_write axiom humio_logs papertrail slack webhook http_client"
    ),
    ("file", "", "files filesystem local_file"),

    // Parameters
    ("encode", "", "format codec encoding encoder serializer outputFormat"),
    ("decode", "", "format codec decoder decoding parser deserializer inputFormat"),
    ("every", "", "period pollInterval scrapeInterval"),
    ("url", "", "uri endpoint address"),
    ("path", "", "filename fileName include paths"),
    ("when", "", "events moments"),

    // The grammar
    (
      "chain", "The operators of a signal belong below 'chain'",
      "steps operators pipe processors pipeline stages process transforms"
    ),
    ("sources", "", "inputs input source receivers producers"),
    ("sinks", "", "outputs output sink exporters destinations targets to"),
    ("signals", "", "transforms pipelines pipeline streams signal flows nodes filters processors"),
    ("from", "", "source input inputs upstream sources listen tee"),
    ("from", "Failed events are read with 'from: NAME.errors'", "reroute_dropped reject_errored deadLetters"),
    ("commands", "", "actions command"),
    (
      "delivery", "'delivery' decides which events are kept on disk",
      "acknowledgements acknowledgement deliveryMode durability durable persistent persistence queueType qos"
    ),
    ("require", "A guarantee is asked for with 'require'", "guarantee guarantees deliveryGuarantee atLeastOnce"),
    ("description", "", "desc comment doc summary title"),
    ("expect", "", "outputs output expected assert then"),
    ("inputs", "", "input given sources"),
    ("stubs", "", "mocks mock fakes stub"),
    ("event", "Expressions call it 'event'", "value it this message record"),
  ]
}
