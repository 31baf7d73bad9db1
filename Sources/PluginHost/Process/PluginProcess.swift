import CPlugin
import Glibc
import PipelineCore
import Synchronization
import Transport

/// The receiver of a program's frames. Called on the thread of the program.
protocol FrameHandler: AnyObject {
  /// Handles one frame, an object; it lives as long as `block`. Returns how the program broke the contract, or nil.
  func take(_ frame: Value, _ block: LineBlock) -> String?
  /// All complete frames received so far have been handled.
  func tookAll()
  /// The program has ended, or was killed, unexpectedly. `isFinal`: restarting it is pointless.
  func ended(_ reason: String, isFinal: Bool)
  /// The time since which an input is unanswered, on the monotonic clock; nil: none is.
  var waitingSince: Int64? { get }
}

/// A running program of a plugin: its pipes, its start and its end. One thread runs it; in tests, the one that waits for it.
final class PluginProcess: @unchecked Sendable {
  private let file: PluginFile
  private let log: @Sendable (Services.Level, String) -> Void
  private let said: PluginLog
  /// The spec that it must offer; nil: any.
  private let expected: [UInt8]?
  weak var handler: (any FrameHandler)?

  private struct Shared {
    var outgoing: [UInt8] = []
    var isClosing = false
    /// The deadline for closing it, on the monotonic clock.
    var closing: Int64?
  }
  private let shared = Mutex(Shared())
  private let awake: WakeEvent?

  // Everything below is used by the thread only.
  private var child: ChildProgram?
  private var writing: [UInt8] = []
  private var written = 0
  private var reader = LineReader(limit: PluginProcess.frameLimit)
  private var errors: ErrorLines
  private let json = JSONParser()
  private(set) var spec: [UInt8]?
  private var startedAt: Int64 = 0
  /// When the pipes were closed to end it; 0: they are open.
  private var closedAt: Int64 = 0
  /// Whether the time of its end is set.
  private var isEndingDue = false
  private var isDone = false
  /// Nil: it ends on request.
  private var fault: (reason: String, isFinal: Bool)?
  private var lastPing: (number: Int, at: Int64)?
  private var pings = 0
  private var lastFrame: Int64 = 0
  private let meter: PluginMeter
  /// Exists from the start of the program to its end.
  private var life: PluginLife?

  /// The maximum size of a frame in bytes, in both directions.
  static let frameLimit = 16 << 20
  private static let second: Int64 = 1_000_000_000
  private static let startTimeout = 5 * second
  /// How long the program may run after the end of its input; then SIGTERM asks it to end.
  private static let rest = TimeSpan.seconds(5)
  private static let pingInterval = 30 * second

  init(
    _ file: PluginFile, expecting spec: [UInt8]?, _ log: @escaping @Sendable (Services.Level, String) -> Void,
    saying said: PluginLog, _ meter: PluginMeter
  ) {
    self.file = file
    self.log = log
    self.said = said
    self.meter = meter
    errors = ErrorLines { meter.update { $0.missedLines &+= 1 } }
    expected = spec
    awake = try? WakeEvent()
  }

  // MARK: From any thread

  /// Sends bytes: whole frames.
  func send(_ bytes: UnsafeRawBufferPointer) {
    shared.withLock { $0.outgoing.append(contentsOf: bytes) }
    awake?.wake()
  }

  func send(_ text: String) {
    var text = text
    text.withUTF8 { send(UnsafeRawBufferPointer($0)) }
  }

  /// Ends it; the handler is no longer called.
  func close() {
    shared.withLock { $0.isClosing = true }
    awake?.wake()
  }

  /// Ends it after this time, unless it ends before.
  func close(within nanoseconds: Int64) {
    shared.withLock { $0.closing = monotonicNow() &+ nanoseconds }
    awake?.wake()
  }

  // MARK: On the thread

  /// Starts the program. Throws the reason if it cannot be started.
  func start() throws(PluginFault) {
    guard case .program(let arguments, _) = file.form else { throw PluginFault("it is not a program") }
    if let refusal = file.refusal() { throw PluginFault(refusal) }
    let started: pid_t
    do throws(PosixError) {
      let child = try ChildProgram(
        file.path, arguments, environment: Self.environment(file.settings),
        directory: file.directory.isEmpty ? nil : file.directory, memory: file.settings.memory, cpu: file.settings.cpu,
        files: file.settings.files, processes: file.settings.processes)
      started = child.process
      self.child = consume child
    } catch {
      throw PluginFault("'\(file.path)' cannot be started: \(PosixError.text(error.code))")
    }
    life = PluginLife()
    meter.update { $0.processes.append(started) }
    startedAt = monotonicNow()
    lastFrame = startedAt
    writing = Array("{\"hello\":\(PluginSpec.contract)}\n".utf8)
  }

