import CLinux
import CPlugin
import Glibc
import PipelineCore
import Synchronization
import Transport

/// The receiver of a program's frames. Called on the thread of the program.
protocol FrameHandler: AnyObject {
  /// One frame, an object; it lives as long as `block`. Returns why the program broke the contract, or nil.
  func take(_ frame: Value, _ block: LineBlock) -> String?
  /// All complete frames that were there have been taken.
  func tookAll()
  /// The program has ended, or was killed, without being asked to. `isFinal`: it makes no sense to start it again.
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
    /// When it is closed at the latest, on the monotonic clock.
    var closing: Int64?
  }
  private let shared = Mutex(Shared())
  private let awake: WakeEvent?

  // The rest belongs to the thread.
  private var process: pid_t = 0
  private var descriptors: [Int32] = [-1, -1, -1]
  private var writing: [UInt8] = []
  private var written = 0
  private var reader = LineReader(limit: PluginProcess.frameLimit)
  private var errors: ErrorLines
  private let json = JSONParser()
  private(set) var spec: [UInt8]?
  private var startedAt: Int64 = 0
  /// When the pipes were closed for it to end; 0: they are not.
  private var closedAt: Int64 = 0
  private var isTerminated = false
  private var isDone = false
  /// Nil: it ends because it was asked to.
  private var fault: (reason: String, isFinal: Bool)?
  private var lastPing: (number: Int, at: Int64)?
  private var pings = 0
  private var lastFrame: Int64 = 0
  private let meter: PluginMeter
  /// From the start of the program to its end.
  private var life: PluginLife?

  /// The most bytes of a frame, both ways.
  static let frameLimit = 16 << 20
  private static let second: Int64 = 1_000_000_000
  private static let startTimeout = 5 * second
  private static let endTimeout = 5 * second
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

  /// Ends it when this time has passed, if nothing else does before.
  func close(within nanoseconds: Int64) {
    shared.withLock { $0.closing = monotonicNow() &+ nanoseconds }
    awake?.wake()
  }

  // MARK: On the thread

  /// Starts the program. Throws why it cannot.
  func start() throws(PluginFault) {
    guard case .program(let arguments, _) = file.form else { throw PluginFault("it is no program") }
    if let refusal = file.refusal() { throw PluginFault(refusal) }
    var limits = rx_limits(
      memory: UInt64(file.settings.memory), cpu: UInt64(file.settings.cpu), files: UInt64(file.settings.files),
      processes: UInt64(file.settings.processes))
    let environment = Self.environment(file.settings)
    let path = file.path
    let code = Self.strings([path] + arguments) { arguments in
      Self.strings(environment.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }) { environment in
        descriptors.withUnsafeMutableBufferPointer {
          rx_start(
            path, arguments, environment, file.directory.isEmpty ? nil : file.directory, &limits, &process,
            $0.baseAddress)
        }
      }
    }
    guard code == 0 else { throw PluginFault("'\(path)' cannot be started: \(PosixError.text(code))") }
    life = PluginLife()
    let started = process
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

  /// Calls `body` with the texts as the system takes them.
  static func strings<Result>(
    _ texts: [String], _ body: (UnsafePointer<UnsafeMutablePointer<CChar>?>) -> Result
  ) -> Result {
    var pointers = texts.map { strdup($0) } + [nil]
    defer { for pointer in pointers { free(pointer) } }
    return pointers.withUnsafeMutableBufferPointer { body(UnsafePointer($0.baseAddress!)) }
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
    if isClosing, written == writing.count { closeInput() }
    var polls = [
      pollfd(fd: awake?.descriptor ?? -1, events: Int16(POLLIN), revents: 0),
      pollfd(fd: written < writing.count ? descriptors[0] : -1, events: Int16(POLLOUT), revents: 0),
      pollfd(fd: descriptors[1], events: Int16(POLLIN), revents: 0),
      pollfd(fd: descriptors[2], events: Int16(POLLIN), revents: 0),
    ]
    let now = monotonicNow()
    let next = [deadline, due(now)].compactMap { $0 }.min()
    let wait = next.map { Int32(clamping: max(0, ($0 - now + 999_999) / 1_000_000)) } ?? -1
    _ = poll(&polls, 4, wait)
    if polls[0].revents != 0 { awake?.clear() }
    if polls[1].revents != 0 { write() }
    if polls[2].revents != 0 { read() }
    if polls[3].revents != 0 { readErrors() }
    check(monotonicNow())
    return !isDone
  }

  /// The time of the next check without an event.
  private func due(_ now: Int64) -> Int64? {
    // Its end is seen by the end of its output, or here where a child of it keeps that open.
    var dues = [now + (closedAt > 0 || descriptors[1] < 0 ? Self.second / 100 : Self.pingInterval)]
    if let closing = shared.withLock({ $0.closing }), closing > now { dues.append(closing) }
    if spec == nil { dues.append(startedAt + Self.startTimeout) }
    if let since = handler?.waitingSince { dues.append(max(since, startedAt) + file.settings.timeout.nanoseconds) }
    if let errors = errors.due { dues.append(errors) }
    if let lines = said.due { dues.append(lines) }
    return dues.min()
  }

  private func check(_ now: Int64) {
    errors.flush(now, log)
    said.flush(now)
    if process > 0 {
      var status: Int32 = 0
      if descriptors[1] < 0 || closedAt > 0 || fault != nil, rx_has_ended(process, &status) != 0 {
        forget()
        // Children that it has left behind.
        return over(Self.description(status))
      }
    }
    if closedAt > 0 {
      if now > closedAt + 2 * Self.endTimeout {
        kill(-process, SIGKILL)
      } else if now > closedAt + Self.endTimeout, !isTerminated {
        isTerminated = true
        kill(-process, SIGTERM)
      }
      return
    }
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

  /// How a process has ended, by the status of `waitpid`.
  static func description(_ status: Int32) -> String {
    let signal = status & 0x7F
    return signal == 0 ? "exited with \(status >> 8 & 0xFF)" : "was ended by signal \(signal)"
  }

  private func write() {
    let count = writing.withUnsafeBytes { Glibc.write(descriptors[0], $0.baseAddress! + written, $0.count - written) }
    if count > 0 {
      written += count
    } else if count < 0, errno != EAGAIN, errno != EINTR {
      // It reads no more: its end says why.
      written = writing.count
      shutInput()
    }
  }

  private func read() {
    let room = reader.room()
    let count = Glibc.read(descriptors[1], room.baseAddress, room.count)
    if count < 0, errno == EAGAIN || errno == EINTR { return }
    guard count > 0 else {
      Glibc.close(descriptors[1])
      descriptors[1] = -1
      if closedAt == 0 { closeInput() }
      return
    }
    lastFrame = monotonicNow()
    do throws(LineReader.Fault) {
      guard let (lines, block) = try reader.took(count) else { return }
      for line in lines {
        guard fault == nil, !isClosed else { return }
        take(line, block)
      }
      handler?.tookAll()
    } catch {
      fail("it has sent a frame of more than \(Self.frameLimit >> 20) MiB")
    }
  }

  private var isClosed: Bool { shared.withLock { $0.isClosing } }

  private func take(_ line: UnsafeRawBufferPointer, _ block: LineBlock) {
    let frame = json.open(line, checking: .everything)
    guard frame.is(.jsonMap) else {
      return fail(
        "it has sent a line that is no JSON object (its standard output belongs to rxd; messages go to standard error): \(Printable.cut(line, limit: 200))"
      )
    }
    if frame["log"].is(.string) {
      said.say(Services.Level(rawValue: frame["log"].text) ?? .info, frame["message"].text)
    } else if frame["pong"].is(.int) {
      lastPing = nil
    } else if frame["count"].is(.string) {
      meter.count(frame["count"].text, frame["by"].is(.int) ? frame["by"].asInt : 1)
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

  private func readErrors() {
    var buffer = [UInt8](repeating: 0, count: 16 << 10)
    let count = Glibc.read(descriptors[2], &buffer, buffer.count)
    if count < 0, errno == EAGAIN || errno == EINTR { return }
    guard count > 0 else {
      Glibc.close(descriptors[2])
      descriptors[2] = -1
      errors.end(monotonicNow(), log)
      return
    }
    errors.take(buffer[..<count], monotonicNow(), log)
  }

  /// Whether it has broken the contract and its end has not been said yet.
  var isEnding: Bool { fault != nil && !isDone }

  // MARK: The end

  /// Kills it for breaking the contract.
  private func fail(_ reason: String, isFinal: Bool = false) {
    guard fault == nil, !isDone else { return }
    fault = (reason, isFinal)
    if process > 0 { kill(-process, SIGKILL) }
    closeInput()
  }

  private func shutInput() {
    if descriptors[0] >= 0 { Glibc.close(descriptors[0]) }
    descriptors[0] = -1
  }

  private func closeInput() {
    guard closedAt == 0 else { return }
    closedAt = monotonicNow()
    shutInput()
  }

  private func over(_ what: String) {
    // The rest of its standard error.
    while descriptors[2] >= 0, fault == nil {
      let before = descriptors[2]
      var one = pollfd(fd: before, events: Int16(POLLIN), revents: 0)
      guard poll(&one, 1, 0) > 0 else { break }
      readErrors()
    }
    errors.end(monotonicNow(), log)
    said.end()
    isDone = true
    life = nil
    for index in descriptors.indices where descriptors[index] >= 0 {
      Glibc.close(descriptors[index])
      descriptors[index] = -1
    }
    guard !isClosed else { return }
    let said = errors.last.isEmpty ? "" : ", after it had written: \(Printable.cut(errors.last, limit: 200))"
    let reason = (fault.map { "the plugin broke the contract: \($0.reason)" } ?? "the plugin's process \(what)") + said
    handler?.ended(reason, isFinal: fault?.isFinal ?? false)
  }

  /// The process has ended.
  private func forget() {
    let ended = process
    meter.update { $0.processes.removeAll { $0 == ended } }
    process = 0
  }

  /// Kills it and waits for its end; for a thread that runs nothing any more.
  func destroy() {
    guard process > 0 else { return }
    kill(-process, SIGKILL)
    var status: Int32 = 0
    waitpid(process, &status, 0)
    forget()
    for descriptor in descriptors where descriptor >= 0 { Glibc.close(descriptor) }
    descriptors = [-1, -1, -1]
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
