import PipelineCore
import Synchronization
import Transport

/// The `file` sink whose path is a template: each event names its file. The sink decides which files are open, and one
/// thread writes them.
///
/// An event whose file may not be open is kept until it is, because it is rejected if the file cannot be opened.
final class TemplatedFileSink: RunningSink, TimerTarget {
  private let parameters: FileSink
  /// Nil: all events go to one file, which rotates.
  private let path: TemplateParameter?
  private let directoryBytes: Int
  private let tree: FileTree
  private var options = FilesWriter.Options()
  private let maxOpenFiles: Int
  private let idleTimeout: TimeSpan
  private var writer: FilesWriter?
  private lazy var frame = makeFrame()
  private let text = OutputBuffer()
  private var inserted: [Range<Int>] = []
  /// Keyed by full path.
  private var targets: [String: Target] = [:]
  private var openTargets: [Target] = []
  private var closedCount = 0
  private var latest = Latest()
  /// The targets with events of this turn.
  private var filled: [Target] = []
  private var order: UInt64 = 0
  private var idle = Wake.none
  /// The end of the current period of `rotate`.
  private var boundary = Wake.none
  private var stateTurns = StateTurns()
  private static let mostTurnsForStates = 60
  /// The next number of a file.
  private var nextNumber: UInt64 = 1
  private var restored: (marks: WriterMarks, number: UInt64, files: [Restored])?
  /// The marks by which this sink distinguishes its files from those of other sinks and of its lost executions.
  private lazy var marks = WriterMarks(writer: execution.services.random(), lost: [])
  private var bytes = Bytes()
  private let delivery = Delivery()
  private let unsure = Unsure()
  private var counts = Counts()
  private var isOver = false
  private var lastFailure: PosixError?

  /// The target of the last event, and its whole path.
  private struct Latest {
    var target: Target?
    var path: [UInt8] = []
  }

  /// A turn whose only purpose is to save a state, and the number of such turns since the last period.
  private struct StateTurns {
    var wake = Wake.none
    var count = 0
  }

  /// The number of encoded bytes, now and at the last requested mark.
  private struct Bytes {
    var encoded: Int64 = 0
    var marked: Int64 = 0
  }

  /// The number of events that the writer has, and of those counted as delivered.
  private struct Counts {
    var handedOver = 0
    var events = 0
    var bytes = 0
  }

  static let usualMaxOpenFiles = 64
  static let usualIdleTimeout = TimeSpan.seconds(30)
  /// The number of closed files that are remembered.
  private static let mostClosed = 1000
  /// A larger block is handed over before the end of the turn.
  private lazy var largeBlock = min(256 << 10, max(1, Int(options.rotation?.size ?? .max) / 8))

  init(_ nodeContext: NodeContext, _ parameters: FileSink, _ sync: FileWriter.Sync) {
    self.parameters = parameters
    path = parameters.path.template
    if path == nil {
      let literal = parameters.path.literal.text
      let slash = literal.utf8.lastIndex(of: UInt8(ascii: "/"))
      directoryBytes =
        slash.map { literal.utf8.distance(from: literal.startIndex, to: $0) + 1 } ?? 0
      tree = FileTree(slash.map { $0 == literal.startIndex ? "/" : String(literal[..<$0]) } ?? ".")
      text.append(literal)
      options.refusesPaths = false
    } else {
      directoryBytes = parameters.path.directoryBytes
      tree = FileTree(parameters.path.directory)
    }
    options.sync = sync
    options.rotation = parameters.rotate?.value
    maxOpenFiles = parameters.maxOpenFiles ?? Self.usualMaxOpenFiles
    idleTimeout = parameters.idleTimeout ?? Self.usualIdleTimeout
    super.init(nodeContext)
  }

  // MARK: The start

