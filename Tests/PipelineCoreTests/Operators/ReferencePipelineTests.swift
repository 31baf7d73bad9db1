import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Sources_
import Testing

extension PipelineRow: CustomTestStringConvertible {
  var testDescription: String { says }
}

/// ReactiveCocoa 2.5 beyond single steps, statement by statement: making signals, sharing, commands, values.
@Suite struct ReferencePipelineTests {
  private static let truths: KeyValuePairs<String, String> = ["T": "true", "F": "false"]

  // MARK: Making signals

  static let making: [PipelineRow] = [
    .init(
      "return: value, then completion, at once, to each subscriber",
      sources: ["v: { values: [7], cold: true }"], signals: ["late: { concat: [b, v] }"], ["b": "---|"],
      ["v": "(7|)", "late": "---(7|)"]),
    .init(
      "empty: completion at once", sources: ["e: { empty: {}, cold: true }"], signals: ["late: { concat: [b, e] }"],
      ["b": "---|"], ["e": "|", "late": "---|"]),
    .init(
      "never: nothing, not even completion", sources: ["n: { never: {} }"],
      signals: ["left: { from: n, chain: [ { takeUntil: b } ] }"], ["b": "---x"], ["n": "------", "left": "---|"]),
    .init(
      "error: at once", sources: ["e: { error: gone, cold: true }"],
      signals: ["late: { concat: [b, e] }", "handled: { from: e, chain: [ { catch: { with: { values: [0] } } } ] }"],
      ["b": "---|"], ["handled": "(0|)", "late": "---#"]),
    .init(
      "defer: the signal is made at each subscription",
      signals: ["s: { from: a, chain: [ { flattenMap: { signal: { marbles: '-{{ outer }}|' } } } ] }"],
      ["a": "-x-y-|"], ["s": "--x-y|"]),
    .init(
      "createSignal: runs once for each subscription, from its beginning",
      sources: ["c: { counted: {}, cold: true }"], signals: ["late: { concat: [b, c] }"],
      ["b": "---|", "c": "-1-2|"], ["c": "-1-2|", "late": "----1-2|"], subscriptions: "++--"),
    .init(
      "createSignal: what it returns undoes it, once",
      sources: ["c: { counted: {} }"], signals: ["s: { from: c, chain: [ { takeUntil: b }, { take: 1 } ] }"],
      ["b": "-x", "c": "-1-2|"], ["s": "-|"], subscriptions: "+-"),
    .init(
      "createSignal: may send at once, and is not heard after the end",
      sources: ["c: { counted: {} }"], signals: ["s: { from: c, chain: [ { take: 2 } ] }"], ["c": "(123#)"],
      ["s": "(12|)"], subscriptions: "+-"),
    .init(
      "startEagerly: begins now, once; who comes later gets everything, and the end",
      sources: ["c: { counted: {}, share: { replay: 9, start: eager, stop: never, again: false } }"],
      signals: ["late: { concat: [b, c] }", "last: { concat: [d, c] }"],
      ["b": "----|", "c": "-1-2-|", "d": "-------|"], ["late": "----(12)|", "last": "-------(12|)"],
      subscriptions: "+-"),
    .init(
      "startLazily: begins with the first subscriber, once; everything again for each",
      sources: ["c: { counted: {}, share: { replay: 9, stop: never, again: false } }"],
      signals: ["first: { concat: [b, c] }", "second: { concat: [d, c] }"],
      ["b": "--|", "c": "-1-2-|", "d": "----|"], ["first": "---1-2-|", "second": "----12-|"], subscriptions: "+-"),
    .init(
      "startLazily: subscribers do not tear it down",
      sources: ["c: { counted: {}, share: { replay: 9, stop: never, again: false } }"],
      signals: ["first: { from: c, chain: [ { take: 1 } ] }", "second: { concat: [d, c] }"],
      ["c": "-1-2-3|", "d": "----|"], ["first": "-(1|)", "second": "----(12)3|"], subscriptions: "+-"),
    .init(
      "interval: first after one period, then each period, for ever",
      sources: ["i: { interval: 2ms }"], signals: ["s: { from: i, chain: [ { map: event.tick } ] }"], [:],
      ["s": "--1-2-3-4"]),
    .init(
      "interval: says when", sources: ["i: { interval: 2ms }"],
      signals: ["s: { from: i, chain: [ { map: event.time } ] }"], [:], ["s": "--A-B"],
      ["A": "'2026-01-01T00:00:00.002Z'", "B": "'2026-01-01T00:00:00.004Z'"]),
    .init(
      "interval: a timer of its own for each subscriber of a cold one",
      sources: ["i: { interval: 2ms, cold: true }"],
      signals: ["late: { concat: [b, i], chain: [ { map: event.tick } ] }"], ["b": "---|"], ["late": "-----1-2-3"]),
    .init(
      "interval: one timer for all of a shared one",
      sources: ["i: { interval: 2ms }"],
      signals: [
        "s: { from: i, chain: [ { map: event.tick } ] }", "late: { concat: [b, i], chain: [ { map: event.tick } ] }",
      ], ["b": "---|"], ["s": "--1-2-3-4", "late": "----2-3-4"]),
    .init(
      "interval: leeway lets a tick come that late, the next one is not put off",
      sources: ["i: { interval: { every: 3ms, leeway: 2ms } }"],
      signals: ["s: { from: i, chain: [ { map: event.tick } ] }"], [:], ["s": "----1-2---3-4"]),
    .init(
      "try: what it gives, then completion",
      signals: ["s: { from: { values: [3] }, chain: [ { tryMap: 6 / event } ] }"],
      [:], ["s": "(2|)"]),
    .init(
      "try: nothing is an error",
      signals: ["s: { from: { values: [3] }, chain: [ { tryMap: \"optional.none()\" } ] }"], [:], ["s": "#"]),
    .init(
      "try: runs at each subscription",
      signals: [
        "s: { from: a, chain: [ { flattenMap: { signal: { from: { values: [6] }, chain: [ { tryMap: event / outer } ] } } } ] }"
      ], ["a": "-3-2-0"], ["s": "-2-3-#"]),
  ]

