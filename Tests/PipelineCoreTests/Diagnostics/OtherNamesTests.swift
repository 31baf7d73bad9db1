import Sinks
import Sources_
import Testing

@testable import PipelineCore
@testable import PipelineDiagnostics

/// Names from other libraries and daemons lead to something that exists here.
@Suite struct OtherNamesTests {
  /// From ReactiveCocoa's RACStream, RACSignal (Operations), RACCommand and RACScheduler.
  static let reactiveCocoa = """
    bind flattenMap flatten map mapReplace reduceEach filter ignore ignoreValues ignoreElements skip take takeLast takeUntil \
    takeUntilReplacement takeUntilBlock takeWhileBlock skipUntilBlock skipWhileBlock distinctUntilChanged scanWithStart \
    combinePreviousWithStart startWith concat zip zipWith merge combineLatest combineLatestWith switchToLatest throttle delay \
    repeat initially finally bufferWithTime collect aggregateWithStart aggregateWithStartFactory catch catchTo try tryMap first \
    firstOrDefault waitUntilCompleted asynchronousFirstOrDefault asynchronouslyWaitUntilCompleted defer toArray sequence publish \
    multicast replay replayLast replayLazily autoconnect connect timeout deliverOn deliverOnMainThread subscribeOn groupBy any all \
    retry sample materialize dematerialize not and or doNext doError doCompleted logAll logNext logError logCompleted \
    subscribeNext subscribeError subscribeCompleted subscribe createSignal return error never empty startEagerlyWithScheduler \
    startLazilyWithScheduler interval setNameWithFormat sequenceNext then switch if execute reduceApply foldLeftWithStart \
    foldRightWithStart scheduleRecursiveBlock RAC RACSignal RACCommand RACObserve rac_liftSelector RACReplaySubject
    """
  /// From RxJS 7 and RxJava, and from Combine where it has its own words.
  static let rx = """
    ajax amb audit auditTime bindCallback buffer bufferCount bufferTime bufferToggle bufferWhen catchError combineAll combineLatest \
    combineLatestAll combineLatestWith concat concatAll concatMap concatMapTo concatWith connect count debounce debounceTime \
    defaultIfEmpty defer delay delayWhen dematerialize distinct distinctUntilChanged distinctUntilKeyChanged elementAt empty \
    endWith every exhaust exhaustAll exhaustMap expand filter finalize find findIndex first flatMap forkJoin from fromEvent \
    fromEventPattern generate groupBy ignoreElements iif interval isEmpty just last map mapTo materialize max merge mergeAll \
    mergeMap mergeMapTo mergeScan mergeWith min multicast never observeOn of onErrorResumeNext onErrorReturn pairwise partition \
    pluck publish publishBehavior publishLast publishReplay race raceWith range reduce refCount repeat repeatWhen retry retryWhen \
    sample sampleTime scan sequenceEqual share shareReplay single skip skipLast skipUntil skipWhile startWith subscribe \
    subscribeOn switchAll switchIfEmpty switchMap switchMapTo switchScan take takeLast takeUntil takeWhile tap throttle \
    throttleFirst throttleLast throttleTime throwError throwIfEmpty timeInterval timeout timeoutWith timer timestamp toArray \
    using window windowCount windowTime windowToggle windowWhen withLatestFrom zip zipAll zipWith doOnNext doOnError \
    doOnTerminate doFinally cast ofType flatMapIterable groupJoin compactMap removeDuplicates handleEvents replaceError replaceNil \
    replaceEmpty tryMap sink assign receive breakpoint measureInterval allSatisfy makeConnectable
    """
  /// From Vector, with a few from Benthos, Logstash and Fluent Bit.
  static let daemons = """
    remap filter dedupe route exclusive_route throttle sample reduce aggregate log_to_metric metric_to_log lua window \
    tag_cardinality_limit trace_to_log incremental_to_absolute file stdin http_client http_server demo_logs exec journald kafka \
    socket syslog statsd prometheus_scrape docker_logs kubernetes_logs nats redis amqp mqtt pulsar splunk_hec logstash fluent \
    opentelemetry datadog_agent file_descriptor console blackhole http elasticsearch loki clickhouse new_relic honeycomb \
    splunk_hec_logs datadog_logs prometheus_remote_write aws_s3 aws_sqs gcp_pubsub bloblang mapping group_by unarchive split sleep \
    workflow branch for_each broker generate grok mutate dissect kv tail rewrite_tag fingerprint noop rate_limit cache
    """

  static func words(_ text: String) -> [String] {
    text.split(whereSeparator: { $0 == " " || $0 == "\n" || $0 == "\\" }).map(String.init)
  }

