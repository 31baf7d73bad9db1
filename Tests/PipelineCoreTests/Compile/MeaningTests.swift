import PipelineCore
import PipelineRuntime
import Testing

/// Which changes of a file change its meaning, so that a reload moves the pipeline to a new version.
@Suite struct MeaningTests {
  private func meaning(_ yaml: String, _ variables: [String: String] = [:]) -> UInt64? {
    let values = Interpolation(variables: variables, secrets: ["A": "first", "B": "second"])
    let result = FrontEnd(.builtIn, values: values).compile(yaml)
    let errors = result.diagnostics.filter { $0.severity == .error }.map(\.message)
    #expect(errors == [], "\(yaml)")
    return result.plan == nil ? nil : result.meaning
  }

  private func file(_ step: String, source: String = "{ stdin: { decode: json } }", sink: String = "stdout: {}")
    -> String
  {
    """
    name: m
    sources: { a: \(source) }
    signals: { b: { from: a, chain: [ \(step) ] } }
    sinks: { out: { from: b, \(sink) } }
    """
  }

  /// Steps that mean the same.
  @Test(arguments: [
    ("{ filter: \"event['k'] > 1\" }", "{ filter: event.k > 1 }"),
    ("{ filter: \"event[\\\"k\\\"].m > 1\" }", "{ filter: (event.k).m>1 }"),
    ("{ filter: ((event.k > 1) && (event.m)) }", "{ filter: event.k > 1 && event.m }"),
    ("{ filter: \"event.a && event.b && event.c\" }", "{ filter: \"event.a && (event.b && event.c)\" }"),
    ("{ filter: \"event.k == 'a'\" }", "{ filter: 'event.k == \"a\"' }"),
    ("{ filter: \"event.k == 'a\\\\x41'\" }", "{ filter: \"event.k == r'aA'\" }"),
    ("{ filter: event.k == 0x10 }", "{ filter: event.k == 16 }"),
    ("{ filter: event.k == 1.50 }", "{ filter: event.k == 1.5 }"),
    ("{ filter: \"event.k > 1 // many\" }", "{ filter: event.k > 1 }"),
    ("{ filter: \"event[?'k'].orValue(1) > 1\" }", "{ filter: event.?k.orValue(1) > 1 }"),
    ("{ map: \"[event.k, event.m]\" }", "{ map: \"[ event['k'] ,event.m ]\" }"),
    ("{ map: { a: \"event['k']\" } }", "{ map: { a: (event.k) } }"),
    ("{ throttle: 60s }", "{ throttle: 1m }"), ("{ throttle: 60s }", "{ throttle: '60s' }"),
    ("{ throttle: '${AFTER:-60s}' }", "{ throttle: 60s }"), ("{ throttle: '${SET}' }", "{ throttle: 60s }"),
    ("{ take: 5 }", "{ take: { count: 5 } }"),
    ("{ delay: 1s }", "{ delay: { by: 1s, limit: 10000 } }"),
    ("{ delay: { by: 1s, limit: 7 } }", "{ delay: { limit: 7, by: 1000ms } }"),
    ("distinctUntilChanged", "{ distinctUntilChanged: {} }"),
    (
      "{ flattenMap: { signal: { from: { http: { url: \"http://h.example/{{ outer['k'] }}\" } } } } }",
      "{ flattenMap: { signal: { from: { http: \"http://h.example/{{outer.k}}\" } } } }"
    ),
  ])
  func theSame(_ first: String, _ second: String) {
    let variables = ["SET": "1m"]
    #expect(meaning(file(first), variables) == meaning(file(second), variables), "\(first) \(second)")
  }