  // MARK: Sharing, subjects

  static let sharing: [PipelineRow] = [
    .init(
      "publish: one subscription for all", sources: ["c: { counted: {} }"],
      signals: ["x: { from: c }", "y: { from: c, chain: [ { map: event + 1 } ] }"], ["c": "-1-3|"],
      ["x": "-1-3|", "y": "-2-4|", "c": "-1-3|"], subscriptions: "+-"),
    .init(
      "a hot signal: a subscriber sees what comes after it has subscribed",
      signals: ["late: { concat: [b, a] }"], ["a": "-1-2-3|", "b": "--|"], ["a": "-1-2-3|", "late": "---2-3|"]),
    .init(
      "a cold one is heard from its beginning", sources: ["c: { counted: {}, cold: true }"],
      signals: ["late: { concat: [b, c] }"], ["b": "--|", "c": "-1-2|"], ["c": "-1-2|", "late": "---1-2|"],
      subscriptions: "++--"),
    .init(
      "cold to hot: whoever shares it runs it once", sources: ["c: { counted: {}, cold: true }"],
      signals: ["hot: { from: c }", "x: { from: hot }", "late: { concat: [b, hot] }"], ["b": "--|", "c": "-1-2|"],
      ["x": "-1-2|", "late": "---2|"], subscriptions: "+-"),
    .init(
      "subscribers hear in the order in which they came",
      signals: [
        "y: { from: a, chain: [ { map: \"event + 'y'\" } ] }", "x: { from: a, chain: [ { map: \"event + 'x'\" } ] }",
        "both: { merge: [x, y] }",
      ], ["a": "-p-|"], ["both": "-(AB)-|"], ["A": "px", "B": "py"]),
    .init(
      "what a step keeps belongs to the subscription",
      signals: ["s: { from: a, chain: [ { skip: 1 } ], cold: true }", "late: { concat: [b, s] }"],
      ["a": "-1-2-3|", "b": "--|"], ["s": "---2-3|", "late": "-----3|"]),
    .init(
      "autoconnect: connects with the first subscriber", sources: ["c: { counted: {} }"],
      signals: ["late: { concat: [b, c] }"], ["b": "---|", "c": "-1|"], ["late": "----1|"], subscriptions: "+-"),
    .init(
      "autoconnect: stays while one is left", sources: ["c: { counted: {} }"],
      signals: ["first: { from: c, chain: [ { take: 1 } ] }", "second: { from: c }"], ["c": "-1-2|"],
      ["first": "-(1|)", "second": "-1-2|"], subscriptions: "+-"),
    .init(
      "autoconnect: disconnects with the last one (and, ours, connects again)", sources: ["c: { counted: {} }"],
      signals: ["first: { from: c, chain: [ { take: 1 } ] }", "second: { concat: [b, c] }"],
      ["b": "---|", "c": "-1-2|"], ["first": "-(1|)", "second": "----1-2|"], subscriptions: "+-+-"),
    .init(
      "autoconnect: the end (ours) makes it run again for who comes later, as RxJS share",
      sources: ["c: { counted: {} }"], signals: ["second: { concat: [b, c] }"], ["b": "---|", "c": "-1|"],
      ["c": "-1|", "second": "----1|"], subscriptions: "+-+-"),
    .init(
      "replay: begins with the pipeline, for nobody, too",
      sources: ["c: { counted: {}, share: { replay: 9, start: eager, stop: never, again: false } }"],
      signals: ["late: { concat: [b, c], chain: [ { take: 1 } ] }"], ["b": "---|", "c": "-1-2-3|"],
      ["late": "---(1|)"], subscriptions: "+-"),
    .init(
      "replay: repeats the error behind what it has kept",
      sources: ["c: { counted: {}, share: { replay: 9, start: eager, stop: never, again: false } }"],
      signals: ["late: { concat: [b, c], chain: [ { catch: { with: { values: [0] } } } ] }"],
      ["b": "-----|", "c": "-1-#"], ["late": "-----(10|)"], subscriptions: "+-"),
    .init(
      "replayLast: the last one and the end",
      sources: ["c: { counted: {}, share: { replay: 1, start: eager, stop: never, again: false } }"],
      signals: ["late: { concat: [b, c] }", "last: { concat: [d, c] }"],
      ["b": "----|", "c": "-1-2--3|", "d": "---------|"], ["late": "----2-3|", "last": "---------(3|)"],
      subscriptions: "+-"),
    .init(
      "replayLazily: begins with the first subscriber",
      sources: ["c: { counted: {}, share: { replay: 9, stop: never, again: false } }"],
      signals: ["late: { concat: [b, c] }"], ["b": "----|", "c": "-1-2|"], ["late": "-----1-2|"], subscriptions: "+-"),
    .init(
      "replayLazily: never disconnects, while nobody listens either",
      sources: ["c: { counted: {}, share: { replay: 9, stop: never, again: false } }"],
      signals: ["first: { from: c, chain: [ { take: 1 } ] }", "late: { concat: [b, c] }"],
      ["b": "------|", "c": "-1-2-|"], ["first": "-(1|)", "late": "------(12|)"], subscriptions: "+-"),
    .init(
      "a replay subject keeps so many",
      sources: ["c: { scripted: {}, share: { replay: 2 } }"], signals: ["late: { concat: [b, c] }"],
      ["b": "------|", "c": "-1-2-3-4|"], ["c": "-1-2-3-4|", "late": "------(23)4|"]),
    .init(
      "a replay subject of capacity 0 keeps the end only", sources: ["c: { counted: {}, share: { again: false } }"],
      signals: ["late: { concat: [b, c] }"], ["b": "-----|", "c": "-1-|"], ["c": "-1-|", "late": "-----|"],
      subscriptions: "+-"),
    .init(
      "and the error", sources: ["c: { counted: {}, share: { again: false } }"],
      signals: [
        "first: { from: c, chain: [ { catch: { with: { values: [0] } } } ] }", "late: { concat: [b, c] }",
      ], ["b": "-----|", "c": "-1-#"], ["first": "-1-(0|)", "late": "-----#"], subscriptions: "+-"),
    .init(
      "a subject says nothing again to who comes later, and goes on",
      sources: ["c: { counted: {}, share: { stop: never } }"],
      signals: ["first: { from: c, chain: [ { take: 1 } ] }", "late: { concat: [b, c] }"],
      ["b": "----|", "c": "-1-2-3|"], ["first": "-(1|)", "late": "-----3|"], subscriptions: "+-"),
    .init(
      "a behavior subject: the value that holds, at once, then each change",
      signals: [
        "state: { from: a, chain: [ { startWith: 0 } ], share: { replay: 1 } }", "late: { concat: [b, state] }",
        "later: { concat: [d, state] }",
      ], ["a": "---1---2|", "b": "--|", "d": "-----|"],
      ["state": "0--1---2|", "late": "--01---2|", "later": "-----1-2|"]),
    .init(
      "a behavior subject after its end: the value and (ours) the end",
      signals: [
        "state: { from: a, chain: [ { startWith: 0 } ], share: { replay: 1, again: false } }",
        "late: { concat: [b, state] }",
      ], ["a": "-1|", "b": "----|"], ["state": "01|", "late": "----(1|)"]),
    .init(
      "two of one cold signal are two", sources: ["c: { counted: {}, cold: true }"],
      signals: ["s: { zip: { x: c, y: c } }"], ["c": "-1-2|"], ["s": "-A-B|"], ["A": "[1, 1]", "B": "[2, 2]"],
      subscriptions: "++--"),
  ]

