import CPlugin
import Glibc
import PipelineCore
import PipelineTesting
import Transport

/// How a plugin under test is started.
struct TestedCommand: Sendable {
  var path: String
  var arguments: [String]
  var settings = ProcessSettings()
  /// The working directory.
  var directory: String
  /// The longest time without an answer.
  var timeout: TimeSpan
}

/// One process of a plugin under test, and rxd's strict side of the protocol: anything that the contract does not allow
/// is a ``ContractBreach``. One thread uses it.
final class TestedProgram {
  private let command: TestedCommand
  private var child: ChildProgram?
  private var outgoing: [UInt8] = []
  private var written = 0
  private var reader = LineReader(limit: PluginProcess.frameLimit)
  private let json = JSONParser()
  /// Not zero: frames are written in pieces of random length.
  private var pieces: UInt64
  private var status: Int32?

  /// The document of the spec, as received.
  private(set) var document: [UInt8]?
  private(set) var instances: [Int: TestedInstance] = [:]
  private var opening: [TestedInstance] = []
  private var unanswered: [TestedAnswer] = []
  private var firstUnanswered = 0
  /// Inputs of instances that have completed their output: they may be answered with nothing.
  private var behindEnd: Set<Int> = []
  private var pings: [Int] = []
  private var nextPing = 1
  private var nextID = 1
  private(set) var nextInstance = 1

  /// The last bytes of its standard error.
  private var said: [UInt8] = []
  /// The number of lines on standard error and of `log` frames, by the second of their arrival.
  private var chatter: [Int64: Int] = [:]

  /// Starts the program and waits for its spec.
  ///
  /// - Parameters:
  ///   - contract: the version that is offered.
  ///   - pieces: not zero: frames are written in pieces of random length, of which this is the seed.
  ///   - environment: further variables.
  init(
    _ command: TestedCommand, contract: Int = PluginSpec.contract, pieces: UInt64 = 0,
    environment more: [String: String] = [:]
  ) throws(ContractBreach) {
    self.command = command
    self.pieces = pieces
    do throws(PosixError) {
      child = try ChildProgram(
        command.path, command.arguments, environment: PluginProcess.environment(command.settings).merging(more) { $1 },
        directory: command.directory, memory: command.settings.memory, cpu: command.settings.cpu,
        files: command.settings.files, processes: command.settings.processes)
    } catch {
      throw ContractBreach(
        expected: "a program that can be started",
        came: "'\(command.path)' cannot be started: \(PosixError.text(error.code))",
        help: "The file needs a first line such as #!/usr/bin/env python3 and chmod +x, or an interpreter before it",
        isEnd: true)
    }
    send("{\"hello\":\(contract)}\n")
    try wait(
      TimeSpan.seconds(5), { document != nil },
      {
        ContractBreach(
          expected: "{\"spec\":{...}} within 5 s as the answer to {\"hello\":\(contract)}", came: "nothing",
          help: "Read standard input line by line, and flush standard output after each answer")
      })
  }

  deinit { kill() }

  // MARK: Frames of rxd

  private func send(_ text: String) { outgoing += Array(text.utf8) }

  /// Writes text that need not be a frame.
  func sendRaw(_ text: String) { send(text) }

  /// Opens an instance and waits for the answer. A refusal is in ``TestedInstance/refusal``.
  ///
  /// - Parameters:
  ///   - parameters: JSON.
  ///   - more: further members, beginning with a comma.
  func open(
    _ spec: PluginComponentSpec, _ parameters: String, _ more: String = ""
  ) throws(ContractBreach) -> TestedInstance {
    let instance = TestedInstance(nextInstance, spec)
    nextInstance += 1
    instances[instance.number] = instance
    opening.append(instance)
    send(
      "{\"open\":\(instance.number),\"kind\":\"\(spec.kind.rawValue)\",\"name\":\"\(spec.name)\",\"step\":\"out/\(instance.number) \(spec.name)\",\"pipeline\":\"test\",\"parameters\":\(parameters)\(more)}\n"
    )
    try wait(
      command.timeout, { !opening.contains { $0 === instance } },
      {
        ContractBreach(
          expected: "{\"opened\":\(instance.number)} within \(command.timeout)", came: "nothing",
          help: "Answer 'open' before anything slow is done; with 'error' if it cannot work with these parameters")
      })
    return instance
  }

