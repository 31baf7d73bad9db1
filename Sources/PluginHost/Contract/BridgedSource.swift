import CPlugin
import Glibc
import PipelineCore
import PipelineTesting
import Transport

/// A source of a shared library, run through the line protocol.
final class BridgedSource: SourceDelivery, PluginSourceReceiver, @unchecked Sendable {
  private struct Shared {
    var credit = 0
    var isStopping = false
    var isClosed = false
  }
  private let shared = Guarded(Shared())
  private let number: Int
  private let output: BridgeOutput
  private let counts: BridgedCounts
  private var source: NativeSource?

  init(_ number: Int, _ output: BridgeOutput, _ counts: BridgedCounts) {
    self.counts = counts
    self.number = number
    self.output = output
  }

  func start(
    _ opening: PluginOpening, _ services: PluginServices,
    _ make: @escaping @Sendable (PluginOpening) throws(PluginFault) -> NativeHandle
  ) {
    let (number, output) = (number, output)
    let source = NativeSource(services, self) { opening throws(PluginFault) in
      let handle = try make(opening)
      output.write("{\"opened\":\(number)}\n")
      output.flush()
      return handle
    }
    self.source = source
    source.start(opening, self)
  }

  func take(_ frame: Value) {
    if frame["credit"].is(.int) {
      shared.withLock { $0.credit += Int(frame["credit"].asInt) }
      shared.notify()
    } else if !frame["acknowledged"].isAbsent {
      source?.acknowledge(tokens(frame["acknowledged"]), problem: nil)
    } else if !frame["failed"].isAbsent {
      source?.acknowledge(tokens(frame["failed"]), problem: frame["reason"].text)
    } else if frame["stop"].isTrue {
      shared.withLock { $0.isStopping = true }
      shared.notify()
      source?.stop()
    }
  }

  private func tokens(_ list: Value) -> [UInt64] {
    guard case .list(let elements) = TestValue(list) else { return [] }
    return elements.compactMap { if case .int(let token) = $0 { UInt64(clamping: token) } else { nil } }
  }

  func close() {
    shared.withLock { $0.isClosed = true }
    shared.notify()
    source?.close()
  }

  // MARK: On the thread of the source

  /// Waits until another event may be sent; false: no more may be sent.
  private func awaitCredit() -> Bool {
    shared.wait(until: nil) { shared -> Bool? in
      if shared.isClosed { return false }
      if shared.credit > 0 {
        shared.credit -= 1
        return true
      }
      return shared.isStopping ? false : nil
    } ?? false
  }

  func handOver(bytes: Int, _ body: @escaping @Sendable () -> Void) -> Bool {
    body()
    return !shared.withLock { $0.isClosed }
  }

  func stop() {}

  func take(_ sent: SentBatch, of instance: any PluginSourceInstance) {
    sent.isTaken = true
    counts.report()
    let batch = sent.batch
    // A token for each event and rejection, or the tokens in the order of arrival.
    var tokens = batch.tokens[...]
    let isPaired = tokens.count == batch.events.count + batch.rejections.count
    var rejections = batch.rejections[...]
    var names = batch.names[...]
    func name(of index: Int) -> String {
      guard let first = names.first, first.index == index else { return "" }
      names.removeFirst()
      return ",\"name\":\(JSONText.string(first.name).text)"
    }
    func token() -> String { isPaired ? tokens.popFirst().map { ",\"token\":\($0)" } ?? "" : "" }
    func reject(before index: Int) {
      while let first = rejections.first, first.index <= index {
        rejections.removeFirst()
        let input = JSONText.string(String(decoding: first.input, as: UTF8.self)).text
        output.write(
          "{\"from\":\(number),\"rejected\":\(input),\"reason\":\(JSONText.string(first.message).text)\(token())}\n")
      }
    }
    for (index, event) in batch.events.enumerated() {
      reject(before: index)
      output.flush()
      guard awaitCredit() else {
        // No receiver accepts them, so their events count as failed.
        instance.acknowledge(Array(tokens), problem: "the source has ended before")
        return
      }
      let isLast = index == batch.events.count - 1 && rejections.isEmpty
      output.write(
        "{\"from\":\(number),\"event\":\(output.json(event) ?? "null")\(name(of: index))\(token())\(isLast ? position(batch) : "")}\n"
      )
    }
    reject(before: .max)
    if batch.events.isEmpty || batch.rejections.last?.index == batch.events.count, batch.position != nil {
      output.write("{\"from\":\(number)\(position(batch))}\n")
    }
    if batch.isLoaded { output.write("{\"from\":\(number),\"loaded\":true}\n") }
    if !isPaired { for token in tokens { output.write("{\"from\":\(number),\"events\":[],\"token\":\(token)}\n") } }
    output.flush()
  }

  private func position(_ batch: PluginSourceBatch) -> String {
    batch.position.map { ",\"position\":\"\(Base64.encode($0))\"" } ?? ""
  }

  func ended(_ end: PluginSourceEnd, of instance: any PluginSourceInstance) {
    counts.report()
    switch end {
    case .complete: output.write("{\"from\":\(number),\"complete\":true}\n")
    case .failed(let reason, let path):
      let text = path.isEmpty ? reason : "\(reason) (at '\(path)')"
      output.write("{\"from\":\(number),\"error\":\(JSONText.string(text).text)}\n")
    case .died(let reason): output.write("{\"from\":\(number),\"error\":\(JSONText.string(reason).text)}\n")
    case .refused(let reason, let path):
      let prefix = "the plugin refuses: "
      let message = reason.hasPrefix(prefix) ? String(reason.dropFirst(prefix.count)) : reason
      output.write(BridgeOutput.refusal(number, PluginFault(message, at: path)))
    }
    output.flush()
  }
}