  // MARK: Commands

  private static let clicked = ["results: { from: clicks, chain: [ { execute: work } ] }"]
  private static let codes = "codes: { from: results.errors, chain: [ { map: event.code } ] }"

  static let commands: [PipelineRow] = [
    .init(
      "the signal may be empty; what is over at once still shows in executing", signals: clicked,
      commands: ["work: { run: { empty: {} } }"], ["clicks": "-a--|"],
      ["results": "----|", "work.executing": "F(TF)--|", "work.enabled": "T(FT)--|"], truths),
    .init(
      "so does what fails at once",
      signals: clicked + ["failed: { from: work.errors, chain: [ { map: event.event } ] }"],
      commands: ["work: { run: { error: gone } }"], ["clicks": "-a--|"],
      ["results": "----|", "work.executing": "F(TF)--|", "failed": "-a--|"], truths),
    .init(
      "execute: if it is not enabled, an error and nothing else", sources: ["c: { counted: {}, cold: true }"],
      signals: clicked + [codes], commands: ["work: { enabled: permission, run: c }"],
      ["clicks": "-a-|", "permission": "F--|", "c": "-1|"],
      [
        "results": "---|", "codes": "-X-|", "work.executing": "F--|", "work.enabled": "(TF)--|", "work.errors": "---|",
        "work.values": "---|",
      ], ["T": "true", "F": "false", "X": "RX509"], subscriptions: ""),
    .init(
      "execute: the block is called now, for this input", signals: clicked,
      commands: ["work: { run: { from: { values: [1] }, chain: [ { map: outer * 10 + event } ] } }"],
      ["clicks": "-2-3-|"], ["results": "-A-B-|"], ["A": "21", "B": "31"]),
    .init(
      "execute: who subscribes late to what it gave misses nothing",
      signals: clicked + ["late: { concat: [b, work.values] }"],
      commands: ["work: { run: { from: { marbles: '-x-y|' } } }"], ["clicks": "-a-------|", "b": "------|"],
      ["results": "--x-y----|", "late": "------(xy)--|"]),
    .init(
      "execute: leaving what it gave does not cancel the work", sources: ["c: { counted: {}, cold: true }"],
      signals: ["results: { from: clicks, chain: [ { execute: work }, { take: 1 } ] }"],
      commands: ["work: { run: c }"], ["clicks": "-a-------|", "c": "-1--2|"],
      ["results": "--(1|)", "work.values": "--1--2|", "work.executing": "FT----(F|)"], truths, subscriptions: "+-"),
    .init(
      "execute: its work runs once, however many listen", sources: ["c: { counted: {}, cold: true }"],
      signals: clicked + ["x: { from: work.values }", "y: { from: results }"], commands: ["work: { run: c }"],
      ["clicks": "-a---|", "c": "-1|"], ["results": "--1--|", "x": "--1--|", "y": "--1--|"], subscriptions: "+-"),
    .init(
      "executionSignals: an error of one is its completion", signals: clicked,
      commands: ["work: { run: { from: { marbles: '-x#' } } }"], ["clicks": "-a---b---|"],
      ["work.values": "--x---x--|", "results": "--x---x--|", "work.executing": "FT-F-T-F-|"], truths),
    .init(
      "executionSignals: only executions after the subscription, if nothing is kept",
      signals: clicked + ["late: { concat: [b, work.values] }"],
      commands: ["work: { replay: 0, run: { from: { marbles: '-x|' } } }"],
      ["clicks": "-a-----a--|", "b": "----|"], ["results": "--x-----x-|", "late": "--------x-|"]),
    .init(
      "executionSignals.switchToLatest: the newest is heard, older ones run on",
      sources: ["c: { counted: {}, cold: true }"], signals: clicked,
      commands: ["work: { allowsConcurrentExecution: true, deliver: newest, run: c }"],
      ["clicks": "-a-b-----|", "c": "--1-2|"], ["work.values": "-----1-2-|", "work.executing": "FT------F|"], truths,
      subscriptions: "++--"),
    .init(
      "executionSignals.flatten: all are heard, interleaved", signals: clicked,
      commands: ["work: { allowsConcurrentExecution: true, run: { from: { marbles: '--1-2|' } } }"],
      ["clicks": "-a-b-----|"], ["work.values": "---1-(21)-2-|"]),
    .init(
      "executionSignals.concat: one after the other", signals: clicked,
      commands: ["work: { whenBusy: queue, run: { from: { marbles: '--1-2|' } } }"],
      ["clicks": "-a-b--------|"], ["work.values": "---1-2--1-2-|", "work.executing": "FT---------F|"], truths),
    .init(
      "executing: begins with NO, YES while at least one runs, each once", signals: clicked,
      commands: ["work: { allowsConcurrentExecution: true, run: { from: { marbles: '---x|' } } }"],
      ["clicks": "-ab-----|"], ["work.executing": "FT----F-|", "work.enabled": "T-------|"], truths),
    .init(
      "executing, enabled: what holds now, for who subscribes late",
      signals: clicked + ["e: { concat: [b, work.executing] }", "n: { concat: [d, work.enabled] }"],
      commands: ["work: { run: { from: { marbles: '----x|' } } }"],
      ["clicks": "-a-------|", "b": "---|", "d": "---|"],
      ["results": "-----x---|", "e": "---T--F--|", "n": "---F--T--|"],
      truths),
    .init(
      "enabled: YES before its signal has said anything", signals: clicked,
      commands: ["work: { enabled: permission, run: { from: { marbles: '--x|' } } }"],
      ["clicks": "-a---|", "permission": "-----|"], ["results": "---x-|", "work.enabled": "TF--T|"], truths),
    .init(
      "enabled: changes only", signals: clicked,
      commands: ["work: { enabled: permission, run: { from: { marbles: '--x|' } } }"],
      ["clicks": "--------|", "permission": "-T-F-F-T|"], ["work.enabled": "T--F---T|"], truths),
    .init(
      "enabled: both, its signal and nothing that runs", signals: clicked,
      commands: ["work: { enabled: permission, run: { from: { marbles: '----x|' } } }"],
      ["clicks": "-a-------|", "permission": "--F-T----|"], ["results": "-----x---|", "work.enabled": "TF----T--|"],
      truths),
    .init(
      "enabled: what its signal says counts though executions may be concurrent", signals: clicked + [codes],
      commands: [
        "work: { enabled: permission, allowsConcurrentExecution: true, run: { from: { marbles: '---x|' } } }"
      ], ["clicks": "-ab-c----|", "permission": "---F-----|"],
      ["results": "----xx---|", "work.enabled": "T--F-----|", "codes": "----X----|"],
      ["T": "true", "F": "false", "X": "RX509"]),
    .init(
      "enabled: its signal's end leaves what it said last", signals: clicked + [codes],
      commands: ["work: { enabled: permission, run: { values: [1] } }"], ["clicks": "-a--b-|", "permission": "--F|"],
      ["results": "-1----|", "codes": "----X-|"], ["F": "false", "X": "RX509"]),
    .init(
      "not concurrent unless it says so", signals: clicked + [codes],
      commands: ["work: { run: { from: { marbles: '---x|' } } }"], ["clicks": "-ab-----|"],
      ["results": "----x---|", "codes": "--X-----|"], ["X": "RX508"]),
    .init(
      "errors: values, which do not end it; what was not enabled is not among them",
      signals: clicked + ["failed: { from: work.errors, chain: [ { map: \"[event.event, event.code]\" } ] }"],
      commands: ["work: { run: { from: { marbles: '-#' } } }"], ["clicks": "-p-q-(rs)-|"],
      ["results": "-------|", "failed": "--P-Q-R|"],
      ["P": "[p, RX510]", "Q": "[q, RX510]", "R": "[r, RX510]"]),
    .init(
      "what enables it may be two fields: the login form",
      signals: clicked + [
        "filled: { combineLatest: { n: name, p: word }, chain: [ { reduce: size(n) > 0 && size(p) > 0 } ] }", codes,
      ], commands: ["work: { enabled: filled, run: { values: [in] } }"],
      ["name": "a------|", "word": "e--s---|", "clicks": "--x--x-|"],
      ["work.enabled": "(TF)--T-(FT)-|", "results": "-----I-|", "codes": "--X----|"],
      ["T": "true", "F": "false", "e": "''", "s": "secret", "I": "in", "X": "RX509"]),
    .init(
      "an execution that never completes is never over, and refuses all later ones", signals: clicked + [codes],
      commands: ["work: { run: { from: { marbles: '-x' } } }"], ["clicks": "-a-b--c---"],
      ["results": "--x-------", "work.executing": "FT--------", "codes": "---X--X---"],
      ["T": "true", "F": "false", "X": "RX508"]),
  ]

