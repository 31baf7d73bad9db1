import CPlugin
import Glibc
import PipelineCore
import Synchronization
import Transport

/// Runs a shared library through the line protocol, so that its faults end a separate process. States and positions, which are bytes, are strings
/// in base64.
package final class NativeBridge {
  package struct Options {
    /// The contract that the library is offered; nil: that of `hello`.
    package var contract: Int?
    /// The number of threads that call a pure function with each event at once; all must return the same.
    package var threads = 1
    /// Values without a JSON form are written as objects with one member, and read from them: `$timestamp`, `$duration` in nanoseconds,
    /// `$bytes` in base64.
    package var isTyped = false
    package init() {}
  }

  private let file: PluginFile
  private let options: Options
  private let output: BridgeOutput
  private var library: NativeLibrary?
  private var spec: PluginSpec?
  private var operators: [Int: BridgedInstance] = [:]
  private var sources: [Int: BridgedSource] = [:]

  package init(_ file: PluginFile, _ options: Options) {
    self.file = file
    self.options = options
    output = BridgeOutput(isTyped: options.isTyped)
  }

  /// Answers frames on standard input until it ends. Returns the exit status.
  package func run() -> Int32 {
    var reader = LineReader(limit: PluginProcess.frameLimit)
    do {
      while true {
        let room = reader.room()
        let count = Glibc.read(0, room.baseAddress, room.count)
        if count < 0, errno == EINTR { continue }
        guard count > 0 else { break }
        guard let (lines, block) = try reader.took(count) else { continue }
        for line in lines { try take(line) }
        try work()
        output.flush()
        withExtendedLifetime(block) {}
      }
      try work()
      operators = [:]
      for source in sources.values { source.close() }
      sources = [:]
      output.flush()
      if PluginLife.wait(4_500_000_000) > 0 {
        say("an instance has not ended")
        return 1
      }
      return 0
    } catch let fault as PluginFault {
      output.flush()
      say(fault.path.isEmpty ? fault.message : "failed at '\(fault.path)': \(fault.message)")
    } catch {
      say("a frame has more than \(PluginProcess.frameLimit >> 20) MiB")
    }
    return 1
  }

  private func say(_ text: String) {
    let line = Array("\(text)\n".utf8)
    _ = line.withUnsafeBytes { write(2, $0.baseAddress, $0.count) }
  }

  private func take(_ line: UnsafeRawBufferPointer) throws {
    let frame = JSONParser().open(line, checking: .everything)
    guard frame.is(.jsonMap) else { throw PluginFault("a line is not a frame: \(Printable.cut(line, limit: 100))") }
    let to = frame["to"].is(.int) ? Int(frame["to"].asInt) : 0
    if frame["hello"].is(.int) {
      try hello(Int(frame["hello"].asInt))
    } else if frame["open"].is(.int) {
      try work()
      try open(Int(frame["open"].asInt), frame)
    } else if frame["close"].is(.int) {
      try work()
      operators[Int(frame["close"].asInt)] = nil
      sources.removeValue(forKey: Int(frame["close"].asInt))?.close()
    } else if frame["ping"].is(.int) {
      try work()
      output.write("{\"pong\":\(frame["ping"].asInt)}\n")
      output.flush()
    } else if frame["id"].is(.int) {
      guard let instance = operators[to] else { throw PluginFault("an input is for no instance") }
      if let busy = operators.values.first(where: { $0 !== instance && $0.isBusy }) { try busy.work() }
      try instance.take(Int(frame["id"].asInt), frame)
    } else if let source = sources[to] {
      source.take(frame)
    }
  }

  /// Answers the inputs that were handed over.
  private func work() throws(PluginFault) {
    for instance in operators.values where instance.isBusy { try instance.work() }
  }

  private func hello(_ offered: Int) throws(PluginFault) {
    guard let digest = file.digest() else { throw PluginFault("'\(file.path)' cannot be read") }
    let library = try NativeLibrary.load(file, digest: digest, contract: options.contract ?? offered)
    self.library = library
    var diagnostics = Diagnostics()
    spec = PluginSpecReader.read(
      SourceText(name: "\(file.ownFile) (spec)", bytes: library.document), into: &diagnostics)
    for component in spec?.components ?? [] {
      if let problem = library.problem(component) { throw PluginFault(problem) }
    }
    // The document may have several lines.
    let arena = Arena()
    let value = library.document.withUnsafeBytes { HostTable.json(rxd_text($0), arena) }
    let tree = JSONParser().expand(value, into: arena)
    guard tree.is(.map) else { throw PluginFault("its spec is not a JSON object") }
    let text = OutputBuffer(capacity: 4096)
    _ = JSONWriter.append(tree, to: text)
    output.write("{\"spec\":\(String(decoding: text.bytes, as: UTF8.self))}\n")
  }

  private func open(_ number: Int, _ frame: Value) throws(PluginFault) {
    guard let library, let spec else { throw PluginFault("'open' comes before 'hello'") }
    guard
      let component = spec.components.first(where: {
        $0.kind.rawValue == frame["kind"].text && $0.name == frame["name"].text
      })
    else { throw PluginFault("the spec has no \(frame["kind"].text) '\(frame["name"].text)'") }
    let version = frame["stateVersion"]
    let opening = PluginOpening(
      step: frame["step"].text, pipeline: frame["pipeline"].text,
      parameters: component.arguments(frame["parameters"], isTyped: options.isTyped), state: Self.bytes(frame["state"]),
      stateVersion: version.is(.int) ? Int(version.asInt) : 0, position: Self.bytes(frame["position"]),
      isTest: frame["test"].isTrue, passesGiven: false)
    let log: @Sendable (Services.Level, String) -> Void = { [output] level, message in
      output.write("{\"log\":\"\(level.rawValue)\",\"message\":\(JSONText.string(message).text)}\n")
      output.flush()
    }
    if component.kind == .source {
      let counts = BridgedCounts(output)
      let source = BridgedSource(number, output, counts)
      sources[number] = source
      var services = PluginServices(log)
      services.usesNames = true
      source.start(opening, services) { opening throws(PluginFault) in
        try library.open(component, opening, Self.unlimited(log, counts.meter), counts.meter)
      }
      return
    }
    let counts = BridgedCounts(output)
    do throws(PluginFault) {
      operators[number] = try BridgedInstance(
        component, try library.open(component, opening, Self.unlimited(log, counts.meter), counts.meter), options,
        output,
        counts)
      let hasFinished = operators[number]?.hasFinished == true
      output.write("{\"opened\":\(number)\(hasFinished ? ",\"finish\":true" : "")}\n")
    } catch {
      output.write(BridgeOutput.refusal(number, error))
    }
    output.flush()
  }

  /// The caller of this program limits the output of the plugin, and its test inspects it.
  private static func unlimited(
    _ log: @escaping @Sendable (Services.Level, String) -> Void, _ meter: PluginMeter
  ) -> PluginLog { PluginLog(most: .max, log, meter) }

  private static func bytes(_ text: Value) -> [UInt8]? { text.is(.string) ? Base64.decode(text.text) : nil }
}

