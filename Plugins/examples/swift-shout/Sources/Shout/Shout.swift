// A plugin with each kind of component, in Swift without libraries. The declarations are those of rxd's own components.
import Glibc
import RxdPlugin

/// `exampleShout`: a text of each event in capitals.
struct Shout: PureOperator {
  var field = ""
  var marks = 1

  static let changesValue = true

  static let spec = ComponentSpec<Shout>(
    "exampleShout",
    summary: "Writes a text of the event in capitals.",
    details: "An event whose text is empty is dropped.",
    parameters: [
      .init("field", \.field, primary: true, required: true, "The member to change."),
      .init("marks", \.marks, range: 0...10, "How many exclamation marks follow."),
    ],
    examples: [
      .marble(
        "a headline", "exampleShout: { field: title, marks: 3 }", in: "a-b-c|", out: "d---e|",
        values: [
          "a": "{title: quiet}", "b": "{title: ''}", "c": "{title: loud}", "d": "{title: 'QUIET!!!'}",
          "e": "{title: 'LOUD!!!'}",
        ])
    ])

  static let inputType = EventType(.map(.string, .dyn))
  func outputType(_ inputs: [EventType]) -> EventType { EventType(.map(.string, .dyn)) }

  func validate(_ context: inout DecodingContext) {
    if field.isEmpty { context.badValue(at: "field", "must not be empty") }
  }

  func makePureStep() -> PureStep { Step(self) }

  final class Step: PureStep {
    private let field: String
    private let marks: String

    init(_ parameters: Shout) {
      field = parameters.field
      marks = String(repeating: "!", count: parameters.marks)
    }

    override func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict {
      guard let text = value[field].text else { return refuse(.pluginRefusal, "no text '\(field)'", frame) }
      // The text is empty, so the event is dropped.
      if text.isEmpty { return .drop }
      value = value.with(field, frame.arena.string(text.uppercased() + marks))
      return .pass
    }
  }
}

/// `exampleTally`: counts events by a key, and sends the counts when a period is over: state, a timer and an expression.
struct Tally: OperatorComponent {
  var key = ExpressionParameter()
  var every = TimeSpan.seconds(1)

  static let spec = ComponentSpec<Tally>(
    "exampleTally",
    summary: "Counts events by a key and sends the counts after each period.",
    parameters: [
      .init("key", \.key, primary: true, required: true, expecting: .string, "What is counted by."),
      .init("every", \.every, range: 1_000_000...Int64.max, "How long a period is."),
    ],
    examples: [
      .marble(
        "the words of each period", "exampleTally: { key: event, every: 5ms }", in: "a-b-a------a-|",
        out: "-----(xy)-------(z|)",
        values: ["x": "{key: a, count: 2}", "y": "{key: b, count: 1}", "z": "{key: a, count: 1}"]),
      .snippet("words a minute", "exampleTally: { key: event.word, every: 1m }"),
    ],
    edges: EdgeCases(completion: "Sends the counts, then completes."),
    memory: "A number for each key of the period.", persistence: .state(version: 1),
    lateness: .always("it counts what comes"),
    useCases: [.init(.gathering, "count the words of each minute", "exampleTally: { key: event.word, every: 1m }")])

  func outputType(_ inputs: [EventType]) -> EventType {
    EventType(.object(fields: [.init("key", .string), .init("count", .int)], open: false))
  }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: OperatorNode {
    private let parameters: Tally
    private lazy var frame = sharedFrame()
    /// In the order in which the keys first appeared.
    private var counts: [(key: String, count: Int64)] = []
    private var timer = Wake.none

    init(_ parameters: Tally, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(nodeContext, downstream: downstream)
    }

    override func receive(_ event: Event) {
      guard let key = parameters.key.required.evaluate(frame).text else {
        return reject(event, .pluginRefusal, "the key is not a text")
      }
      if counts.isEmpty { timer = wake(after: parameters.every) }
      if let index = counts.firstIndex(where: { $0.key == key }) {
        counts[index].count += 1
      } else {
        counts.append((key, 1))
        nodeContext.count("keys")
      }
    }

    override func woke(_ token: Int) { send() }

    override func complete() {
      send()
      finish()
    }

    override func stop() { cancelWake(&timer) }

    private func send() {
      cancelWake(&timer)
      for (key, count) in counts { emit(Event(arena.map(["key": arena.string(key), "count": .int(count)]))) }
      counts = []
    }

    override func save(_ state: inout StateWriter) {
      state.write(timer)
      state.write(each: counts) {
        $0.write($1.key)
        $0.write($1.count)
      }
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      timer = try state.read()
      for _ in 0..<(try state.count()) { counts.append((try state.read(), try state.read())) }
    }
  }
}

