import PipelineCore

/// The expression language: nothing that anybody writes may bring the process down, and the ways of
/// evaluating one expression must agree.
enum ExpressionTargets {
  /// The text as an expression and as a template.
  static func parse(_ input: UnsafeRawBufferPointer) {
    var diagnostics = Diagnostics()
    let text = located(Array(input))
    _ = ExpressionSyntax.parse(text, into: &diagnostics)
    _ = ExpressionTemplate.parse(text, into: &diagnostics)
    show(diagnostics)
  }

  /// The text against undeclared, closed and open events, and in strict mode.
  static func check(_ input: UnsafeRawBufferPointer) {
    var diagnostics = Diagnostics()
    let text = located(Array(input))
    guard let syntax = ExpressionSyntax.parse(text, into: &diagnostics) else { return }
    for scope in scopes {
      guard let checked = syntax.check(in: scope, into: &diagnostics) else { continue }
      _ = checked.compile(projection: Projection())
      for read in checked.reads {
        precondition(read.location.offset + read.location.length <= text.text.count)
      }
    }
    _ = syntax.check(in: scopes[0], expecting: .bool, into: &diagnostics)
    _ = ExpressionTemplate.parse(text, into: &diagnostics)?.check(in: scopes[0], into: &diagnostics)
    show(diagnostics)
  }

  private static let scopes: [ExpressionScope] = {
    let shape = ExpressionType.object(
      fields: [
        .init("a", .int), .init("b", .wrapper(.string), mayBeAbsent: true), .init("c", .list(.double)),
        .init("d", .object([("e", .bool), ("f", .timestamp)])), .init("g", .map(.string, .int)),
      ], open: false)
    return [
      ExpressionScope([.init("event"), .init("now", .timestamp), .init("running")]),
      ExpressionScope([.init("event", shape)]),
      ExpressionScope([.init("event", .object(fields: [.init("a", .string)], open: true))]),
      ExpressionScope([.init("event")], mode: .strict, container: "a.b"),
      ExpressionScope([.init("event")], mode: .strict, checksTypes: false),
    ]
  }()

  // MARK: Evaluating

  // One thread calls.
  nonisolated(unsafe) private static let arena = Arena()
  nonisolated(unsafe) private static let json = JSONParser()
  private static let buffer = OutputBuffer()

  /// The text up to a NUL is the expression, the rest the event.
  static func evaluate(_ input: UnsafeRawBufferPointer) {
    let cut = input.firstIndex(of: 0) ?? input.count
    let source = Array(input[..<cut])
    let event = Slab(cut < input.count ? Array(input[(cut + 1)...]) : Array("{}".utf8))
    var diagnostics = Diagnostics()
    guard let syntax = ExpressionSyntax.parse(located(source), into: &diagnostics) else { return }
    for scope in [scopes[0], scopes[3]] {
      guard let checked = syntax.check(in: scope, into: &diagnostics) else { continue }
      run(checked, event, isStrict: scope.mode == .strict)
    }
  }

  /// Through the scanner, over the raw event and over a tree: all fail, or all give the same.
  private static func run(_ checked: CheckedExpression, _ slab: Slab, isStrict: Bool) {
    arena.reset()
    let opened = json.open(slab.bytes, checking: .everything)
    if opened.isError { return }
    let projection = Projection()
    let projected = checked.compile(projection: projection)
    projection.freeze()
    let plain = checked.compile()
    var outcomes: [[UInt8]?] = []
    for way in 0..<3 {
      let program = way == 0 ? projected : plain
      let frame = EvaluationFrame(
        variables: 3, slots: way == 0 ? projection.slotCount : 0, arena: arena, json: json)
      frame.iterationLimit = 1000
      frame[0] = way == 2 ? json.expand(opened, into: arena) : opened
      frame[1] = frame.now
      frame[2] = .int(7)
      if way == 0, projection.fill(frame[0], frame).isError { return }
      let value = program.evaluate(frame)
      let truth = program.evaluateBool(frame)
      precondition(
        truth == (!value.is(.bool) ? .failed : value.asBool ? .yes : .no), "evaluated as a bool it is something else")
      if value.isError {
        let message = program.failureMessage(value, frame)
        _ = program.failureLocation(value)
        // Limits of memory are met sooner where more is copied.
        if message.contains("larger than allowed") { return }
        outcomes.append(nil)
        continue
      }
      // What a later step does with it.
      let kept = OwnedValue(value)
      guard let text = canonical(kept.value) else { return }
      outcomes.append(text)
    }
    precondition(outcomes.allSatisfy { $0 == outcomes[0] }, "the ways of evaluating disagree")
  }

  /// The value as JSON without the white space and escapes it may have passed through; nil where it is
  /// nested too deep to be read again.
  private static func canonical(_ value: Value) -> [UInt8]? {
    buffer.clear()
    if JSONWriter.append(value, to: buffer) != nil { return [] }
    let read = json.parse(buffer.bytes, into: arena)
    if read.isError { return nil }
    let again = OutputBuffer()
    _ = JSONWriter.append(read, to: again)
    return Array(again.bytes)
  }

  // MARK: Texts

  static func located(_ bytes: [UInt8]) -> LocatedText {
    LocatedText(
      text: bytes, source: SourceText(name: "f", bytes: bytes), offsets: (0...Int32(bytes.count)).map { $0 })
  }

  /// Diagnostics must be printable whatever they are about; the first few stand for all.
  static func show(_ diagnostics: Diagnostics) {
    let some = Array(diagnostics.all.prefix(2))
    if some.isEmpty { return }
    precondition(!DiagnosticRenderer().text(some).isEmpty)
  }
}
