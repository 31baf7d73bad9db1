import CLinux
import Glibc
import PipelineCore
import Synchronization

/// Receives streams: accepts connections at one address, cuts their bytes into messages, and decodes the messages, all
/// on its own thread.
///
/// While `deliver` blocks, nothing is read, so TCP slows the senders down.
package final class StreamReceiver: Sendable {
  package struct Options: Sendable {
    package var framing = MessageFraming.lines
    package var decoding = DecoderOptions()
    /// In bytes, without the frame.
    package var maxMessage = 1 << 20
    package var maxConnections = 1024
    /// Bytes of incomplete messages on all connections together; at least two whole messages.
    package var maxUnfinished = UnfinishedMessages<UInt64>.usualLimit
    /// The memory budget of the process, against which they are counted; nil: they are not.
    package var memory: MemoryBudget?
    /// How long a connection may send nothing; nil: forever.
    package var idleTimeout: TimeSpan?
    /// The maximum number of bytes per second from each connection; nil: no limit.
    package var maxRate: Int?
    /// In bytes; nil: chosen by the system.
    package var receiveBuffer: Int?
    package var keepAlive = true
    package var tls: TLSServing?

    package init() {}

    /// Whether the decoder receives a stream as one text, so that lines are not decoded one by one.
    var decodesStream: Bool { framing == .lines && (decoding.framing == .lines || decoding.framing == .anywhere) }

    func lines(at offset: Int64) -> LineAssembler {
      var lines = LineAssembler(maxLine: maxMessage, policy: .reject, offset: offset)
      lines.endsAnywhere = decoding.framing == .anywhere
      return lines
    }
  }

  /// Messages of one connection.
  package struct Piece: Sendable {
    package var sender: Sender
    package var rows: DecodedBlock?
    package var refused: [RefusedBytes] = []
    /// The offset of the incomplete event; nil: no event is incomplete.
    package var pendingOffset: Int64?
    /// Whether the connection is over, so that it delivers no further piece.
    package var isLast = false
  }

  /// The properties of a connection that its events show.
  package final class Sender: Sendable {
    /// Unique in the process.
    package let number: Int
    package let peer: SocketPeer
    /// The subject of the certificate that the client has sent.
    package let subject: String?
    private static let last = Atomic(0)

    init(_ peer: SocketPeer, subject: String? = nil) {
      number = Self.last.add(1, ordering: .relaxed).newValue
      self.peer = peer
      self.subject = subject
    }
  }

  package enum Notice: Sendable, Equatable {
    case accepting(AcceptShortage.Notice)
    /// `maxConnections` are open: one was closed at once.
    case full
    /// A connection ended early, and why.
    case lost(peer: String, reason: String)
    /// The system refuses an option of the socket or of a connection.
    case fault(String)
  }

  enum Ending {
    /// Bytes that have arrived are read, then all connections are closed.
    case close
    /// In a reload, connections go to the next receiver at this address.
    case handOver
    /// All connections are closed at once.
    case cancel
  }

  let socket: BoundSocket
  let options: Options
  let wake: WakeEvent
  let ending = Mutex<Ending?>(nil)
  /// Connections that one version of a pipeline leaves to the next, with the bytes of an incomplete message or event,
  /// by address.
  static let kept = KeptItems<Kept> { $0.abandon() }
  /// By connection number, the offset of a joined event that has waited long enough for more lines. An event that
  /// begins at another offset continues.
  let due = Mutex<[Int: Int64]>([:])
  let counted = Mutex(PipelineStatistics.Connections())

  package init(_ endpoint: SocketEndpoint, _ options: Options) throws(SocketFailure) {
    do throws(PosixError) { wake = try WakeEvent() } catch { throw SocketFailure(message: error.message) }
    socket = try BoundSocket(endpoint)
    self.options = options
  }

  /// The address of the listening socket.
  package var text: String { socket.text }
  /// The counts of the receiver's connections.
  package var counts: PipelineStatistics.Connections { counted.withLock { $0 } }

  /// Starts the thread.
  /// - Parameters:
  ///   - notify: Called on that thread.
  ///   - deliver: Called on that thread with messages that arrived together; may block. Returns false if it accepts
  ///     nothing more. After ``stop()`` or ``handOver()``, the last call has an empty list.
  package func start(
    notify: @escaping @Sendable (Notice) -> Void, deliver: @escaping @Sendable ([Piece]) -> Bool
  ) throws(SocketFailure) {
    do throws(CodecFailure) { _ = try options.decoding.decoder() } catch {
      throw SocketFailure(message: "'decode' cannot be used: \(error.message)")
    }
    let poller = rx_poller()
    guard poller >= 0, rx_watch(poller, wake.descriptor, 0, 1, 0, 1) == 0,
      rx_watch(poller, socket.descriptor, 1, 1, 0, 1) == 0
    else {
      let code = errno
      if poller >= 0 { Glibc.close(poller) }
      throw SocketFailure(message: "cannot wait for \(socket.text): \(PosixError.text(code))")
    }
    // Taken before the thread starts, because connections that are still kept when the new version runs are closed.
    let kept = Self.kept.take(socket.endpoint.exclusive).map(\.connection)
    do throws(PosixError) {
      _ = try OwnThread("rxd receive") { [self] in
        let work = Work(self, poller, notify, deliver)
        work.run(goingOnWith: kept)
      }
    } catch {
      Glibc.close(poller)
      throw SocketFailure(message: error.message)
    }
  }

  /// Ends the event of a connection that begins at this offset (``Piece/pendingOffset``): no more lines are awaited for it.
  package func endEvent(of connection: Int, at offset: Int64) {
    due.withLock { $0[connection] = offset }
    wake.wake()
  }

  /// Stops accepting, delivers the messages that have arrived, then closes everything. The address is free when this
  /// returns.
  package func stop() { end(.close) }
  /// Like ``stop()``, but in a reload the connections stay open for the next receiver at this address.
  package func handOver() { end(.handOver) }
  /// Closes everything, soon.
  package func cancel() { end(.cancel) }

  private func end(_ ending: Ending) {
    self.ending.withLock { if $0 == nil || ending == .cancel { $0 = ending } }
    // From now on, new connections wait for the next version of the pipeline, or are refused.
    socket.close(handsOver: ending == .handOver)
    wake.wake()
  }
}