/// `exampleLetters`: the letters of a text, one event each. After a restart it continues after the last sent letter. A letter with several
/// code points, such as `e` with a combining accent, stays whole.
struct Letters: SourceComponent {
  var of = ""

  static let spec = ComponentSpec<Letters>(
    "exampleLetters",
    summary: "Sends the letters of a text.",
    parameters: [.init("of", \.of, primary: true, required: true, "The text.")],
    examples: [.snippet("five", "exampleLetters: hello")],
    persistence: .position(version: 1))

  var outputType: EventType { EventType(.object(fields: [.init("letter", .string)], open: false)) }
  var recovery: SourceRecovery { .position }

  func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }

  final class Node: RunningSource {
    private var letters: [String] = []
    private var next = 0

    init(_ parameters: Letters, _ nodeContext: NodeContext, _ downstream: Downstream) {
      super.init(nodeContext, downstream: downstream)
      for scalar in parameters.of.unicodeScalars {
        switch scalar.properties.generalCategory {
        case .nonspacingMark, .spacingMark, .enclosingMark:
          if letters.isEmpty { letters.append("") }
          letters[letters.count - 1].unicodeScalars.append(scalar)
        default: letters.append(String(scalar))
        }
      }
    }

    override func begin() {
      while next < letters.count, !isClosed {
        next += 1
        produce(arena.map(["letter": arena.string(letters[next - 1])]))
        if next % 100 == 0 { deliver() }
      }
      finish()
    }

    override func save(_ state: inout StateWriter) { state.write(next) }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      next = try state.read(in: 0...letters.count)
    }
  }
}

/// `exampleLines`: appends a text of each event to a file, one line each.
struct Lines: SinkComponent {
  var path = ""
  var field = "text"

  static let spec = ComponentSpec<Lines>(
    "exampleLines",
    summary: "Appends a text of each event to a file.",
    parameters: [
      .init("path", \.path, primary: true, required: true, "The file; it is made if it does not exist."),
      .init("field", \.field, "The member that is written."),
    ],
    examples: [.snippet("a list of names", "exampleLines: { path: names.txt, field: name }")])

  static let inputType = EventType(.map(.string, .dyn))
  var confirmation: SinkConfirmation { .disk }

  func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(self, nodeContext) }

  final class Node: RunningSink {
    private let parameters: Lines
    private var file: Int32 = -1
    private var lines: [UInt8] = []
    private var count = 0

    init(_ parameters: Lines, _ nodeContext: NodeContext) {
      self.parameters = parameters
      super.init(nodeContext)
    }

    override func open() {
      file = Glibc.open(parameters.path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o644)
      if file < 0 { fail(because: SignalFailure(.sink, "cannot open the file: \(reason(errno))", at: "path")) }
    }

    override func receive(_ event: Event) {
      guard let text = event.value[parameters.field].text else {
        return reject(event, "no text '\(parameters.field)'")
      }
      lines += Array(text.utf8) + [0x0A]
      count += 1
    }

    override func turnEnded() {
      let receipt = take(count)
      let start = lseek(file, 0, SEEK_END)
      if let problem = write() {
        // The events are repeated, so none of them may stay in the file.
        if start >= 0 { _ = ftruncate(file, start) }
        receipt.acknowledgeAll(.failed(problem))
      } else {
        receipt.acknowledgeAll()
      }
      lines = []
      count = 0
    }

    private func write() -> String? {
      var written = 0
      while written < lines.count {
        let count = lines.withUnsafeBytes { Glibc.write(file, $0.baseAddress! + written, $0.count - written) }
        if count < 0, errno == EINTR { continue }
        guard count > 0 else { return "cannot write: \(reason(errno))" }
        written += count
      }
      // EINVAL: the file is a pipe or a device, which cannot be synced.
      return fdatasync(file) == 0 || errno == EINVAL ? nil : "cannot sync: \(reason(errno))"
    }

    override func finish() { if file >= 0 { close(file) } }
  }
}