  /// Queues an input; its answer follows later.
  func input(_ instance: TestedInstance, _ step: TestedStep, now: Int64? = nil, more: String = "") -> TestedAnswer {
    let answer = TestedAnswer(nextID, instance, step)
    // rxd closes an instance that has finished.
    guard !instance.hasFinished else { return answer }
    nextID += 1
    unanswered.append(answer)
    let time = now.map { ",\"now\":\($0)" } ?? ""
    send("{\"id\":\(answer.id),\"to\":\(instance.number)\(step.members)\(time)\(more)}\n")
    return answer
  }

  /// The answer to one input.
  func ask(_ instance: TestedInstance, _ step: TestedStep, now: Int64? = nil) throws(ContractBreach) -> TestedAnswer {
    let answer = input(instance, step, now: now)
    if instance.spec.kind == .sink, case .event = step { flush(instance) }
    try awaitAnswers()
    return answer
  }

  func flush(_ instance: TestedInstance) { send("{\"flush\":\(instance.number)}\n") }
  func close(_ instance: TestedInstance) {
    send("{\"close\":\(instance.number)}\n")
    instances[instance.number] = nil
  }

  func ping() {
    pings.append(nextPing)
    send("{\"ping\":\(nextPing)}\n")
    nextPing += 1
  }

  func give(credit: Int, to instance: TestedInstance) {
    instance.credit += credit
    send("{\"to\":\(instance.number),\"credit\":\(credit)}\n")
  }

  /// Reports events as acknowledged or failed, by their tokens.
  func acknowledge(_ instance: TestedInstance, _ tokens: [Int64], failed: Bool = false) {
    guard !tokens.isEmpty else { return }
    instance.unacknowledged.subtract(tokens)
    let list = tokens.map(String.init).joined(separator: ",")
    send(
      failed
        ? "{\"to\":\(instance.number),\"failed\":[\(list)],\"reason\":\"no way\"}\n"
        : "{\"to\":\(instance.number),\"acknowledged\":[\(list)]}\n")
  }

  func stop(_ instance: TestedInstance) { send("{\"to\":\(instance.number),\"stop\":true}\n") }

  var unansweredCount: Int { unanswered.count - firstUnanswered }
  /// The steps that were handed over and not answered.
  var unansweredSteps: [TestedStep] { unanswered[firstUnanswered...].map(\.step) }

  /// Waits for all answers and pongs; each answer restarts the timeout.
  func awaitAnswers() throws(ContractBreach) {
    while unansweredCount > 0 || !pings.isEmpty {
      let before = (unansweredCount, pings.count)
      try wait(
        command.timeout, { (unansweredCount, pings.count) != before },
        {
          if unansweredCount > 0 {
            let first = unanswered[firstUnanswered]
            return ContractBreach(
              expected: "an answer to each input within \(command.timeout)", came: "none to \(first.shown)",
              help:
                "Answer each frame with an 'id', also completions, at the latest when no further line is available; flush"
            )
          }
          return ContractBreach(
            expected: "{\"pong\":\(pings[0])} within \(command.timeout)", came: "nothing",
            help: "Answer {\"ping\":N} with {\"pong\":N}")
        })
    }
  }

  // MARK: The end

  /// Closes its input; it must end by itself, with status 0.
  func end() throws(ContractBreach) {
    try wait(
      command.timeout, { outgoing.count == written },
      { ContractBreach(expected: "a program that reads", came: "its standard input is full", help: "Read all lines") })
    try endAbruptly()
    guard status == 0 else {
      throw ContractBreach(
        expected: "an end with status 0 when standard input ends",
        came: "it \(describeEnd(status ?? 0))\(lastWords)",
        help: "Leave the loop over the lines at the end of the input, and close files and connections")
    }
  }

  /// Closes its input, whatever is unanswered; it must end by itself.
  func endAbruptly() throws(ContractBreach) {
    closeInput()
    let deadline = monotonicNow() + 5_000_000_000
    while status == nil, monotonicNow() < deadline { try pump(deadline) }
    guard status != nil else {
      throw ContractBreach(
        expected: "its end within 5 s after the end of standard input", came: "it runs on",
        help: "Leave the loop when the input ends; rxd sends SIGTERM after 5 s, and SIGKILL 5 s later")
    }
  }

  private func closeInput() {
    child?.closeInput()
    written = outgoing.count
  }

  /// Sends SIGKILL to the process and its children.
  func kill() {
    guard let child = child.take() else { return }
    if status == nil { status = child.destroy() }
  }

