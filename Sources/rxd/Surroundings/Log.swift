import Glibc
import Logging
import PipelineCore
import PipelineRuntime
import Synchronization
import Transport

/// The requested form of log lines.
enum LogFormat: String, CaseIterable { case text, json }

/// Writes the log to standard error, one line for each record, whole lines only, with secrets masked. A caller never
/// waits (``LogOutput``).
final class LogWriter: Sendable {
  enum Form: Sendable {
    /// `rxd: warning: search: message`, for a person at a terminal.
    case terminal
    /// Like `terminal`, after a timestamp, for a file.
    case text
    /// One JSON object a line.
    case json
    /// Text after a priority prefix; the journal adds the time.
    case journal
    case journalJSON
  }

  let form: Form
  /// Records below this level are not written; nil: no records are written.
  let minimum: Logger.Level?
  private let limiter: Mutex<LogLimiter>
  /// Called on any thread when the first record of a window is suppressed.
  private let onHeldBack: Mutex<(@Sendable () -> Void)?> = Mutex(nil)
  private let scratch = Mutex((line: OutputBuffer(capacity: 1024), shown: OutputBuffer(capacity: 1024)))
  private let output: LogOutput
  /// Whether several pipelines run, so that lines on a terminal also name their pipeline.
  let hasSeveral = Atomic(false)

  init(form: Form, minimum: Logger.Level?) {
    self.form = form
    self.minimum = minimum
    limiter = Mutex(LogLimiter())
    output = LogOutput { count in
      let line = OutputBuffer(capacity: 256)
      let what = count == 1 ? "1 line of the log was dropped" : "\(count) lines of the log were dropped"
      Self.append(.warning, Subject(), "\(what), because standard error was not read", [], form, to: line)
      line.append(0x0A)
      return Array(line.bytes)
    }
  }

  /// Writes the buffered lines; gives up if standard error accepts nothing for `patience`.
  func flush(patience: TimeSpan) { output.flush(patience: patience) }

  /// The form given by `format`, otherwise the one that suits the target of standard error.
  static func form(_ format: LogFormat?) -> Form {
    if let journal = ProcessEnvironment["JOURNAL_STREAM"], leadsTo(journal) {
      return format == .json ? .journalJSON : .journal
    }
    let isTerminal = isatty(2) == 1
    switch format {
    case .json: return .json
    case .text: return isTerminal ? .terminal : .text
    case nil: return isTerminal ? .terminal : .json
    }
  }

  /// Whether standard error is the stream with the device and inode in the variable.
  private static func leadsTo(_ journal: String) -> Bool {
    var status = stat()
    guard fstat(2, &status) == 0 else { return false }
    return journal == "\(status.st_dev):\(status.st_ino)"
  }

  func whenHeldBack(_ body: @escaping @Sendable () -> Void) { onHeldBack.withLock { $0 = body } }

  /// The logger of the process. The metadata of a record may name its `pipeline`.
  var logger: Logger {
    var logger = Logger(label: "rxd") { _ in Handler(writer: self) }
    logger.logLevel = minimum ?? .critical
    return logger
  }

  /// The subject of a record: the process, a pipeline or a component, with their names in metrics; an empty name: none.
  struct Subject: Hashable {
    var pipeline = ""
    var component = ""
  }

  /// - Parameters:
  ///   - pipeline: The pipeline that the record is about; empty: the process.
  ///   - component: The component of the pipeline, by its name in metrics.
  func write(
    _ level: Logger.Level, _ pipeline: String, _ message: String, component: String = "",
    fields: [(name: String, value: Value)] = [], limited: Bool = true
  ) {
    let subject = Subject(pipeline: pipeline, component: component)
    guard let minimum, level >= minimum else { return }
    if limited, level >= .warning {
      let key = LogLimiter.Key(subject: subject, message: message, level: level)
      let verdict = limiter.withLock { $0.take(key, at: SystemClock.shared.now) }
      if case .held(let isFirst) = verdict {
        if isFirst { onHeldBack.withLock { $0 }?() }
        return
      }
    }
    put(level, subject, message, fields)
  }

  /// Writes the summaries of suppressed records; returns the time of the next call.
  func summarize(all: Bool = false) -> Instant? {
    let (due, next) = limiter.withLock { $0.summaries(at: all ? .distantFuture : SystemClock.shared.now) }
    for (key, count) in due {
      put(
        key.level, key.subject, "\(key.message) (\(count) more like it)", [("repeated", .int(count))])
    }
    return next
  }

