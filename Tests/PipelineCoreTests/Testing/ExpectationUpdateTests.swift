import PipelineCore
import PipelineTesting
import Testing

/// `rxd test --update`: the changes of a file.
@Suite struct ExpectationUpdateTests {
  private static let head = """
    # What stands here stays.
    name: t
    sources: { a: { stdin: {} } }   # also this
    signals:
      doubled: { from: a, chain: [ { map: event * 2 } ] }
    sinks: { out: { from: doubled, discard: {} } }

    """

  private struct Updated {
    var text: String?
    var refusals: [String]
    var difference: String
    /// The failures that remain in the new text.
    var failures: [String]
  }

  private func update(_ text: String) throws -> Updated {
    let source = SourceText(name: "t.yaml", text: text)
    let suite = try TestSuite(source)
    var update = ExpectationUpdate(source)
    var refusals: [String] = []
    for (test, result) in zip(suite.tests, suite.run()) {
      for failure in result.failures {
        guard let index = failure.expectation else { continue }
        if let refusal = update.rewrite(test.expectations[index], of: test, to: failure.history) {
          refusals.append(refusal.message)
        }
      }
    }
    guard let bytes = update.text() else {
      return Updated(text: nil, refusals: refusals, difference: update.difference, failures: [])
    }
    let after = try TestSuite(SourceText(name: "t.yaml", bytes: bytes))
    return Updated(
      text: String(decoding: bytes, as: UTF8.self), refusals: refusals, difference: update.difference,
      failures: after.run().flatMap { $0.failures.map(\.diagnostic.message) })
  }

  /// An expectation for `out` becomes `wanted`; the input is doubled.
  private func check(
    _ expectation: String, input: String = "{ marbles: \"-1-2|\" }", becomes wanted: String,
    sourceLocation: Testing.SourceLocation = #_sourceLocation
  ) throws {
    func text(_ expectation: String) -> String {
      Self.head
        + "tests:\n  - name: x   # a remark\n    inputs: { a: \(input) }\n    expect:\n      out: \(expectation)\n"
        + "    # the end\n"
    }
    let updated = try update(text(expectation))
    #expect(updated.text == text(wanted), sourceLocation: sourceLocation)
    #expect(updated.refusals == [], sourceLocation: sourceLocation)
    #expect(updated.failures == [], sourceLocation: sourceLocation)
  }

  // MARK: Marbles

  @Test func marblesStayMarbles() throws {
    try check("\"-1-2|\"", becomes: "\"-2-4|\"")
    try check("'-1-2|'   # why", becomes: "'-2-4|'   # why")
    try check("-1-x", input: "{ marbles: \"-1-2\" }", becomes: "\"-2-4\"")
    try check("\"|\"", input: "\"1 1h 2|\"", becomes: "\"2 1h 4|\"")
    try check("\"|\"", input: "\"-(12)|\"", becomes: "\"-(24)|\"")
    try check(
      "{ marbles: \"-1|\", tick: 10ms }", input: "{ marbles: \"-1-2|\", tick: 10ms }",
      becomes: "{ marbles: \"-2-4|\", tick: 10ms }")
    try check("{ tick: 2ms, marbles: \"|\" }", input: "\"-1--2\"", becomes: "{ tick: 2ms, marbles: \"1ms 2 1ms 4\" }")
  }

  @Test func lettersAreKeptAndAdded() throws {
    // The value of a letter has changed.
    try check(
      "{ marbles: \"-p-q|\", values: { p: 1, q: 4 } }", becomes: "{ marbles: \"-p-q|\", values: { p: 2, q: 4 } }")
    // A value without a letter.
    try check(
      "\"-2|\"", input: "{ marbles: \"-a|\", values: { a: 20 } }",
      becomes: "{ marbles: \"-A|\", values: { A: 40 } }")
    try check(
      "{ marbles: \"-2|\" }", input: "{ marbles: \"-a-1|\", values: { a: 20 } }",
      becomes: "{ marbles: \"-A-2|\", values: { A: 40 } }")
    try check(
      "{ marbles: \"-p|\", values: { p: 1 } }", input: "{ marbles: \"-a-b|\", values: { a: 20, b: 0.5 } }",
      becomes: "{ marbles: \"-A-p|\", values: { p: 1, A: 40 } }")
    try check(
      """

              marbles: "-p|"   # drawn
              values:
                p: 2   # two
      """, input: "{ marbles: \"-1-a|\", values: { a: 7 } }",
      becomes: """

                marbles: "-p-A|"   # drawn
                values:
                  p: 2   # two
                  A: 14
        """)
    try check(
      """

              marbles: "|"
              tick: 1ms
      """, input: "{ marbles: \"a|\", values: { a: 7 } }",
      becomes: """

                marbles: "A|"
                values: { A: 14 }
                tick: 1ms
        """)
  }