  // MARK: Values

  static let values: [PipelineRow] = [
    .init(
      "a tuple may hold nil", signals: ["s: { zip: [a, b] }"], ["a": "-n-1|", "b": "-n-n|"], ["s": "-A-B|"],
      ["n": "null", "A": "[null, null]", "B": "[1, null]"]),
    .init(
      "tuples are equal by content", signals: ["s: { from: a, chain: [ distinctUntilChanged ] }"], ["a": "-x-y-z|"],
      ["s": "-x---z|"], ["x": "[1, {p: null}]", "y": "[1.0, {p: null}]", "z": "[1, {p: 0}]"]),
    .init(
      "an index beyond the end gives nothing",
      signals: ["s: { from: a, chain: [ { map: \"event[?1].orValue(null)\" } ] }"],
      ["a": "-x-y|"], ["s": "-n-2|"], ["x": "[1]", "y": "[1, 2]", "n": "null"]),
    .init(
      "or is a failed event, as any that an expression cannot answer",
      signals: [
        "s: { from: a, chain: [ { map: \"event[1]\" } ] }", "bad: { from: s.errors, chain: [ { map: event.event } ] }",
      ],
      ["a": "-x-y|"], ["s": "---2|", "bad": "-x--|"], ["x": "[1]", "y": "[1, 2]"]),
    .init(
      "tupleByAddingObject, first, last",
      signals: [
        "s: { from: a, chain: [ { map: \"event + [9]\" }, { map: \"[event.first(), event.last()]\" }, { map: \"event.map(x, x.orValue(0))\" } ] }"
      ],
      ["a": "-x|"], ["s": "-A|"], ["x": "[1, 2]", "A": "[1, 9]"]),
    .init(
      "an event of an event: next, completed",
      signals: ["s: { from: a, chain: [ materialize, { map: event.kind } ] }"], ["a": "-1-|"], ["s": "-N-(C|)"],
      ["N": "next", "C": "completed"]),
    .init(
      "and error, which ends it normally",
      signals: ["s: { from: a, chain: [ materialize, { map: \"[event.kind, event.kind != 'next']\" } ] }"],
      ["a": "-1-#"],
      ["s": "-N-(E|)"], ["N": "[next, false]", "E": "[error, true]"]),
    .init(
      "they are equal by content", signals: ["s: { from: a, chain: [ materialize, distinctUntilChanged ] }"],
      ["a": "-1-1-|"], ["s": "-A---(B|)"], ["A": "{kind: next, value: 1}", "B": "{kind: completed}"]),
    .init(
      "a value that says nothing is a value", signals: ["s: { from: a, chain: [ { mapReplace: {} }, count ] }"],
      ["a": "-1-2|"], ["s": "----(2|)"]),
    .init(
      "a group knows its key",
      signals: [
        "s: { from: a, chain: [ { groupBy: { key: event.k, chain: [ { map: \"[meta.key, event.v]\" } ] } } ] }"
      ],
      ["a": "-x-y|"], ["s": "-A-B|"], ["x": "{k: p, v: 1}", "y": "{k: q, v: 2}", "A": "[p, 1]", "B": "[q, 2]"]),
    .init(
      "a list becomes events, then it is over",
      signals: ["s: { from: { values: [[1, null, 3]] }, chain: [ { flattenMap: event } ] }"], [:], ["s": "(1n3|)"],
      ["n": "null"]),
    .init(
      "lists have the steps of signals: map, filter, take, skip, concat, flatten",
      signals: [
        "s: { from: a, chain: [ { map: \"(event.filter(x, x > 1).map(x, [x, x * 10]) + [[7], [8], [9]]).flatten().slice(1, 6)\" } ] }"
      ],
      ["a": "-x|"], ["s": "-A|"], ["x": "[1, 2, 3]", "A": "[20, 3, 30, 7, 8]"]),
    .init(
      "any, all, objectPassingTest of nothing: false, true, nil",
      signals: [
        "s: { from: a, chain: [ { map: \"[event.exists(x, x > 1), event.all(x, x > 1), event.filter(x, x > 1).first().orValue(null)]\" } ] }"
      ],
      ["a": "-e-x|"], ["s": "-A-B|"], ["e": "[]", "x": "[1, 2]", "A": "[false, true, null]", "B": "[true, false, 2]"]),
    .init(
      "foldLeft of nothing: the start",
      signals: [
        "s: { from: a, chain: [ { flattenMap: { policy: concat, signal: { from: { values: [0] }, chain: [ { map: outer }, { flattenMap: event }, { aggregate: { start: 5, next: running + event } } ] } } } ] }"
      ],
      ["a": "-e-x|"], ["s": "-5-8|"], ["e": "[]", "x": "[1, 2]"]),
    .init(
      "what is begun for one that has ended is disposed at once", sources: ["c: { counted: {}, cold: true }"],
      signals: ["s: { from: a, chain: [ { flattenMap: { signal: { from: c } } }, { take: 1 } ] }"],
      ["a": "-(xy)-|", "c": "1-2|"], ["s": "-(1|)"], subscriptions: "+-"),
    .init(
      "an end of any disposes all", sources: ["c: { counted: {} }", "d: { counted: {} }"],
      signals: ["s: { merge: [c, d] }"], ["c": "-1-----|", "d": "--2#"], ["s": "-12#"], subscriptions: "++--"),
    .init(
      "one at a time, the one before is disposed first", sources: ["c: { counted: {}, cold: true }"],
      signals: ["s: { from: a, chain: [ { switchToLatest: { from: c } } ] }"], ["a": "-x-y|", "c": "---1|"],
      ["s": "------1|"], subscriptions: "+-+-"),
  ]

