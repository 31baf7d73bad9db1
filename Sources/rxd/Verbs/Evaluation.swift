import PipelineCore
import PipelineRuntime
import Transport

/// Evaluates one expression for many events.
final class Evaluation {
  private let expression: StandaloneExpression
  private let arena = Arena()
  private let json = JSONParser()
  private let output = OutputBuffer(capacity: 64 << 10)
  private let renderer: DiagnosticRenderer
  private let isText: Bool
  private let isRaw: Bool
  /// Whether long results are spread over several lines.
  var isPretty = false
  private let environment: OwnedValue
  private(set) var failures = 0
  private static let lineLimit = 16 << 20
  /// The number of failures shown in full; the others are counted.
  private static let shownFailures = 20

  /// The scope of expressions at the command line.
  static func check(
    _ expression: String, event: ExpressionType, functions: UserFunctions, into diagnostics: inout Diagnostics
  ) -> CheckedExpression? {
    var scope = ExpressionScope([
      .init("event", event), .init("meta"), .init("now", .timestamp), .init("env", .map(.string, .string)),
    ])
    scope.functions = functions
    return ExpressionSyntax.parse(LocatedText(expression), into: &diagnostics)?
      .check(in: scope, into: &diagnostics)
  }

  init(_ checked: CheckedExpression, _ renderer: DiagnosticRenderer, isText: Bool, isRaw: Bool) {
    self.renderer = renderer
    self.isText = isText
    self.isRaw = isRaw
    expression = StandaloneExpression(checked, arena: arena, json: json)
    let builder = Arena()
    let variables = ProcessEnvironment.variables.sorted { $0.key < $1.key }
    environment = OwnedValue(
      builder.map(variables.map { (key: builder.string($0.key), value: builder.string($0.value)) }))
  }

  func readLines(of file: FileDescriptor) throws {
    var pending: [UInt8] = []
    var line = 0
    let chunk = UnsafeMutableRawBufferPointer.allocate(byteCount: 256 << 10, alignment: 16)
    defer { chunk.deallocate() }
    while true {
      let count: Int
      do throws(PosixError) {
        count = try file.read(into: chunk) ?? 0
      } catch {
        Console.printError(error.message)
        throw ExitStatus.inputOutput
      }
      pending += chunk[..<count]
      let end = count == 0 ? pending.count : pending.lastIndex(of: 0x0A).map { $0 + 1 } ?? 0
      if end == 0, pending.count > Self.lineLimit {
        Console.printError("line \(line + 1) has more than \(Self.lineLimit) bytes")
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

  /// Evaluates one line as an event; without `line`, messages name no line.
  func event(_ bytes: UnsafeRawBufferPointer, _ line: Int?) {
    let subject = line.map { "line \($0)" } ?? "the event"
    if isText {
      guard UTF8Text.isValid(bytes) else {
        fail("\(subject) is not UTF-8", at: nil)
        return
      }
      evaluate(.string(bytes), line: line)
      return
    }
    if bytes.allSatisfy({ $0 == 0x20 || $0 == 0x09 }) { return }
    let document = json.open(bytes, checking: .everything)
    if let failure = JSONFailure(document) {
      fail("\(subject) is not JSON: \(failure)", at: nil)
      return
    }
    evaluate(document, line: line)
  }

  func evaluate(_ event: Value, line: Int?) {
    defer { arena.reset() }
    let frame = expression.frame
    frame[Variables.meta] = arena.map([(key: .literal("source"), value: .literal("stdin"))])
    frame[Variables.env] = environment.value
    frame.now = .timestamp(wallTime: SystemClock.shared.wallTime)
    let result = expression.evaluate(event)
    let subject = line.map { "line \($0): " } ?? ""
    if result.isError {
      fail(
        subject + expression.program.failureMessage(result, frame), at: expression.program.failureLocation(result))
      return
    }
    let start = output.count
    if isRaw, result.is(.string) {
      output.append(JSONParser.unescape(result, into: arena).rawBytes)
    } else if let failure = JSONWriter.append(result, to: output) {
      fail(subject + "the result cannot be written: \(failure)", at: nil)
      return
    } else if isPretty, output.count - start > 80 {
      output.truncate(to: start)
      JSONWriter.append(result, to: output, layout: .pretty(indent: 2))
    }
    output.append(0x0A)
    if output.count > 1 << 20 { flush() }
  }

  private func fail(_ message: String, at location: SourceLocation?) {
    failures += 1
    if failures > Self.shownFailures { return }
    flush()
    let report = renderer.text([Diagnostic(.expressionFailed, message, at: location)])
    // The report without its last line, which has the number of errors.
    let lines = report.split(separator: "\n", omittingEmptySubsequences: false)
    Console.note(lines.dropLast(3).joined(separator: "\n"))
  }

  func reportRest() {
    if failures > Self.shownFailures { Console.printError("\(failures - Self.shownFailures) more events failed") }
  }

  /// The results that have not been written yet.
  func takeOutput() -> [UInt8] {
    defer { output.clear() }
    return Array(output.bytes)
  }

  func flush() {
    guard output.count > 0 else { return }
    Console.write(takeOutput())
  }
}