/// The counts of an instance, as frames.
final class BridgedCounts: Sendable {
  let meter = PluginMeter()
  private let output: BridgeOutput
  private let reported = Mutex<[String: UInt64]>([:])
  private let shown = Mutex<[PluginMeter.Gauge: Double]>([:])

  init(_ output: BridgeOutput) { self.output = output }

  /// Writes the counts since the last call, and the gauges that have changed.
  func report() {
    let now = meter.now
    let counts = now.counts
    var gauges: [PluginMeter.Gauge: Double] = [:]
    for (name, values) in now.gauges { for (of, value) in values { gauges[.init(name: name, of: of)] = value } }
    shown.withLock { shown in
      let changed = Set(gauges.keys).union(shown.keys).filter { gauges[$0] != shown[$0] }
      for gauge in changed.sorted(by: { ($0.name, $0.of) < ($1.name, $1.of) }) {
        let value = gauges[gauge].map { JSONText.gauge($0).text } ?? "null"
        let (name, of) = (JSONText.string(gauge.name).text, JSONText.string(gauge.of).text)
        output.write("{\"gauge\":\(name),\"of\":\(of),\"value\":\(value)}\n")
      }
      shown = gauges
    }
    guard !counts.isEmpty else { return }
    reported.withLock { reported in
      for (name, count) in counts.sorted(by: { $0.key < $1.key }) where count > reported[name] ?? 0 {
        output.write("{\"count\":\(JSONText.string(name).text),\"by\":\(count - (reported[name] ?? 0))}\n")
        reported[name] = count
      }
    }
  }
}