  // MARK: Lists

  @Test func onlyWhatDiffersChanges() throws {
    try check(
      "[ { at: 1ms, next: 2 }, { at: 4ms,  next: 4 }, {complete: true} ]",
      becomes: "[ { at: 1ms, next: 2 }, { at: 3ms,  next: 4 }, {complete: true} ]")
    try check("[ {next: 2}, {next: 5}, {complete: true} ]", becomes: "[ {next: 2}, {next: 4}, {complete: true} ]")
    try check("[ { next: 2 } ]", becomes: "[ { next: 2 }, { next: 4 }, { complete: true } ]")
    try check(
      "[ { at: 1ms, next: 2 } ]",
      becomes: "[ { at: 1ms, next: 2 }, { at: 3ms, next: 4 }, { at: 4ms, complete: true } ]")
    try check("[]", input: "\"-1\"", becomes: "[ { at: 1ms, next: 2 } ]")
    try check("[ { next: 2 }, { next: 3 }, { next: 4 } ]", input: "\"1\"", becomes: "[ { next: 2 } ]")
    try check("[ { next: 2 } ]", input: "\"\"", becomes: "[]")
    try check("[ { next: 1 }, { complete: true } ]", input: "\"\"", becomes: "[]")
  }

  @Test func listsOfLinesStayLists() throws {
    try check(
      """

              # what comes
              - { at: 1ms, next: 3 }   # three
              # then
              - at: 2ms   # at two
                next: 4   # four
              - complete: true
      """,
      becomes: """

                # what comes
                - { at: 1ms, next: 2 }   # three
                # then
                - at: 3ms   # at two
                  next: 4   # four
                - complete: true
        """)
    try check(
      """

              - { at: 1ms, next: 2 }
              - { at: 2ms, next: 77 }   # gone
              - { at: 3ms, next: 4 }
      """,
      becomes: """

                - { at: 1ms, next: 2 }
                - { at: 3ms, next: 4 }
                - { at: 4ms, complete: true }
        """)
    try check(
      """

              - { next: 4 }
              - { complete: true }
      """,
      becomes: """

                - { next: 2 }
                - { next: 4 }
                - { complete: true }
        """)
    try check(
      """

              - { next: 4 }
      """, input: "\"\"", becomes: "\n        []")
    // In a mapping with further entries.
    try check(
      """

              events:
                - { next: 2 }
              tick: 3ms
      """, input: "\"12\"",
      becomes: """

                events:
                  - { next: 2 }
                  - { next: 4 }
                tick: 3ms
        """)
  }