  override func open() {
    let label = execution.plan.steps[nodeContext.step.number].label
    let services = execution.services
    // Numbers are higher than those of any earlier execution, unless the clock was set back.
    nextNumber = max(UInt64(max(1, executor.wallTime / 1000)), (restored?.number ?? 0) + 1)
    // Otherwise the marks are new, so output after the checkpoint is not recognised and is kept.
    if let restored, outputComesAgain {
      marks = restored.marks
      marks.goOn(after: restored.number, at: nextNumber)
    }
    if execution.settings.acknowledgesOnDisk {
      options.sync = options.sync.acknowledging
      options.marks = marks
    }
    do throws(PosixError) {
      let note = trouble
      writer = try FilesWriter(
        tree, options: options,
        trouble: { error in
          guard let error else { return note.ends() }
          if error.isShortage { note.begins(error.message) }
          let rest =
            error.isShortage
            ? "; waiting until it can be written"
            : error.operation.hasPrefix("open") ? "; events go to the file that had this path" : ""
          services.log(.error, label, error.message + rest)
        },
        noted: { services.log(.error, label, $0.message) },
        cut: { path, bytes in
          services.log(
            .info, label,
            "cut \(bytes) bytes off \(path) that were written after the last checkpoint; they are written again"
          )
        })
      goOn()
      lookAtOlderPeriods()
    } catch {
      fail(because: SignalFailure(.sink, error.message, at: nodeContext.location))
    }
  }

  override func dryRun() {
    do throws(PosixError) {
      try tree.check()
    } catch {
      fail(because: SignalFailure(.sink, error.message, at: nodeContext.location))
    }
  }

  /// Continues every file at the end that the state records; cuts the file back there if the later output is written again.
  private func goOn() {
    guard let files = restored?.files else { return }
    restored = nil
    var (cutFiles, cutBytes, lost) = (0, Int64(0), 0)
    for known in files {
      if options.rotation != nil, outputComesAgain { tree.cutRotated(known.file.path, marks, known.file) }
      let found = tree.resume(known.file, marks, cutsBack: outputComesAgain)
      switch found.outcome {
      case nil, .exact, .kept: break
      case .cut(_, let bytes):
        cutFiles += 1
        cutBytes += bytes
      case .lost(let reason):
        lost += 1
        if lost <= 5 { log(.warning, reason) }
      }
      guard found.position != nil else { continue }
      var file = known
      file.file.position = found.position
      let encoder = parameters.encode.makeEncoder()
      if !encoder.goOn(after: known.memory) { file.memory = [] }
      let target = Target(FilesWriter.File(file.file.path, number: file.file.number), encoder, file)
      targets[tree.name(file.file.path)] = target
      closedCount += 1
    }
    if cutFiles > 0 {
      log(
        .info,
        """
        cut \(cutBytes) bytes off \(cutFiles == 1 ? "a file" : "\(cutFiles) files") that were written after the last \
        checkpoint; they are written again
        """)
    }
    if lost > 5 { log(.warning, "so it is with \(lost - 5) more files") }
  }

  // MARK: Taking events in

  override func receive(_ event: Event) {
    guard !isOver else { return }
    if let problem = render(event) { return reject(event, problem) }
    let target = target()
    let buffer = target.buffer ?? OutputBuffer(capacity: 1024)
    let start = buffer.count
    if let failure = target.encoder.append(event.value, to: buffer) {
      buffer.truncate(to: start)
      return reject(event, because: failure)
    }
    if target.buffer == nil {
      target.buffer = buffer
      filled.append(target)
    }
    if !target.isOpen { openFile(target) }
    if !target.file.isOpen(target.opening) || !target.kept.isEmpty {
      target.kept.append(OwnedEvent(event))
    }
    if target.marks.last.map({ $0.mark < bytes.marked }) ?? true {
      target.marks.append((bytes.encoded, target.count))
    }
    target.events += 1
    target.count += Int64(buffer.count - start)
    bytes.encoded += Int64(buffer.count - start)
    order += 1
    target.order = order
    target.lastUse = executor.now
    if options.rotation?.every != nil { noteTime(of: target) }
    if buffer.count >= largeBlock { handOver(target) }
  }