/// Writes frames, from any thread.
final class BridgeOutput: Sendable {
  /// Standard output carries only frames: output of the library goes to standard error.
  private let descriptor: Int32
  private let waiting = Mutex<[UInt8]>([])
  let isTyped: Bool

  init(isTyped: Bool) {
    self.isTyped = isTyped
    descriptor = fcntl(1, F_DUPFD_CLOEXEC, 3)
    dup2(2, 1)
  }

  func write(_ text: String) { waiting.withLock { $0 += Array(text.utf8) } }

  func flush() {
    waiting.withLock { bytes in
      var at = 0
      while at < bytes.count {
        let count = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress! + at, $0.count - at) }
        if count < 0, errno == EINTR { continue }
        // The reader is gone.
        guard count > 0 else { _exit(1) }
        at += count
      }
      bytes.removeAll(keepingCapacity: true)
    }
  }

  static func refusal(_ number: Int, _ fault: PluginFault) -> String {
    let path = fault.path.isEmpty ? "" : ",\"at\":\(JSONText.string(fault.path).text)"
    return "{\"opened\":\(number),\"error\":\(JSONText.string(fault.message).text)\(path)}\n"
  }

  /// The JSON of an event; nil: it has none.
  func json(_ value: Value) -> String? {
    let text = OutputBuffer(capacity: 256)
    let arena = Arena()
    let written = isTyped ? TypedJSON.write(value, in: arena) : value
    return JSONWriter.append(written, to: text) == nil ? String(decoding: text.bytes, as: UTF8.self) : nil
  }
}

/// An operator or a sink of a shared library.
final class BridgedInstance {
  private let spec: PluginComponentSpec
  private let handle: NativeHandle
  private let row: NativeRow?
  private let options: NativeBridge.Options
  private let output: BridgeOutput
  private let counts: BridgedCounts
  private var waiting: [PluginInput] = []
  private let pause = RetryPause()
  /// The output of an operator has completed: inputs are neither taken nor answered.
  private(set) var hasFinished: Bool

  init(
    _ spec: PluginComponentSpec, _ handle: NativeHandle, _ options: NativeBridge.Options, _ output: BridgeOutput,
    _ counts: BridgedCounts
  ) throws(PluginFault) {
    self.counts = counts
    self.spec = spec
    self.handle = handle
    self.options = options
    self.output = output
    row = spec.form == .row ? try NativeRow(handle) : nil
    hasFinished = handle.hasFinished
  }

  var isBusy: Bool { !waiting.isEmpty }

  func take(_ id: Int, _ frame: Value) throws(PluginFault) {
    if frame["save"].isTrue {
      try work()
      return hasFinished ? () : save(id)
    }
    guard !hasFinished else { return }
    var now = timespec()
    clock_gettime(CLOCK_REALTIME, &now)
    let wall = frame["now"].is(.int) ? frame["now"].asInt : Int64(now.tv_sec) * 1_000_000_000 + Int64(now.tv_nsec)
    let kind: PluginInput.Kind =
      frame["timer"].is(.string) ? .timer(frame["timer"].text) : frame["complete"].isTrue ? .complete : .event
    let arena = Arena()
    func value(_ value: Value) -> Value { options.isTyped ? TypedJSON.read(value, in: arena) : value }
    let with = frame["with"]
    // JSON has no bytes, which decoders read.
    let bytes = spec.kind == .decoder ? Base64.decode(frame["bytes"].text) ?? [] : []
    let event = spec.kind == .decoder ? bytes.withUnsafeBytes { Value.bytes(arena.copy($0)) } : value(frame["event"])
    waiting.append(
      PluginInput(
        number: id, kind: kind, event: OwnedEvent(Event(kind.isEvent ? event : .null)),
        arguments: spec.perEvent.map { parameter in
          guard with.is(.jsonMap) else { return OwnedValue(.absent) }
          var name = parameter.name
          let found = name.withUTF8 { JSONParser.lookup(with, key: UnsafeRawBufferPointer($0)) }
          return OwnedValue(found.isError ? .absent : value(found))
        }, wallTime: wall, time: wall,
        isAgain: frame["again"].isTrue))
  }

  private func save(_ id: Int) {
    if let state = handle.save() {
      output.write("{\"id\":\(id),\"state\":\"\(Base64.encode(state))\"}\n")
    } else {
      output.write("{\"id\":\(id),\"error\":\"the state cannot be saved\"}\n")
    }
  }