  /// The variables of a plugin's program.
  static func environment(_ settings: ProcessSettings) -> [String: String] {
    var environment = ["PATH": "/usr/local/bin:/usr/bin:/bin", "RXD_PLUGIN": "\(PluginSpec.contract)"]
    for name in ["PATH", "LANG", "HOME", "TZ"] {
      if let value = getenv(name) { environment[name] = String(cString: value) }
    }
    return environment.merging(settings.environment) { $1 }
  }

  /// Runs until it has ended.
  func run() { while step(until: nil) {} }

  /// Waits for an event of the program and handles it. Returns false when the program has ended and everything is reported.
  ///
  /// - Parameter deadline: On the monotonic clock; nil: waits as long as nothing happens.
  func step(until deadline: Int64?) -> Bool {
    guard !isDone else { return false }
    let isClosing = shared.withLock { shared in
      if written == writing.count {
        writing = shared.outgoing
        shared.outgoing = []
        written = 0
      }
      if let closing = shared.closing, monotonicNow() >= closing { shared.isClosing = true }
      return shared.isClosing
    }
    // A program that does not read what is left for it must not live on either.
    if isClosing { end() }
    if isClosing, written == writing.count { closeInput() }
    let due = due(monotonicNow())
    let ready =
      child?.wait(
        wakenBy: awake?.descriptor ?? -1, writes: written < writing.count, until: min(deadline ?? .max, due)) ?? []
    if ready.contains(.woken) { awake?.clear() }
    if ready.contains(.input) { write() }
    if ready.contains(.output) { _ = read() }
    if ready.contains(.errors) { _ = child?.readErrors(&errors, log) }
    if ready.contains(.end), let status = child?.status() {
      // The program may have sent answers before it ended.
      while read() {}
      over(describeEnd(status))
    } else {
      check(monotonicNow())
    }
    return !isDone
  }

  /// The time of the next check without an event.
  private func due(_ now: Int64) -> Int64 {
    var dues = [now + Self.pingInterval]
    if let closing = shared.withLock({ $0.closing }), closing > now { dues.append(closing) }
    if spec == nil { dues.append(startedAt + Self.startTimeout) }
    if let since = handler?.waitingSince { dues.append(max(since, startedAt) + file.settings.timeout.nanoseconds) }
    if let errors = errors.due { dues.append(errors) }
    if let lines = said.due { dues.append(lines) }
    return dues.min() ?? .max
  }

  private func check(_ now: Int64) {
    errors.flush(now, log)
    said.flush(now)
    if closedAt > 0 { return }
    if spec == nil, now > startedAt + Self.startTimeout {
      return fail("it has sent no spec within 5 s", isFinal: false)
    }
    if let since = handler?.waitingSince, now > max(since, startedAt) + file.settings.timeout.nanoseconds {
      return fail("it has not answered for \(file.settings.timeout)")
    }
    if let ping = lastPing {
      if now > ping.at + file.settings.timeout.nanoseconds {
        fail("it has not answered a ping for \(file.settings.timeout)")
      }
    } else if spec != nil, handler?.waitingSince == nil, now > lastFrame + Self.pingInterval {
      pings += 1
      lastPing = (pings, now)
      send("{\"ping\":\(pings)}\n")
    }
  }

  private func write() {
    if let end = child?.write(writing, from: written) {
      written = end
    } else {
      // The program no longer reads; its exit status gives the reason.
      written = writing.count
      child?.closeInput()
    }
  }

  /// Returns whether any bytes were read.
  private func read() -> Bool {
    guard let count = child?.read(.output, into: reader.room()) else {
      if child?.output ?? 0 < 0 { closeInput() }
      return false
    }
    lastFrame = monotonicNow()
    do throws(LineReader.Fault) {
      guard let (lines, block) = try reader.took(count) else { return true }
      for line in lines {
        guard fault == nil, !isClosed else { return true }
        take(line, block)
      }
      handler?.tookAll()
    } catch {
      fail("it has sent a frame of more than \(Self.frameLimit >> 20) MiB")
    }
    return true
  }

