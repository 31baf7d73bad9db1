import PipelineCore

/// The stubs of a test, of one kind: each replaces a service outside of the pipeline.
protocol StubSet: Sendable {
  /// The key below `stubs`. A source that needs such a stub names it (``SourceComponent/stub``).
  static var key: String { get }
  init?(_ node: YAMLNode, _ reader: inout PipelineTestReader)
  /// The stubs of a test that has none; nil: the service is then missing.
  static var none: Self? { get }
  /// The last instant that they mention.
  var horizon: TimeSpan { get }
  func run(_ executor: Executor) -> any RunningStubs
}

extension StubSet { var horizon: TimeSpan { .zero } }

/// The kinds of stubs. To add one, write a type of its own and a line here.
let stubKinds: [any StubSet.Type] = [
  CallStubs<HTTPRequest>.self, CallStubs<ProgramCall>.self, CallStubs<DatabaseQuery>.self, DockerStub.self,
  CallStubs<PluginCall>.self,
]

/// The stubs of one kind while their test runs. Everything happens on the pipeline thread.
protocol RunningStubs: AnyObject {
  /// An answer is on its way into the pipeline.
  var isAnswering: Bool { get }
  /// Whether a restarted pipeline connects to it again, which takes turns of its own.
  var isConnected: Bool { get }
  /// Sets itself as a service of the pipeline.
  func serve(_ services: inout Services)
  /// The pipeline's state was saved: calls cancelled from now on will be made again.
  func detach()
  /// The pipeline continues here. Calls are answered at their original times.
  func attach(_ executor: Executor)
  /// All repeated calls have been made.
  func forgetOrphans()
  /// Drops all calls without an answer.
  func stop()
  /// The calls that no stub answers, each once. `location`: that of the test's stubs.
  func unanswered(at location: SourceLocation) -> [Diagnostic]
}

/// A kind of calls to an outside service, with all that is particular to its stubs.
protocol StubbedCall: Sendable, Equatable {
  associatedtype Reply: Sendable
  associatedtype Failure: Error, Sendable
  static var form: StubForm { get }
  /// Reads the keys that are specific to this kind, besides the pattern; false: an error was reported.
  static func read(_ stub: inout Stub<Self>, _ node: YAMLNode, _ reader: inout PipelineTestReader) -> Bool
  static func reply(_ node: YAMLNode, _ reader: inout PipelineTestReader) -> Reply?
  static func failure(_ reason: String) -> Failure
  static func serve(_ calls: StubCalls<Self>, _ services: inout Services)

  /// How long the caller waits.
  var timeout: TimeSpan { get }
  /// The failure that the caller receives after `timeout`, or if no stub matches.
  var noAnswer: Failure { get }
  var noStub: Failure { get }
  /// The text that stubs compare with their patterns.
  var line: String { get }
  /// The receiver of the call, a sink or an operator, if stubs are written for it; nil: they are not.
  var receiver: String? { get }
  /// The complaint that no stub answers it.
  func unanswered(_ at: TimeSpan) -> String
  /// The call that a stub answers, in words for diagnostics.
  static func shown(_ stub: Stub<Self>) -> String
}

extension StubbedCall {
  static func read(_ stub: inout Stub<Self>, _ node: YAMLNode, _ reader: inout PipelineTestReader) -> Bool { true }
  var receiver: String? { nil }
  static func shown(_ stub: Stub<Self>) -> String { "'\(stub.pattern)'" }
}

/// How stubs of a kind are written.
struct StubForm {
  /// The key below `stubs`.
  var key: String
  /// The key of the pattern.
  var pattern: String
  /// All keys but those of answers.
  var keys: [String]
  /// A stub, in words.
  var name: String
  /// Keys of which it has one, the complaint where it has none, and the remedy.
  var needs: (keys: [String], message: String, help: String)
  /// A whole stub, its reply, and the reason of a failure, as examples.
  var example: String
  var reply: String
  var failure: String
  /// The stubs to add where there are none; nil: there are some.
  var first: String?
}

/// The stubbed answers to some calls.
struct Stub<Call: StubbedCall>: Sendable {
  /// The answer to one call.
  struct Answer: Sendable {
    enum What: Sendable {
      case reply(Call.Reply)
      case failure(Call.Failure)
      /// No answer: the call times out.
      case silence
    }
    /// The delay after the call.
    var after = TimeSpan.zero
    var what = What.silence
  }

  /// `*` stands for any bytes.
  var pattern = "*"
  var receiver: String?
  /// A condition in addition to the pattern, and the words that precede it; nil: none.
  var only: (words: String, holds: @Sendable (Call) -> Bool)?
  /// In turn, at least one; the last one repeats.
  var answers: [Answer] = []
  var location: SourceLocation

  func matches(_ call: Call) -> Bool {
    receiver == call.receiver && only?.holds(call) ?? true && Glob.matches(pattern, call.line)
  }
}