/// `exampleFiles`: appends each event to the file in a directory that the event names. An example of a sink with an
/// outcome for each event.
struct Files: SinkComponent {
  var directory = ""
  var name = TemplateParameter()

  static let spec = ComponentSpec<Files>(
    "exampleFiles",
    summary: "Appends each event, as a line of JSON, to a file of a directory.",
    details: "While there is a file `NAME.lock`, events for the file `NAME` wait.",
    parameters: [
      .init("directory", \.directory, primary: true, required: true, "The directory."),
      .init("name", \.name, required: true, "The name of the file; it is made if it does not exist."),
    ],
    examples: [
      .snippet("a file for each customer", "exampleFiles: { directory: /srv/orders, name: '{{ event.customer }}' }")
    ])

  var confirmation: SinkConfirmation { .system }

  func makeSink(_ nodeContext: NodeContext) -> RunningSink { DeliverySink(Connector(self), nodeContext) }

  final class Connector: DeliveryConnector {
    private let parameters: Files
    init(_ parameters: Files) { self.parameters = parameters }

    func open() throws {
      guard access(parameters.directory, W_OK | X_OK) == 0 else {
        throw SignalFailure(.sink, "cannot write to the directory: \(reason(errno))", at: "directory")
      }
    }

    func encode(_ event: Event, _ frame: EventFrame) throws(DeliveryRefusal) -> (path: String, line: [UInt8]) {
      let name = parameters.name.text(frame)
      if name.isEmpty || name.contains("/") { throw DeliveryRefusal("'\(name)' cannot be the name of a file") }
      return ("\(parameters.directory)/\(name)", Array(event.value.json.utf8) + [0x0A])
    }

    func deliver(_ batch: DeliveryBatch<(path: String, line: [UInt8])>) -> DeliveryOutcome {
      var again: [Int] = []
      var refused: [DeliveryOutcome.Refused] = []
      var problem = ""
      // A file is written in the order of its events.
      var waiting: Set<String> = []
      for (index, (path, line)) in batch.items.map(\.piece).enumerated() {
        if waiting.contains(path) {
          again.append(index)
        } else if access(path + ".lock", F_OK) == 0 {
          again.append(index)
          waiting.insert(path)
          problem = "'\(path)' is locked"
        } else if let code = append(line, to: path) {
          if [EISDIR, ENAMETOOLONG, ELOOP].contains(code) {
            refused.append(.init(index, "cannot write '\(path)': \(reason(code))"))
          } else {
            again.append(index)
            waiting.insert(path)
            problem = "cannot write '\(path)': \(reason(code))"
          }
        }
      }
      return .answered(again: again, refused: refused, reason: problem, after: again.isEmpty ? nil : .milliseconds(700))
    }

    func close() {}

    /// Returns the error; nil if the whole line was written.
    private func append(_ line: [UInt8], to path: String) -> Int32? {
      let file = Glibc.open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o644)
      guard file >= 0 else { return errno }
      defer { Glibc.close(file) }
      let start = lseek(file, 0, SEEK_END)
      let count = line.withUnsafeBytes { Glibc.write(file, $0.baseAddress, $0.count) }
      if count == line.count { return nil }
      let code = count < 0 ? errno : ENOSPC
      // The event is repeated, so no part of it may stay in the file.
      if count > 0, start >= 0 { _ = ftruncate(file, start) }
      return code
    }
  }
}

private func reason(_ code: Int32) -> String { String(cString: strerror(code)) }

@_cdecl("rxd_swift_plugin")
public func plugin() -> UnsafeMutableRawPointer {
  Plugin(
    "swift-shout", version: "1.0.0", summary: "A component of each kind, in Swift.",
    [
      CatalogueEntry(row: Shout.self), CatalogueEntry(operator: Tally.self), CatalogueEntry(source: Letters.self),
      CatalogueEntry(sink: Lines.self), CatalogueEntry(sink: Files.self),
    ]
  ).handle
}