  // MARK: What a design has to decide

  static let decisions: [PipelineRow] = [
    .init(
      "the error of takeUntil's trigger is ignored", signals: ["s: { from: a, chain: [ { takeUntil: b } ] }"],
      ["a": "-1-2-|", "b": "--#"], ["s": "-1-2-|"]),
    .init(
      "any and all: an error is false",
      signals: ["x: { from: a, chain: [ { any: event > 5 } ] }", "y: { from: a, chain: [ { all: event > 0 } ] }"],
      ["a": "-1-#"], ["x": "---(F|)", "y": "---(F|)"], truths),
    .init(
      "or it is passed on", signals: ["x: { from: a, chain: [ { any: { where: event > 5, onFailure: fail } } ] }"],
      ["a": "-1-#"],
      ["x": "---#"]),
    .init(
      "finally: on completion, before it is passed on", sources: ["c: { counted: {} }"],
      signals: ["s: { from: a, chain: [ { finally: { from: c } } ] }"], ["a": "-1-|", "c": "--9|"], ["s": "-1----|"],
      subscriptions: "+-"),
    .init(
      "finally: on an error", sources: ["c: { counted: {} }"],
      signals: ["s: { from: a, chain: [ { finally: { from: c } } ] }"], ["a": "-1-#", "c": "--9|"], ["s": "-1----#"],
      subscriptions: "+-"),
    .init(
      "finally: not on disposal", sources: ["c: { counted: {} }"],
      signals: ["s: { from: a, chain: [ { finally: { from: c } }, { take: 1 } ] }"], ["a": "-1-2|", "c": "--9|"],
      ["s": "-(1|)"], subscriptions: ""),
    .init(
      "zip of three: the error of one that is used up is seen", signals: ["s: { zip: [a, b, d] }"],
      ["a": "-1|", "b": "-1-#", "d": "-----1"], ["s": "---#"]),
    .init(
      "combineLatest waits for inputs that cannot matter any more", signals: ["s: { combineLatest: [a, b] }"],
      ["a": "--|", "b": "-1-2-3|"], ["s": "------|"]),
    .init(
      "the same signal may be answered twice", signals: ["s: { from: a, chain: [ { flattenMap: { signal: b } } ] }"],
      ["a": "-x-y|", "b": "-----1--2|"], ["s": "-----(11)--(22)|", "b": "-----1--2|"]),
    .init(
      "throttle may be bounded", signals: ["s: { from: a, chain: [ { throttle: { quiet: 3ms, maxWait: 4ms } } ] }"],
      ["a": "-1-2-3-4|"], ["s": "-----3--(4|)"]),
    .init(
      "a shutdown is another signal",
      signals: [
        "s: { from: a, chain: [ { throttle: 9ms }, { takeUntil: b } ] }",
        "t: { from: a, chain: [ { takeUntil: b }, { throttle: 9ms } ] }",
      ],
      ["a": "-1-2-3", "b": "----x"], ["s": "----|", "t": "----(2|)"]),
    .init(
      "flattenMap lets an old answer overtake a newer one, switchToLatest does not",
      signals: [
        "m: { from: a, chain: [ { flattenMap: { signal: { marbles: \"{{ outer == 'o' ? '-----1|' : '-2|' }}\" } } } ] }",
        "l: { from: a, chain: [ { switchToLatest: { marbles: \"{{ outer == 'o' ? '-----1|' : '-2|' }}\" } } ] }",
      ], ["a": "-o-n----|"], ["m": "----2-1-|", "l": "----2---|"]),
    .init(
      "the chain of the texts: then, filter, throttle, flattenMap, map",
      signals: [
        "s: { from: access, chain: [ { then: lines }, { filter: size(event) > 1 }, { throttle: 3ms }, { flattenMap: { signal: { marbles: '-{{ outer }}|' }, maxConcurrent: 4 } }, { map: \"event + '!'\" } ] }"
      ], ["access": "-g|", "lines": "x--pq-----r-|"], ["s": "----------BC--|"],
      ["x": "ab", "p": "cd", "q": "ef", "r": "g", "B": "e!", "C": "f!"]),
  ]