  @Test(arguments: words(reactiveCocoa) + words(rx) + words(daemons))
  func everyNameIsOursOrLeadsOn(_ name: String) {
    let ours = Catalogue.builtIn.components.map(\.name)
    if ours.contains(name) || ReservedKeys.signal.contains(name) { return }
    #expect(
      Suggestion.otherName(name) != nil || Suggestion.nothing(for: name) != nil
        || KnownPlugin.help(for: name, besides: ours) != nil,
      "nothing is said of '\(name)'")
  }

  /// The target of a name exists, and its advice names it.
  @Test func everyAdviceNamesSomethingThatExists() {
    let ours = Set(Catalogue.builtIn.components.map(\.name))
    let words = Set(
      ReservedKeys.signal + ReservedKeys.topLevel + ReservedKeys.source + ReservedKeys.sink + ReservedKeys.test
        + ["event"])
    let parameters = Set(Catalogue.builtIn.components.flatMap { $0.parameters.map(\.name) })
    for (name, knownAs) in ForeignNames.table {
      for foreign in knownAs {
        #expect(
          ours.contains(foreign.ours) || words.contains(foreign.ours) || parameters.contains(foreign.ours),
          "\(name): \(foreign.ours)")
        #expect(foreign.help.contains(foreign.ours), "\(name): \(foreign.help)")
      }
    }
  }

  /// The position determines the meaning of a word.
  @Test(
    arguments: [
      ("tail", ComponentKind.source, "file"), ("tail", .operator, "takeLast"), ("console", .source, "stdin"),
      ("console", .sink, "stdout"), ("drop", .operator, "skip"), ("drop", .sink, "discard"),
      ("webhook", .source, "httpServer"), ("webhook", .sink, "http"), ("skipWhileBlock", .operator, "skipWhile"),
      ("doError", .operator, "do"), ("logError", .operator, "log"), ("defer", .operator, "flattenMap"),
      ("bind", .operator, "flattenMap"), ("reduceEach", .operator, "reduce"),
      ("deliverOnMainThread", .operator, "deliverOn"),
      ("firstOrDefault", .operator, "take"), ("return", .source, "values"), ("throwError", .source, "error"),
    ] as [(String, ComponentKind, String)])
  func thePlaceDecides(_ name: String, _ kind: ComponentKind, _ ours: String) {
    #expect(Suggestion.correction(for: name, among: Catalogue.builtIn.names(kind))?.name == ours)
  }

  @Test(arguments: [("format", "encode"), ("codec", "encode")]) func parametersHaveOtherNamesToo(
    _ name: String, _ ours: String
  ) {
    #expect(Suggestion.correction(for: name, among: ["encode", "onError"])?.name == ours)
    #expect(Suggestion.correction(for: name, among: ["decode"])?.name == "decode")
  }

  /// A component of a plugin that is not installed leads to the plugin, not to a component that merely looks similar.
  @Test(arguments: [
    (
      "sources: { in: { kafka: { topics: [a] } } }\nsinks: { out: { from: in, discard: {} } }",
      "The plugin 'kafka' has it; if it is not installed, 'make -C Plugins/kafka install' builds it from the sources of rxd"
    ),
    (
      "sources: { in: { nats_kv: { bucket: a } } }\nsinks: { out: { from: in, discard: {} } }",
      "The plugin 'nats' has 'natsKV'; if it is not installed, 'make -C Plugins/nats install' builds it from the sources of rxd"
    ),
    (
      "sources: { in: { values: [1] } }\nsinks: { out: { from: in, redis: { key: a } } }",
      "The plugin 'redis' has 'redisStream' and 'redisList'; if it is not installed, 'make -C Plugins/redis install' builds it from the sources of rxd"
    ),
  ]) func componentsOfPluginsLeadToThem(_ text: String, _ help: String) {
    let found = FrontEnd(.builtIn).compile(text).diagnostics
    #expect(found.map(\.help) == [help])
    #expect(found.flatMap(\.fixIts).isEmpty)
  }

  @Test func aMisspeltComponentOfAnInstalledPluginIsNotSaidToBeMissing() {
    #expect(KnownPlugin.help(for: "natsKv", "source", besides: ["file"])?.contains("has 'natsKV'") == true)
    #expect(KnownPlugin.help(for: "natsKv", "source", besides: ["file", "natsKV"]) == nil)
    #expect(KnownPlugin.help(for: "msgpack.decode", "function", besides: [String]())?.contains("has it") == true)
    #expect(KnownPlugin.help(for: "msgpack.decoed", "function", besides: ["msgpack.decode"]) == nil)
  }

  @Test func pluginsAreFound() {
    func names(_ words: String...) -> [String] {
      KnownPlugin.search(words).map { "\($0.plugin.name) \($0.component.kind) \($0.component.name)" }
    }
    #expect(names("Redpanda", "source") == ["kafka source kafka"])
    #expect(names("key-value", "watches") == ["nats source natsKV"])
    #expect(names("no such thing") == [])
    #expect(names().count == KnownPlugin.all.reduce(0) { $0 + $1.components.count })
  }
}
