import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

@testable import Transport

/// The laws of sinks that send messages over one connection: those of `DeliveryLawTests`, for blocks of messages. On virtual time.
@Suite struct StreamLawTests {
  private func values(_ range: ClosedRange<Int64>) -> [Int64] { Array(range) }
  private func texts(_ range: ClosedRange<Int64>) -> [String] { range.map { String($0) } }

  private func trial(
    _ stream: ScriptedStream, frame: Character = ";", name: String? = nil, readsErrors: Bool = true,
    input: String? = nil, host: String = "h.example", restoring state: [UInt8]? = nil,
    estates: [String: any SinkEstate] = [:],
    delivery: DeliveryOptions? = nil, memory: MemoryBudget = MemoryBudget()
  ) throws -> DeliveryTrial {
    try DeliveryTrial(
      ScriptedDestination(), name: name, readsErrors: readsErrors, input: input,
      sink: ScriptedStreamSink(stream, frame: frame), host: host, restoring: state, estates: estates,
      delivery: delivery,
      memory: memory)
  }

  /// The events of a turn are one block, which passes message by message.
  @Test func aTurnIsOneBlock() throws {
    let stream = ScriptedStream()
    let trial = try trial(stream)
    #expect(stream.links.isEmpty, "nothing is connected before the first event")
    trial.send([1, 2, 13, 3])
    #expect(stream.blocks.count == 1 && stream.link?.given == ["1;", "2;", "3;"])
    #expect(trial.rejected == [#"[13,"13 has no message"]"#])
    stream.pass(2)
    trial.pipeline.settle()
    #expect(trial.pipeline.counters.sent == 2 && trial.waiting == 1)
    #expect(trial.source.feed.outcomes.isEmpty)
    stream.pass(1)
    trial.pipeline.settle()
    #expect(trial.pipeline.counters.sent == 3 && trial.waiting == 0)
    #expect(trial.source.feed.outcomes == [0: .acknowledged])
    trial.pipeline.drain()
    trial.pipeline.settle()
    #expect(stream.links.count == 1)
  }

  /// After a broken connection, messages that did not pass are repeated, in order, from the start of a message.
  @Test(arguments: [nil, "it broke"]) func whatDidNotPassComesAgain(_ reason: String?) throws {
    let stream = ScriptedStream()
    let trial = try trial(stream)
    trial.send([1, 2, 3])
    trial.send([4, 5], as: 1)
    stream.pass(2)
    stream.lose(reason)
    trial.pipeline.run(until: .seconds(2))
    #expect(stream.links.count == 2)
    #expect(stream.link?.given == ["3;", "4;", "5;"])
    #expect(trial.logged("it broke; trying again") == (reason != nil))
    stream.pass(3)
    trial.pipeline.settle()
    #expect(stream.received == texts(1...5))
    #expect(trial.source.feed.outcomes == [0: .acknowledged, 1: .acknowledged])
    #expect(trial.logged("the receiver takes messages again, after 1 failure in 2s") == (reason != nil))
    // There is no connection while there is nothing to send.
    stream.lose()
    trial.pipeline.run(until: .seconds(100))
    #expect(stream.links.count == 2)
  }

  /// If connections end immediately after they are made, they are tried less and less often.
  @Test func aReceiverThatTakesNothingIsAskedLess() throws {
    let stream = ScriptedStream()
    let trial = try trial(stream)
    trial.send([1])
    var now: Int64 = 0
    for pause: Int64 in [1000, 2000, 4000, 8000] {
      let count = stream.links.count
      stream.lose()
      trial.pipeline.run(until: .milliseconds(now + pause - 100))
      #expect(stream.links.count == count)
      now += pause + 100
      trial.pipeline.run(until: .milliseconds(now))
      #expect(stream.links.count == count + 1)
    }
    stream.pass(1)
    trial.pipeline.settle()
    #expect(stream.received == ["1"] && trial.pipeline.counters.sent == 1)
  }

  /// A message that is never accepted goes to the errors output as its event, before its sender is answered.
  @Test func aRefusedMessageIsAnEventAgain() throws {
    let stream = ScriptedStream()
    let trial = try trial(stream)
    trial.send([1, 2, 3])
    stream.pass(1)
    stream.refuse("it is too long")
    stream.pass(1)
    trial.pipeline.settle()
    #expect(stream.received == ["1", "3"])
    #expect(trial.rejected == [#"[2,"it is too long"]"#])
    #expect(trial.pipeline.counters.sent == 2 && trial.pipeline.counters.rejected == 1)
    #expect(trial.source.feed.outcomes == [0: .acknowledged])
  }