  /// Private memory in bytes; nil: the system does not report it.
  var memory: Int? {
    guard let process = child?.process, let bytes = Self.contents("/proc/\(process)/smaps_rollup") else { return nil }
    for line in String(decoding: bytes, as: UTF8.self).split(separator: "\n") where line.hasPrefix("Private_Dirty:") {
      return line.split(separator: " ").dropFirst().first.flatMap { Int($0) }.map { $0 << 10 }
    }
    return nil
  }

  /// The contents of a file of `/proc`, whose size is not known in advance.
  private static func contents(_ path: String) -> [UInt8]? {
    guard let file = try? FileDescriptor.openForReading(path) else { return nil }
    var bytes = [UInt8](repeating: 0, count: 16 << 10)
    let count = bytes.withUnsafeMutableBytes { (try? file.read(into: $0)) ?? nil }
    return count.map { Array(bytes[..<$0]) }
  }

  /// The maximum number of lines that the program has logged within a second.
  var loudestSecond: Int { chatter.values.max() ?? 0 }

  private var lastWords: String {
    let lines = said.split(separator: 0x0A).map { Array($0) }
    return lines.last.map { ", after it had written: \(Printable.cut($0, limit: 300))" } ?? ""
  }

  // MARK: Waiting

  /// Reads and writes until the condition holds. After the time limit, throws the error that `late` returns.
  func wait(_ time: TimeSpan, _ condition: () -> Bool, _ late: () -> ContractBreach) throws(ContractBreach) {
    let deadline = monotonicNow() + time.nanoseconds
    while !condition() {
      if let status {
        throw ContractBreach(
          expected: "a process that runs on", came: "it \(describeEnd(status))\(lastWords)",
          help: ContractBreach.helpOnEnd(status), isEnd: true)
      }
      guard monotonicNow() < deadline else { throw late() }
      try pump(deadline)
    }
  }

  /// Reads and writes for that time, or until the condition holds. Returns whether it holds.
  @discardableResult
  func run(for time: TimeSpan, until condition: () -> Bool = { false }) throws(ContractBreach) -> Bool {
    let deadline = monotonicNow() + time.nanoseconds
    while status == nil, !condition(), monotonicNow() < deadline { try pump(deadline) }
    return condition()
  }

  private func pump(_ deadline: Int64) throws(ContractBreach) {
    if written > 0, written == outgoing.count {
      outgoing.removeAll(keepingCapacity: true)
      written = 0
    }
    let ready = child?.wait(wakenBy: -1, writes: written < outgoing.count, until: deadline) ?? []
    if ready.contains(.errors) { _ = readErrors() }
    if ready.contains(.input) { write() }
    if ready.contains(.output) { _ = try read() }
    guard status == nil, ready.contains(.end), let ended = child?.status() else { return }
    while try read() {}
    while readErrors() {}
    status = ended
  }

  private func write() {
    var count = outgoing.count - written
    if pieces != 0 {
      pieces = pieces &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      count = min(count, [1, 2, 7, 100, 5000][Int(pieces >> 33) % 5])
    }
    if let end = child?.write(outgoing[written..<written + count]) {
      written = end
    } else {
      // The exit status gives the details.
      closeInput()
    }
  }

  /// Returns whether any bytes were read.
  private func readErrors() -> Bool {
    guard let bytes = child?.read(.errors) else { return false }
    let lines = bytes.count { $0 == 0x0A }
    if lines > 0 { chatter[monotonicNow() / 1_000_000_000, default: 0] += lines }
    said += bytes
    if said.count > 16 << 10 { said.removeFirst(said.count - (8 << 10)) }
    return true
  }

  /// Returns whether any bytes were read.
  private func read() throws(ContractBreach) -> Bool {
    guard let count = child?.read(.output, into: reader.room()) else { return false }
    let found: (lines: [UnsafeRawBufferPointer], block: LineBlock)?
    do throws(LineReader.Fault) {
      found = try reader.took(count)
    } catch {
      throw ContractBreach(
        expected: "frames of at most \(PluginProcess.frameLimit >> 20) MiB", came: "a longer one",
        help: "Divide a large result into several events, or refuse it with 'error'")
    }
    guard let (lines, block) = found else { return true }
    for line in lines { try take(line) }
    withExtendedLifetime(block) {}
    return true
  }

  // MARK: Frames of the plugin

