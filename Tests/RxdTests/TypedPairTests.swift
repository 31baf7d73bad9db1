import Foundation
import Testing

/// Other events than `event` have the types of its signal: declared times are times, and unknown fields are errors.
@Suite struct TypedPairTests {
  private let folder: Scratch

  init() throws {
    folder = try Scratch()
    try folder.write(
      "a.ndjson", #"{"id":1,"at":"2026-01-01T00:00:00Z"}"# + "\n" + #"{"id":2,"at":"2026-01-01T00:00:09Z"}"# + "\n")
    try folder.write(
      "b.ndjson", #"{"id":1,"at":"2026-01-01T00:00:05Z"}"# + "\n" + #"{"id":3,"at":"2026-01-01T00:00:06Z"}"# + "\n")
  }

  private func file(_ step: String) throws -> String {
    try folder.write(
      "pairs.yaml",
      """
      sources:
        a: { file: { path: \(folder.path)/a.ndjson, decode: json }, schema: { id: int, at: timestamp } }
        b: { file: { path: \(folder.path)/b.ndjson, decode: json }, schema: { id: int, at: timestamp } }
      sinks:
        out: { from: a, chain: [ { \(step) } ], stdout: {} }

      """)
  }

  private static let later = #""{'later': other.at - event.at}""#

  @Test(arguments: [
    ("join: { signal: b, within: 1h, key: event.id, otherKey: other.id, reduce: \(later) }", [#"{"later":"5s"}"#]),
    (
      "join: { signal: b, within: 1h, key: event.id, otherKey: other.id, unmatched: left, "
        + #"reduce: "other == null ? {'alone': event.id} : {'later': other.at - event.at}" }"#,
      [#"{"later":"5s"}"#, #"{"alone":2}"#]
    ),
    (
      "join: { signal: b, within: 1h, key: event.id, otherKey: other.id, unmatched: right, "
        + #"reduce: "event == null ? {'alone': other.id} : {'later': other.at - event.at}" }"#,
      [#"{"later":"5s"}"#, #"{"alone":3}"#]
    ),
    (
      "combinePrevious: \"{'later': previous == null ? null : event.at - previous.at}\"",
      [#"{"later":null}"#, #"{"later":"9s"}"#]
    ),
    (
      #"combinePrevious: { start: { at: '2026-01-01T00:00:00Z' }, next: "{'later': event.at - previous.at}" }"#,
      [#"{"later":"0s"}"#, #"{"later":"9s"}"#]
    ),
    ("combinePrevious: { start: { n: 1 }, next: \"{'n': previous.?n.orValue(2)}\" }", [#"{"n":1}"#, #"{"n":2}"#]),
    (#"window: { count: 2, to: "{'later': events[1].at - events[0].at}" }"#, [#"{"later":"9s"}"#]),
    (
      #"window: { count: 2, to: "{'late': events.filter(e, e.at > timestamp('2026-01-01T00:00:05Z')).map(e, e.id)}" }"#,
      [#"{"late":[2]}"#]
    ),
  ])
  func declaredTimesAreTimes(_ step: String, _ wanted: [String]) throws {
    let outcome = try Rxd.run("run", "-q", try file(step))
    #expect(outcome.status == 0 && outcome.lines.sorted() == wanted.sorted(), "\(outcome.lines) \(outcome.errors)")
  }

  /// Both signals come from one file, because nothing orders the events of two.
  @Test func theLatestOfAnotherSignalHasItsTypes() throws {
    let path = try folder.write(
      "latest.yaml",
      """
      sources:
        c: { file: { path: \(folder.path)/c.ndjson, decode: json }, schema: { id: int, at: timestamp } }
      sinks:
        out:
          from: c
          chain:
            - filter: event.id < 3
            - withLatestFrom:
                signal: { from: c, chain: [ { filter: event.id == 3 } ] }
                reduce: "{'later': latest.at - event.at}"
          stdout: {}

      """)
    let lines = [
      #"{"id":3,"at":"2026-01-01T00:00:05Z"}"#, #"{"id":1,"at":"2026-01-01T00:00:00Z"}"#,
      #"{"id":2,"at":"2026-01-01T00:00:09Z"}"#,
    ]
    try folder.write("c.ndjson", lines.joined(separator: "\n") + "\n")
    let outcome = try Rxd.run("run", "-q", path)
    #expect(outcome.status == 0 && outcome.lines == [#"{"later":"5s"}"#, #"{"later":"-4s"}"#], "\(outcome)")
  }

  @Test(arguments: [
    ("join: { signal: b, within: 1h, reduce: other.att }", "there is no field 'att'"),
    ("join: { signal: b, within: 1h, key: event.id, otherKey: other.idd }", "there is no field 'idd'"),
    ("join: { signal: b, within: 1h, unmatched: full, reduce: event.att }", "there is no field 'att'"),
    ("withLatestFrom: { signal: b, reduce: latest.id + 'x' }", "RX413"),
    ("combinePrevious: previous.att", "there is no field 'att'"),
    ("combinePrevious: { start: { n: 1 }, next: previous.att }", "there is no field 'att'"),
    ("window: { count: 2, to: 'events[0].att' }", "there is no field 'att'"),
  ])
  func mistakesAreFoundBefore(_ step: String, _ part: String) throws {
    let outcome = try Rxd.run("check", try file(step))
    #expect(outcome.status == 78 && outcome.output.contains(part), "\(outcome.output)")
  }
}