  /// The data that waits for a dead or stalled receiver is limited in bytes, also when a timer sends.
  @Test(arguments: [true, false], [true, false]) func whatWaitsIsBounded(_ isReachable: Bool, _ isByBudget: Bool) throws
  {
    let memory = MemoryBudget(isByBudget ? 1 << 20 : 1 << 30)
    let stream = ScriptedStream { $0.queueBytes = isByBudget ? 16 << 20 : 8 << 10 }
    stream.isReachable = isReachable
    let trial = try trial(stream, input: "interval: 10ms", memory: memory)
    trial.pipeline.run(until: .seconds(60))
    #expect(trial.pipeline.executor.isInputPaused)
    #expect(isByBudget ? memory.held < 1 << 20 : trial.waiting < 100, "\(memory.held), \(trial.waiting)")
    stream.isReachable = true
    stream.takesAll = true
    stream.lose("it broke")
    trial.pipeline.run(until: .seconds(120))
    #expect(!trial.pipeline.executor.isInputPaused)
    let numbers = stream.received.compactMap { Int($0) }
    #expect(numbers.count > 1000 && numbers == Set(numbers).sorted())
    trial.pipeline.inTurn { $0.execution.cancel() }
    trial.pipeline.settle()
    #expect(memory.held == 0)
  }

  @Test func whatCannotStartEndsThePipeline() throws {
    let stream = ScriptedStream()
    stream.startFailure = "there is no such program"
    let trial = try trial(stream)
    #expect(trial.pipeline.failure?.message == "there is no such program")
  }

  // MARK: The end

  /// The remaining events are counted, and go to the errors output if it is read; those on their way have been sent.
  @Test(arguments: [true, false]) func whatIsLeftIsCounted(_ readsErrors: Bool) throws {
    let stream = ScriptedStream()
    let trial = try trial(stream, readsErrors: readsErrors, input: "interval: 1s")
    trial.pipeline.run(until: .milliseconds(4500))
    let taken = trial.waiting
    #expect(taken >= 4 && stream.link?.inHand.count == taken)
    stream.pass(1)
    stream.accepted = 1
    trial.pipeline.inTurn { $0.execution.cancel() }
    trial.pipeline.settle()
    #expect(trial.pipeline.counters.sent == 2)
    #expect(trial.logged("the receiver had not taken \(taken - 2) events when the pipeline ended") != readsErrors)
    #expect(trial.pipeline.counters.undelivered + trial.pipeline.counters.rejected == UInt64(taken - 2))
    #expect(trial.rejected.count == (readsErrors ? taken - 2 : 0))
    #expect(stream.link?.isEnded == true)
  }

  /// Stopped while the receiver is dead or stalled: messages that have not passed are saved, and the next run sends them in order, with
  /// its own frames.
  @Test(arguments: [true, false]) func aStopSavesWhatWaits(_ isReachable: Bool) throws {
    let stream = ScriptedStream()
    stream.isReachable = isReachable
    let trial = try trial(stream, input: "interval: 1s")
    trial.pipeline.run(until: .milliseconds(4500))
    stream.pass(2)
    trial.pipeline.settle()
    let (taken, sent) = (trial.waiting, stream.received.count)
    #expect(sent == (isReachable ? 2 : 0))
    let state = try #require(trial.pipeline.suspend())
    #expect(trial.pipeline.outcome == .completed)
    #expect(stream.links.allSatisfy { $0.isOver })
    let other = ScriptedStream()
    let next = try self.trial(other, frame: "|", input: "interval: 1s", restoring: state)
    next.pipeline.run(until: .milliseconds(100))
    #expect(next.pipeline.execution.refusals.isEmpty)
    let first = Int64(sent + 1)
    #expect(other.link?.given == (first..<first + Int64(taken)).map { "\($0)|" })
    other.pass(.max)
    next.pipeline.settle()
    #expect(next.waiting == 0)
  }

  // MARK: A reload

  /// Suspends a pipeline for the same plan. Returns the state for the next version; no version waits.
  private func suspend(_ trial: DeliveryTrial) -> [UInt8]? {
    let plan = trial.pipeline.execution.plan
    trial.pipeline.inTurn { $0.execution.suspend(for: plan) }
    trial.pipeline.settle()
    #expect(trial.pipeline.outcome == .completed, "a reload waits for no receiver")
    return trial.pipeline.execution.savedState
  }

