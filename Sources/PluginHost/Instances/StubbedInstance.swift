import PipelineCore

/// An operator of a plugin that a test replaces by stubs; the plugin does not run. Everything happens in turns.
final class StubbedInstance: PluginInstance {
  private let component: String
  private let standIn: any PluginStandIn
  private weak var receiver: (any PluginReceiver)?
  /// In the order of the inputs; answers are passed on up to the first missing one.
  private var waiting: [(number: Int, answer: PluginAnswer?, call: (any Cancellable)?)] = []
  private let executor: Executor

  init(_ component: String, _ standIn: any PluginStandIn, _ executor: Executor, _ receiver: any PluginReceiver) {
    self.component = component
    self.standIn = standIn
    self.executor = executor
    self.receiver = receiver
  }

  func open(_ opening: PluginOpening) {}
  func flush() {}

  func submit(_ inputs: [PluginInput]) {
    for input in inputs {
      guard case .event = input.kind else {
        waiting.append((input.number, PluginAnswer(number: input.number), nil))
        continue
      }
      waiting.append((input.number, nil, nil))
      let number = input.number
      let instance = Weak(self)
      let call = standIn.run(PluginCall(component: component, event: Self.json(input.event.event.value))) { result in
        instance.object?.answered(number, result)
      }
      if let index = waiting.firstIndex(where: { $0.number == number }) { waiting[index].call = call }
    }
    handOnLater()
  }

  func close() {
    let left = waiting
    waiting = []
    for one in left { one.call?.cancel() }
  }

  private func answered(_ number: Int, _ result: Result<PluginReply, PluginRefusal>) {
    guard let index = waiting.firstIndex(where: { $0.number == number }) else { return }
    var answer = PluginAnswer(number: number)
    switch result {
    case .success(let reply):
      answer.events = reply.events.map(\.value)
      answer.owner = Owner(reply.events)
      answer.finishes = reply.finishes
    case .failure(let refusal): answer.verdict = .rejected(refusal.message)
    }
    waiting[index].answer = answer
    handOnLater()
  }

  /// Passes answers on in a turn of their own, like the answers of a plugin.
  private func handOnLater() {
    let instance = Weak(self)
    executor.post { instance.object?.handOn() }
  }

  private func handOn() {
    let known = waiting.prefix { $0.answer != nil }.compactMap(\.answer)
    guard !known.isEmpty else { return }
    waiting.removeFirst(known.count)
    receiver?.take(known)
  }

  /// Keeps the values of an answer.
  private final class Owner {
    let events: [OwnedValue]
    init(_ events: [OwnedValue]) { self.events = events }
  }

  static func json(_ value: Value) -> [UInt8] {
    let buffer = OutputBuffer(capacity: 256)
    return JSONWriter.append(value, to: buffer) == nil ? Array(buffer.bytes) : []
  }
}

/// A pure function of a plugin that a test replaces by stubs.
final class StubbedRow: PluginRowFunction, Sendable {
  private let component: String
  private let standIn: any PluginStandIn

  init(_ component: String, _ standIn: any PluginStandIn) {
    self.component = component
    self.standIn = standIn
  }

  func call(_ value: inout Value, _ arguments: UnsafePointer<Value>?, _ arena: Arena) -> RowVerdict {
    switch standIn.reply(to: PluginCall(component: component, event: StubbedInstance.json(value))) {
    case .success(let reply):
      guard let first = reply.events.first else { return reply.finishes ? .finish : .drop }
      first.keep(in: arena)
      value = first.value
      return reply.finishes ? .last : .pass
    case .failure(let refusal): return .failed(refusal.message)
    }
  }
}