  private func take(_ line: UnsafeRawBufferPointer) throws(ContractBreach) {
    let frame = json.open(line, checking: .everything)
    let shown = Printable.cut(line, limit: 200)
    guard frame.is(.jsonMap) else {
      throw ContractBreach(
        expected: "one JSON object on each line of standard output", came: "the line \(shown)",
        help:
          "Standard output belongs to the protocol: print to standard error, or send {\"log\":\"info\",\"message\":\"...\"}"
      )
    }
    if frame["log"].is(.string) {
      guard Services.Level(rawValue: frame["log"].text) != nil, frame["message"].is(.string) else {
        throw Self.wrong(shown, "a log frame with the level debug, info, warning or error, and a message")
      }
      chatter[monotonicNow() / 1_000_000_000, default: 0] += 1
    } else if !frame["count"].isAbsent {
      guard frame["count"].is(.string), frame["by"].isAbsent || frame["by"].is(.int) else {
        throw Self.wrong(shown, "a count frame with a name, and 'by' as a whole number")
      }
    } else if !frame["gauge"].isAbsent {
      let value = frame["value"]
      guard frame["gauge"].is(.string), frame["of"].isAbsent || frame["of"].is(.string),
        value.number != nil || value.isNull
      else {
        throw Self.wrong(shown, "a gauge frame with a name, 'value' as a number or null, and perhaps 'of' as a text")
      }
    } else if !frame["spec"].isAbsent {
      guard document == nil else { throw Self.wrong(shown, "one spec") }
      document = Array(frame["spec"].rawBytes)
    } else if document == nil {
      throw Self.wrong(shown, "the spec before everything else")
    } else if !frame["opened"].isAbsent {
      try take(opened: frame, shown)
    } else if !frame["pong"].isAbsent {
      guard let first = pings.first, frame["pong"].is(.int), Int(frame["pong"].asInt) == first else {
        throw Self.wrong(shown, pings.first.map { "{\"pong\":\($0)}" } ?? "no pong, because nothing was asked")
      }
      pings.removeFirst()
    } else if !frame["through"].isAbsent {
      try take(through: frame, shown)
    } else if !frame["id"].isAbsent {
      try take(answer: frame, shown)
    } else if !frame["from"].isAbsent {
      try take(from: frame, shown)
    } else {
      throw Self.wrong(shown, "a frame of the contract: it begins with id, through, from, opened, pong, log or count")
    }
  }

  static func wrong(_ came: String, _ expected: String) -> ContractBreach {
    ContractBreach(expected: expected, came: came, help: "See docs/plugin-contract.md, 'The line protocol'")
  }

  private func take(opened frame: Value, _ shown: String) throws(ContractBreach) {
    guard let instance = opening.first, frame["opened"].is(.int), Int(frame["opened"].asInt) == instance.number else {
      throw Self.wrong(
        shown, opening.first.map { "{\"opened\":\($0.number)}" } ?? "no 'opened', because nothing is being opened")
    }
    opening.removeFirst()
    let error = frame["error"]
    if error.isAbsent || error.isNull {
      instance.isOpen = true
      instance.hasFinished = try Self.finishes(frame, instance.spec, shown)
      return
    }
    guard error.is(.string), !error.text.isEmpty else { throw Self.wrong(shown, "'error' as a text that says why") }
    instance.refusal = error.text
    let path = frame["at"].text
    let name = String(path.prefix { $0 != "." && $0 != "[" })
    guard name.isEmpty || instance.spec.parameters.contains(where: { $0.name == name }) else {
      throw Self.wrong(shown, "'at' as the path of a parameter of '\(instance.spec.name)'")
    }
  }

  private func take(through frame: Value, _ shown: String) throws(ContractBreach) {
    let last = frame["through"].is(.int) ? Int(frame["through"].asInt) : -1
    guard let end = unanswered[firstUnanswered...].firstIndex(where: { $0.id == last }) else {
      throw Self.wrong(shown, "'through' with the id of an input that waits for its answer")
    }
    for answer in unanswered[firstUnanswered...end] {
      guard answer.instance.spec.kind == .sink, case .event = answer.step else {
        throw Self.wrong(shown, "'through' for events of sinks alone; \(answer.shown) is none")
      }
      answer.isTaken = true
    }
    took(through: end)
  }

  private func took(through index: Int) {
    firstUnanswered = index + 1
    guard firstUnanswered == unanswered.count || firstUnanswered > 4096 else { return }
    unanswered.removeFirst(firstUnanswered)
    firstUnanswered = 0
  }

  /// Whether a frame ends the output.
  private static func finishes(
    _ frame: Value, _ spec: PluginComponentSpec, _ shown: String
  ) throws(ContractBreach) -> Bool {
    let finish = frame["finish"]
    guard !finish.isAbsent, !finish.isNull else { return false }
    guard finish.is(.bool), spec.kind == .operator else { throw wrong(shown, "'finish' as true, of operators alone") }
    return finish.isTrue
  }