  /// A receiver that accepts nothing: the next version has the connection with its outstanding data, and the queue. Nothing is lost, sent
  /// twice, or cut in two.
  @Test(arguments: [true, false]) func theConnectionGoesToTheNextVersion(_ isDurable: Bool) throws {
    try keepingListeners.withLock { _ in
      KeptListeners.begin()
      defer { KeptListeners.end() }
      let stream = ScriptedStream { $0.concurrency = 2 }
      let store = MemoryStore(isImmediate: true)
      func options() -> DeliveryOptions? { isDurable ? DeliveryOptions(store: store, isDurable: true) : nil }
      let first = try trial(stream, delivery: options())
      for number in 0..<4 { first.send(values(Int64(number * 3 + 1)...Int64(number * 3 + 3)), as: number) }
      #expect(stream.link?.given == texts(1...6).map { $0 + ";" })
      stream.pass(1)
      first.pipeline.settle()
      let saved = suspend(first)
      // A message passes while there is neither version.
      stream.pass(1)
      let second = try trial(
        stream, name: first.name, restoring: isDurable ? store.disk.state : saved,
        estates: first.pipeline.execution.saved.estates, delivery: options())
      #expect(second.pipeline.execution.refusals.isEmpty)
      second.send([20], as: 9)
      #expect(stream.links.count == 1 && stream.link?.isEnded == false)
      #expect(stream.link?.inHand.first == "3;")
      for _ in 0..<30 {
        stream.pass(1)
        second.pipeline.settle()
      }
      #expect(stream.link?.given == (texts(1...12) + ["20"]).map { $0 + ";" })
      #expect(stream.received == texts(1...12) + ["20"])
      second.pipeline.run(until: .seconds(20))
      #expect(second.waiting == 0)
      if isDurable { #expect(store.disk.rows.isEmpty) }
    }
  }

  /// With other parameters the old connection may finish its data, for a while; the rest is sent over a new one, in order, from the start of a
  /// message, with the frames of the new version.
  @Test(arguments: [0, 2, 5]) func otherParametersMakeAnotherConnection(_ passes: Int) throws {
    try keepingListeners.withLock { _ in
      KeptListeners.begin()
      defer { KeptListeners.end() }
      let stream = ScriptedStream { $0.concurrency = 1 }
      let first = try trial(stream)
      first.send(values(1...5))
      first.send(values(6...8), as: 1)
      let old = try #require(stream.link)
      #expect(old.given == texts(1...5).map { $0 + ";" })
      let saved = suspend(first)
      let other = ScriptedStream()
      let second = try trial(
        other, frame: "|", name: first.name, host: "other.example", restoring: saved,
        estates: first.pipeline.execution.saved.estates)
      second.send([9], as: 2)
      stream.pass(passes, of: old)
      second.pipeline.settle()
      if passes < 5 {
        #expect(other.links.isEmpty && !old.isEnded && !old.isRetired)
        second.pipeline.run(until: .seconds(3))
        #expect(old.isEnded)
      } else {
        #expect(old.isRetired && !old.isEnded)
      }
      #expect(other.link?.given == (Int64(passes + 1)...9).map { "\($0)|" })
      other.pass(.max)
      second.pipeline.settle()
      #expect(stream.received + other.received == texts(1...9))
      #expect(second.waiting == 0)
      #expect(second.source.feed.outcomes == [2: .acknowledged])
    }
  }

  /// Before the first event there is no connection, and a reload makes none.
  @Test func nothingIsConnectedForAReload() throws {
    try keepingListeners.withLock { _ in
      KeptListeners.begin()
      defer { KeptListeners.end() }
      let stream = ScriptedStream()
      let first = try trial(stream)
      let saved = suspend(first)
      let second = try trial(
        stream, name: first.name, restoring: saved, estates: first.pipeline.execution.saved.estates)
      #expect(stream.links.isEmpty)
      second.send([1])
      #expect(stream.link?.given == ["1;"])
    }
  }

  /// Messages that no version takes are given up, and waiting senders are told.
  @Test func whatNoVersionTakesFails() throws {
    try keepingListeners.withLock { _ in
      KeptListeners.begin()
      let stream = ScriptedStream()
      let first = try trial(stream)
      first.send([1, 2])
      _ = suspend(first)
      #expect(first.source.feed.outcomes.isEmpty)
      KeptListeners.end()
      #expect(stream.link?.isEnded == true)
      #expect(first.source.feed.outcomes.count == 1)
    }
  }
}