  @Test func valuesChangeWhereTheyDiffer() throws {
    let text = """
      sources: { a: { stdin: {} } }
      sinks: { out: { from: a, discard: {} } }
      tests:
        - name: x
          inputs: { a: { marbles: "v", values: { v: { id: 7, name: "O'Brien: a # b", tags: [x, {y: 2}], more: null } } } }
          expect:
            out:
              - next:
                  id: 8   # the number
                  name: 'Ann'   # the name
                  tags: [x, { y: 1 }]
                  more: null
      """
    let updated = try update(text)
    #expect(
      updated.text
        == text.replacing("id: 8 ", with: "id: 7 ").replacing("'Ann'", with: "'O''Brien: a # b'")
        .replacing("{ y: 1 }]\n", with: "{ y: 2 }]\n"))
    #expect(updated.failures == [])
    let other = try update(text.replacing("name: 'Ann'   # the name", with: "title: 'Ann'"))
    #expect(other.refusals == ["'out' cannot be rewritten: a comment in it would be lost"])
    let third = try update(
      text.replacing("id: 8   # the number", with: "id: 8").replacing("name: 'Ann'   # the name", with: "title: 'Ann'"))
    #expect(
      third.text?.contains(
        "- next:\n            { id: 7, more: null, name: \"O'Brien: a # b\", tags: [x, { y: 2 }] }") == true)
    #expect(third.failures == [])
  }

  /// Characters that a file must not contain literally are written as escapes.
  @Test func strangeTextsSurvive() throws {
    for value in [
      #""\u2028""#, #""$${HOME} $$ $5""#, #""a\tb\n\\ \"q\"""#, #""yes""#, #""null""#, #""1e3""#, #""- a""#,
      #""😀\ufeff""#, "\"#\"",
    ] {
      let updated = try update(
        """
        sources: { a: { stdin: {} } }
        sinks: { out: { from: a, discard: {} } }
        tests: [ { name: x, inputs: { a: { marbles: "v", values: { v: \(value) } } }, expect: { out: [ { next: 0 } ] } } ]
        """)
      #expect(updated.refusals == [])
      #expect(updated.failures == [], "\(value): \(updated.text ?? "")")
    }
  }

  // MARK: Several, errors, requests

  @Test func severalInOneFile() throws {
    let text =
      Self.head + """
        tests:
          - { name: one, inputs: { a: "1|" }, expect: { out: "1|", doubled: [ { next: 1 }, { complete: true } ] } }
          - { name: two, inputs: { a: "1|" }, expect: { out: "2|" } }
          - { name: three, inputs: { a: { marbles: "#", error: the plug was pulled } }, expect: { out: [ { error: cable } ] } }
        """
    let updated = try update(text)
    #expect(
      updated.text
        == text.replacing("out: \"1|\", doubled: [ { next: 1 }", with: "out: \"2|\", doubled: [ { next: 2 }")
        .replacing("error: cable", with: "error: the plug was pulled"))
    #expect(updated.failures == [])
    #expect(
      updated.difference == """
        t.yaml:8
        -   - { name: one, inputs: { a: "1|" }, expect: { out: "1|", doubled: [ { next: 1 }, { complete: true } ] } }
        +   - { name: one, inputs: { a: "1|" }, expect: { out: "2|", doubled: [ { next: 2 }, { complete: true } ] } }
        t.yaml:10
        -   - { name: three, inputs: { a: { marbles: "#", error: the plug was pulled } }, expect: { out: [ { error: cable } ] } }
        +   - { name: three, inputs: { a: { marbles: "#", error: the plug was pulled } }, expect: { out: [ { error: the plug was pulled } ] } }

        """)
  }

  @Test func messagesHaveTheRewrittenRequests() throws {
    let text = """
      sources: { a: { stdin: {} } }
      signals: { s: { from: a, chain: [ { flattenMap: { signal: { http: { url: "http://127.0.0.1:1/{{ event }}", method: PUT, body: x } } } } ] } }
      sinks: { out: { from: s, discard: {} } }
      tests:
        - name: x
          inputs: { a: "12" }
          stubs: { http: [ { url: "*", reply: { text: "1" } } ] }
          expect:
            http.requests:
              - { next: { url: "*/3", method: PUT } }
              - { next: "GET */2" }
      """
    let updated = try update(text)
    #expect(
      updated.text
        == text.replacing("url: \"*/3\"", with: "url: \"http://127.0.0.1:1/1\"")
        .replacing("\"GET */2\"", with: "\"PUT http://127.0.0.1:1/2\""))
    #expect(updated.failures == [])
    let fewer = try update(text.replacing("        - { next: \"GET */2\" }\n", with: ""))
    #expect(
      fewer.text?.hasSuffix(
        "    - { next: { url: \"http://127.0.0.1:1/1\", method: PUT } }\n        - { next: \"PUT http://127.0.0.1:1/2\" }\n"
      ) == true || fewer.failures == [])
  }

  // MARK: Refusals

  @Test func whatCannotBeWrittenFaithfullyIsRefused() throws {
    func refusal(_ expectation: String, input: String = "\"-1-2|\"", before: String = "") throws -> [String] {
      let updated = try update(
        Self.head
          + "tests:\n\(before)  - name: x\n    inputs: { a: \(input) }\n    expect:\n      out: \(expectation)\n")
      return updated.refusals.map { String($0.dropFirst("'out' cannot be rewritten: ".count)) }
    }
    #expect(
      try refusal("\"-2|\"", input: "{ marbles: \"1-2\", tick: 100us }") == [
        "marbles of 1ms a character cannot show the events"
      ])
    #expect(
      try refusal("{ events: [ { next: 7 } ], more: true }") == ["'more: true' leaves open which events it is about"])
    #expect(try refusal("|\n        -1|") == ["marbles in a block cannot be rewritten"])
    #expect(
      try refusal("\"${NOTHING:--1}|\"") == ["it holds values of the environment"])
    let shared = "  - { name: y, inputs: { a: \"1\" }, expect: { out: &same [ { next: 2 } ] } }\n"
    #expect(try refusal("*same", before: shared) == ["it is written elsewhere, and others may refer to it"])
    #expect(
      try refusal("[ { next: 2 },\n        # four\n        { next: 4 } ]") == ["a comment in it could be lost"])
  }

  /// Somebody else refers to what would change.
  @Test func whatOthersReferToStays() throws {
    let updated = try update(
      Self.head + """
        tests:
          - { name: y, inputs: { a: "1" }, expect: { out: &same [ { next: 3 } ] } }
          - { name: x, inputs: { a: "1" }, expect: { doubled: *same } }
        """)
    #expect(updated.refusals.count == 1)
    #expect(updated.text == nil)
  }
}
