import PipelineCore

/// A batch on its way to a turn. A batch that no turn takes, because the source or the pipeline has ended, is reported
/// as failed, so its sender keeps it.
final class SentBatch: @unchecked Sendable {
  let batch: PluginSourceBatch
  private let instance: any PluginSourceInstance
  /// Set in the turn that takes it.
  var isTaken = false

  init(_ batch: PluginSourceBatch, of instance: any PluginSourceInstance) {
    self.batch = batch
    self.instance = instance
  }

  deinit {
    if !isTaken, !batch.tokens.isEmpty { instance.acknowledge(batch.tokens, problem: "the source has ended before") }
  }
}

/// Events that a source hands over together.
struct PluginSourceBatch: @unchecked Sendable {
  /// Valid while `owner` lives.
  var events: [Value] = []
  var owner: AnyObject?
  /// The tokens of events whose acknowledgement the plugin requests.
  var tokens: [UInt64] = []
  /// The position after the last event; nil: unchanged.
  var position: [UInt8]?
  /// Input that is not an event, with the reason; each precedes the event with its index.
  var rejections: [(index: Int, input: [UInt8], message: String)] = []

  /// Names of events, each with the event's index, in order.
  var names: [(index: Int, name: String)] = []

  /// Names the last event, replacing an earlier name; an empty text removes the name.
  mutating func name(_ name: String) {
    let index = events.count - 1
    if names.last?.index == index { names.removeLast() }
    guard !name.isEmpty else { return }
    names.append((index, Printable.cut(name, limit: 1_000)))
  }

  /// With these events, the source has sent the data that existed when it was opened.
  var isLoaded = false

  var isEmpty: Bool { events.isEmpty && rejections.isEmpty && position == nil && !isLoaded }
}

enum PluginSourceEnd: Sendable {
  case complete
  case failed(String, path: String)
  /// The process has ended without being asked to, and is started again.
  case died(String)
  /// The source cannot be opened with these parameters.
  case refused(String, path: String)
}

/// A running instance of a source of a plugin.
protocol PluginSourceInstance: AnyObject, Sendable {
  func start(_ opening: PluginOpening, _ receiver: any PluginSourceReceiver)
  /// Reports that everything the events with these tokens have caused is done, or has failed. From any thread.
  func acknowledge(_ tokens: [UInt64], problem: String?)
  /// Asks the source to send nothing more and to end.
  func stop()
  /// Ends the instance, which has ended by itself, as soon as everything that it has sent is acknowledged, or when nothing has been for 5 s.
  func release()
  /// Ends the instance; no more calls follow.
  func close()
}

/// Receives batches and the end of a source. Called in turns.
protocol PluginSourceReceiver: AnyObject {
  func take(_ sent: SentBatch, of instance: any PluginSourceInstance)
  func ended(_ end: PluginSourceEnd, of instance: any PluginSourceInstance)
}
