import PipelineCore
import Synchronization

/// The body of a streamed answer, which lasts until it is ended or the client leaves. Thread-safe; nothing here waits for the client.
package final class ResponseStream: Sendable {
  /// The bytes that may wait for the client.
  package static let room = 256 << 10

  private struct State {
    var waiting: [UInt8] = []
    /// Whether the connection has been asked to take the waiting bytes.
    var isScheduled = false
    var isEnding = false
    var isAborted = false
    var isOpen = true
    /// The number of bytes accepted so far.
    var taken = 0
    /// The part of the process's memory reserve that the waiting bytes occupy.
    var reserved = 0
  }
  private let state = Mutex(State())
  private let most: Int
  /// The budget against which waiting bytes are counted. While it is full, `least` bytes may wait, and up to
  /// `mostReserved` if its reserve has room.
  private let memory: MemoryBudget?
  private static let least = 4 << 10
  private static let mostReserved = 32 << 10
  private let schedule: @Sendable (ResponseStream) -> Void
  private let closed: @Sendable () -> Void

  /// - Parameters:
  ///   - room: The bytes that may wait for the client.
  ///   - memory: The memory of the process.
  ///   - schedule: Makes the connection take the waiting bytes; called on any thread.
  ///   - closed: Called once, on the network thread, when the client has left or has been sent everything.
  init(
    room: Int = ResponseStream.room, of memory: MemoryBudget? = nil,
    schedule: @escaping @Sendable (ResponseStream) -> Void, closed: @escaping @Sendable () -> Void
  ) {
    most = room
    self.memory = memory
    self.schedule = schedule
    self.closed = closed
  }

  /// Whether the client is connected and the answer has not been ended.
  package var isOpen: Bool { state.withLock { $0.isOpen && !$0.isEnding } }

  /// Sends `bytes`, all or none. False: the client reads too slowly, or has left.
  @discardableResult
  package func send(_ bytes: [UInt8]) -> Bool { sendCounted(bytes) != nil }

  /// Sends `bytes`, all or none. Returns how many bytes the stream has accepted in all; nil: none of these.
  func sendCounted(_ bytes: [UInt8]) -> Int? {
    let verdict: (taken: Int?, wakes: Bool) = state.withLock { state in
      let all = state.waiting.count + bytes.count
      guard state.isOpen, !state.isEnding, all <= most else { return (nil, false) }
      if let memory, all > Self.least, bytes.count > memory.room(.max) {
        guard all <= Self.mostReserved, memory.takeReserve(bytes.count) else { return (nil, false) }
        state.reserved += bytes.count
      }
      state.waiting += bytes
      memory?.add(bytes.count)
      state.taken &+= bytes.count
      defer { state.isScheduled = true }
      return (state.taken, !state.isScheduled)
    }
    if verdict.wakes { schedule(self) }
    return verdict.taken
  }

  /// Ends the answer after the bytes sent so far.
  package func end() {
    let wakes = state.withLock { state in
      guard state.isOpen, !state.isEnding else { return false }
      state.isEnding = true
      defer { state.isScheduled = true }
      return !state.isScheduled
    }
    if wakes { schedule(self) }
  }

  /// Aborts the answer and closes the connection; bytes that the client has not read are lost.
  package func abort() {
    let isFirst = state.withLock { state in
      guard state.isOpen, !state.isAborted else { return false }
      state.isAborted = true
      state.isEnding = true
      drop(&state)
      return true
    }
    if isFirst { schedule(self) }
  }

  private func drop(_ state: inout State) {
    memory?.add(-state.waiting.count)
    memory?.giveReserve(state.reserved)
    state.reserved = 0
    state.waiting = []
  }

  deinit { state.withLock { drop(&$0) } }

  var isAborted: Bool { state.withLock(\.isAborted) }

  /// The next action of the connection.
  enum Portion {
    case bytes([UInt8])
    /// No bytes wait; `schedule` is called for the next ones.
    case nothing
    case end
  }

  func next() -> Portion {
    state.withLock { state in
      if !state.waiting.isEmpty {
        defer { drop(&state) }
        return .bytes(state.waiting)
      }
      if state.isEnding { return .end }
      state.isScheduled = false
      return .nothing
    }
  }

  /// Called when the connection is gone.
  func disconnect() {
    let wasOpen = state.withLock { state in
      defer {
        state.isOpen = false
        drop(&state)
      }
      return state.isOpen
    }
    if wasOpen { closed() }
  }
}

extension ServerRequest {
  /// Answers with a streamed body. Nil: the request has been answered, or its client has left.
  ///
  /// - Parameters:
  ///   - room: The bytes that may wait for the client.
  ///   - closed: Called once, on the network thread, when the client has left or has been sent everything, perhaps
  ///     before this returns.
  package func stream(
    status: Int, headers: [(name: String, value: String)] = [], room: Int = ResponseStream.room,
    closed: @escaping @Sendable () -> Void = {}
  ) -> ResponseStream? {
    exchange.stream(status: status, headers: headers, room: room, closed: closed)
  }
}
