import PipelineCore
import Synchronization

/// An operator or a sink of a native plugin, on its own thread.
final class NativeInstance: PluginInstance, @unchecked Sendable {
  private let services: PluginServices
  private weak var receiver: (any PluginReceiver)?
  private let make: @Sendable (PluginOpening) throws(PluginFault) -> NativeHandle
  /// Used by the worker only.
  private var handle: NativeHandle?
  /// The output has completed, so inputs submitted after that are ignored. Used by the worker only.
  private var hasFinished = false
  private let pause = RetryPause()
  private let isClosed = Atomic(false)
  private let context = Mutex<NativeContext?>(nil)

  init(
    _ services: PluginServices, _ receiver: any PluginReceiver,
    _ make: @escaping @Sendable (PluginOpening) throws(PluginFault) -> NativeHandle
  ) {
    self.services = services
    self.receiver = receiver
    self.make = make
  }

  func open(_ opening: PluginOpening) {
    services.worker.enqueue { [self] in
      do throws(PluginFault) {
        let opened = try make(opening)
        context.withLock { $0 = opened.context }
        handle = opened
        hasFinished = opened.hasFinished
        if hasFinished {
          services.route.post { [self] in
            if !isClosed.load(ordering: .acquiring) { receiver?.finishedAtOnce() }
          }
        }
      } catch {
        end(PluginEnd(reason: "the plugin refuses: \(error.message)", path: error.path, isFinal: true))
      }
    }
  }

  func submit(_ inputs: [PluginInput]) { services.worker.enqueue { [self] in run(inputs) } }

  func flush() {}

  func close() {
    isClosed.store(true, ordering: .releasing)
    context.withLock { $0 }?.isClosing.store(true, ordering: .releasing)
    services.worker.enqueue { [self] in handle = nil }
  }

  private func end(_ end: PluginEnd) {
    services.route.post { [self] in
      if !isClosed.load(ordering: .acquiring) { receiver?.ended(end) }
    }
  }

  private func report(_ answers: [PluginAnswer]) {
    guard !answers.isEmpty else { return }
    services.route.post { [self] in
      if !isClosed.load(ordering: .acquiring) { receiver?.take(answers) }
    }
  }

  // MARK: On the worker

  private func run(_ inputs: [PluginInput]) {
    guard let handle, !isClosed.load(ordering: .acquiring) else { return }
    var rest = pause.admit(inputs)
    // A state is requested after an input, so that input is the last of a call.
    while !rest.isEmpty, !pause.isOn, !hasFinished, self.handle != nil {
      let end = rest.firstIndex(where: \.wantsState).map { $0 + 1 } ?? rest.endIndex
      call(handle, Array(rest[..<end]))
      rest = rest[end...]
    }
  }

  private func call(_ handle: NativeHandle, _ inputs: [PluginInput]) {
    let (answers, fault) = handle.run(inputs, pausing: pause)
    if answers.last?.finishes == true { hasFinished = true }
    report(answers)
    handle.context.flushLog()
    guard let fault else { return }
    self.handle = nil
    end(PluginEnd(reason: "the plugin failed: \(fault.message)", path: fault.path, isFinal: true))
  }
}
