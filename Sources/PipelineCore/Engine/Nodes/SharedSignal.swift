internal import DequeModule

/// A subscription of a shared signal; events reach subscriptions in the order of their numbers.
protocol NumberedSubscription: Subscription {
  var serial: UInt64 { get }
}

/// A running named signal: one subscription upstream, many downstream.
///
/// The first subscriber starts the signal, the last to leave stops it, and a subscriber that comes after its end starts
/// it again, like Rx's `share`. Late subscribers receive later events only. The option `share` changes each of these:
/// see ``Sharing``.
final class SharedSignal: Downstream {
  private unowned let execution: Execution
  private let index: Int
  private var subscribers: [Subscriber] = [] { didSet { subscribersChanged() } }
  /// The receiver, if there is only one. Unmanaged like `receivers`, so that an event avoids retain and release.
  @exclusivity(unchecked) private var only: Edge?
  /// The subscribers that receive an event: those that existed when it came. A replaced list, like a removed
  /// subscriber, lives to the end of the turn.
  @exclusivity(unchecked) private var receivers = Receivers([])
  /// Whether the next event must rebuild `receivers`: once for thousands of subscriptions in a row.
  @exclusivity(unchecked) private var isStale = false
  private var connection: (any Subscription)?
  private let sharing: Sharing
  /// The events that late subscribers receive first, oldest first; their numbers are consecutive.
  private var kept = Deque<(number: UInt64, at: Instant, event: OwnedEvent)>()
  private var lastEvent: UInt64 = 0
  private enum Ending {
    case completed
    case failed(SignalFailure)
  }
  /// The outcome of the signal, if it does not run again.
  private var ending: Ending?
  /// Whether the signal ran when its state was saved.
  private var wasConnected: Bool?

  init(_ execution: Execution, _ index: Int) {
    self.execution = execution
    self.index = index
    sharing = execution.plan.named[index].sharing
  }

  private func subscribersChanged() {
    if !isStale { execution.executor.releaseLater(receivers) }
    isStale = true
    only = subscribers.count == 1 && sharing.replay == 0 ? subscribers[0].edge : nil
  }

  /// An immutable list of subscribers in raw memory.
  private final class Receivers {
    private let list: UnsafeMutableBufferPointer<Unmanaged<Subscriber>>

    init(_ subscribers: [Subscriber]) {
      list = .allocate(capacity: subscribers.count)
      _ = list.initialize(from: subscribers.map { .passUnretained($0) })
    }

    deinit { list.deallocate() }

    @inline(__always)
    func pass(_ event: Event) {
      for receiver in list {
        receiver._withUnsafeGuaranteedRef { subscriber in
          if subscriber.state == .receiving { subscriber.edge.pass(event) }
        }
      }
    }
  }

  var isConnected: Bool { connection != nil }

  /// Writes the records of the signal and of the subscriptions.
  func record(_ state: inout StateWriter) {
    if !sharing.isPlain {
      state.record(.reference(reference)) { state in
        expire()
        state.write(lastEvent)
        state.write(each: kept) {
          $0.write($1.at)
          $0.write($1.event)
        }
        state.write(connection != nil)
        state.write(ending != nil)
        if case .failed(let failure)? = ending { state.write(Optional(failure)) } else { state.write(false) }
      }
    }
    if execution.errorsOutputs.named[index].wasWaitedFor {
      state.record(.reference(errorsReference)) { $0.write(true) }
    }
    if let connection { execution.record(connection, of: execution.plan.named[index].body, &state) }
  }

  private var errorsReference: String { "errors/\(execution.plan.named[index].name)" }
  private var reference: String { "share/\(execution.plan.named[index].name)" }

  /// Reads the part of the output of `record` that concerns the signal itself, before the first subscription.
  func restore(_ restoration: Restoration) {
    if restoration.record(reference: errorsReference) != nil { execution.errorsOutputs.named[index].restoreCompleted() }
    guard !sharing.isPlain, var state = restoration.record(reference: reference) else { return }
    do throws(StateFault) {
      lastEvent = try state.read()
      let count = try state.count()
      guard count <= sharing.replay, lastEvent >= UInt64(count), lastEvent < 1 << 62 else {
        throw StateFault("there are too many events")
      }
      for number in 0..<count {
        let number = lastEvent - UInt64(count) + UInt64(number) + 1
        kept.append((number, try state.read(), try state.read()))
      }
      wasConnected = try state.read(Bool.self)
      if try state.read(Bool.self) {
        ending = try state.read(SignalFailure?.self).map { .failed($0) } ?? .completed
      }
    } catch {
      kept.removeAll()
      ending = nil
    }
  }

  /// Called when all sinks have subscribed.
  func launched() {
    guard sharing.start == .eager || sharing.stop == .never && wasConnected == true else { return }
    if wasConnected ?? true, connection == nil, ending == nil { connect() }
  }

  /// Stops the signal, because the pipeline stops.
  func disconnect() {
    kept.removeAll()
    mark = EventTime.unknown
    guard let connection else { return }
    self.connection = nil
    connection.cancel()
  }

  private func connect() {
    // A replayed event may have ended the pipeline: then nothing starts any more.
    guard execution.outcome == nil else { return }
    // Events may come before `subscribe` returns; this keeps a second subscriber, made by such an event, from
    // connecting again.
    connection = NoSubscription.make()
    let made = execution.subscribe(execution.plan.named[index].body, execution.topScope, to: self)
    if connection == nil { made.cancel() } else { connection = made }
  }

  // MARK: Late subscribers

  private func keep(_ event: Event) {
    lastEvent &+= 1
    kept.append((lastEvent, execution.executor.now, OwnedEvent(event)))
    if kept.count > sharing.replay { kept.removeFirst() }
    expire()
  }