  /// Writes a dead letter of a pipeline, the JSON object `letter`.
  ///
  /// Like warnings, only the first few of a kind are written, and the rest are counted: a whole input may be
  /// unreadable.
  func reject(_ letter: UnsafeRawBufferPointer, of pipeline: String) {
    guard let minimum, minimum <= .warning else { return }
    let kind = UnsafeRawBufferPointer(rebasing: letter.prefix(120))
    let key = LogLimiter.Key(
      subject: Subject(pipeline: pipeline, component: "rejected"),
      message: "event rejected: " + String(decoding: kind, as: UTF8.self), level: .warning,
      kind: 100)
    let verdict = limiter.withLock { $0.take(key, at: SystemClock.shared.now) }
    if case .held(let isFirst) = verdict {
      if isFirst { onHeldBack.withLock { $0 }?() }
      return
    }
    let letter = SecretMask.process.masked(json: Array(letter))
    switch form {
    case .json, .journalJSON:
      emit { line in
        if form == .journalJSON { line.append("<4>") }
        Self.open(line, .warning)
        line.append("\"target\":\"rejected\",")
        Self.append(Subject(pipeline: pipeline), to: line)
        line.append("\"message\":\"event rejected\",\"rejected\":")
        // An event checked only in outline may be invalid JSON; the line must be valid.
        if Self.isDocument(letter) {
          line.append(letter)
        } else {
          Self.quote(String(decoding: letter, as: UTF8.self), line)
        }
        line.append("}")
      }
    case .terminal, .text, .journal:
      emit { line in
        Self.prefix(line, .warning, form)
        if !pipeline.isEmpty, form != .terminal || hasSeveral.load(ordering: .relaxed) {
          line.append("\(Printable.cut(pipeline, limit: 200)): ")
        }
        line.append("rejected: ")
        line.append(letter)
      }
    }
  }

  private static func isDocument(_ text: [UInt8]) -> Bool {
    // The parser may read a few bytes past the text.
    (text + Array(repeating: 0x20, count: 64)).withUnsafeBytes {
      JSONParser().validate(UnsafeRawBufferPointer(rebasing: $0[..<text.count])) == nil
    }
  }

  // MARK: One line

  private func put(
    _ level: Logger.Level, _ subject: Subject, _ message: String,
    _ fields: [(name: String, value: Value)]
  ) {
    let message = SecretMask.process.masked(message)
    let isKnown = form == .terminal && !subject.component.isEmpty && !hasSeveral.load(ordering: .relaxed)
    let subject = isKnown ? Subject(component: subject.component) : subject
    emit { line in Self.append(level, subject, message, fields, form, to: line) }
  }

  /// Appends `"pipeline":"tail","component_id":"large/filter",`, without the names that are empty.
  private static func append(_ subject: Subject, to line: OutputBuffer) {
    for (name, value) in [("pipeline", subject.pipeline), ("component_id", subject.component)] where !value.isEmpty {
      line.append("\"\(name)\":")
      quote(value, line)
      line.append(",")
    }
  }

  private static func append(
    _ level: Logger.Level, _ subject: Subject, _ message: String, _ fields: [(name: String, value: Value)],
    _ form: Form, to line: OutputBuffer
  ) {
    if form == .json || form == .journalJSON {
      if form == .journalJSON { line.append("<\(priority(level))>") }
      open(line, level)
      line.append("\"target\":\"rxd\",")
      append(subject, to: line)
      line.append("\"message\":")
      quote(message, line)
      for field in fields {
        line.append(",")
        quote(field.name, line)
        line.append(":")
        JSONWriter.appendShown(field.value, to: line)
      }
      line.append("}")
    } else {
      prefix(line, level, form)
      if level >= .warning, form != .text { line.append(level >= .error ? "error: " : "warning: ") }
      for name in [subject.pipeline, subject.component] where !name.isEmpty {
        line.append("\(Printable.cut(name, limit: 200)): ")
      }
      line.append(Printable.cut(message, limit: 8192))
    }
  }

  private static func prefix(_ line: OutputBuffer, _ level: Logger.Level, _ form: Form) {
    switch form {
    case .journal: line.append("<\(priority(level))>")
    case .terminal: line.append("rxd: ")
    default:
      appendTimestamp(to: line)
      line.append(" \(level.rawValue) ")
    }
  }

  private static func open(_ line: OutputBuffer, _ level: Logger.Level) {
    line.append("{\"timestamp\":\"")
    appendTimestamp(to: line)
    line.append("\",\"level\":\"\(level.rawValue)\",")
  }

  private static func quote(_ text: String, _ line: OutputBuffer) {
    var text = text
    text.withUTF8 { _ = JSONWriter.append(.string(UnsafeRawBufferPointer($0)), to: line) }
  }

