import PipelineCore
import Synchronization

/// An operator or a sink of a plugin that is a program. All instances of a step are in one process.
final class ProcessInstance: PluginInstance, @unchecked Sendable {
  private let plugin: ProcessPlugin
  private let spec: PluginComponentSpec
  private let services: PluginServices
  private weak var receiver: (any PluginReceiver)?
  private let closed = Atomic(false)
  private let finished = Atomic(false)
  // Used in turns.
  private var program: SharedProgram?
  /// Whether its first inputs were already given to a process that has ended.
  private var isRepeating = false
  let pause = RetryPause()

  /// Its number in frames; set when it joins a program.
  var number = 0
  // Used on the thread of the program.
  /// Whether the plugin has opened it.
  var isOpen = false
  /// The plugin has opened or refused it.
  var isOpeningAnswered = false

  init(
    _ plugin: ProcessPlugin, _ spec: PluginComponentSpec, _ services: PluginServices, _ receiver: any PluginReceiver
  ) {
    self.plugin = plugin
    self.spec = spec
    self.services = services
    self.receiver = receiver
  }

  // MARK: From the node

  /// Whether its answers are no longer needed.
  var isOver: Bool { isClosed || hasFinished }
  var isClosed: Bool { closed.load(ordering: .acquiring) }
  /// Whether its output has completed, so that later answers are ignored.
  var hasFinished: Bool { finished.load(ordering: .acquiring) }

  func open(_ opening: PluginOpening) {
    isRepeating = opening.isRepeating
    let slot = services.meter.kept { ProgramSlot() }
    let pause = slot.restarts.rest(at: services.route.now)
    guard pause == .zero else {
      let end = PluginEnd(reason: "the plugin is being started again", hadInputs: opening.isRepeating, pause: pause)
      return services.route.post { [self] in hear(end) }
    }
    if let running = slot.program, running.join(self, opening) {
      program = running
      return running.pump(opening: self)
    }
    guard plugin.enter() else {
      let end = PluginEnd(
        reason: "more than \(ProcessPlugin.mostPrograms) steps would run the plugin at once", isFinal: true)
      return services.route.post { [self] in hear(end) }
    }
    let process = PluginProcess(
      plugin.file, expecting: plugin.document, services.log, saying: services.said, services.meter)
    let started = SharedProgram(plugin, process, spec, services, slot)
    slot.program = started
    program = started
    _ = started.join(self, opening)
    started.start()
    started.pump(opening: self)
  }

  func submit(_ inputs: [PluginInput]) {
    guard let program else { return }
    let inputs = pause.admit(inputs)
    guard !inputs.isEmpty else { return }
    let areSuspects = isRepeating
    isRepeating = false
    program.submit(inputs, of: self, areSuspects: areSuspects)
  }

  func flush() {
    if spec.kind == .sink { program?.flush(self) }
  }

  func close() {
    closed.store(true, ordering: .releasing)
    program?.leave(self)
    program = nil
  }

  // MARK: From the program

  /// Called on the program's thread.
  func finish() { finished.store(true, ordering: .releasing) }

  // MARK: From the program, in turns

  func finishedAtOnce() {
    if !isClosed { receiver?.finishedAtOnce() }
  }

  func take(_ answers: [PluginAnswer]) {
    if !isClosed { receiver?.take(answers) }
  }

  func hear(_ end: PluginEnd) {
    guard !isClosed else { return }
    receiver?.ended(end)
    close()
  }
}
