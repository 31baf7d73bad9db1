import Glibc
import PipelineCore

extension StreamReceiver {
  /// One connection, used by the thread that owns it.
  final class Connection: @unchecked Sendable {
    let descriptor: Int32
    let sender: Sender
    let session: TLSSession?
    var decoding: BlockDecoding
    /// The options by which the connection is read: those of the old version until a new one takes it over.
    var options: Options
    var lines: LineAssembler
    var cutter: MessageCutter
    /// The time of the last read, in nanoseconds on the reader's clock, which stops while it waits for the pipeline.
    var lastRead: Int64
    /// The end of a pause in reading; 0: no pause.
    var pausedUntil: Int64 = 0
    /// Whether the connection has delivered a piece.
    var hasPieces = false

    init(
      _ descriptor: Int32, _ sender: Sender, _ session: TLSSession?, _ decoding: BlockDecoding, _ options: Options,
      now: Int64
    ) {
      self.descriptor = descriptor
      self.sender = sender
      self.session = session
      self.decoding = decoding
      self.options = options
      lines = options.lines(at: 0)
      cutter = MessageCutter(options.framing, limit: options.maxMessage)
      lastRead = now
    }

    deinit {
      session?.close()
      Glibc.close(descriptor)
    }
  }
}

extension StreamReceiver {
  /// A connection that one version of a pipeline leaves to the next.
  struct Kept: Sendable {
    var connection: Connection
    var notify: @Sendable (Notice) -> Void

    /// Reports the loss of an incomplete message if no version has taken the connection.
    func abandon() {
      guard connection.held > 0 || connection.decoding.pendingOffset != nil else { return }
      notify(
        .lost(
          peer: connection.sender.peer.text,
          reason: "no version of the pipeline has taken it over, and the incomplete message that it has sent is lost"))
    }
  }
}

extension StreamReceiver.Connection {
  /// Bytes of an incomplete message.
  var held: Int { max(lines.held, cutter.rest.count) }
  /// The memory that an incomplete message occupies between two reads.
  var capacity: Int { lines.capacity + cutter.capacity }

  /// Frees memory that the incomplete message does not need.
  func release() {
    lines.release()
    cutter.release()
  }
}