  private func expire() {
    guard let within = sharing.within else { return }
    let now = execution.executor.now
    while let oldest = kept.first, oldest.at + within <= now { kept.removeFirst() }
  }

  /// Sends a late subscriber the kept events, and those that arrive meanwhile.
  private func catchUp(_ subscriber: Subscriber) {
    expire()
    var next: UInt64 = 0
    while !subscriber.isClosed, let first = kept.first, next <= lastEvent {
      let index = next > first.number ? Int(next - first.number) : 0
      guard index < kept.count else { break }
      let entry = kept[index]
      next = entry.number + 1
      entry.event.keep(in: execution.executor.arena)
      subscriber.edge.pass(entry.event.event)
    }
    if subscriber.state == .catchingUp { subscriber.state = .receiving }
    guard let ending, !subscriber.isClosed else { return }
    subscriber.state = .closed
    execution.executor.releaseLater(subscriber)
    switch ending {
    case .completed: subscriber.edge.complete()
    case .failed(let failure): subscriber.edge.fail(failure)
    }
  }

  private func catchUp(_ subscriber: Subscriber, on mark: Int64) {
    if subscriber.state == .receiving, connection != nil { subscriber.edge.advance(to: mark) }
  }

  private final class Subscriber: NumberedSubscription {
    let edge: Edge
    let shared: SharedSignal
    let serial: UInt64
    enum State {
      case receiving
      /// The subscriber receives kept events, and no other events meanwhile.
      case catchingUp
      case closed
    }
    @exclusivity(unchecked) var state = State.receiving
    var isClosed: Bool { state == .closed }

    init(_ edge: Edge, _ shared: SharedSignal, _ serial: UInt64) {
      self.edge = edge
      self.shared = shared
      self.serial = serial
    }

    func cancel() {
      guard !isClosed else { return }
      state = .closed
      edge.counters.cancelled()
      shared.remove(self)
    }

    /// Whether the subscriber is notified of the end. False if it was cancelled, perhaps by an earlier subscriber's
    /// reaction to the end. Nothing follows the end.
    func receivesEnd() -> Bool {
      defer { state = .closed }
      return !isClosed
    }
  }

  /// - Parameter serial: The number of the subscription in a saved state; nil: the newest.
  func subscribe(_ edge: Edge, serial: UInt64? = nil) -> any Subscription {
    let subscriber = Subscriber(edge, self, serial ?? execution.nextSubscription())
    if ending != nil || serial == nil && !kept.isEmpty {
      subscriber.state = .catchingUp
      execution.whenWired { [self] in catchUp(subscriber) }
      if ending != nil { return subscriber }
    }
    let index = serial == nil ? nil : subscribers.firstIndex { $0.serial > subscriber.serial }
    subscribers.insert(subscriber, at: index ?? subscribers.count)
    if !subscriber.isClosed, subscribers.count == 1, connection == nil { connect() }
    if mark != EventTime.unknown { execution.whenWired { [self] in catchUp(subscriber, on: mark) } }
    return subscriber
  }

  private func remove(_ subscriber: Subscriber) {
    execution.executor.releaseLater(subscriber)
    // A subscriber that is about to be notified of the end is no longer in the list.
    guard let at = subscribers.firstIndex(where: { $0 === subscriber }) else { return }
    subscribers.remove(at: at)
    guard subscribers.isEmpty, connection != nil, sharing.stop == .unused else { return }
    disconnect()
    execution.namedStopped(index)
  }

  override func receive(_ event: Event) {
    if let only { only.pass(event) } else { passToAll(event) }
  }

  // Out of line, so that an event for one subscriber executes less code.
  @inline(never)
  private func passToAll(_ event: Event) {
    if sharing.replay > 0 { keep(event) }
    if isStale {
      receivers = Receivers(subscribers)
      isStale = false
    }
    Unmanaged.passUnretained(receivers)._withUnsafeGuaranteedRef { $0.pass(event) }
  }

  override func accepts(_ batch: Batch) -> Bool {
    sharing.replay == 0 && !subscribers.isEmpty
      && subscribers.allSatisfy { $0.state == .receiving && $0.edge.accepts(batch) }
  }

  override func receive(_ batch: Batch) {
    for subscriber in subscribers where !subscriber.isClosed { subscriber.edge.pass(batch) }
  }

  /// The last watermark; unknown also if there is no event time.
  private var mark = EventTime.unknown

  override func advance(to time: Int64) {
    mark = time
    for subscriber in subscribers where subscriber.state == .receiving { subscriber.edge.advance(to: time) }
  }

  override func note(_ change: InputPart.Change, of part: InputPart) {
    for subscriber in subscribers where subscriber.state == .receiving { subscriber.edge.note(change, of: part) }
  }

  override func complete() {
    if !sharing.again { ending = .completed }
    for subscriber in end() where subscriber.receivesEnd() { subscriber.edge.complete() }
    execution.namedStopped(index)
  }

  override func fail(_ failure: SignalFailure) {
    if !sharing.again { ending = .failed(failure) }
    for subscriber in end() where subscriber.receivesEnd() { subscriber.edge.fail(failure) }
    execution.namedStopped(index)
  }

  /// Tears down before the handlers run: a subscriber that receives the end may subscribe again.
  private func end() -> [Subscriber] {
    let reported = subscribers
    subscribers = []
    let current = connection
    connection = nil
    mark = EventTime.unknown
    if sharing.again { kept.removeAll() }
    current?.cancel()
    for subscriber in reported {
      execution.executor.releaseLater(subscriber)
    }
    return reported
  }
}