  /// Steps that do not mean the same.
  @Test(arguments: [
    ("{ filter: event.k > 1 }", "{ filter: event.k > 2 }"), ("{ filter: event.k > 1 }", "{ filter: event.k >= 1 }"),
    ("{ filter: event.k == 1 }", "{ filter: event.k == '1' }"),
    ("{ filter: event.k == 1 }", "{ filter: event.k == 1.0 }"),
    ("{ filter: event.k == 1 }", "{ filter: event.k == 1u }"),
    ("{ filter: event.k == 'a' }", "{ filter: \"event.k == b'a'\" }"),
    ("{ filter: event.k == 'a' }", "{ filter: event.k == 'a ' }"),
    ("{ filter: event.k > 1 }", "{ filter: event.m > 1 }"),
    ("{ filter: \"event.k[0] > 1\" }", "{ filter: \"event.k['0'] > 1\" }"),
    ("{ filter: event.?k.orValue(1) > 1 }", "{ filter: event.k > 1 }"),
    ("{ filter: \"(event.a || event.b) && event.c\" }", "{ filter: \"event.a || event.b && event.c\" }"),
    ("{ filter: \"event.a - (event.b - event.c) > 0\" }", "{ filter: \"event.a - event.b - event.c > 0\" }"),
    ("{ filter: has(event.k) }", "{ filter: \"event.k != null\" }"),
    ("{ map: { a: event.a, b: event.b } }", "{ map: { b: event.b, a: event.a } }"),
    ("{ map: \"{'a': 1}\" }", "{ map: { a: 1 } }"), ("{ filter: event.k }", "{ map: event.k }"),
    ("{ throttle: 60s }", "{ throttle: 61s }"), ("{ throttle: '${AFTER:-61s}' }", "{ throttle: 60s }"),
    ("{ throttle: '${SET}' }", "{ throttle: '${OTHER}' }"), ("{ take: 5 }", "{ take: 6 }"),
    ("{ filter: event.a }, { filter: event.b }", "{ filter: event.b }, { filter: event.a }"),
    ("{ filter: event.a }", "{ filter: event.a, onError: fail }"), ("distinctUntilChanged", "ignoreValues"),
  ])
  func another(_ first: String, _ second: String) {
    let variables = ["SET": "1m", "OTHER": "2m"]
    #expect(meaning(file(first), variables) != meaning(file(second), variables), "\(first) \(second)")
  }

  /// Values that become events keep the text of their numbers.
  @Test func sentNumbers() {
    func values(_ list: String) -> UInt64? { meaning(file("{ take: 1 }", source: "{ values: \(list) }")) }
    #expect(values("[1.0]") != values("[1]"))
    #expect(values("[1.50]") != values("[1.5]"))
    #expect(values("[1, a]") == values("[ 1 , 'a' ]"))
    #expect(values("[1]") != values("['1']"))
    #expect(values("[true]") != values("['true']"))
    #expect(values("[{ a: 1, b: 2 }]") != values("[{ b: 2, a: 1 }]"))
  }

  @Test func whatSurroundsTheGraph() {
    let plain = file("{ take: 1 }")
    #expect(meaning(plain) == meaning("description: other\n# A comment.\n" + plain))
    #expect(meaning(plain) == meaning(plain.replacing("sources: { a:", with: "\"sources\": { 'a' :")))
    let block = """
      sinks:
        out:
          stdout: {}
          from: b
      name: m
      sources: { a: { stdin: { decode: json } } }
      signals:
        b:
          chain:
            - take: ${N:-1}
          from: a
      """
    #expect(meaning(plain) == meaning(block))
    #expect(meaning(plain) != meaning(block, ["N": "2"]))
    #expect(meaning(plain) != meaning(plain.replacing("{ out:", with: "{ other:")))
    #expect(meaning(plain) != meaning(plain.replacing("name: m", with: "name: n")))
  }

  /// A stored hash reveals nothing about a secret; the name of the secret and the text around it still change the meaning.
  @Test func secrets() {
    func sink(_ token: String) -> UInt64? {
      meaning(file("{ take: 1 }", sink: "http: { url: 'http://h.example/', headers: { X-Token: '\(token)' } }"))
    }
    #expect(sink("${secret:A}") == sink("${secret:B}"))
    #expect(sink("Bearer ${secret:A}") != sink("Token ${secret:A}"))
    #expect(sink("${secret:A}") != sink("first"))
  }
}
