import PipelineCore
import Synchronization
import Transport

/// A source of a plugin that is a program.
final class ProcessSource: PluginSourceInstance, FrameHandler, @unchecked Sendable {
  private let process: PluginProcess
  private let spec: PluginComponentSpec
  private let services: PluginServices
  private weak var receiver: (any PluginSourceReceiver)?

  private struct Shared {
    /// The number of events that the program may still send.
    var credit = 0
    var isClosed = false
    /// Whether it has ended by itself, so that only acknowledgements may follow.
    var isReleased = false
    var isStopping = false
    /// The number of events with a token that are not acknowledged.
    var unacknowledged = 0
  }
  private let shared = Mutex(Shared())
  // Used on the thread of the program.
  private var batch = PluginSourceBatch()
  /// The memory of the batch.
  private var bytes = 0
  private var isComplete = false

  init(_ process: PluginProcess, _ spec: PluginComponentSpec, _ services: PluginServices) {
    self.process = process
    self.spec = spec
    self.services = services
    process.handler = self
  }

  // MARK: From the node

  func start(_ opening: PluginOpening, _ receiver: any PluginSourceReceiver) {
    self.receiver = receiver
    var writer = FrameWriter()
    writer.open(opening, spec, instance: 1)
    process.send(writer.buffer.bytes)
    grant(spec.credit)
    do throws(PosixError) {
      _ = try OwnThread("rxd plugin", stackBytes: 1 << 20) { [self] in
        do throws(PluginFault) {
          try process.start()
          process.run()
        } catch { end(.refused(error.message, path: "")) }
      }
    } catch {
      end(.died("the plugin cannot get a thread: \(error.message)"))
    }
  }

  private func grant(_ events: Int) {
    shared.withLock { $0.credit += events }
    process.send("{\"to\":1,\"credit\":\(events)}\n")
  }

  func acknowledge(_ tokens: [UInt64], problem: String?) {
    let (isLast, isWaiting) = shared.withLock { shared in
      shared.unacknowledged -= tokens.count
      let isLast = shared.isClosed && shared.unacknowledged <= 0
      return (isLast, shared.isReleased && !isLast)
    }
    defer { if isLast { end() } else if isWaiting { process.close(within: Self.patience) } }
    let list = tokens.map(String.init).joined(separator: ",")
    guard let problem else { return process.send("{\"to\":1,\"acknowledged\":[\(list)]}\n") }
    let text = OutputBuffer(capacity: 256)
    _ = JSONWriter.append(Arena().string(Printable.cut(problem, limit: 300)), to: text)
    process.send("{\"to\":1,\"failed\":[\(list)],\"reason\":\(String(decoding: text.bytes, as: UTF8.self))}\n")
  }

  func stop() {
    let isNew = shared.withLock { shared in
      defer { shared.isStopping = true }
      return !shared.isStopping
    }
    if isNew { process.send("{\"to\":1,\"stop\":true}\n") }
  }

  /// How long the program waits for the next acknowledgement after everything else has ended.
  private static let patience: Int64 = 5_000_000_000

  func release() {
    shared.withLock { $0.isReleased = true }
    if !releases() { process.close(within: Self.patience) }
  }

  /// Whether everything is acknowledged; otherwise the last acknowledgement ends it.
  private func releases() -> Bool {
    let isDone = shared.withLock { shared in
      shared.isClosed = true
      return shared.unacknowledged <= 0
    }
    if isDone { end() }
    return isDone
  }

  func close() {
    // Acknowledgements may arrive as late as now, when the state is on the disk.
    shared.withLock { $0.isReleased = false }
    if !releases() { process.close(within: Self.patience) }
  }

  private func end() {
    process.send("{\"close\":1}\n")
    process.close()
  }

  private func end(_ end: PluginSourceEnd) {
    // Follows the events that were queued before it.
    services.route.postBatch { [self] in
      if !shared.withLock({ $0.isClosed }) { receiver?.ended(end, of: self) }
    }
  }

  // MARK: On the thread of the program

  /// A source may be silent for any time.
  var waitingSince: Int64? { nil }

  func take(_ frame: Value, _ block: LineBlock) -> String? {
    if !frame["opened"].isAbsent {
      if frame["error"].is(.string) {
        end(.refused("the plugin refuses: \(frame["error"].text)", path: frame["at"].text))
        process.close()
      }
      return nil
    }
    guard !frame["from"].isAbsent else { return "it has sent a frame that the contract does not define" }
    if isComplete { return "it has sent something after its end" }
    let before = batch.events.count
    let event = frame["event"]
    if !event.isAbsent {
      batch.events.append(event)
      if services.usesNames, frame["name"].is(.string) { batch.name(frame["name"].text) }
    }
    let events = frame["events"]
    if events.is(.jsonList) {
      var index = 0
      let names = services.usesNames && frame["names"].is(.jsonList) ? frame["names"] : nil
      while true {
        let event = JSONParser.element(events, at: index)
        if event.isAbsent || event.isError { break }
        batch.events.append(event)
        if let names {
          let name = JSONParser.element(names, at: index)
          if name.is(.string) { batch.name(name.text) }
        }
        index += 1
      }
    }
    batch.owner = block
    bytes = block.capacity
    let rejected = frame["rejected"]
    if !rejected.isAbsent {
      let text = OutputBuffer(capacity: 256)
      if rejected.is(.string) {
        text.append(rejected.text)
      } else {
        _ = JSONWriter.append(rejected, to: text)
      }
      batch.rejections.append(
        (batch.events.count, Array(text.bytes), Printable.cut(frame["reason"].text, limit: 500)))
    }
    let token = frame["token"]
    if token.is(.int), token.asInt > 0 { batch.tokens.append(UInt64(token.asInt)) }
    let position = frame["position"]
    if !position.isAbsent {
      let text = OutputBuffer(capacity: 256)
      _ = JSONWriter.append(position, to: text)
      batch.position = Array(text.bytes)
    }
    if frame["loaded"].isTrue { batch.isLoaded = true }
    let sent = batch.events.count - before
    let isOver = shared.withLock { shared in
      shared.credit -= sent
      return shared.credit < 0
    }
    if isOver { return "it has sent more events than it has credit for" }
    if frame["complete"].isTrue {
      flush()
      isComplete = true
      end(.complete)
    } else if frame["error"].is(.string) {
      flush()
      isComplete = true
      end(.failed("the plugin failed: \(Printable.cut(frame["error"].text, limit: 500))", path: ""))
    }
    return nil
  }

  func tookAll() { flush() }

  private func flush() {
    guard !batch.isEmpty else { return }
    let sent = SentBatch(batch, of: self)
    let (events, tokens) = (batch.events.count, batch.tokens.count)
    batch = PluginSourceBatch()
    shared.withLock { $0.unacknowledged += tokens }
    // Waits while the input is paused; the credit bounds how many events wait.
    let charge = MemoryCharge(bytes, of: services.memory)
    services.route.postBatch { [self] in
      receiver?.take(sent, of: self)
      withExtendedLifetime(charge) {}
      if events > 0, !shared.withLock({ $0.isClosed }) { grant(events) }
    }
  }

  func ended(_ reason: String, isFinal: Bool) {
    flush()
    // A program that ends without `complete` has failed.
    guard !isComplete else { return }
    end(isFinal ? .refused(reason, path: "") : .died(reason))
  }
}
