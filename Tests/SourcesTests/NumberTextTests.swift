import Foundation
import PipelineCore
import PipelineHost
import Testing

/// An unchanged number leaves the pipeline with its original text, whatever holds it on the way.
@Suite struct NumberTextTests {
  static let numbers = [
    "1.50", "1e3", "-0", "123456789012345678901234567890", "0.1000000000000000055", "1E+02", "1e400", "0.00",
    "0.0000001", "2.0", "7", "-12.5", "18446744073709551615", "6.02214076e23", "18446744073709551616",
  ]

  /// Sends lines through a chain; returns the output lines.
  private func run(
    _ lines: [String], _ chain: String, decode: String = "ndjson", encode: String = "ndjson", block: Int = 256 << 10
  ) throws -> [String] {
    let folder = Scratch()
    folder.append(lines.map { $0 + "\n" }.joined(), to: "in")
    let pipeline = try RealPipeline(
      """
      sources:
        one: { values: [true] }
        input: { file: { path: \(folder("in")), decode: \(decode) } }
      sinks:
        out:
          from: input
          chain: \(chain)
          file: { path: \(folder("out")), encode: \(encode) }
      """
    ) { $0.reading.blockBytes = block }
    #expect(pipeline.runToEnd() == .completed)
    #expect(pipeline.deadLetters.isEmpty)
    return folder.read("out").split(separator: "\n").map(String.init)
  }

  /// Chains that give `event.x` of each event, in order.
  @Test(arguments: [
    "[ { map: event.x } ]", "[ { filter: true }, { map: event.x } ]",
    "[ { map: '{\"a\": event.x}' }, { map: event.a } ]",
    "[ { map: { a: [event.x] } }, { map: 'event.a[0]' } ]", "[ { map: event.x }, { filter: event != 5 } ]",
    "[ { map: event.x }, { scan: { start: null, next: event } } ]",
    "[ { scan: { start: {}, next: \"{'last': event.x, 'n': index}\" } }, { map: event.last } ]",
    "[ { scan: { start: null, next: event } }, { map: event.x } ]",
    "[ { map: event.x }, distinctUntilChanged ]", "[ { map: event.x }, distinct ]",
    "[ { map: event.x }, { delay: 1ms } ]", "[ { map: event.x }, { deliverOn: later } ]",
    "[ { map: event.x }, collect, { flattenMap: event } ]", "[ collect, { flattenMap: event }, { map: event.x } ]",
    "[ { map: event.x }, { bufferWithCount: 4 }, { flattenMap: event } ]",
    "[ { map: event.x }, { window: { count: 3 } }, { flattenMap: event } ]",
    "[ { map: event.x }, { window: { every: 1h, to: events } }, { flattenMap: event } ]",
    "[ { map: event.x }, { takeLast: 1000 } ]", "[ { map: event.x }, { combinePrevious: { start: 0, next: event } } ]",
    "[ { combinePrevious: { start: 0, next: event } }, { map: event.x } ]",
    "[ { map: event.x }, materialize, { filter: 'has(event.value)' }, { map: event.value } ]",
    "[ { map: event.x }, materialize, dematerialize ]",
    "[ { groupBy: { key: event.x, chain: [ { map: event.x } ] } } ]",
    "[ { groupBy: { key: event.x, chain: [ { map: meta.key } ] } } ]",
    "[ { groupBy: { key: event.x, chain: [ { delay: 1ms }, { map: meta.key } ] } } ]",
    "[ { groupBy: { key: event.x, chain: [ { aggregate: { start: null, next: event } }, { map: event.x } ] } } ]",
    "[ { flattenMap: { policy: concat, signal: { values: [1], chain: [ { map: outer.x } ] } } } ]",
    "[ { flattenMap: { policy: concat, signal: { interval: 1ms, chain: [ { take: 1 }, { map: outer.x } ] } } } ]",
    "[ { flattenMap: '[event.x]' } ]", "[ { set: { y: event.x } }, { map: event.y } ]",
    "[ { set: { y: 1 } }, { unset: y }, { map: event.x } ]", "[ { tryMap: event.x } ]",
    "[ { map: event.x }, { throttle: { quiet: 1h, edge: both } } ]",
    "[ { do: { signal: { values: [1] } } }, { map: event.x } ]",
    "[ { withLatestFrom: one }, { map: 'event[0].x' } ]",
    "[ { map: toJson(event) }, { map: parseJson(event).x } ]", "[ { map: event.x }, { skip: 0 }, { take: 1000 } ]",
    "[ { map: event.x }, { rateLimit: { count: 1000, per: 1h } } ]",
    "[ { map: event.x }, { gate: { signal: one, open: true, whileClosed: hold } } ]",
  ]) func chainsKeepTexts(_ chain: String) throws {
    let events = Self.numbers.map { "{\"n\":0,\"x\":\($0),\"s\":\"t\"}" }
    for block in [1, 64, 256 << 10] {
      let written = try run(events, chain, block: block)
      if chain.contains("throttle") {
        #expect(!written.isEmpty && written.allSatisfy(Self.numbers.contains), "\(written)")
      } else {
        #expect(written == Self.numbers, "blocks of \(block) bytes")
      }
    }
  }

