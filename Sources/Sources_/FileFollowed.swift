import PipelineCore
import Transport

extension File {
  /// Follows files.
  final class Following: DecodingSource {
    private let parameters: File
    private lazy var inputQueue = InputQueue(nodeContext, gate: SemaphoreGate())
    private var follower: FileFollower?
    private var inputs: [FileKey: Input] = [:] { didSet { latest = nil } }
    /// A cache of the last lookup: most blocks come from the same file as the previous one.
    private var latest: (key: FileKey, input: Input)?
    /// The number of files found so far.
    private var found = 0
    /// Whether an earlier execution has already started to follow files.
    private var isResumed = false
    /// The time when the source's state was saved, in nanoseconds since 1970.
    private var savedAt: Int64 = 0
    /// The file whose rows are being sent.
    private var piece: Input?
    /// Files that have been read to the end but not completely acknowledged.
    private var leaving: [Input] = []
    /// A block of which only a part has been sent, and its file.
    private var begun: (block: FileBlock, input: Input)?

    /// How lines are joined; nil if they are not.
    private lazy var joining = parameters.decoding.join

    private struct FileKey: Hashable {
      var device: UInt64
      var inode: UInt64
      init(_ position: FilePosition) { (device, inode) = (position.device, position.inode) }
    }

    /// One followed file.
    private final class Input {
      /// The position up to which its events have been sent.
      var position: FilePosition
      /// The file's number in the order of discovery.
      let number: Int
      /// The decoder's memory at that position.
      var memory: [UInt8]
      var decoder: (any EventDecoder)?
      var origin: Origin?
      /// The positions that have been sent and those that are acknowledged.
      let ledger: PositionLedger<ReadPosition>
      /// The position up to which it has been decoded.
      var reached: FilePosition
      /// Whether any part of the file has been received.
      var hasBegun = false
      /// The same for a file under all of its names.
      let part: InputPart
      /// All that it has at the moment has been sent.
      var isCaughtUp = false
      /// Ends the incomplete last event when its wait is over.
      var timer = Wake.none
      /// The name under which the file was found; it may have been renamed since.
      let name: String

      struct ReadPosition {
        var position: FilePosition
        var memory: [UInt8]
      }

      init(_ position: FilePosition, _ number: Int, memory: [UInt8] = []) {
        self.position = position
        self.number = number
        self.memory = memory
        name = position.path
        part = InputPart(position.fileName, title: position.path)
        reached = position
        ledger = PositionLedger(ReadPosition(position: position, memory: memory))
      }

      /// Resets the ledger to the position of the file; call it before the file's next event.
      func begin() { ledger.reset(to: ReadPosition(position: position, memory: decoder?.memory ?? memory)) }
    }

    init(_ parameters: File, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(nodeContext, downstream: downstream)
    }

    override var readFiles: [PipelineStatistics.ReadFile] {
      inputs.values.prefix(PipelineStatistics.mostFiles).map { input in
        let position = input.position
        return .init(path: position.path, device: position.device, inode: position.inode, offset: position.offset)
      }
    }

    override func begin() {
      var options = FileFollower.Options(paths: parameters.paths.map(\.text))
      // Files that an earlier execution did not know have been created since, so they are read from the beginning.
      options.start = parameters.start == .beginning || isResumed ? .beginning : .end
      options.resume = inReadingOrder(Array(inputs.values)).map(\.position)
      options.savedAt = savedAt
      options.maxLine = parameters.maxLine.bytes
      options.whenTooLong = parameters.whenTooLong.policy
      options.endsAnywhere = parameters.decoding.framing == .anywhere
      options.allBlocks = execution.services.memory.ofReaders
      options.rotateWait = parameters.rotateWait
      options.links = parameters.followLinks.policy
      options.watch = parameters.watch.method
      if let wait = parameters.lastLine { options.lastLine = .after(wait) }
      for path in parameters.paths where !Self.exists(path.text) {
        execution.services.log(
          .info, execution.plan.steps[nodeContext.step.number].label,
          "\(location(of: path))no file matches \(path.shown)\(Self.directory(of: path.text)) yet; waiting for one")
      }
      let inputQueue = inputQueue
      let node = Weak(self)
      do throws(PosixError) {
        let follower = try FileFollower(options)
        self.follower = follower
        // The callbacks must see correct positions before anything else can happen, such as a checkpoint.
        _ = try follower.start(
          deliver: { block in
            _ = inputQueue.deliver(here: block.isNewest, bytes: block.lines.slab.count) { node.object?.take(block) }
          },
          notice: { notice in _ = inputQueue.deliver { node.object?.note(notice) } },
          early: { [unowned self] in note($0) })
      } catch {
        finish(failing: SignalFailure(.source, error.message, at: nodeContext.location))
      }
    }

