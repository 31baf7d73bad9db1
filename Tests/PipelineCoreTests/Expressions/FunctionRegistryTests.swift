import PipelineCore
import Testing

@Suite struct FunctionRegistryTests {
  @Test func everyFunctionIsDescribed() {
    for spec in FunctionRegistry.callable {
      #expect(spec.summary.hasSuffix("."), "\(spec.name)")
      #expect(!spec.summary.dropLast().contains(". "), "\(spec.name): one sentence")
      #expect(!spec.signatures.isEmpty, "\(spec.name)")
      #expect(!spec.examples.isEmpty, "\(spec.name)")
    }
  }

  /// The extensions of cel-go, by name.
  @Test func theExtensionsAreComplete() {
    let names = """
      charAt format indexOf join lastIndexOf lowerAscii replace reverse split strings.quote substring trim upperAscii
      math.greatest math.least math.ceil math.floor math.round math.trunc math.abs math.sign math.sqrt math.isNaN
      math.isInf math.isFinite math.bitAnd math.bitOr math.bitXor math.bitNot math.bitShiftLeft math.bitShiftRight
      base64.encode base64.decode optional.of optional.none optional.ofNonZeroValue optional.unwrap hasValue value or
      orValue optMap optFlatMap first last unwrapOpt cel.bind all exists existsOne transformList transformMap
      transformMapEntry isIP ip ip.isCanonical family isUnspecified isLoopback isGlobalUnicast isLinkLocalMulticast
      isLinkLocalUnicast isCIDR cidr containsIP containsCIDR masked prefixLength lists.range slice flatten sort sortBy groupBy
      distinct sets.contains sets.equivalent sets.intersects regex.replace regex.extract regex.extractAll
      """
    for name in names.split(whereSeparator: \.isWhitespace) {
      #expect(FunctionRegistry.described(String(name)) != nil, "\(name)")
    }
  }

  /// Every function and macro is in the reference, in one family.
  @Test func familiesHoldEachOnce() {
    let names = FunctionRegistry.families.flatMap { $0.functions.map(\.name) }
    #expect(Set(names).count == names.count)
    #expect(Set(names) == Set(FunctionRegistry.callable.map(\.name)))
  }

  @Test func everyExampleHolds() {
    for spec in FunctionRegistry.callable {
      for example in spec.examples {
        // Macros are shown as used in pipelines.
        for mode in spec.isMacro ? [ExpressionScope.Mode.lenient] : [.lenient, .strict] {
          let text = "\(example.call) == dyn(\(example.result)) && type(\(example.call)) == type(\(example.result))"
          var diagnostics = Diagnostics()
          let program = ExpressionSyntax.parse(LocatedText(text), into: &diagnostics)?
            .check(in: ExpressionScope(mode: mode), into: &diagnostics)?.compile()
          let frame = EvaluationFrame(arena: Arena(), json: JSONParser())
          guard let program else {
            Issue.record("\(text): \(diagnostics.all.map(\.message))")
            continue
          }
          let value = program.evaluate(frame)
          #expect(value.isTrue, "\(text) \(value.isError ? program.failureMessage(value, frame) : "")")
        }
      }
    }
  }
}
