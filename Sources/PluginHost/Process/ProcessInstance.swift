internal import DequeModule
import PipelineCore
import Synchronization
import Transport

/// An operator or a sink of a plugin that is a program.
final class ProcessInstance: PluginInstance, FrameHandler, @unchecked Sendable {
  private let plugin: ProcessPlugin
  /// Whether it counts among the plugin's instances.
  private var counts = false
  private let process: PluginProcess
  private let spec: PluginComponentSpec
  private let perEvent: [PluginParameter]
  private let services: PluginServices
  private weak var receiver: (any PluginReceiver)?
  private var writer = FrameWriter()
  private let isClosed = Atomic(false)
  private var nextID = 1

  /// What an answer is awaited for.
  private struct Awaited {
    enum Kind {
      case input
      /// The state behind the input.
      case state
      /// The input could not be handed over.
      case failed(String)
    }
    var id: Int
    var number: Int
    var kind: Kind
  }
  private struct Shared {
    var awaited = Deque<Awaited>()
    /// When the first of them was handed over, or the last answer came.
    var since: Int64 = 0
    /// A sink has asked for a pause: it ignores what comes before the next input that comes again.
    var isWaitingForAgain = false
  }
  private let shared = Mutex(Shared())
  // On the thread of the program.
  private var isOpen = false
  /// Answers that are complete.
  private var answers: [PluginAnswer] = []

  init(
    _ plugin: ProcessPlugin, _ process: PluginProcess, _ spec: PluginComponentSpec, _ services: PluginServices,
    _ receiver: any PluginReceiver
  ) {
    self.plugin = plugin
    self.process = process
    self.spec = spec
    self.services = services
    self.receiver = receiver
    perEvent = spec.perEvent
    process.handler = self
  }

  deinit {
    if counts { plugin.left() }
    if services.isImmediate { process.destroy() }
  }

  // MARK: From the node

  func open(_ opening: PluginOpening) {
    counts = plugin.enter()
    guard counts else {
      let reason = "more than \(ProcessPlugin.mostInstances) instances of the plugin would run at once"
      return end(PluginEnd(reason: reason, isFinal: true))
    }
    let frame = writer.open(opening, spec)
    frame.withUnsafeBytes { process.send($0) }
    if services.isImmediate {
      do throws(PluginFault) { try process.start() } catch { cannotStart(error) }
      return
    }
    do throws(PosixError) {
      _ = try OwnThread("rxd plugin", stackBytes: 1 << 20) { [self] in
        do throws(PluginFault) {
          try process.start()
          process.run()
        } catch { cannotStart(error) }
      }
    } catch {
      end(PluginEnd(reason: "no thread for the plugin: \(error.message)"))
    }
  }

  private func cannotStart(_ fault: PluginFault) { end(PluginEnd(reason: fault.message, isFinal: true)) }

  func submit(_ inputs: [PluginInput]) {
    writer.buffer.clear()
    let isIgnored = shared.withLock { shared -> Bool in
      // The node learns of the pause in a later turn, and hands these over again.
      if shared.isWaitingForAgain, inputs.first?.isAgain != true { return true }
      shared.isWaitingForAgain = false
      if shared.awaited.isEmpty { shared.since = monotonicNow() }
      for input in inputs {
        let id = nextID
        nextID += 1
        if let problem = writer.append(input, id: id, spec, perEvent) {
          shared.awaited.append(Awaited(id: id, number: input.number, kind: .failed(problem)))
          continue
        }
        shared.awaited.append(Awaited(id: id, number: input.number, kind: .input))
        if input.wantsState {
          writer.appendSave(id: nextID)
          shared.awaited.append(Awaited(id: nextID, number: input.number, kind: .state))
          nextID += 1
        }
      }
      return false
    }
    if isIgnored { return }
    process.send(writer.buffer.bytes)
    if services.isImmediate { pump() } else { takeFailed() }
  }

  /// In tests: waits for the answers.
  private func pump() {
    takeFailed()
    while shared.withLock({ !$0.awaited.isEmpty }) || process.isEnding, process.step(until: nil) {}
  }

  /// Inputs that could not be handed over and are next.
  private func takeFailed() {
    let failed = shared.withLock { Self.failed(&$0) }
    report(failed)
  }

  private static func failed(_ shared: inout Shared) -> [PluginAnswer] {
    var found: [PluginAnswer] = []
    while let first = shared.awaited.first, case .failed(let message) = first.kind {
      shared.awaited.removeFirst()
      found.append(PluginAnswer(number: first.number, verdict: .rejected(message)))
    }
    return found
  }

  func flush() {
    if spec.kind == .sink {
      process.send("{\"flush\":1}\n")
      if services.isImmediate { pump() }
    }
  }