  static let rows = making + sharing + commands + values + decisions

  @Test(arguments: rows) func row(_ row: PipelineRow) throws {
    for difference in try row.differences() { Issue.record("\(difference)\n\(row.yaml)") }
  }

  /// Every row fails with a wrong expectation.
  @Test func everyRowCanFail() throws {
    for row in Self.rows {
      for index in row.expected.indices {
        var other = row
        other.expected[index].marbles = "Z"
        #expect(try !other.differences(atOnce: true).isEmpty, "\(row.says)")
      }
      guard let subscriptions = row.subscriptions else { continue }
      var other = row
      other.subscriptions = subscriptions + "+"
      #expect(try !other.differences(atOnce: true).isEmpty, "\(row.says)")
    }
  }

  /// The effect of a failing expression, step by step, for each `onError`.
  @Test(arguments: [("fail", "-1#", ""), ("drop", "-1-1|", ""), ("route", "-1-1|", "--x"), ("keep", "-1x1|", "")])
  func onError(_ policy: String, _ output: String, _ errors: String) throws {
    let row = PipelineRow(
      "onError: \(policy)",
      signals: [
        "s: { from: a, chain: [ { map: event + 0, onError: \(policy) } ] }",
        "bad: { from: s.errors, chain: [ { map: event.event } ] }",
      ], ["a": "-1x1|"],
      policy == "fail" ? ["s": "-1#"] : ["s": output, "bad": errors.isEmpty ? "----|" : errors + "-|"])
    for difference in try row.differences() { Issue.record("\(difference)") }
  }