/// The stubs of calls of one kind.
struct CallStubs<Call: StubbedCall>: StubSet {
  static var key: String { Call.form.key }
  static var none: CallStubs? { CallStubs() }

  var all: [Stub<Call>] = []

  init() {}

  init?(_ node: YAMLNode, _ reader: inout PipelineTestReader) {
    guard let items = node.items else {
      reader.report(
        .testStep, "'\(Self.key)' takes a list of stubs, not \(node.kindName)", node.location,
        help: "Write - \(Call.form.example)")
      return
    }
    all = items.compactMap { Self.stub($0, &reader) }
  }

  func run(_ executor: Executor) -> any RunningStubs { StubCalls(all, executor) }

  // MARK: Reading

  private static var answerKeys: [String] { ["reply", "after", "fail", "hang"] }

  private static func stub(_ node: YAMLNode, _ reader: inout PipelineTestReader) -> Stub<Call>? {
    let form = Call.form
    guard let entries = node.entries else {
      reader.report(
        .testStep, "a stub is a mapping, not \(node.kindName)", node.location, help: "Write \(form.example)")
      return nil
    }
    guard reader.check(keys: entries, form.keys + ["sequence"] + answerKeys, form.name) else { return nil }
    guard form.needs.keys.contains(where: { node[$0] != nil }) else {
      reader.report(.testStep, form.needs.message, node.location, help: form.needs.help)
      return nil
    }
    var stub = Stub<Call>(location: node.location)
    if let pattern = node[form.pattern] {
      guard let text = reader.text(pattern, "'\(form.pattern)'") else { return nil }
      stub.pattern = text
    }
    guard Call.read(&stub, node, &reader) else { return nil }
    stub.answers = answers(node, &reader)
    return stub.answers.isEmpty ? nil : stub
  }
  /// The answers of a stub: one, or a sequence.
  private static func answers(_ node: YAMLNode, _ reader: inout PipelineTestReader) -> [Stub<Call>.Answer] {
    guard let sequence = node["sequence"] else { return answer(node, &reader).map { [$0] } ?? [] }
    if let other = node.entries?.first(where: { answerKeys.contains($0.name) }) {
      reader.report(
        .testStep, "a stub has 'sequence' or '\(other.name)', not both", other.key.location,
        help: "Move it into the sequence")
      return []
    }
    guard let items = sequence.items, !items.isEmpty else {
      reader.report(.testStep, "'sequence' takes a list of answers", sequence.location)
      return []
    }
    return items.compactMap { item in
      guard let entries = item.entries else {
        reader.report(.testStep, "an answer is a mapping, not \(item.kindName)", item.location)
        return nil
      }
      return reader.check(keys: entries, answerKeys, "an answer") ? answer(item, &reader) : nil
    }
  }

  private static func answer(_ node: YAMLNode, _ reader: inout PipelineTestReader) -> Stub<Call>.Answer? {
    var answer = Stub<Call>.Answer()
    if let after = node["after"] { answer.after = reader.duration(after, "'after'") ?? .zero }
    var kinds = 0
    if let given = node["reply"] {
      kinds += 1
      guard let made = Call.reply(given, &reader) else { return nil }
      answer.what = .reply(made)
    }
    if let fail = node["fail"] {
      kinds += 1
      guard let reason = reader.text(fail, "'fail'") else { return nil }
      answer.what = .failure(Call.failure(reason))
    }
    if let hang = node["hang"], reader.flag(hang, "'hang'") { kinds += 1 }
    guard kinds == 1 else {
      reader.report(
        .testStep, kinds == 0 ? "there is no answer" : "an answer is one of 'reply', 'fail' and 'hang'", node.location,
        help: "Write 'reply: { \(Call.form.reply) }', 'fail: \(Call.form.failure)' or 'hang: true'")
      return nil
    }
    return answer
  }
}

extension PipelineTestReader {
  /// The bytes that `json` or `text` gives.
  mutating func body(_ node: YAMLNode) -> [UInt8] {
    guard let json = node["json"] else { return node["text"].map { Array((text($0, "'text'") ?? "").utf8) } ?? [] }
    if let text = node["text"] { report(.testStep, "a reply has 'json' or 'text', not both", text.location) }
    let arena = Arena()
    let buffer = OutputBuffer()
    JSONWriter.append(LiteralParameter.value(of: json, in: arena), to: buffer)
    return Array(buffer.bytes)
  }

  /// A number of a reply; nil: there is none, or an error was reported.
  mutating func number(_ node: YAMLNode, _ key: String, in range: ClosedRange<Int64>) -> Int? {
    switch node[key]?.decodeInt("'\(key)'", in: range) {
    case .success(let number): return Int(number)
    case .failure(let diagnostic): diagnostics.report(diagnostic)
    case nil: break
    }
    return nil
  }
}
