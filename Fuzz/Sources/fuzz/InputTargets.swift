import PipelineCore

/// What comes from outside: pipeline files and the input of decoders.
enum InputTargets {
  private static let front = FrontEnd(.operators)

  /// The text as a pipeline file, up to its plan.
  static func pipeline(_ input: UnsafeRawBufferPointer) {
    var diagnostics = Diagnostics()
    diagnostics.report(contentsOf: front.compile(SourceText(name: "f.yaml", bytes: Array(input))).diagnostics)
    ExpressionTargets.show(diagnostics)
  }

  private static let formats: [DecoderOptions] = {
    var all = DecoderFormat.allCases.filter { $0 != .regex }.flatMap {
      [DecoderOptions($0), DecoderOptions($0, unit: .body)]
    }
    for index in all.indices where index % 2 == 1 { all[index].invalidUTF8 = .replace }
    var exact = DecoderOptions(.ndjson)
    exact.json.check = .everything
    var inferred = DecoderOptions(.csv)
    inferred.csv.types = .infer
    var combined = DecoderOptions(.regex)
    combined.regex.pattern = RegexDecoding.combined
    let joined = [LineJoining.Rule.start("^[a-z{]"), .end(";$"), .wrapped("x$"), .indented].enumerated().map {
      index, rule in
      var options = DecoderOptions(index == 0 ? .json : .text)
      options.join = LineJoining(rule, maxLines: 5, maxBytes: 100)
      return options
    }
    let converted = ["utf-16", "utf-16be", "windows-1252", "shift_jis"].compactMap { try? Charset($0) }.map { charset in
      var options = DecoderOptions(charset.name == "utf-16" ? .csv : .text)
      options.charset = charset
      return options
    }
    var keyed = DecoderOptions(.text)
    keyed.join = LineJoining(.start("^. [a-z]"), maxLines: 5, maxBytes: 100)
    keyed.join?.key = "^."
    keyed.join?.maxKeys = 3
    return all + [exact, inferred, combined, keyed] + joined + converted
  }()

  // One thread calls.
  nonisolated(unsafe) private static let arena = Arena()

  /// The first byte chooses the format; the rest is decoded whole and, for lines, line by line, or a few bytes at a time where
  /// the input may be cut anywhere: what comes of it must be the same.
  static func decode(_ input: UnsafeRawBufferPointer) {
    guard let choice = input.first else { return }
    let options = formats[Int(choice) % formats.count]
    let content = Slab(Array(input.dropFirst()))
    let whole = rows(options, content, cuts: [content.count])
    guard let decoder = try? options.decoder() else { return }
    var cuts: [Int] = []
    switch decoder.framing {
    case .lines: for (index, byte) in content.bytes.enumerated() where byte == 0x0A { cuts.append(index + 1) }
    case .anywhere: cuts = Array(stride(from: 3, to: content.count, by: 3))
    case .whole, .chunks: return
    }
    if cuts.last != content.count { cuts.append(content.count) }
    checkUndecoded(options, content, cuts)
    let parts = rows(options, content, cuts: cuts)
    precondition(whole == parts, "the way of cutting the input changes what is decoded")
  }

  /// What is no row yet can be handed to another decoder: it is the input from the pending place on.
  private static func checkUndecoded(_ options: DecoderOptions, _ slab: Slab, _ cuts: [Int]) {
    guard let decoder = try? options.decoder() else { return }
    let batch = RowBatch()
    var start = 0
    for end in cuts {
      decoder.decode(slab, start..<end, offset: Int64(start), isLast: false, arena: arena, into: batch)
      start = end
      guard let undecoded = decoder.undecoded else { continue }
      let pending = decoder.pendingOffset.map { Int($0) } ?? end
      precondition(undecoded == Array(slab.bytes[pending..<end]), "what is undecoded is not what came")
    }
    arena.reset()
  }

  /// The rows as JSON, refused ones as their count.
  private static func rows(_ options: DecoderOptions, _ slab: Slab, cuts: [Int]) -> [[UInt8]] {
    guard let decoder = try? options.decoder() else { return [] }
    let output = OutputBuffer()
    var texts: [[UInt8]] = []
    var start = 0
    for (number, end) in cuts.enumerated() {
      arena.reset()
      let batch = RowBatch()
      decoder.decode(
        slab, start..<end, offset: Int64(start), isLast: number == cuts.count - 1, arena: arena, into: batch)
      for row in batch.rows {
        output.clear()
        _ = JSONWriter.append(row.value, to: output)
        texts.append(Array(output.bytes))
      }
      texts += batch.rejected.map { Array("\($0.offset)".utf8) }
      start = end
    }
    // Rows and refused rows come apart in a batch, so their order between each other is not compared.
    return texts.sorted { $0.lexicographicallyPrecedes($1) }
  }
}
