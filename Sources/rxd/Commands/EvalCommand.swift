import ArgumentParser
import Glibc
import PipelineCore
import Transport

/// `rxd eval`: one expression over events from standard input.
struct Eval: ParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Evaluates an expression for each event of standard input.",
    discussion: """
      The input is a JSON document a line, or with --text any lines. Each result is printed as JSON on \
      a line of its own. An event for which the expression fails is reported, the others go on, and the \
      exit status is 1.

        echo '{"status": 503}' | rxd eval 'event.status >= 500'
      """)

  @Argument(help: "The expression; it sees event, meta, now and env.")
  var expression: String

  @Flag(name: [.customShort("n"), .long], help: "Read nothing and evaluate once.")
  var noInput = false

  @Flag(help: "Events are lines of text.")
  var text = false

  @Flag(help: "Print the type of the expression instead of evaluating it.")
  var type = false

  @Flag(name: .shortAndLong, help: "Print texts as they are, without quotes.")
  var raw = false

  @OptionGroup var color: ColorOptions

  /// Failures shown in full; the others are counted.
  private static let shownFailures = 20

  func run() throws {
    var diagnostics = Diagnostics()
    let scope = ExpressionScope([
      .init("event", noInput ? .null : text ? .string : .dyn), .init("meta"),
      .init("now", .timestamp), .init("env", .map(.string, .string)),
    ])
    let checked = ExpressionSyntax.parse(LocatedText(expression), into: &diagnostics)?
      .check(in: scope, into: &diagnostics)
    var renderer = DiagnosticRenderer()
    renderer.colors = Console.colors(try color.mode(), on: 2)
    if !diagnostics.all.isEmpty { Console.note(String(renderer.text(diagnostics.all).dropLast())) }
    guard let checked else { throw ExitStatus.configuration }
    if type {
      Console.print("\(checked.type)")
      return
    }
    let evaluation = Evaluation(checked, renderer, isText: text, isRaw: raw)
    if noInput {
      evaluation.evaluate(.null, line: nil)
    } else {
      try evaluation.readLines()
    }
    evaluation.flush()
    if evaluation.failures > Self.shownFailures {
      Console.complain("\(evaluation.failures - Self.shownFailures) more events failed")
    }
    if evaluation.failures > 0 { throw ExitStatus.failure }
  }

  private final class Evaluation {
    private let program: Program
    private let projection = Projection()
    private let frame: EvaluationFrame
    private let arena = Arena()
    private let json = JSONParser()
    private let output = OutputBuffer(capacity: 64 << 10)
    private let renderer: DiagnosticRenderer
    private let isText: Bool
    private let isRaw: Bool
    private let environment: OwnedValue
    private(set) var failures = 0
    private static let lineLimit = 16 << 20

    init(_ checked: CheckedExpression, _ renderer: DiagnosticRenderer, isText: Bool, isRaw: Bool) {
      self.renderer = renderer
      self.isText = isText
      self.isRaw = isRaw
      program = checked.compile(projection: projection)
      projection.freeze()
      frame = EvaluationFrame(variables: 4, slots: projection.slotCount, arena: arena, json: json)
      let builder = Arena()
      let variables = ProcessEnvironment.variables.sorted { $0.key < $1.key }
      environment = OwnedValue(
        builder.map(variables.map { (key: builder.string($0.key), value: builder.string($0.value)) }))
    }

    func readLines() throws {
      var pending: [UInt8] = []
      var line = 0
      let chunk = UnsafeMutableRawBufferPointer.allocate(byteCount: 256 << 10, alignment: 16)
      defer { chunk.deallocate() }
      while true {
        let count: Int
        do throws(PosixError) {
          count = try FileDescriptor.standardInput.read(into: chunk) ?? 0
        } catch {
          Console.complain(error.message)
          throw ExitStatus.inputOutput
        }
        pending += chunk[..<count]
        let end = count == 0 ? pending.count : pending.lastIndex(of: 0x0A).map { $0 + 1 } ?? 0
        if end == 0, pending.count > Self.lineLimit {
          Console.complain("line \(line + 1) has more than \(Self.lineLimit) bytes")
          throw ExitStatus.failure
        }
        let slab = Slab(Array(pending[..<end]))
        pending.removeFirst(end)
        var rest = slab.bytes[...]
        while !rest.isEmpty {
          let stop = rest.firstIndex(of: 0x0A) ?? rest.endIndex
          var bytes = UnsafeRawBufferPointer(rebasing: rest[..<stop])
          rest = rest[min(stop + 1, rest.endIndex)...]
          line += 1
          if bytes.last == 0x0D { bytes = UnsafeRawBufferPointer(rebasing: bytes.dropLast()) }
          event(bytes, line)
        }
        withExtendedLifetime(slab) { flush() }
        if count == 0 { return }
      }
    }

    private func event(_ bytes: UnsafeRawBufferPointer, _ line: Int) {
      if isText {
        guard UTF8Text.isValid(bytes) else {
          fail("line \(line) is not UTF-8", at: nil)
          return
        }
        evaluate(.string(bytes), line: line)
        return
      }
      if bytes.allSatisfy({ $0 == 0x20 || $0 == 0x09 }) { return }
      let document = json.open(bytes, checking: .everything)
      if let failure = JSONFailure(document) {
        fail("line \(line) is not JSON: \(failure)", at: nil)
        return
      }
      evaluate(document, line: line)
    }

    func evaluate(_ event: Value, line: Int?) {
      defer { arena.reset() }
      frame[0] = event
      frame[1] = arena.map([(key: .literal("source"), value: .literal("stdin"))])
      frame[3] = environment.value
      frame.now = .timestamp(wallTime: SystemClock.shared.wallTime)
      var result = projection.slotCount > 0 ? projection.fill(event, frame) : .null
      if !result.isError { result = program.evaluate(frame) }
      let place = line.map { "line \($0): " } ?? ""
      if result.isError {
        fail(place + program.failureMessage(result, frame), at: program.failureLocation(result))
        return
      }
      if isRaw, result.is(.string) {
        output.append(JSONParser.unescape(result, into: arena).rawBytes)
      } else if let failure = JSONWriter.append(result, to: output) {
        fail(place + "the result cannot be written: \(failure)", at: nil)
        return
      }
      output.append(0x0A)
      if output.count > 1 << 20 { flush() }
    }

    private func fail(_ message: String, at location: SourceLocation?) {
      failures += 1
      if failures > Eval.shownFailures { return }
      flush()
      let report = renderer.text([Diagnostic(.expressionFailed, message, at: location)])
      // Without the count of errors, which stands at the end of a report.
      let lines = report.split(separator: "\n", omittingEmptySubsequences: false)
      Console.note(lines.dropLast(3).joined(separator: "\n"))
    }

    func flush() {
      guard output.count > 0 else { return }
      Console.write(Array(output.bytes))
      output.clear()
    }
  }
}