  /// Whether the frame answers an input that an instance was given before its output completed.
  private func take(behindEnd frame: Value, _ shown: String) throws(ContractBreach) -> Bool {
    let id = frame["id"].is(.int) ? Int(frame["id"].asInt) : -1
    guard behindEnd.remove(id) != nil else { return false }
    guard frame["events"].isAbsent, frame["timers"].isAbsent, frame["finish"].isAbsent else {
      throw ContractBreach(
        expected: "nothing after 'finish': inputs passed before it count as not taken", came: shown,
        help: "When the output is complete, ignore inputs until 'close', or answer them with {\"id\":N}")
    }
    return true
  }

  private func take(answer frame: Value, _ shown: String) throws(ContractBreach) {
    if try take(behindEnd: frame, shown) { return }
    guard unansweredCount > 0 else { throw Self.wrong(shown, "no answer, because no input waits for one") }
    let answer = unanswered[firstUnanswered]
    guard frame["id"].is(.int), Int(frame["id"].asInt) == answer.id else {
      throw ContractBreach(
        expected: "the answer to \(answer.id): answers come in the order of the ids", came: shown,
        help: "Answer each input once, in order; keep early answers until their turn")
    }
    let instance = answer.instance
    if !frame["error"].isAbsent, !frame["error"].isNull {
      guard frame["error"].is(.string), !frame["error"].text.isEmpty else {
        throw Self.wrong(shown, "'error' as a text that says why")
      }
      answer.error = frame["error"].text
    }
    let events = frame["events"]
    guard events.isAbsent || events.is(.jsonList) else { throw Self.wrong(shown, "'events' as a list") }
    if events.is(.jsonList) { answer.events = Self.elements(events) }
    let isSave = if case .save = answer.step { true } else { false }
    if !answer.events.isEmpty, instance.spec.kind == .sink || answer.error != nil || isSave {
      throw Self.wrong(shown, "no events in the answer of a sink, to 'save', or beside an error")
    }
    if isSave, answer.error == nil {
      guard !frame["state"].isAbsent else { throw Self.wrong(shown, "'state' or 'error' in the answer to 'save'") }
      let text = OutputBuffer(capacity: 256)
      _ = JSONWriter.append(frame["state"], to: text)
      answer.state = String(decoding: text.bytes, as: UTF8.self)
    }
    if !frame["retry"].isAbsent {
      guard instance.spec.kind == .sink, frame["retry"].is(.string) else {
        throw Self.wrong(shown, "'retry' as a text, from sinks alone")
      }
      answer.retry = frame["retry"].text
    }
    try take(timers: frame["timers"], answer, shown)
    if try Self.finishes(frame, instance.spec, shown) {
      guard !isSave else { throw Self.wrong(shown, "no 'finish' in the answer to 'save'") }
      answer.finishes = answer.step != .complete
    }
    answer.isTaken = true
    took(through: firstUnanswered)
    if answer.finishes {
      instance.hasFinished = true
      behindEnd.formUnion(unanswered[firstUnanswered...].filter { $0.instance === instance }.map(\.id))
      unanswered = unanswered[firstUnanswered...].filter { $0.instance !== instance }
      firstUnanswered = 0
    }
    guard let retry = answer.retry else { return }
    // The sink ignores what it has received since; that is sent again.
    instance.skipsUntilAgain = true
    for later in unanswered[firstUnanswered...] where later.instance === instance {
      later.retry = retry
      later.isTaken = true
    }
    unanswered = unanswered[firstUnanswered...].filter { !$0.isTaken }
    firstUnanswered = 0
  }

  private func take(timers: Value, _ answer: TestedAnswer, _ shown: String) throws(ContractBreach) {
    guard !timers.isAbsent, !timers.isNull else { return }
    guard case .object(let members) = TestValue(timers) else { throw Self.wrong(shown, "'timers' as an object") }
    for member in members {
      let name = String(decoding: member.key, as: UTF8.self)
      switch member.value {
      case .null: answer.timers[name] = .some(nil)
      case .int(let after) where after >= 0: answer.timers[name] = after
      default: throw Self.wrong(shown, "the time of the timer '\(name)' in whole nanoseconds, or null")
      }
    }
    guard members.isEmpty || answer.instance.spec.setsTimers else {
      throw ContractBreach(
        expected: "no timers: the spec of '\(answer.instance.spec.name)' has no \"timers\": true", came: shown,
        help: "Write \"timers\": true into the spec of the component")
    }
  }
}