    override func dryRun() { _ = makeDecoder(parameters.decoding) }

    private func makeInput(_ position: FilePosition, memory: [UInt8] = []) -> Input {
      found += 1
      return Input(position, found, memory: memory)
    }

    /// The inputs in reading order: older files first.
    private func inReadingOrder(_ inputs: [Input]) -> [Input] {
      inputs.sorted {
        let (a, b) = ($0.position.born, $1.position.born)
        return a == b || a == 0 || b == 0 ? $0.number < $1.number : a < b
      }
    }

    /// The directory that a relative path starts from, for messages: a service runs in `/`.
    private static func directory(of pattern: String) -> String {
      pattern.hasPrefix("/") ? "" : Glob.currentDirectory.map { " in the directory \($0)" } ?? ""
    }

    private static func exists(_ pattern: String) -> Bool {
      Glob.expand(pattern).paths.contains { FileDescriptor.Status(path: $0) != nil }
    }

    /// Sets the position at which reading continues; called before the file's next event.
    private func moved(to position: FilePosition) {
      if let input = inputs[FileKey(position)] {
        input.position = position
        input.reached = position
        // Unacknowledged events may have to be sent again, so the ledger keeps its position.
        if input.ledger.outstanding == 0 { input.begin() }
      } else {
        inputs[FileKey(position)] = makeInput(position)
      }
    }

    /// The position after the last row of the file that has been sent.
    private func taken(of input: Input) -> Input.ReadPosition {
      var position = input.position
      if let begun, begun.input === input, let unsentOffset {
        position = begun.block.position(at: unsentOffset, behind: input.position.tail)
      }
      return Input.ReadPosition(position: position, memory: input.decoder?.memory ?? input.memory)
    }

    override func beginPiece() {
      guard let piece else { return }
      beginPiece(of: piece.ledger) { [self] in taken(of: piece) }
    }

    /// The input continues in another file before its next event: with its unacknowledged events and its decoder, which
    /// belongs to the content.
    private func moved(from position: FilePosition, to copy: FilePosition) {
      let input = inputs.removeValue(forKey: FileKey(position)) ?? makeInput(copy)
      // The file's writer may still have it open.
      if input.hasBegun, FileKey(position) != FileKey(copy) {
        inputs[FileKey(position)] = makeInput(position, memory: input.decoder?.memory ?? input.memory)
      }
      input.position = copy
      input.reached = copy
      input.origin = nil
      if input.ledger.outstanding == 0 { input.begin() }
      inputs[FileKey(copy)] = input
      latest = nil
    }

    /// `isLast`: the last event ends with the block, even if more is appended to the file later.
    private func take(_ delivered: FileBlock, isLast: Bool = false) {
      guard !isClosed else { return }
      let input = input(of: delivered)
      guard let decoder = input.decoder, let origin = input.origin else { return }
      let block = input.hasBegun ? delivered : begin(input, with: delivered)
      // The rest of another file's block may also be sent in this turn.
      if begun != nil { beginPiece() }
      piece = input
      let endsEvent = isLast || block.endsLine || joining != nil && block.lines.longLine != nil
      decoder.setTime(now.nanoseconds)
      take(block.lines.slab, offset: block.lines.offset, isLast: endsEvent, by: decoder, origin: origin)
      if isBatchDone { return end(block, input) }
      begun = (block, input)
      whenBatchIsDone { [unowned self] in
        begun = nil
        end(block, input)
      }
    }

