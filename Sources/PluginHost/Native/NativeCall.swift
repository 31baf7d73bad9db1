import CPlugin
import PipelineCore

// One call of `process` or `write`.
extension NativeHandle {
  /// Hands inputs to the plugin.
  ///
  /// - Parameter pause: Begins if the sink asks for a pause.
  /// - Returns: The answers and, after a failure, the reason; then it must not be called again.
  func run(_ inputs: [PluginInput], pausing pause: RetryPause) -> (answers: [PluginAnswer], fault: PluginFault?) {
    let answers = NativeAnswers(inputs)
    var scope = NativeScope(answers.arena)
    let status = Self.withBatch(inputs, answers.arena) { batch in
      scope.withPointer { scope in
        if let process = component.process {
          var output = rxd_output(target: Unmanaged.passUnretained(answers).toOpaque())
          return process(pointer, scope, batch, &output)
        }
        if let write = component.write {
          // The completion of a sink's input has no event.
          if inputs.count == 1, case .complete = inputs[0].kind { return 0 }
          var verdicts = rxd_verdicts(target: Unmanaged.passUnretained(answers).toOpaque())
          return write(pointer, scope, batch, &verdicts)
        }
        return Int32(RXD_FAILED.rawValue)
      }
    }
    switch status {
    case 0:
      scope.end()
      if inputs[inputs.count - 1].wantsState, !answers.hasFinished { answers.state = save() }
      return (answers.all(), nil)
    case Int32(RXD_RETRY.rawValue) where component.process == nil:
      let found = answers.all(again: scope.takeFailure().message)
      // A sink that has delivered every input and asks for a pause gets no input again, so it must not wait for one.
      if case .again? = found.last?.verdict { pause.begin() }
      return (found, nil)
    default: return (answers.answered(), scope.takeFailure())
    }
  }

  /// Calls `body` with the inputs in the form that the plugin receives.
  private static func withBatch(
    _ inputs: [PluginInput], _ arena: Arena, _ body: (UnsafePointer<rxd_batch>) -> Int32
  ) -> Int32 {
    let raw = arena.allocate(inputs.count * MemoryLayout<rxd_input>.stride)
      .bindMemory(to: rxd_input.self, capacity: inputs.count)
    for (index, input) in inputs.enumerated() {
      var one = rxd_input()
      switch input.kind {
      case .event:
        one.kind = RXD_EVENT.rawValue
        one.event = input.event.event.value.raw
        if !input.arguments.isEmpty {
          let values = arena.elements(input.arguments.count)
          for (index, argument) in input.arguments.enumerated() { values[index] = argument.value }
          one.argument_count = UInt32(input.arguments.count)
          one.arguments = UnsafeRawPointer(values.baseAddress)?.assumingMemoryBound(to: rxd_value.self)
        }
      case .timer(let name):
        one.kind = RXD_TIMER.rawValue
        one.name = rxd_text(arena.string(name).rawBytes)
      case .complete: one.kind = RXD_COMPLETE.rawValue
      }
      raw[index] = one
    }
    var batch = rxd_batch()
    batch.size = UInt32(MemoryLayout<rxd_batch>.size)
    batch.count = UInt32(inputs.count)
    batch.inputs = UnsafePointer(raw)
    batch.input_size = MemoryLayout<rxd_input>.stride
    batch.wall_time = inputs[inputs.count - 1].wallTime
    batch.monotonic_time = inputs[inputs.count - 1].time
    return body(&batch)
  }
}

/// The answers of a native plugin to a batch. The plugin has a pointer to it during the call.
final class NativeAnswers {
  /// The memory to which the answers point.
  let arena = Arena()
  var state: [UInt8]?
  private let inputs: [PluginInput]
  private var answers: [PluginAnswer]
  /// The input of the last call; events sent for an earlier input are attributed to it.
  private var reached = 0
  private var isAnswered: [Bool]
  /// The input that completes the output; later inputs count as not taken.
  private var last: Int?

  init(_ inputs: [PluginInput]) {
    self.inputs = inputs
    answers = inputs.map { PluginAnswer(number: $0.number) }
    isAnswered = inputs.map { _ in false }
  }

  func send(_ index: Int, _ value: Value) {
    guard isTaken(index) else { return }
    reached = max(reached, min(index, inputs.count - 1))
    // Values made by the plugin are in this arena; values of the input live as long as the input. An absent value is not an event.
    if !value.isAbsent, !value.isError { answers[reached].events.append(value) }
  }

  func answer(_ index: Int, _ verdict: PluginAnswer.Verdict) {
    guard inputs.indices.contains(index), isTaken(index) else { return }
    answers[index].verdict = verdict
    isAnswered[index] = true
  }

  func set(_ name: String, _ after: Int64?) { answers[reached].timers.append((name, after)) }

  /// The output completes after everything that was sent for this input and earlier ones. Only the first call counts.
  func finish(_ index: Int) {
    guard last == nil else { return }
    let index = max(reached, min(index, inputs.count - 1))
    // The answer to a completion is the last one anyway.
    if case .complete = inputs[index].kind { return }
    last = index
    answers[index].finishes = true
  }

  var hasFinished: Bool { last != nil }

  /// Whether events made from this input count.
  private func isTaken(_ index: Int) -> Bool { last.map { index <= $0 } ?? true }

  func delivered(_ count: Int) {
    for index in 0..<min(max(0, count), inputs.count) { isAnswered[index] = true }
  }

  func delivered(at index: Int) { if inputs.indices.contains(index) { isAnswered[index] = true } }

  func all() -> [PluginAnswer] {
    let keeper = Keeper(arena, inputs)
    for index in answers.indices where !answers[index].events.isEmpty { answers[index].owner = keeper }
    if let last { return Array(answers[...last]) }
    answers[answers.count - 1].state = state
    return answers
  }

  /// The answers so far; the first unanswered input, if there is one, must be given again.
  func all(again message: String) -> [PluginAnswer] {
    guard let first = isAnswered.firstIndex(of: false) else { return answers }
    var found = answers.indices.filter { isAnswered[$0] }.map { answers[$0] }
    answers[first].verdict = .again(message)
    found.append(answers[first])
    return found
  }

  func answered() -> [PluginAnswer] { answers.indices.filter { isAnswered[$0] }.map { answers[$0] } }

  /// Keeps the memory to which the values of answers point.
  private final class Keeper {
    let arena: Arena
    let inputs: [PluginInput]
    init(_ arena: Arena, _ inputs: [PluginInput]) {
      self.arena = arena
      self.inputs = inputs
    }
  }
}
