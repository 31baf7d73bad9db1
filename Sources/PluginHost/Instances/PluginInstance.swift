import PipelineCore

/// The arguments of opening an instance.
struct PluginOpening: Sendable {
  /// The label of its step, for messages: `out/shorten`.
  var step: String
  /// The pipeline's name.
  var pipeline = ""
  var parameters: PluginArguments
  /// The state that it last saved; nil: none.
  var state: [UInt8]?
  /// The version of the spec that it was saved under.
  var stateVersion = 0
  /// The position after which a source continues; nil: it starts from the beginning.
  var position: [UInt8]?
  /// The first inputs were already given to a process that has ended; one of them may be at fault.
  var isRepeating = false
  /// Whether time is virtual.
  var isTest = false
  /// Whether `parameters` include which expressions and templates the file sets.
  var passesGiven = true
}

/// One input of an operator or a sink. A class, so that passing it on costs one reference.
final class PluginInput: Sendable {
  enum Kind: Sendable {
    case event
    case timer(String)
    case complete
  }
  /// Ascending within an instance.
  let number: Int
  let kind: Kind
  /// The event; meaningless for other kinds.
  let event: OwnedEvent
  /// The values of the parameters that are evaluated for an event, in the order of the spec; absent: the parameter is not given.
  let arguments: [OwnedValue]
  /// When the input arrived, in nanoseconds since 1970, and on the monotonic clock.
  let wallTime: Int64
  let time: Int64
  /// Whether the instance must save its state after this input.
  let wantsState: Bool
  /// The first input of a sink after a ``PluginAnswer/Verdict/again(_:)``.
  let isAgain: Bool

  init(
    number: Int, kind: Kind, event: OwnedEvent = OwnedEvent(Event(.null)), arguments: [OwnedValue] = [],
    wallTime: Int64 = 0, time: Int64 = 0, wantsState: Bool = false, isAgain: Bool = false
  ) {
    self.number = number
    self.kind = kind
    self.event = event
    self.arguments = arguments
    self.wallTime = wallTime
    self.time = time
    self.wantsState = wantsState
    self.isAgain = isAgain
  }

  /// The bytes of its event and of the values of its parameters.
  var byteCount: Int { arguments.reduce(event.byteCount) { $0 + $1.byteCount } }

  /// A copy with another number, for another instance or another attempt.
  func with(number: Int, isAgain: Bool = false) -> PluginInput {
    PluginInput(
      number: number, kind: kind, event: event, arguments: arguments, wallTime: wallTime, time: time,
      wantsState: wantsState, isAgain: isAgain)
  }
}

/// The answer of an instance to an input.
struct PluginAnswer: @unchecked Sendable {
  enum Verdict: Sendable {
    /// The sink has delivered it.
    case done
    /// The event is rejected to the errors output.
    case rejected(String)
    /// The sink asks for this input and all later ones again.
    case again(String)
  }
  var number: Int
  var verdict = Verdict.done
  /// The events that it sends; valid while `owner` lives.
  var events: [Value] = []
  var owner: AnyObject?
  /// Names of timers, and the nanoseconds until they are due; nil: the timer is cancelled.
  var timers: [(name: String, after: Int64?)] = []
  /// The state saved after the input.
  var state: [UInt8]?
  /// The operator's output completes after these events; answers to later inputs are ignored.
  var finishes = false
}

/// Why an instance has ended unexpectedly.
struct PluginEnd: Sendable {
  var reason: String
  /// The path within the parameters, such as `server.port`; empty: none.
  var path = ""
  /// Whether reopening it is pointless.
  var isFinal = false
  /// The number of the suspected input, the first unanswered one; nil if this instance had none.
  var suspect: Int?
  /// Inputs of this instance or of others were unanswered.
  var hadInputs = false
  /// The pause before it is opened again.
  var pause = TimeSpan.milliseconds(100)
}

/// Receives answers and the end of an instance. Called in turns.
protocol PluginReceiver: AnyObject {
  /// Answers in the order of the inputs.
  func take(_ answers: [PluginAnswer])
  /// The output of an operator completes before its first input.
  func finishedAtOnce()
  /// The instance has ended; no more calls follow.
  func ended(_ end: PluginEnd)
}

extension PluginReceiver {
  func finishedAtOnce() {}
}