    /// Handles the end of a block, after its rows were sent.
    private func end(_ block: FileBlock, _ input: Input) {
      if let line = block.lines.longLine, let origin = input.origin { rejectLong(line, parameters.maxLine, origin) }
      let earlier = input.position.tail
      input.position = block.position
      input.reached = block.position
      if let offset = unsentOffset ?? input.decoder?.pendingOffset {
        input.position = block.position(at: offset, behind: earlier)
      }
      awaitMore(of: input)
      if block.isNewest, !input.isCaughtUp {
        input.isCaughtUp = true
        partOpened(input.part, isBehind: false)
      }
    }

    // MARK: Joined lines

    /// Sets the timer that ends the file's last event if no further line arrives in the time that `join` allows.
    private func awaitMore(of input: Input) {
      guard let joining else { return }
      cancelWake(&input.timer)
      guard input.decoder?.pendingOffset != nil else { return }
      let wait = input.decoder?.dueAt.map { TimeSpan(nanoseconds: max(0, $0 &- now.nanoseconds)) } ?? joining.wait
      input.timer = wake(after: wait, input.number)
    }

    override func woke(_ token: Int) {
      guard let input = inputs.values.first(where: { $0.number == token }) else { return }
      input.timer = .none
      input.decoder?.endOnlyDue(at: now.nanoseconds)
      endEvent(of: input)
    }

    /// Ends the file's last event, if it is incomplete.
    private func endEvent(of input: Input) {
      cancelWake(&input.timer)
      guard input.decoder?.pendingOffset != nil else { return }
      take(FileBlock(endAt: input.reached), isLast: true)
    }

    /// Called when the writer has switched to this file: first ends the last events of the files before it. Returns
    /// what remains of the file's first block.
    private func begin(_ input: Input, with block: FileBlock) -> FileBlock {
      input.hasBegun = true
      guard joining != nil, inputs.count > 1 else { return block }
      let path = block.position.target ?? block.path
      let patterns = parameters.paths.map(\.text)
      let base = FileFollower.pathBeforeRotation(path, of: patterns)
      let older = inputs.values.filter { other in
        other !== input && other.decoder?.pendingOffset != nil
          && (other.name == path || other.position.target == path
            || FileFollower.pathBeforeRotation(other.position.path, of: patterns) == base)
      }
      var rest = block
      let ending = inReadingOrder(older)
      for other in ending {
        if other === ending.last { rest = continueLine(of: other, by: rest) }
        endEvent(of: other)
      }
      return rest
    }

    /// The maximum number of lines of a file that are searched for the rest of a line that its predecessor ends with;
    /// lines of the other stream may come in between.
    private static let mostContinuations = 100

    /// Completes a container's line of which the last pieces are in the next file, because the runtime rotated the file
    /// within the line. These pieces are decoded as if the older file had continued, so the event belongs to that file.
    /// Both files' positions move in this turn.
    ///
    /// - Parameter block: The first block of the next file.
    /// - Returns: The rest of the block.
    private func continueLine(of older: Input, by block: FileBlock) -> FileBlock {
      guard joining?.rule == nil, parameters.decoding.charset?.isUTF16 != true, block.lines.offset == 0 else {
        return block
      }
      let bytes = block.lines.slab.bytes
      var at = 0
      for _ in 0..<Self.mostContinuations where older.decoder?.pendingOffset != nil {
        guard let end = bytes[at...].firstIndex(of: 0x0A) else { break }
        var line = FileBlock(endAt: older.reached)
        line.lines.slab = Slab(UnsafeRawBufferPointer(rebasing: bytes[at...end]))
        line.lines.offset &+= Int64(at)
        at = end + 1
        take(line)
      }
      guard at > 0 else { return block }
      endEvent(of: older)
      // If the older file still gets a line of its own, decoding continues at that line's offset.
      older.decoder?.reset(memory: [])
      var rest = block
      rest.lines.slab = Slab(UnsafeRawBufferPointer(rebasing: bytes[at...]))
      rest.lines.offset &+= Int64(at)
      return rest
    }

    /// Incomplete events are sent, because no execution will continue them.
    override func drain() {
      if joining != nil { for input in inReadingOrder(Array(inputs.values)) { endEvent(of: input) } }
      super.drain()
    }

