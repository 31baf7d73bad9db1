import CLinux
import Glibc
import PipelineCore
import Synchronization

/// Receives datagrams at one address and decodes them on its own thread, each as a message.
///
/// While `deliver` blocks, datagrams wait in the system's buffer; the system drops those that do not fit, and counts
/// them.
package final class DatagramReceiver: Sendable {
  package struct Options: Sendable {
    package var decoding = DecoderOptions(.text, unit: .body)
    package var maxMessage = 64 << 10
    /// In bytes; nil: the system chooses.
    package var receiveBuffer: Int?
    /// The limit on the sum of the block sizes of all readers of this process, as in ``BlockReader/Options/allBlocks``.
    package var allBlocks = 4 << 20
    package init() {}
  }

  /// Consecutive datagrams of one sender, received together.
  package struct Piece: Sendable {
    package var peer: SocketPeer
    package var rows: DecodedBlock?
    package var refused: [RefusedBytes] = []
  }

  package enum Notice: Sendable, Equatable {
    /// The number of datagrams dropped since the last notice, because the system had no room.
    case dropped(UInt64)
    /// The reason why the socket cannot be read; reading is tried again.
    case failed(String)
    /// The system refuses an option of the socket.
    case fault(String)
  }

  package struct Counts: Sendable, Equatable {
    package var received: UInt64 = 0
    package var dropped: UInt64 = 0
    package var buffer = 0
  }

  private enum Ending {
    case drain, cancel
  }

  private let socket: BoundSocket
  private let options: Options
  private let wake: WakeEvent
  private let ending = Mutex<Ending?>(nil)
  private let counted = Mutex(Counts())
  /// One sentence for each option that the system has refused.
  private let faults: [String]
  private static let slots = 64

  package init(_ endpoint: SocketEndpoint, _ options: Options) throws(SocketFailure) {
    do throws(PosixError) { wake = try WakeEvent() } catch { throw SocketFailure(message: error.message) }
    socket = try BoundSocket(endpoint)
    self.options = options
    var faults = socket.faults
    SocketOption.set([.countDrops], socket.descriptor) { faults.append($0) }
    if case .network = endpoint {
    } else {
      SocketOption.set([.passCredentials], socket.descriptor) { faults.append($0) }
    }
    self.faults = faults
    // The counts show the size that the system uses, also where none was requested.
    let size = options.receiveBuffer.map { rx_set_receive_buffer(socket.descriptor, Int32(clamping: $0)) }
    counted.withLock { $0.buffer = Int(size ?? 0) }
  }

  package var text: String { socket.text }
  package var counts: Counts { counted.withLock { $0 } }
  /// The size of the receive buffer that the system has granted; nil: no size was requested.
  package var grantedBuffer: Int? { options.receiveBuffer == nil ? nil : counts.buffer }

  /// Starts the thread; like ``StreamReceiver/start(notify:deliver:)``.
  package func start(
    notify: @escaping @Sendable (Notice) -> Void, deliver: @escaping @Sendable ([Piece]) -> Bool
  ) throws(SocketFailure) {
    let decoding: BlockDecoding
    do throws(CodecFailure) { decoding = BlockDecoding(try options.decoding.decoder()) } catch {
      throw SocketFailure(message: "'decode' cannot be used: \(error.message)")
    }
    do throws(PosixError) {
      _ = try OwnThread("rxd receive") { [self] in run(decoding, notify, deliver) }
    } catch {
      throw SocketFailure(message: error.message)
    }
  }

  /// Delivers the datagrams in the socket, then ends. `handsOver`: in a reload, the next receiver at this address takes
  /// over the socket.
  package func stop(handsOver: Bool = false) {
    ending.withLock { if $0 == nil { $0 = .drain } }
    // Datagrams in the socket wait for the next receiver.
    if handsOver { socket.close(handsOver: true) }
    wake.wake()
  }

  /// Ends soon.
  package func cancel() {
    ending.withLock { $0 = .cancel }
    socket.close()
    wake.wake()
  }

  private func run(
    _ decoding: BlockDecoding, _ notify: @Sendable (Notice) -> Void, _ deliver: @Sendable ([Piece]) -> Bool
  ) {
    for fault in faults { notify(.fault(fault)) }
    let slotBytes = min(options.maxMessage, 64 << 10) + 1
    let space = UnsafeMutableRawBufferPointer.allocate(byteCount: slotBytes * Self.slots, alignment: 64)
    defer { space.deallocate() }
    let bytes = space.assumingMemoryBound(to: UInt8.self)
    var datagrams = [rx_datagram](repeating: rx_datagram(), count: Self.slots)
    var kernelDrops: UInt32 = 0
    var seenDrops: UInt32 = 0
    var offset: Int64 = 0
    var hasFailed = false
    while true {
      let ending = ending.withLock { $0 }
      if ending == .cancel { return }
      if ending == nil {
        let ready = Int(rx_wait_two(socket.descriptor, 0, wake.descriptor, hasFailed ? 250 : -1))
        if ready & 2 != 0 { wake.clear() }
        if ready & 1 == 0, !hasFailed { continue }
      }
      let received = socket.use { descriptor -> (count: Int, code: Int32) in
        let count = rx_receive(
          descriptor, bytes.baseAddress, UInt32(slotBytes), Int32(Self.slots), &datagrams, &kernelDrops)
        return (Int(count), count < 0 ? errno : 0)
      }
      let (count, code) = received ?? (0, 0)
      if kernelDrops != seenDrops {
        let new = UInt64(kernelDrops &- seenDrops)
        seenDrops = kernelDrops
        counted.withLock { $0.dropped += new }
        notify(.dropped(new))
      }
      guard count > 0 else {
        if ending != nil {
          socket.close()
          _ = deliver([])
          return
        }
        // ECONNREFUSED reports that an earlier answer was not received; the socket is not at fault.
        if ![0, EAGAIN, EINTR, ECONNREFUSED].contains(code) {
          if !hasFailed { notify(.failed(PosixError.text(code))) }
          hasFailed = true
        }
        continue
      }
      hasFailed = false
      counted.withLock { $0.received += UInt64(count) }
      // Large datagrams are delivered in several parts, which bounds memory.
      let reader = ActiveReader()
      let most = max(ActiveReader.leastBlock, ActiveReader.share(of: options.allBlocks))
      var rest = datagrams.prefix(count)
      while !rest.isEmpty {
        var bytes = 0
        let part = rest.prefix { datagram in
          defer { bytes += Int(datagram.count) }
          return bytes < most
        }
        rest = rest.dropFirst(part.count)
        guard deliver(cut(part, UnsafeRawBufferPointer(space), decoding, &offset)) else { return }
      }
      withExtendedLifetime(reader) {}
    }
  }

  /// Copies the datagrams into slabs, one for each run of datagrams of one sender, and decodes them.
  private func cut(
    _ datagrams: ArraySlice<rx_datagram>, _ space: UnsafeRawBufferPointer, _ decoding: BlockDecoding,
    _ offset: inout Int64
  ) -> [Piece] {
    var pieces: [Piece] = []
    var rest = datagrams
    while let first = rest.first {
      let run = rest.prefix { Self.isSame($0, first) }
      rest = rest.dropFirst(run.count)
      var peer = SocketPeer(first.peer)
      if first.pid != 0 { (peer.process, peer.user) = (Int(first.pid), Int(first.uid)) }
      var piece = Piece(peer: peer)
      let slab = Slab(capacity: run.reduce(0) { $0 + Int($1.count) })
      var messages: [Range<Int>] = []
      for one in run {
        let bytes = UnsafeRawBufferPointer(rebasing: space[Int(one.start)..<(Int(one.start) + Int(one.count))])
        if one.is_cut != 0 || bytes.count > options.maxMessage {
          piece.refused.append(
            RefusedBytes(
              offset: offset &+ Int64(slab.count), head: [UInt8](bytes.prefix(LongLine.headBytes)),
              reason: "the datagram is longer than the \(options.maxMessage) bytes that 'maxMessage' allows"))
          continue
        }
        messages.append(slab.count..<(slab.count + bytes.count))
        slab.append(bytes)
      }
      if !messages.isEmpty { piece.rows = decoding.decode(slab, messages: messages, offset: offset) }
      offset &+= Int64(slab.count)
      pieces.append(piece)
    }
    return pieces
  }

  private static func isSame(_ one: rx_datagram, _ other: rx_datagram) -> Bool {
    guard one.pid == other.pid, one.uid == other.uid, one.peer.length == other.peer.length else { return false }
    return withUnsafeBytes(of: one.peer) { first in
      withUnsafeBytes(of: other.peer) { second in
        first.prefix(Int(one.peer.length)).elementsEqual(second.prefix(Int(one.peer.length)))
      }
    }
  }
}