  /// Renders the path of the event; returns why it cannot be used.
  private func render(_ event: Event) -> String? {
    guard let path else { return nil }
    if let failure = frame.load(event) { return EventFrame.message(of: failure) }
    do throws(SignalFailure) {
      try path.render(frame, over: text, inserted: &inserted)
    } catch {
      return "its path has no value: \(error.message)"
    }
    return parameters.path.problem(text.bytes, inserted: inserted)
  }

  /// The target of the rendered path.
  private func target() -> Target {
    if let last = latest.target, latest.path.elementsEqual(text.bytes) { return last }
    latest.path.removeAll(keepingCapacity: true)
    latest.path.append(contentsOf: text.bytes)
    let name = String(decoding: text.bytes, as: UTF8.self)
    let found: Target
    if let known = targets[name] {
      found = known
    } else {
      let below = String(decoding: text.bytes[directoryBytes...], as: UTF8.self)
      found = Target(FilesWriter.File(below, number: nextNumber), parameters.encode.makeEncoder())
      nextNumber += 1
      order += 1
      found.order = order
      targets[name] = found
      closedCount += 1
      forgetOldest()
    }
    latest.target = found
    return found
  }

  private func openFile(_ target: Target) {
    if openTargets.count >= maxOpenFiles, let oldest = openTargets.min(by: { $0.order < $1.order }) {
      closeFile(oldest)
    }
    target.opening += 1
    target.isOpen = true
    openTargets.append(target)
    closedCount -= 1
    if !idle.isSet, path != nil {
      idle = executor.schedule(at: executor.now + idleTimeout, self, 0)
    }
  }

  private func closeFile(_ target: Target) {
    guard target.isOpen else { return }
    handOver(target)
    writer?.close(target.file)
    target.isOpen = false
    openTargets.removeAll { $0 === target }
    closedCount += 1
    forgetOldest()
  }

  /// Forgets closed files from time to time, the oldest first.
  private func forgetOldest() {
    guard closedCount > Self.mostClosed + Self.mostClosed / 4 else { return }
    let closed = targets.filter { !$0.value.isOpen && $0.value.events == 0 }.sorted {
      $0.value.order < $1.value.order
    }
    for (name, target) in closed.prefix(closedCount - Self.mostClosed) {
      targets[name] = nil
      if latest.target === target { latest.target = nil }
      closedCount -= 1
    }
  }

  // MARK: Periods of rotation

  private func noteTime(of target: Target) {
    target.lastTime = executor.wallTime
    if !boundary.isSet { awaitBoundary() }
  }

  private func awaitBoundary() {
    guard let every = options.rotation?.every, every > 0 else { return }
    let rest = every - executor.wallTime % every
    boundary = executor.schedule(at: executor.now + TimeSpan(nanoseconds: rest), self, 1)
  }

  /// Files left by an earlier run may be full even if no row follows. Of files named by events, only the saved ones are known.
  private func lookAtOlderPeriods() {
    guard options.rotation?.every != nil, let writer else { return }
    if path == nil { _ = target() }
    let now = executor.wallTime
    for target in targets.values { writer.rotate(target.file, after: target.handedOver, at: now) }
  }

  /// A period has ended: files written before are full, whether a row follows or not.
  private func endPeriod() {
    guard let every = options.rotation?.every, every > 0, let writer else { return }
    turnEnded()
    let now = executor.wallTime
    var isAny = false
    for target in targets.values {
      guard let last = target.lastTime else { continue }
      if now / every > last / every {
        target.lastTime = nil
        writer.rotate(target.file, after: target.handedOver, at: now)
      } else {
        isAny = true
      }
    }
    if isAny { awaitBoundary() }
    stateTurns.count = 0
    awaitStates()
  }

  /// Full files are compressed some checkpoints later; without events, no turns would make checkpoints.
  private func awaitStates() {
    guard options.marks != nil, options.rotation?.compression != nil, !stateTurns.wake.isSet,
      stateTurns.count < Self.mostTurnsForStates
    else { return }
    stateTurns.wake = executor.schedule(at: executor.now + .seconds(1), self, 2)
  }

  private func turnForStates() {
    stateTurns.count += 1
    // The writer may not have renamed the full files yet.
    if stateTurns.count < 4 || targets.values.contains(where: { $0.file.awaitsStates }) { awaitStates() }
  }