  private func emit(_ body: (OutputBuffer) -> Void) {
    scratch.withLock { scratch in
      scratch.line.clear()
      body(scratch.line)
      // Escapes control sequences in every form, because the text may come from events; JSON has them only inside
      // strings.
      scratch.shown.clear()
      ControlEscaping.append(scratch.line.bytes, to: scratch.shown)
      scratch.shown.append(0x0A)
      output.put(scratch.shown.bytes)
    }
  }

  private static func priority(_ level: Logger.Level) -> Int {
    switch level {
    case .trace, .debug: 7
    case .info: 6
    case .notice: 5
    case .warning: 4
    case .error: 3
    case .critical: 2
    }
  }

  /// RFC 3339 in UTC with milliseconds.
  static func appendTimestamp(to line: OutputBuffer) { appendTimestamp(SystemClock.shared.wallTime, to: line) }

  /// - Parameter wall: Nanoseconds since 1970.
  static func appendTimestamp(_ wall: Int64, to line: OutputBuffer) {
    var seconds = time_t(wall / 1_000_000_000)
    var parts = tm()
    gmtime_r(&seconds, &parts)
    func two(_ number: Int32) -> String { number < 10 ? "0\(number)" : "\(number)" }
    let milliseconds = Int32(wall / 1_000_000 % 1000)
    line.append(
      "\(parts.tm_year + 1900)-\(two(parts.tm_mon + 1))-\(two(parts.tm_mday))T\(two(parts.tm_hour)):"
        + "\(two(parts.tm_min)):\(two(parts.tm_sec))."
        + (milliseconds < 100 ? "0" : "") + two(milliseconds) + "Z")
  }

  /// The handler for swift-log.
  private struct Handler: LogHandler {
    let writer: LogWriter
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.info

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
      get { metadata[key] }
      set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
      let pipeline = (event.metadata?["pipeline"] ?? metadata["pipeline"]).map { "\($0)" }
      writer.write(event.level, pipeline ?? "", "\(event.message)")
    }
  }
}

extension Services.Level {
  var logLevel: Logger.Level {
    switch self {
    case .debug: .debug
    case .info: .info
    case .warning: .warning
    case .error: .error
    }
  }
}

/// Suppresses repeated warnings and errors: the first five of a kind in ten seconds are written, the others counted. A
/// kind is a component's message without its numbers.
struct LogLimiter {
  struct Key: Hashable {
    var subject: LogWriter.Subject
    var level: Logger.Level
    /// The message that started the window.
    var message: String
    private var kind: [UInt8]

    /// - Parameter length: The number of bytes of the message that determine its kind.
    init(subject: LogWriter.Subject, message: String, level: Logger.Level, kind length: Int = 40) {
      self.subject = subject
      self.level = level
      self.message = message
      kind = message.utf8.prefix(length).map { 0x30...0x39 ~= $0 ? 0x30 : $0 }
    }

    static func == (a: Key, b: Key) -> Bool {
      a.kind == b.kind && a.subject == b.subject && a.level == b.level
    }
    func hash(into hasher: inout Hasher) {
      hasher.combine(kind)
      hasher.combine(subject)
    }
  }

  enum Verdict {
    case write
    case held(isFirst: Bool)
  }

  private struct Window {
    var end: Instant
    var written = 0
    var held = 0
  }

  static let burst = 5
  static let window = TimeSpan.seconds(10)
  /// The maximum number of kinds that are limited; records of further kinds are always written.
  static let maximumKinds = 1000

  private var windows: [Key: Window] = [:]

  mutating func take(_ key: Key, at now: Instant) -> Verdict {
    if var window = windows[key], now < window.end {
      if window.written < Self.burst {
        window.written += 1
        windows[key] = window
        return .write
      }
      window.held += 1
      windows[key] = window
      return .held(isFirst: window.held == 1)
    }
    if windows.count >= Self.maximumKinds {
      windows = windows.filter { $0.value.held > 0 || now < $0.value.end }
      if windows.count >= Self.maximumKinds { return .write }
    }
    if windows[key].map({ $0.held > 0 }) != true {
      windows[key] = Window(end: now + Self.window, written: 1)
    }
    return .write
  }

  /// The kinds whose window has ended with suppressed records, and the time at which the next window ends.
  mutating func summaries(at now: Instant) -> (due: [(Key, Int)], next: Instant?) {
    var due: [(Key, Int)] = []
    var next: Instant?
    for (key, window) in windows where window.held > 0 {
      if window.end <= now {
        due.append((key, window.held))
        windows[key] = nil
      } else {
        next = min(next ?? window.end, window.end)
      }
    }
    return (due, next)
  }
}
