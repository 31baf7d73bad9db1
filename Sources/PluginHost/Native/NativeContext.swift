import CPlugin
import PipelineCore
import Synchronization

/// The log and the counters of one instance of a native plugin, which has a pointer to it.
final class NativeContext: Sendable {
  /// Whether the instance is being closed, so that its results are ignored.
  let isClosing = Atomic(false)
  private let log: PluginLog
  private let meter: PluginMeter

  init(_ log: PluginLog, _ meter: PluginMeter) {
    self.log = log
    self.meter = meter
  }

  deinit {
    log.end()
    meter.forget(PluginMeter.Holder(self))
  }

  func log(_ level: Services.Level, _ message: @autoclosure () -> String) { log.say(level, message()) }

  /// Reports how many lines were dropped.
  func flushLog() { log.flush() }

  func count(_ name: String, _ by: Int64) { meter.count(name, by) }

  /// A value that is not a number removes the gauge.
  func gauge(_ name: String, _ of: String, _ value: Double) {
    meter.gauge(.init(name: name, of: of), value.isNaN ? nil : value, from: PluginMeter.Holder(self))
  }
}

/// An opened instance of a native plugin: its functions and its pointer.
final class NativeHandle: @unchecked Sendable {
  let component: rxd_component
  let context: NativeContext
  /// Nil for a pure function, which needs no cleanup.
  private let life: PluginLife?
  private(set) var pointer: UnsafeMutableRawPointer?
  /// The output of an operator completes before the first input.
  private(set) var hasFinished = false
  private let raw: UnsafeMutablePointer<rxd_instance>

  init(
    _ component: rxd_component, _ spec: PluginComponentSpec, _ opening: PluginOpening, _ log: PluginLog,
    _ meter: PluginMeter
  ) throws(PluginFault) {
    self.component = component
    life = component.row == nil ? PluginLife() : nil
    context = NativeContext(log, meter)
    raw = .allocate(capacity: 1)
    raw.initialize(to: rxd_instance(target: Unmanaged.passUnretained(context).toOpaque()))
    guard let open = component.open else { return }
    let arena = Arena()
    var scope = NativeScope(arena)
    defer { scope.end() }
    let instance = raw
    var made: UnsafeMutableRawPointer?
    var step = opening.step
    let pipeline = arena.string(opening.pipeline)
    let status = step.withUTF8 { step in
      Self.withText(opening.state) { state in
        Self.withText(opening.position) { position in
          scope.withPointer { scope in
            var raw = rxd_opening()
            raw.size = UInt32(MemoryLayout<rxd_opening>.size)
            raw.is_test = opening.isTest ? 1 : 0
            raw.instance = instance
            raw.scope = scope
            raw.parameters = opening.parameters.value(spec, plain: false, in: arena).raw
            raw.step = rxd_text(UnsafeRawBufferPointer(step))
            raw.state = state
            raw.state_version = UInt32(clamping: opening.stateVersion)
            raw.position = position
            raw.pipeline = rxd_text(pipeline.rawBytes)
            raw.component = component.name
            let given = opening.parameters.given(spec)
            return given.withUnsafeBufferPointer { given in
              raw.given = opening.passesGiven ? given.baseAddress : nil
              raw.given_count = given.count
              return open(&raw, &made)
            }
          }
        }
      }
    }
    pointer = made
    hasFinished =
      status == Int32(RXD_FINISH.rawValue) && spec.kind == .operator && (spec.form == .stream || spec.finishes)
    guard status == 0 || hasFinished else { throw scope.takeFailure() }
  }

  private static func withText<Result>(_ bytes: [UInt8]?, _ body: (rxd_text) -> Result) -> Result {
    guard let bytes else { return body(.none) }
    // An empty array may have a null address, which would mean that there is no array.
    return (bytes + [0]).withUnsafeBytes { body(rxd_text(UnsafeRawBufferPointer(rebasing: $0.dropLast()))) }
  }

  deinit {
    if let pointer { component.close?(pointer) }
    raw.deallocate()
  }

  /// The state after all inputs of `process`; nil: the plugin could not save it, which is logged.
  func save() -> [UInt8]? {
    guard let save = component.save else { return nil }
    let arena = Arena()
    var scope = NativeScope(arena)
    defer { scope.end() }
    var bytes = rxd_bytes()
    let status = scope.withPointer { save(pointer, $0, &bytes) }
    defer { bytes.release?(&bytes) }
    guard status == 0 else {
      context.log(.warning, "the state cannot be saved: \(scope.takeFailure().message)")
      return nil
    }
    return Array(UnsafeRawBufferPointer(start: bytes.bytes, count: bytes.bytes == nil ? 0 : bytes.count))
  }
}