  func close() {
    isClosed.store(true, ordering: .releasing)
    process.send("{\"close\":1}\n")
    process.close()
    if services.isImmediate { while process.step(until: nil) {} }
  }

  private func end(_ end: PluginEnd) {
    services.executor.post { [self] in
      if !isClosed.load(ordering: .acquiring) { receiver?.ended(end) }
    }
  }

  private func report(_ answers: [PluginAnswer]) {
    guard !answers.isEmpty else { return }
    services.executor.post { [self] in
      if !isClosed.load(ordering: .acquiring) { receiver?.take(answers) }
    }
  }

  // MARK: On the thread of the program

  var waitingSince: Int64? { shared.withLock { $0.awaited.isEmpty ? nil : $0.since } }

  func take(_ frame: Value, _ block: LineBlock) -> String? {
    let opened = frame["opened"]
    if !opened.isAbsent {
      guard frame["error"].is(.string) else {
        isOpen = true
        return nil
      }
      end(PluginEnd(reason: "the plugin refuses: \(frame["error"].text)", place: frame["at"].text, isFinal: true))
      process.close()
      return nil
    }
    let id = frame["id"]
    if id.is(.int) { return answer(Int(id.asInt), frame, block) }
    let through = frame["through"]
    if through.is(.int) { return answer(through: Int(through.asInt)) }
    return "it has sent a frame that the contract does not have"
  }

  private func answer(_ id: Int, _ frame: Value, _ block: LineBlock) -> String? {
    let (awaited, failed) = shared.withLock { shared -> (Awaited?, [PluginAnswer]) in
      let failed = Self.failed(&shared)
      guard let first = shared.awaited.first, first.id == id else { return (nil, failed) }
      shared.awaited.removeFirst()
      shared.since = monotonicNow()
      return (first, failed)
    }
    answers += failed
    guard let awaited else { return "it has answered \(id), which is not the next one" }
    var answer = PluginAnswer(number: awaited.number)
    if case .state = awaited.kind {
      let state = frame["state"]
      if state.isAbsent {
        services.log(.warning, "the plugin has not saved its state: \(Printable.cut(frame["error"].text))")
        return nil
      }
      let text = OutputBuffer(capacity: 256)
      _ = JSONWriter.append(state, to: text)
      answer.state = Array(text.bytes)
      answers.append(answer)
      return nil
    }
    if frame["error"].is(.string) {
      answer.verdict = .rejected(Printable.cut(frame["error"].text, limit: 500))
    } else if frame["retry"].is(.string), spec.kind == .sink {
      answer.verdict = .again(Printable.cut(frame["retry"].text, limit: 500))
      // What has been handed over since is ignored by the plugin.
      shared.withLock {
        $0.awaited.removeAll()
        $0.isWaitingForAgain = true
      }
    } else {
      let events = frame["events"]
      if events.is(.jsonList) {
        var index = 0
        while true {
          let event = JSONParser.element(events, at: index)
          if event.isAbsent || event.isError { break }
          answer.events.append(event)
          index += 1
        }
        if !answer.events.isEmpty { answer.owner = block }
      } else if !events.isAbsent {
        return "'events' is no list"
      }
    }
    let timers = frame["timers"]
    if timers.is(.jsonMap) {
      let arena = Arena()
      let tree = JSONParser().expand(timers, into: arena)
      for entry in tree.is(.map) ? Array(tree.entries) : [] {
        let name = String(decoding: JSONParser.unescape(entry.key, into: arena).rawBytes, as: UTF8.self)
        guard entry.value.is(.int) || entry.value.isNull else {
          return "the timer '\(Printable.cut(name))' has no whole number"
        }
        answer.timers.append((name, entry.value.isNull ? nil : entry.value.asInt))
      }
    }
    answers.append(answer)
    return nil
  }

  private func answer(through id: Int) -> String? {
    let found = shared.withLock { shared -> [Awaited]? in
      guard let last = shared.awaited.firstIndex(where: { $0.id == id }) else { return nil }
      let found = Array(shared.awaited.prefix(last + 1))
      shared.awaited.removeFirst(last + 1)
      shared.since = monotonicNow()
      return found
    }
    guard let found else { return "it has answered through \(id), which is not awaited" }
    for one in found {
      switch one.kind {
      case .input: answers.append(PluginAnswer(number: one.number))
      case .failed(let message): answers.append(PluginAnswer(number: one.number, verdict: .rejected(message)))
      case .state: break
      }
    }
    return nil
  }

  func tookAll() {
    let all = answers
    answers = []
    report(all)
  }

  func ended(_ reason: String, isFinal: Bool) {
    tookAll()
    shared.withLock { $0.awaited.removeAll() }
    end(PluginEnd(reason: reason, isFinal: isFinal, wasOpen: isOpen))
  }
}