  private var isClosed: Bool { shared.withLock { $0.isClosing } }

  private func take(_ line: UnsafeRawBufferPointer, _ block: LineBlock) {
    let frame = json.open(line, checking: .everything)
    guard frame.is(.jsonMap) else {
      return fail(
        "it has sent a line that is not a JSON object (its standard output belongs to rxd; messages go to standard error): \(Printable.cut(line, limit: 200))"
      )
    }
    if frame["log"].is(.string) {
      said.say(Services.Level(rawValue: frame["log"].text) ?? .info, frame["message"].text)
    } else if frame["pong"].is(.int) {
      lastPing = nil
    } else if frame["count"].is(.string) {
      meter.count(frame["count"].text, frame["by"].is(.int) ? frame["by"].asInt : 1)
    } else if frame["gauge"].is(.string) {
      meter.gauge(
        .init(name: frame["gauge"].text, of: frame["of"].is(.string) ? frame["of"].text : ""),
        frame["value"].number,
        from: PluginMeter.Holder(self, frame["from"].is(.int) ? Int(frame["from"].asInt) : 0))
    } else if !frame["spec"].isAbsent {
      took(spec: frame["spec"])
    } else if spec == nil {
      fail("it has sent something else before its spec: \(Printable.cut(line, limit: 200))")
    } else if let problem = handler?.take(frame, block) {
      fail("\(problem): \(Printable.cut(line, limit: 200))")
    }
  }

  private func took(spec value: Value) {
    let found = Array(value.rawBytes)
    if let expected, found != expected {
      return fail(
        "its spec differs from the one that the pipeline file was checked with; run 'rxd plugin check' again",
        isFinal: true)
    }
    spec = found
  }

  /// Whether the program has broken the contract and its end is not reported yet.
  var isEnding: Bool { fault != nil && !isDone }

  // MARK: The end

  /// Kills it for breaking the contract.
  private func fail(_ reason: String, isFinal: Bool = false) {
    guard fault == nil, !isDone else { return }
    fault = (reason, isFinal)
    child?.kill()
    closeInput()
  }

  private func closeInput() {
    guard closedAt == 0 else { return }
    closedAt = monotonicNow()
    child?.closeInput()
    end()
  }

  /// Ends it, if it does not end by itself; the first call counts.
  private func end() {
    guard !isEndingDue else { return }
    isEndingDue = true
    child?.end(in: Self.rest)
  }

  private func over(_ what: String) {
    while child?.readErrors(&errors, log) ?? false {}
    errors.end(monotonicNow(), log)
    said.end()
    isDone = true
    life = nil
    forget()
    guard !isClosed else { return }
    let said = errors.last.isEmpty ? "" : ", after it had written: \(Printable.cut(errors.last, limit: 200))"
    let reason = (fault.map { "the plugin broke the contract: \($0.reason)" } ?? "the plugin's process \(what)") + said
    handler?.ended(reason, isFinal: fault?.isFinal ?? false)
  }

  /// Removes the gauges of an instance that has ended.
  func forget(instance number: Int) { meter.forget(PluginMeter.Holder(self, number)) }

  /// The process has ended.
  private func forget() {
    guard let ended = child?.process else { return }
    meter.update { $0.processes.removeAll { $0 == ended } }
    meter.forget(allOf: self)
    child = nil
  }

  /// Kills it and waits for its end; for when its thread no longer runs.
  func destroy() {
    guard let child = child.take() else { return }
    let ended = child.process
    meter.update { $0.processes.removeAll { $0 == ended } }
    _ = child.destroy()
    isDone = true
    life = nil
  }
}

extension Value {
  /// A member of JSON text; absent if there is none.
  subscript(name: StaticString) -> Value {
    guard self.is(.jsonMap) else { return .absent }
    let found = JSONParser.lookup(
      self, key: UnsafeRawBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount))
    return found.isError ? .absent : found
  }

  /// A string without escapes; empty for other values.
  var text: String {
    guard self.is(.string) else { return "" }
    let arena = Arena()
    return withExtendedLifetime(arena) {
      String(decoding: JSONParser.unescape(self, into: arena).rawBytes, as: UTF8.self)
    }
  }
}
