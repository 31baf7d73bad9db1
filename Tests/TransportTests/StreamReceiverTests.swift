import PipelineHost
import Testing

@testable import PipelineCore
@testable import Transport

/// A receiver of streams, without a pipeline. One test at a time: state kept over a reload belongs to the process.
@Suite(.serialized) struct StreamReceiverTests {
  private let folder = ScratchDirectory()

  /// The data that receivers have handed over.
  private final class Received: Sendable {
    struct State {
      /// Bytes of complete lines.
      var bytes = 0
      var hasEnded = false
    }

    private let state = Guarded(State())

    func take(_ pieces: [StreamReceiver.Piece]) -> Bool {
      state.withLock {
        for piece in pieces { $0.bytes += piece.rows?.bytes ?? 0 }
        if pieces.isEmpty { $0.hasEnded = true }
      }
      state.notify()
      return true
    }

    /// Waits at most 60 s until the condition holds.
    func wait(_ condition: (State) -> Bool) -> Bool {
      state.wait(until: monotonicNow() + 60_000_000_000) { condition($0) ? true : nil } ?? false
    }
  }

  /// Data that arrives between two versions of a pipeline is handed over when the second one starts, even if nothing follows it.
  @Test func whatComesDuringAReloadWaitsForNothingElse() throws {
    let place = SocketEndpoint.unix(path: folder("s"), isDatagram: false)
    try keepingListeners.withLock { _ in
      KeptListeners.begin()
      defer { KeptListeners.end() }
      let received = Received()
      let first = try StreamReceiver(place, StreamReceiver.Options())
      try first.start(notify: { _ in }, deliver: received.take)
      let client = try #require(SocketClient(path: folder("s")))
      client.send("first\nbegin")
      #expect(received.wait { $0.bytes == 6 })
      first.handOver()
      #expect(received.wait(\.hasEnded))
      client.send("ning\n")
      let second = try StreamReceiver(place, StreamReceiver.Options())
      try second.start(notify: { _ in }, deliver: received.take)
      #expect(received.wait { $0.bytes == 16 })
      second.cancel()
    }
  }

  /// A connection that no version has taken over is closed, and its partial message is reported as lost.
  @Test func abandonedConnectionsAreReported() throws {
    let place = SocketEndpoint.unix(path: folder("s"), isDatagram: false)
    try keepingListeners.withLock { _ in
      KeptListeners.begin()
      let received = Received()
      let notices = Guarded<[StreamReceiver.Notice]>([])
      let first = try StreamReceiver(place, StreamReceiver.Options())
      try first.start(notify: { notice in notices.withLock { $0.append(notice) } }, deliver: received.take)
      let (whole, cut) = try (
        #require(SocketClient(path: folder("s"))), #require(SocketClient(path: folder("s")))
      )
      whole.send("first\n")
      cut.send("first\nbegin")
      #expect(received.wait { $0.bytes == 12 })
      first.handOver()
      #expect(received.wait(\.hasEnded))
      #expect(notices.withLock { $0 } == [])
      KeptListeners.end()
      #expect(whole.receive()?.isEmpty == true)
      #expect(cut.receive()?.isEmpty == true)
      let found = notices.withLock { $0 }
      #expect(found.count == 1)
      guard case .lost(_, let reason)? = found.first else { return }
      #expect(reason.contains("the incomplete message that it has sent is lost"), "\(reason)")
    }
  }

  /// A batch is no larger than the receiver's share of the process's memory.
  @Test func littleIsHandedOverTogetherWhereMemoryIsSmall() throws {
    var options = StreamReceiver.Options()
    options.memory = MemoryBudget(1 << 20)
    let receiver = try StreamReceiver(.unix(path: folder("s"), isDatagram: false), options)
    let sizes = Guarded<[Int]>([])
    let hasSent = Guarded(false)
    try receiver.start(
      notify: { _ in },
      deliver: { pieces in
        _ = hasSent.wait(until: monotonicNow() + 60_000_000_000) { $0 ? true : nil }
        let size = pieces.reduce(0) { sum, piece in sum + (piece.rows?.bytes ?? 0) }
        sizes.withLock { $0.append(size) }
        sizes.notify()
        return true
      })
    let client = try #require(SocketClient(path: folder("s")))
    let text = (0..<10_000).map { "\($0 + 10_000_000)\n" }.joined()
    client.send("first\n")
    client.send(text)
    hasSent.withLock { $0 = true }
    hasSent.notify()
    let all = 6 + text.utf8.count
    let found = sizes.wait(until: monotonicNow() + 60_000_000_000) { $0.reduce(0, +) == all ? $0 : nil }
    // Two reads of 16 KiB, because the first may have been a few bytes less.
    let batches = try #require(found)
    #expect(batches.allSatisfy { $0 <= 33 << 10 }, "\(batches)")
    receiver.cancel()
  }

  /// A check of the file rejects such options; a receiver that gets them nevertheless reports it at its start.
  @Test func aDecoderThatCannotBeMadeFailsTheStart() throws {
    var decoding = DecoderOptions(.regex)
    decoding.regex.pattern = "("
    var streams = StreamReceiver.Options()
    streams.decoding = decoding
    let stream = try StreamReceiver(.unix(path: folder("a"), isDatagram: false), streams)
    let first = #expect(throws: SocketFailure.self) { try stream.start(notify: { _ in }, deliver: { _ in true }) }
    #expect(first?.message.hasPrefix("'decode' cannot be used: ") == true)
    var datagrams = DatagramReceiver.Options()
    datagrams.decoding = decoding
    let datagram = try DatagramReceiver(.unix(path: folder("b"), isDatagram: true), datagrams)
    let second = #expect(throws: SocketFailure.self) { try datagram.start(notify: { _ in }, deliver: { _ in true }) }
    #expect(second?.message == first?.message)
  }
}
