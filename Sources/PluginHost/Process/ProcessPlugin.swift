import PipelineCore
import Synchronization

/// A plugin that is a program: each step that uses it has its own process.
final class ProcessPlugin: PluginMaker {
  let file: PluginFile
  /// The document with its specs that the pipeline file was checked against.
  let document: [UInt8]
  /// The number of running programs, for one pipeline file.
  private let running = Atomic(0)
  static let mostPrograms = 64

  /// Whether another program may start; each start ends with ``left()``.
  func enter() -> Bool {
    if running.add(1, ordering: .relaxed).newValue <= Self.mostPrograms { return true }
    running.subtract(1, ordering: .relaxed)
    return false
  }

  func left() { running.subtract(1, ordering: .relaxed) }

  init(_ file: PluginFile, _ document: [UInt8]) {
    self.file = file
    self.document = document
  }

  func check(_ spec: PluginComponentSpec) throws(PluginFault) {
    if let refusal = file.refusal() { throw PluginFault(refusal) }
  }

  func makeInstance(
    of spec: PluginComponentSpec, _ services: PluginServices, _ receiver: any PluginReceiver
  ) -> any PluginInstance {
    ProcessInstance(self, spec, services, receiver)
  }

  func makeSource(
    of spec: PluginComponentSpec, _ services: PluginServices, _ queue: InputQueue
  ) -> any PluginSourceInstance {
    ProcessSource(
      PluginProcess(file, expecting: document, services.log, saying: services.said, services.meter), spec, services)
  }

  func openRow(
    of spec: PluginComponentSpec, _ opening: PluginOpening, _ meter: PluginMeter
  ) throws(PluginFault) -> any PluginRowFunction {
    throw PluginFault("'form: row' is for native plugins")
  }

  /// Starts the program and asks for its spec.
  static func ask(
    _ file: PluginFile, _ log: @escaping @Sendable (Services.Level, String) -> Void
  ) throws(PluginFault) -> [UInt8] {
    let meter = PluginMeter()
    let process = PluginProcess(file, expecting: nil, log, saying: PluginLog(log, meter), meter)
    let listener = SpecListener()
    process.handler = listener
    try process.start()
    while process.spec == nil, process.step(until: nil) {}
    defer { process.destroy() }
    guard let spec = process.spec else { throw PluginFault(listener.reason ?? "it has ended without a spec") }
    return spec
  }

  private final class SpecListener: FrameHandler {
    var reason: String?
    var waitingSince: Int64? { nil }
    func take(_ frame: Value, _ block: LineBlock) -> String? { nil }
    func tookAll() {}
    func ended(_ reason: String, isFinal: Bool) { self.reason = reason }
  }
}

/// Writes frames.
struct FrameWriter: @unchecked Sendable {
  let buffer = OutputBuffer(capacity: 64 << 10)
  private let arena = Arena()

  /// The first frame of an instance.
  mutating func open(_ opening: PluginOpening, _ spec: PluginComponentSpec, instance: Int) {
    buffer.append("{\"open\":\(instance),\"kind\":\"\(spec.kind.rawValue)\",\"name\":\"\(spec.name)\",\"step\":")
    append(arena.string(opening.step))
    buffer.append(",\"pipeline\":" as StaticString)
    append(arena.string(opening.pipeline))
    buffer.append(",\"parameters\":" as StaticString)
    append(opening.parameters.value(spec, plain: true, in: arena))
    if let state = opening.state {
      buffer.append(",\"stateVersion\":\(opening.stateVersion),\"state\":")
      buffer.append(state)
    }
    if let position = opening.position {
      buffer.append(",\"position\":" as StaticString)
      buffer.append(position)
    }
    if opening.isTest { buffer.append(",\"test\":true" as StaticString) }
    buffer.append("}\n" as StaticString)
    arena.reset()
  }

  /// Appends the frame of an input; returns why it cannot be written, or nil.
  mutating func append(
    _ input: PluginInput, id: Int, to instance: Int, _ spec: PluginComponentSpec, _ perEvent: [PluginParameter]
  ) -> String? {
    let start = buffer.count
    buffer.append("{\"id\":\(id),\"to\":\(instance)")
    switch input.kind {
    case .event:
      buffer.append(",\"event\":" as StaticString)
      if let failure = JSONWriter.append(input.event.event.value, to: buffer) {
        buffer.truncate(to: start)
        return "the event cannot be written: \(failure)"
      }
      if !input.arguments.isEmpty {
        buffer.append(",\"with\":{" as StaticString)
        var isFirst = true
        for (parameter, argument) in zip(perEvent, input.arguments) where !argument.value.isAbsent {
          buffer.append(isFirst ? "\"\(parameter.name)\":" : ",\"\(parameter.name)\":")
          isFirst = false
          if let failure = JSONWriter.append(argument.value, to: buffer) {
            buffer.truncate(to: start)
            return "'\(parameter.name)' cannot be written: \(failure)"
          }
        }
        buffer.append("}" as StaticString)
      }
    case .timer(let name):
      buffer.append(",\"timer\":" as StaticString)
      append(arena.string(name))
      arena.reset()
    case .complete: buffer.append(",\"complete\":true" as StaticString)
    }
    if spec.hasClock { buffer.append(",\"now\":\(input.wallTime)") }
    if input.isAgain { buffer.append(",\"again\":true" as StaticString) }
    buffer.append("}\n" as StaticString)
    if buffer.count - start > PluginProcess.frameLimit {
      buffer.truncate(to: start)
      return "the event has more than \(PluginProcess.frameLimit >> 20) MiB"
    }
    return nil
  }

  mutating func appendSave(id: Int, to instance: Int) {
    buffer.append("{\"id\":\(id),\"to\":\(instance),\"save\":true}\n")
  }

  /// The instance gets no further input for now.
  mutating func appendFlush(_ instance: Int) { buffer.append("{\"flush\":\(instance)}\n") }

  private func append(_ value: Value) { _ = JSONWriter.append(value, to: buffer) }
}