/// A running instance of an operator or sink of a plugin.
protocol PluginInstance: AnyObject {
  /// Opens the instance; its answers go to the receiver.
  func open(_ opening: PluginOpening)
  /// Submits inputs; never blocks, except in tests.
  func submit(_ inputs: [PluginInput])
  /// No further input follows for now.
  func flush()
  /// Ends the instance; no more calls follow.
  func close()
}

/// A plugin that has been found, and makes instances of its components.
protocol PluginMaker: AnyObject, Sendable {
  var file: PluginFile { get }
  /// Throws the reason why no instance of the component could be made. Makes none.
  func check(_ component: PluginComponentSpec) throws(PluginFault)
  func makeInstance(
    of component: PluginComponentSpec, _ services: PluginServices, _ receiver: any PluginReceiver
  ) -> any PluginInstance
  /// `queue`: passes batches from a source's own thread into the pipeline.
  func makeSource(
    of component: PluginComponentSpec, _ services: PluginServices, _ queue: InputQueue
  ) -> any PluginSourceInstance
  /// Opens a pure function; throws why it cannot.
  func openRow(
    of component: PluginComponentSpec, _ opening: PluginOpening, _ meter: PluginMeter
  ) throws(PluginFault) -> any PluginRowFunction
}

/// Passes events from a source's own thread to the pipeline, or to its stand-in.
protocol SourceDelivery: Sendable {
  /// Submits a batch of this size in bytes. Blocks while there is no room. False: the source was stopped, and the batch was not taken.
  func handOver(bytes: Int, _ body: @escaping @Sendable () -> Void) -> Bool
  func stop()
}

extension InputQueue: SourceDelivery {
  func handOver(bytes: Int, _ body: @escaping @Sendable () -> Void) -> Bool { deliver(bytes: bytes, body) }
}

/// The reason why a plugin cannot be used.
package struct PluginFault: Error, Sendable {
  package var message: String
  var path = ""
  init(_ message: String, at path: String = "") {
    self.message = message
    self.path = path
  }
}

/// The services of the pipeline that an instance uses.
struct PluginServices: @unchecked Sendable {
  /// Delivers its answers in turns.
  var route: PluginRoute
  /// The step that it belongs to.
  var step: StepID
  /// Logs rxd's reports about the plugin.
  var log: @Sendable (Services.Level, String) -> Void
  /// The log lines of the plugin itself.
  var said: PluginLog
  var meter: PluginMeter
  /// Runs blocking work of a native one.
  var worker: any Worker
  var memory: MemoryBudget
  /// Whether anything reads the names of events.
  var usesNames = false
  /// Whether all work happens in turns, as in tests.
  var isImmediate: Bool { worker is ImmediateWorker }

  /// - Parameter route: That of an instance that goes to the next version in a reload; nil: it does not.
  init(_ nodeContext: NodeContext, _ route: PluginRoute? = nil) {
    let execution = nodeContext.execution
    self.route = route ?? PluginRoute(to: execution.executor)
    step = nodeContext.step
    let (write, label) = (execution.services.log, execution.plan.steps[step.number].label)
    let log: @Sendable (Services.Level, String) -> Void = { write($0, label, $1) }
    let meter = nodeContext.pluginMeter ?? PluginMeter()
    self.log = log
    self.meter = meter
    said = meter.kept { PluginLog(log, meter) }
    worker = execution.services.worker("plugin")
    memory = execution.services.memory
    usesNames = execution.namesEvents
  }
}

/// The share of one node in the current counts of its step.
struct PluginShare {
  private let meter: PluginMeter?
  private var counted = (isOpen: false, inHand: 0)

  init(_ nodeContext: NodeContext) { meter = nodeContext.pluginMeter }

  /// - Parameters:
  ///   - isOpen: The node has an instance.
  ///   - inHand: The number of events that the instance has been given and has not answered.
  /// - Returns: The same number for all instances of the step; nil: it has not changed since the last call.
  @discardableResult
  mutating func set(isOpen: Bool, inHand: Int) -> Int? {
    guard isOpen != counted.isOpen || inHand != counted.inHand else { return nil }
    let before = counted
    var all: Int?
    meter?.update {
      $0.instances += (isOpen ? 1 : 0) - (before.isOpen ? 1 : 0)
      $0.inHand += inHand - before.inHand
      all = $0.inHand
    }
    counted = (isOpen, inHand)
    return all
  }
}