    /// The input of the file of `block`, with its current name.
    private func input(of block: FileBlock) -> Input {
      let key = FileKey(block.position)
      if let latest, latest.key == key, latest.input.origin?.path == block.path { return latest.input }
      let input = inputs[key] ?? makeInput(block.position)
      if input.decoder == nil {
        input.decoder = makeDecoder(parameters.decoding)
        input.decoder?.reset(memory: input.memory)
      }
      if input.origin?.path != block.path {
        input.origin = Origin(
          source: origin.source, path: block.path, receivedAt: executor.wallTime,
          identity: identity(block.position.fileName), part: input.part)
      }
      if inputs[key] == nil { inputs[key] = input }
      latest = (key, input)
      return input
    }

    private func note(_ notice: FileFollower.Notice) {
      let label = execution.plan.steps[nodeContext.step.number].label
      switch notice {
      case .opened(let position):
        moved(to: position)
        if let part = inputs[FileKey(position)]?.part {
          let size = FileDescriptor.Status(path: position.path)?.size ?? 0
          partOpened(part, isBehind: size > position.offset)
        }
        execution.services.log(.debug, label, "following \(position.path) from byte \(position.offset)")
      case .truncated(let path, let offset):
        for input in inputs.values where input.position.path == path {
          endEvent(of: input)
          // The start of the file has changed, so its position no longer applies.
          input.position.offset = 0
          input.position.fingerprintBytes = 0
          input.position.tail = nil
          input.decoder = nil
          input.memory = []
          input.reached = input.position
          input.begin()
        }
        latest = nil
        execution.services.log(
          .warning, label,
          "\(path) was truncated after byte \(offset); data written just before that may be lost")
      case .finished(let path, let position):
        // A successor may have the same path, so the input that ends is found by the file's identity.
        let input = inputs.removeValue(forKey: FileKey(position))
        if let input, let decoder = input.decoder, let origin = input.origin {
          cancelWake(&input.timer)
          piece = input
          take(Slab(capacity: 0), offset: position.offset, isLast: true, by: decoder, origin: origin)
          leaving.removeAll { $0.ledger.outstanding == 0 }
          leaving.append(input)
        }
        if let part = input?.part {
          if isBatchDone { partEnded(part) } else { whenBatchIsDone { [unowned self] in partEnded(part) } }
        }
        execution.services.log(.debug, label, "read \(path) to its end")
      case .failed(let error):
        let remedy = error.isRefusedLink ? "; it is skipped. 'followLinks: always' follows it" : ""
        execution.services.log(.warning, label, error.message + remedy)
      case .retrying(let error):
        execution.services.log(
          .warning, label, "\(error.message); known files are read on, and listing is tried again")
      case .recovered(let path): execution.services.log(.info, label, "\(path) can be read again")
      case .gone(let position, let absence):
        if let input = inputs.removeValue(forKey: FileKey(position)) { partEnded(input.part) }
        execution.services.log(.warning, label, text(of: absence, position))
      case .restored(let position, let file):
        moved(from: position, to: file)
        let what = FileKey(position) == FileKey(file) ? "was rewritten" : "is another file than before"
        execution.services.log(
          .info, label,
          "\(file.path) \(what), with the same content up to byte \(position.offset): reading continues there")
      case .copied(let position, let copy):
        moved(from: position, to: copy)
        execution.services.log(
          .info, label, "\(position.path) was truncated; its unread part is read from the copy \(copy.path)")
      case .compressed(let position, let copy):
        moved(from: position, to: copy)
        execution.services.log(
          .info, label, "\(position.path) was compressed; its unread part is read from \(copy.path)")
      case .waiting(let path, let limit):
        execution.services.log(
          .info, label, "\(path) ends in the middle; the rest is awaited until it has not grown for \(limit)")
      case .damaged(let position, let damage):
        let reason =
          switch damage {
          case .damaged: "is damaged"
          case .unfinished: "ends in the middle and does not grow"
          case .tooShort: "is shorter than the part that was read"
          }
        execution.services.log(
          .warning, label,
          "\(position.path) \(reason); its decompressed content after byte \(position.offset) is lost")
      case .overflow:
        execution.services.log(.warning, label, "the kernel dropped file events; all files were checked")
      case .polling(let error):
        // Every source of the process fails in the same way, so one warning is enough.
        execution.services.log(
          Inotify.isNews(error) ? .warning : .debug, label,
          "\(error.message); polling files once a second instead")
      case .watching: execution.services.log(.info, label, "files are watched by the kernel again")
      case .remote(let path, let fileSystem):
        execution.services.log(
          .info, label,
          "\(path) is on a file system (\(fileSystem)) that other machines can change without an event; it is polled once a second"
        )
      case .unended(let path, let bytes, let isWritten):
        let reason =
          switch isWritten {
          case true?: "as long as a program has the file open for writing"
          case false?: "until it has not grown for a while"
          case nil: "for ten minutes, because the system cannot report whether a program has the file open"
          }
        execution.services.log(
          .info, label,
          "\(path) ends without a line feed: its last line, \(bytes) byte\(bytes == 1 ? "" : "s"), waits for one \(reason); 'lastLine' sets the time"
        )
      }
    }

