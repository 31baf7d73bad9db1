import PipelineHost
import Testing

/// Which sources see an event.
@Suite struct SourceScopeTests {
  private static let request = "http: { url: 'http://127.0.0.1:8080/{{ event.n }}', decode: json }"

  @Test(arguments: [
    "sources: { a: { REQUEST } }\nsinks: { out: { from: a, stdout: {} } }",
    "signals: { a: { from: { REQUEST } } }\nsinks: { out: { from: a, stdout: {} } }",
    "signals: { a: { concat: [ { from: { REQUEST } } ] } }\nsinks: { out: { from: a, stdout: {} } }",
    """
    sources: { t: { interval: 1s } }
    signals:
      a: { cold: true, from: { REQUEST } }
      b: { from: t, chain: [ { flattenMap: { signal: a } } ] }
    sinks: { out: { from: b, stdout: {} } }
    """,
    """
    sources: { t: { interval: 1s }, a: { cold: true, REQUEST } }
    signals: { b: { from: t, chain: [ { flattenMap: { signal: { from: a } } } ] } }
    sinks: { out: { from: b, stdout: {} } }
    """,
  ])
  func aSourceWithoutAnEvent(_ yaml: String) throws {
    let text = yaml.replacing("REQUEST", with: Self.request)
    let found = PipelineText.complaints(text)
    let line = try #require(text.split(separator: "\n").enumerated().first { $1.contains("event.n") })
    let column = try #require(line.element.utf8.firstRange(of: "event.n".utf8)).lowerBound
    let place = "\(line.offset + 1):\(line.element.utf8.distance(from: line.element.startIndex, to: column) + 1)"
    #expect(found == ["\(place): there is nothing called 'event' here"])
  }

  @Test func innerSourcesSeeTheEventThatTheyAreMadeFor() {
    let yaml = """
      sources: { t: { stdin: { decode: json } } }
      signals:
        b: { from: t, chain: [ { flattenMap: { signal: { from: { REQUEST } } } } ] }
        c: { from: b, chain: [ { flattenMap: { signal: { merge: [ { from: { REQUEST } }, t ] } } } ] }
      sinks: { out: { from: c, stdout: {} } }
      """
    #expect(PipelineText.complaints(yaml.replacing("REQUEST", with: Self.request)) == [])
  }
}
