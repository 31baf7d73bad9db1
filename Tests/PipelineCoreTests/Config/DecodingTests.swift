import Testing

@testable import PipelineCore

@Suite struct DecodingTests {
  private func node(_ yaml: String) throws -> YAMLNode { try #require(readYAML(yaml).node) }

  @Test func otherWordsForBooleansAreExplained() throws {
    #expect(try node("true").decodeBool("p") == .success(true))
    for (word, meant) in [("yes", "true"), ("Off", "false"), ("'true'", "true"), ("n", "false")] {
      let failure = try #require(node(word).decodeBool("'cold'").failure)
      #expect(failure.code == .yamlBoolean)
      #expect(failure.fixIts.first?.replacement == meant)
      // Only what has quotes can be written without them.
      #expect(failure.help?.contains("Write \(meant) without quotes") == word.hasPrefix("'"))
    }
    #expect(try node("1").decodeBool("p").failure?.code == .wrongType)
    #expect(try node("[]").decodeBool("p").failure?.code == .wrongType)
  }

  @Test func numbersHaveRanges() throws {
    #expect(try node("5").decodeInt("p", in: 1...5) == .success(5))
    #expect(try node("6").decodeInt("p", in: 1...5).failure?.code == .outOfRange)
    #expect(try node("99999999999999999999").decodeInt("p").failure?.code == .outOfRange)
    #expect(try node("1.5").decodeInt("p").failure?.code == .wrongType)
    #expect(try node("'5'").decodeInt("p").failure?.code == .wrongType)
    #expect(try node("5").decodeDouble("p") == .success(5))
    #expect(try node(".nan").decodeDouble("p").failure?.code == .outOfRange)
  }

  @Test func choicesAreSuggested() throws {
    let choices = ["merge", "concat", "latest", "exhaust"]
    #expect(try node("latest").decodeChoice("'policy'", choices) == .success("latest"))
    let failure = try #require(node("lastest").decodeChoice("'policy'", choices).failure)
    #expect(failure.help == "Did you mean 'latest'?")
    #expect(failure.fixIts.first?.replacement == "latest")
  }

  @Test func durationsAndSizes() throws {
    #expect(try node("300ms").decodeDuration("p") == .success(.milliseconds(300)))
    #expect(try node("300").decodeDuration("p").failure?.help == "Write 300ms or 300s")
    #expect(try node("[]").decodeDuration("p").failure?.code == .wrongType)
    #expect(try node("1KiB").decodeSize("p") == .success(1024))
  }
}