  /// Answers the waiting inputs.
  func work() throws(PluginFault) {
    let inputs = Array(pause.admit(waiting))
    waiting = []
    guard !inputs.isEmpty else { return }
    defer { counts.report() }
    if let row { return try work(row, inputs) }
    let (answers, fault) = handle.run(inputs, pausing: pause)
    write(answers)
    if let fault { throw PluginFault("the plugin failed: \(fault.message)", at: fault.path) }
  }

  private func write(_ answers: [PluginAnswer]) {
    if answers.last?.finishes == true { hasFinished = true }
    for answer in answers {
      var line = "{\"id\":\(answer.number)"
      switch answer.verdict {
      case .done: break
      case .rejected(let reason): line += ",\"error\":\(JSONText.string(reason.isEmpty ? "no reason" : reason).text)"
      case .again(let reason): line += ",\"retry\":\(JSONText.string(reason).text)"
      }
      // By the contract, an error has no events; events sent before it are dropped, as rxd does.
      if !answer.events.isEmpty, case .done = answer.verdict {
        let events = answer.events.map { output.json($0) }
        if events.contains(nil) {
          line += ",\"error\":\"an event has no JSON form\""
        } else {
          line += ",\"events\":[\(events.compactMap { $0 }.joined(separator: ","))]"
        }
      }
      if !answer.timers.isEmpty {
        let timers = answer.timers.map { "\(JSONText.string($0.name).text):\($0.after.map { "\($0)" } ?? "null")" }
        line += ",\"timers\":{\(timers.joined(separator: ","))}"
      }
      output.write(line + (answer.finishes ? ",\"finish\":true}\n" : "}\n"))
    }
  }

  // MARK: Pure functions

  private func work(_ row: NativeRow, _ inputs: [PluginInput]) throws(PluginFault) {
    let answers = answers(row, inputs)
    if answers.count < inputs.count || answers.last?.hasSuffix(Self.end) == true { hasFinished = true }
    if options.threads > 1 {
      let found = Guarded<[[String]]>([])
      let (output, count) = (output, options.threads - 1)
      for _ in 0..<count {
        do throws(PosixError) {
          _ = try OwnThread("row") {
            let other = Self.answers(row, inputs, output)
            found.withLock { $0.append(other) }
            found.notify()
          }
        } catch { throw PluginFault("no thread: \(error.message)") }
      }
      let again = self.answers(row, inputs)
      let others = found.wait(until: nil) { $0.count == count ? $0 : nil } ?? []
      for (index, answer) in answers.enumerated() {
        let odd = ([again] + others).first { index >= $0.count || $0[index] != answer }
        self.output.write(odd.map { index < $0.count ? $0[index] : "{\"id\":\(inputs[index].number)}\n" } ?? answer)
      }
      return
    }
    for answer in answers { output.write(answer) }
  }

  private func answers(_ row: NativeRow, _ inputs: [PluginInput]) -> [String] { Self.answers(row, inputs, output) }

  private static func answers(_ row: NativeRow, _ inputs: [PluginInput], _ output: BridgeOutput) -> [String] {
    var found: [String] = []
    for input in inputs {
      found.append(answer(row, input, output))
      if found[found.count - 1].hasSuffix(end) { break }
    }
    return found
  }

  private static let end = ",\"finish\":true}\n"

  private static func answer(_ row: NativeRow, _ input: PluginInput, _ output: BridgeOutput) -> String {
    guard case .event = input.kind else { return "{\"id\":\(input.number)}\n" }
    let arena = Arena()
    var value = input.event.event.value
    let arguments = arena.elements(max(1, input.arguments.count))
    for (index, argument) in input.arguments.enumerated() { arguments[index] = argument.value }
    let verdict = row.call(&value, UnsafePointer(arguments.baseAddress), arena)
    switch verdict {
    case .drop: return "{\"id\":\(input.number)}\n"
    case .finish: return "{\"id\":\(input.number)\(end)"
    case .failed(let reason): return "{\"id\":\(input.number),\"error\":\(JSONText.string(reason).text)}\n"
    case .pass, .last:
      guard let json = output.json(value) else {
        return "{\"id\":\(input.number),\"error\":\"the event has no JSON form\"}\n"
      }
      let isLast = if case .last = verdict { true } else { false }
      return "{\"id\":\(input.number),\"events\":[\(json)]\(isLast ? end : "}\n")"
    }
  }
}

extension PluginInput.Kind {
  fileprivate var isEvent: Bool { if case .event = self { true } else { false } }
}