  func woke(_ token: Int) {
    switch token {
    case 1:
      boundary = .none
      if !isOver { endPeriod() }
      return
    case 2:
      stateTurns.wake = .none
      if !isOver { turnForStates() }
      return
    default: break
    }
    idle = .none
    guard !isOver else { return }
    for target in openTargets where target.lastUse + idleTimeout <= executor.now {
      closeFile(target)
    }
    guard let next = openTargets.lazy.map(\.lastUse).min() else { return }
    idle = executor.schedule(at: next + idleTimeout, self, 0)
  }

  // MARK: Handing over

  override func turnEnded() {
    guard !filled.isEmpty else { return }
    let all = filled
    filled = []
    for target in all { handOver(target) }
  }

  private func handOver(_ target: Target) {
    guard target.events > 0, let buffer = target.buffer else { return }
    let (events, kept, start, opening) = (
      target.events, target.kept, target.handedOver, target.opening
    )
    target.buffer = nil
    target.events = 0
    target.kept = []
    target.handedOver = target.count
    counts.handedOver += events
    let receipt = take(events, bytes: buffer.count + kept.reduce(0) { $0 + $1.byteCount })
    guard buffer.count > 0, let writer else {
      // Events may be nothing but empty bytes.
      delivery.count(events)
      receipt.acknowledgeAll()
      return
    }
    let (delivery, unsure, executor, node) = (delivery, unsure, executor, Weak(self))
    let isUnsure = !kept.isEmpty
    let held = Held(events: kept, receipt: receipt, target: target, opening: opening)
    if isUnsure { unsure.change(by: 1) }
    let block = FilesWriter.Block(
      .buffer(buffer), start: start, opening: opening, time: executor.wallTime,
      completion: { result in
        delivery.count(events, result) { buffer.bytes }
        receipt.freeMemory()
        if isUnsure { unsure.change(by: -1) }
      },
      acknowledgement: { result in
        receipt.acknowledgeAll(result)
        if case .failure(let failure) = result {
          executor.post { node.object?.failed(failure.error) }
        }
      },
      refusal: { error in executor.post { node.object?.refused(held, error) } })
    writer.add(block, to: target.file)
  }

  private func refused(_ block: Held, _ error: PosixError) {
    unsure.change(by: -1)
    counts.handedOver -= block.events.count
    if !isOver, block.target.opening == block.opening { closeFile(block.target) }
    for event in block.events {
      event.keep(in: executor.arena)
      reject(event.event, error.message, on: block.receipt)
    }
  }

  override var memoryLimit: Int { options.queueBytes / 2 }

  override var queued: PipelineStatistics.Queue? {
    let buffered = filled.reduce(0) { $0 + $1.events }
    return PipelineStatistics.Queue(
      events: max(0, counts.handedOver + buffered - delivery.delivered),
      bytes: (writer?.queuedBytes ?? 0) + filled.reduce(0) { $0 + ($1.buffer?.count ?? 0) })
  }

  override func countDelivered() {
    let (delivered, written) = (delivery.delivered, delivery.written)
    countSent(delivered - counts.events)
    counts.events = delivered
    countBytes(written - counts.bytes)
    counts.bytes = written
  }

  override var awaitsAnswers: Bool { unsure.isAny }

  // MARK: The places

  override var positionVersion: Int { 2 }

  override var mark: Int64 {
    bytes.marked = bytes.encoded
    return bytes.encoded
  }

  override func acknowledgeSoon() {
    turnEnded()
    writer?.acknowledgeSoon()
  }