  @Test func encodersAndTemplatesKeepTexts() throws {
    let lines = Self.numbers.map { "{\"x\":\($0)}" }
    for (encode, expected) in [
      ("json", lines.map { $0 }), ("csv", ["x"] + Self.numbers), ("logfmt", Self.numbers.map { "x=\($0)" }),
    ] {
      #expect(try run(lines, "[ { map: { x: event.x } } ]", encode: encode) == expected)
    }
    for encode in ["text", "lines"] {
      #expect(try run(lines, "[ { map: event.x } ]", encode: encode) == Self.numbers)
    }
    #expect(try run(lines, "[ { map: 'string(event.x)' }, { take: 2 } ]", encode: "text") == ["1.5", "1000"])
    let folder = Scratch()
    folder.append("{\"x\":1.50}\n{\"x\":1.5}\n", to: "in")
    let pipeline = try RealPipeline(
      """
      sources: { input: { file: { path: \(folder("in")), decode: ndjson } } }
      sinks: { out: { from: input, chain: [ { log: { message: 'costs {{ event.x }}' } } ], discard: {} } }
      """)
    #expect(pipeline.runToEnd() == .completed)
    #expect(pipeline.log.filter { $0.contains("costs") }.map { $0.suffix(10) } == ["costs 1.50", " costs 1.5"])
  }