  /// An unhandled error is not silent: it ends the pipeline, and is reported.
  @Test func nobodyHandlesAnError() throws {
    let run = try PipelineRun(
      """
      sources: { a: { scripted: {} } }
      sinks: { out: { from: a, probe: {} } }
      """, sources: ["a": ScriptedSource(SignalHistory(try Marbles("-1#")).script)])
    guard case .failed(let failure) = run.outcome else {
      Issue.record("the pipeline did not fail")
      return
    }
    #expect(failure.message == "error")
  }

  /// A stop completes the sources: held events are sent, commands finish their executions.
  @Test func stoppingFlushes() throws {
    var options = PipelineRun.Options()
    options.drainAt = .milliseconds(2)
    let run = try PipelineRun(
      """
      sources: { a: { scripted: {} } }
      signals:
        held: { from: a, chain: [ { throttle: 1s } ] }
        done: { from: a, chain: [ { execute: work } ] }
      commands: { work: { run: { from: { values: [7] }, chain: [ { delay: 3ms } ] } } }
      sinks: { out: { from: held, probe: {} }, results: { from: done, probe: {} } }
      """, sources: ["a": ScriptedSource(SignalHistory(try Marbles("-1---2")).script)], options: options)
    #expect(run.out == SignalHistory(try Marbles("--(1|)")))
    #expect(run.sinks["results"] == SignalHistory(try Marbles("----(7|)")))
    #expect(run.outcome == .completed)
  }
}