  override func savePosition(_ state: inout StateWriter) {
    let saved = savedMark ?? mark
    state.write(marks.writer)
    state.write(each: marks.lost) { state, lost in
      state.write(lost.after)
      state.write(lost.before)
    }
    state.write(nextNumber - 1)
    let known =
      state.positions == .taken ? targets.values.sorted { $0.file.number < $1.file.number } : []
    state.write(each: known) { state, target in
      let count = target.count(at: saved)
      let isOld = count == target.restored?.file.count
      if options.rotation != nil {
        let full = target.file.saves(count)
        if !full.isEmpty { writer?.compress(full, of: target.file) }
      }
      state.write(target.file.path)
      state.write(target.file.number)
      state.write(count)
      let position = target.file.position(after: count) ?? (isOld ? target.restored?.file.position : nil)
      // A file that was rotated meanwhile has no output after the position.
      state.write(target.file.isRotatedAway && count == target.handedOver ? nil : position)
      state.write(isOld || count == 0 ? target.restored?.memory ?? [] : target.encoder.memory)
    }
  }

  override func restorePosition(_ state: inout StateReader) throws(StateFault) {
    // A path without expressions has a single saved position.
    guard state.version >= 2 else {
      _ = try state.read(FilePosition?.self)
      _ = try state.read([String].self)
      return
    }
    let writer = try state.read(UInt64.self)
    var lost: [WriterMarks.Lost] = []
    for _ in 0..<(try state.count()) {
      lost.append(WriterMarks.Lost(after: try state.read(), before: try state.read()))
    }
    let number = try state.read(UInt64.self)
    var files: [Restored] = []
    for _ in 0..<(try state.count()) {
      let path = try state.read(String.self)
      let number = try state.read(UInt64.self)
      let count = try state.read(Int64.self)
      let position = try state.read(FilePosition?.self)
      let memory = try state.read([String].self)
      guard count >= 0 else { throw StateFault("the length of a file is negative") }
      // A different directory contains different files.
      if let position, position.path != tree.name(path) { continue }
      files.append(
        Restored(
          file: SavedFile(path: path, number: number, count: count, position: position),
          memory: memory))
    }
    guard number < .max else { throw StateFault("the number of a file is too large") }
    restored = (WriterMarks(writer: writer, lost: lost), number, files)
  }

  private func log(_ level: Services.Level, _ message: String) {
    execution.services.log(
      level, execution.plan.steps[nodeContext.step.number].label,
      (nodeContext.location.map { "\($0): " } ?? "") + message)
  }

  // MARK: The end

  private func failed(_ error: PosixError) {
    guard !isOver else {
      lastFailure = lastFailure ?? error
      return
    }
    isOver = true
    fail(because: SignalFailure(.sink, error.message, at: nodeContext.location))
  }

  override func finish() {
    turnEnded()
    isOver = true
    unset()
    guard let writer else {
      drained()
      return
    }
    let node = Weak(self)
    // Closing may wait for the device.
    beside({ writer.close() }, then: { node.object?.over() })
  }

  private func over() {
    // The last sync may fail when no block is queued.
    lastFailure = lastFailure ?? writer?.failure
    writer = nil
    countLost()
    if let lastFailure {
      fail(because: SignalFailure(.sink, lastFailure.message, at: nodeContext.location))
    } else {
      drained()
    }
  }

  override func cancel() {
    if !isOver { turnEnded() }
    isOver = true
    unset()
    guard let writer else { return }
    self.writer = nil
    let node = Weak(self)
    let limit = writer.isDiskFull ? TimeSpan.zero : .milliseconds(500)
    closeBeside({ writer.close(within: limit) }, then: { node.object?.countLost() })
  }

  private func unset() {
    if idle.isSet { executor.unschedule(idle) }
    idle = .none
    if boundary.isSet { executor.unschedule(boundary) }
    boundary = .none
    if stateTurns.wake.isSet { executor.unschedule(stateTurns.wake) }
    stateTurns.wake = .none
  }

  /// Counts the unwritten events as lost.
  private func countLost() {
    let left = counts.handedOver - delivery.delivered
    counts.handedOver = delivery.delivered
    guard left > 0, !isRepeatedLater else { return }
    countUndelivered(left)
    let reason =
      delivery.failure?.message ?? "\(tree.root) did not take \(left == 1 ? "it" : "them") in time"
    log(
      .warning, "\(left) event\(left == 1 ? " was" : "s were") taken but not delivered: \(reason)")
  }
}