  @Test func textInputsKeepTexts() throws {
    let fields = Self.numbers.map { "\($0),a" }
    let csv = "{ csv: { header: [n, s], types: infer } }"
    #expect(try run(fields, "[ { map: event.n } ]", decode: csv) == Self.numbers)
    // The text of a number ends at any delimiter.
    let dashes = ["1.50e1a", "1.50e23"]
    #expect(
      try run(dashes, "[]", decode: "{ csv: { header: false, types: infer, delimiter: e } }")
        == ["[1.50,\"1a\"]", "[1.50,23]"])
    let pairs = Self.numbers.map { "n=\($0) s=a" }
    #expect(try run(pairs, "[ { map: event.n } ]", decode: "{ logfmt: { types: { n: double } } }") == Self.numbers)
    let regex = "{ regex: { pattern: '^(?P<n>[^ ]+) x$', types: { n: double } } }"
    #expect(try run(Self.numbers.map { "\($0) x" }, "[ { map: event.n } ]", decode: regex) == Self.numbers)
    // Documents that are numbers.
    #expect(try run(Self.numbers, "[ { map: event } ]") == Self.numbers)
    #expect(try run(Self.numbers, "[ { map: event } ]", decode: "json") == Self.numbers)
  }

  @Test func equalNumbersAreOneKey() throws {
    let lines = ["1.50", "1.5", "15e-1", "2", "1.500"].map { "{\"x\":\($0)}" }
    #expect(try run(lines, "[ { map: event.x }, distinct ]") == ["1.50", "2"])
    #expect(try run(lines, "[ { map: { x: event.x } }, distinct ]") == [#"{"x":1.50}"#, #"{"x":2}"#])
    #expect(try run(lines, "[ { map: event.x }, distinctUntilChanged ]") == ["1.50", "2", "1.500"])
    #expect(try run(lines, "[ { groupBy: { key: event.x, chain: [ count ] } } ]") == ["4", "1"])
    #expect(try run(lines, "[ { groupBy: { key: \"{'k': event.x}\", chain: [ count ] } } ]") == ["4", "1"])
  }

  @Test func casesAndPartnersDoNotSeeTheText() throws {
    let pipeline = try VirtualPipeline(
      """
      sources:
        text: { values: ['{"k": 1.50, "n": 1}'] }
        other: { values: [{ k: 1.5, n: 2 }] }
      signals:
        one: { from: text, chain: [ { map: parseJson(event) } ] }
        key: { from: one, chain: [ { map: event.k } ] }
        switched: { switch: { by: key, cases: { '1.5': other } } }
        joined:
          from: one
          chain: [ { join: { signal: other, within: 1h, key: "{'k': event.k}", otherKey: "{'k': other.k}" } } ]
      sinks:
        out: { from: switched, probe: {} }
        pairs: { from: joined, chain: [ { map: 'event.map(e, e.n)' } ], probe: {} }
      """)
    pipeline.run()
    #expect(pipeline.probe().events == [#"{"k":1.5,"n":2}"#])
    #expect(pipeline.probe("pairs").events == ["[1,2]"])
  }

  /// A number in a pipeline file is unchanged too.
  @Test func literalsOfTheFileKeepTheirTexts() throws {
    let pipeline = try VirtualPipeline(
      """
      sources:
        some: { values: [1.50, 1e3, { a: [12345678901234567890123, 7, +1.5, .5, 0x10, 2.0] }] }
      sinks:
        out: { from: some, chain: [ { startWith: 0.10 } ], probe: {} }
        replaced: { from: some, chain: [ { take: 1 }, { mapReplace: { price: 9.90 } } ], probe: {} }
      """)
    pipeline.run()
    #expect(
      pipeline.probe().events == ["0.10", "1.50", "1e3", #"{"a":[12345678901234567890123,7,1.5,0.5,16,2.0]}"#])
    #expect(pipeline.probe("replaced").events == [#"{"price":9.90}"#])
  }

  /// Inputs that are joined, held and shared.
  @Test(arguments: [
    ("{ combineLatest: { a: input, b: one } }", "[ { map: 'event[0].x' } ]"),
    ("{ combineLatest: { a: input, b: input, settle: true } }", "[ { map: 'event[1].x' } ]"),
    ("{ merge: { a: input, b: none } }", "[ { map: event.x } ]"),
    ("{ concat: { b: none, a: input } }", "[ { map: event.x } ]"),
    ("{ zip: { a: input, b: input } }", "[ { map: 'event[1].x' } ]"),
    ("{ from: shared }", "[ { map: event.x } ]"), ("{ from: late }", "[ { map: event.x } ]"),
  ]) func signalsKeepTexts(_ origin: String, _ chain: String) throws {
    let folder = Scratch()
    folder.append(Self.numbers.map { "{\"x\":\($0)}\n" }.joined(), to: "in")
    let pipeline = try RealPipeline(
      """
      sources:
        one: { values: [1] }
        none: { values: [] }
        input: { file: { path: \(folder("in")), decode: ndjson } }
      signals:
        shared: { from: input, chain: [ { map: "{'x': event.x}" } ], share: { replay: 100 } }
        late: { from: one, chain: [ { delay: 1ms }, { filter: false }, { then: shared } ] }
        joined: \(origin)
      sinks:
        keep: { from: shared, discard: {} }
        out: { from: joined, chain: \(chain), file: \(folder("out")) }
      """
    ) { $0.reading.blockBytes = 30 }
    #expect(pipeline.runToEnd() == .completed)
    #expect(folder.read("out").split(separator: "\n").map(String.init) == Self.numbers)
  }
}