    /// Describes what happened to the file of a position, and what is read instead.
    private func text(of absence: FileFollower.Absence, _ position: FilePosition) -> String {
      let path = position.path
      let now = parameters.reads(path) ? ", and is read from its start" : ""
      let rest = "what was added after byte \(position.offset) before that, if anything, was not read"
      return switch absence {
      case .removed: "\(path) was removed; \(rest)"
      case .replaced: "\(path) was replaced by a file with other content\(now); \(rest)"
      case .truncated(let size):
        "\(path) was truncated: it has \(Printable.count(Int(clamping: size), "byte"))\(now); \(rest)"
      case .rewritten: "\(path) was rewritten: it has other content\(now); \(rest)"
      }
    }

    override func save(_ state: inout StateWriter) {
      state.write(parameters.paths.map(\.text))
      leaving.removeAll { $0.ledger.outstanding == 0 }
      let isAcknowledged = state.positions == .acknowledged
      let positions = inReadingOrder(isAcknowledged ? leaving + inputs.values : Array(inputs.values)).map { input in
        isAcknowledged ? input.ledger.acknowledged : taken(of: input)
      }
      state.write(each: positions) { state, one in
        state.write(one.position)
        state.write(one.memory)
      }
      state.write(parameters.decoding.dependence)
      state.write(each: positions) { state, one in state.write(one.position.target) }
      state.write(each: positions) { state, one in state.write(one.position.tail) }
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      let paths = try state.read([String].self)
      var saved: [Input] = []
      for _ in 0..<(try state.count()) { saved.append(makeInput(try state.read(), memory: try state.read())) }
      let dependence = try state.read(String.self)
      // States of older versions end here.
      if !state.isAtEnd {
        for index in 0..<(try state.count()) {
          let target = try state.read(String?.self)
          guard saved.indices.contains(index) else { continue }
          if target?.utf8.contains(0) ?? false { throw StateFault("a file position is invalid") }
          saved[index].position.target = target
        }
      }
      if !state.isAtEnd {
        for index in 0..<(try state.count()) {
          let tail = try state.read(FileTail?.self)
          if saved.indices.contains(index) { saved[index].position.tail = tail }
        }
      }
      for input in saved {
        let decodingPosition = DecodingPosition(offset: input.position.offset, memory: input.memory)
        if !parameters.decoding.goesOn(at: decodingPosition, dependence) {
          execution.services.log(
            .warning, execution.plan.steps[nodeContext.step.number].label,
            """
            'decode' has changed and needs the start of the file; \(input.position.path) is read again from its \
            start
            """)
          input.position.offset = 0
          input.position.tail = nil
          input.memory = []
        }
        // A file that was renamed away from a watched path is still read to the end; a file whose path is no longer
        // configured is not.
        let wasNamed = paths.contains { Glob.matches($0, input.position.path) }
        if !wasNamed || parameters.reads(input.position.path) { inputs[FileKey(input.position)] = input }
      }
      isResumed = true
      savedAt = executor.wallTime &- state.elapsed.nanoseconds
    }

    /// The next execution reads unsent input again.
    override func suspend() {}

    override var isReadAgain: Bool { true }

    override var hasPosition: Bool { follower != nil || isResumed }

    override func resume() { begin() }

    override func stop() {
      inputQueue.stop()
      follower?.stop()
    }
  }
}
