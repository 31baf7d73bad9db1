public import PipelineCore
import Transport

/// `file`: the contents of files, once or as they grow.
public struct File: SourceComponent {
  enum Start: String, ChoiceParameter {
    case beginning, end
    var help: String {
      self == .beginning ? "the whole files" : "only data added from now on"
    }
  }

  var paths: [FilePathParameter] = []
  public var decode = DecodeParameter(.text)
  public var follow = false
  var start = Start.beginning
  public var maxLine = ByteSize(1 << 20)
  public var whenTooLong = WhenTooLong.reject
  public var maxBytes = ByteSize(16 << 20)
  var rotateWait = TimeSpan.seconds(5)

  public init() {}

  public static let spec = ComponentSpec<File>(
    "file",
    summary: "Reads files once, or follows them as they grow.",
    details: """
      Paths may contain `*`, `?` and `[...]`; relative paths start at the working directory. Without `follow`, files \
      are read in the order of their names, and the source completes after the last; a path without wildcards that \
      does not exist is an error, and so is a directory that cannot be listed. A pattern without a match is a \
      warning. With `follow`, files are read through renames and replacements, new files from their start, and the \
      source never completes. If a directory cannot be listed for a while, that is a warning: its known files are \
      read on, and listing is tried again. A compressed file (gzip, zstd, xz, bzip2) is an error; with `follow` it \
      is skipped with a warning. `meta.path` and `meta.offset` give the origin of an event.

      With a state directory, reading goes on after the last event of the saved state. A file is known by its inode, \
      its birth time and its first bytes. One that was renamed meanwhile is read to its end before its successors; so \
      is, from its copy, one that was copied and truncated, if the copy has the same name plus a suffix. Rotation may \
      have compressed these files: `app.log` is read on in `app.log.1.gz` or `app.log-20261122.zst`, with offsets of \
      the decompressed content. A compressed file that is damaged is a warning with the offset from which its content \
      is lost; so is one that ends in the middle and does not grow for a minute. A file that was moved to another \
      directory or removed meanwhile cannot be read on, which is a warning.
      """,
    parameters: [
      .init("path", \.paths, primary: true, required: true, "A path, or several."),
      .init("decode", \.decode, "How bytes are decoded into events."),
      .init("follow", \.follow, "Continue to read data that is added."),
      .init("start", \.start, "With `follow`: where to start in files that exist already."),
      .init("maxLine", \.maxLine, "The longest line."),
      .init("whenTooLong", \.whenTooLong, "What happens to a longer line."),
      .init("maxBytes", \.maxBytes, "The largest file for `decode: whole`."),
      .init(
        "rotateWait", \.rotateWait, range: 0...Int64.max,
        "With `follow`: how long a renamed file is read on after it last grew."),
    ],
    examples: [
      .snippet("one file", "file: pipelines/data/apache-combined.log"),
      .snippet(
        "logs as they grow",
        "file: { path: '/var/log/nginx/*.log', follow: true, decode: { regex: combined } }"),
    ],
    edges: EdgeCases(
      empty: "Completes at once; with `follow`, it waits for lines.",
      error:
        "A file that cannot be read ends it with an error; a line that cannot be decoded goes to the errors output.",
      completion: "After the last line of the last file; with `follow`, never.", disposal: "Closes the files."),
    memory: "How far each file has been read.", persistence: .position(version: 1),
    knownAs: ["Vector file", "Fluent Bit tail", "Logstash file"],
    useCases: [
      .init(.reading, "read files once", "file: { path: access.log }"),
      .init(.reading, "follow a log file through rotations", "file: { path: '/var/log/app/*.log', follow: true }"),
      .init(.reading, "read JSON lines from a file", "file: { path: events.ndjson, decode: json }"),
      .init(.reading, "read a CSV file with a header", "file: { path: people.csv, decode: csv }"),
    ],
    seeAlso: ["stdin"])

  public func validate(_ context: inout DecodingContext) {
    if paths.isEmpty, !context.diagnostics.hasErrors {
      context.badValue(at: context.location, "'path' of 'file' is empty")
    }
    if follow, !decode.options.framing.hasOpenEnd {
      context.badValue(
        at: context.location,
        "a followed file has no end, which 'decode: \(decode.options.format.rawValue)' needs",
        .conflictingParameters, help: "Decode lines, or leave 'follow' out")
    }
  }

  public var outputType: EventType { decode.options.eventType }
  public var decodesBlocks: Bool { !follow }
  public var readsFiles: [FilePathParameter] { paths }
  // It opens regular files only.
  public var recovery: SourceRecovery { .position }
  public var namesEvents: Bool { true }

  public func threads(_ limit: Int?) -> String? {
    follow
      ? """
      read by a thread of its own, which runs turns while there is nothing to read; decoded on the pipeline thread
      """
      : decode.options.threads(limit)
  }

  public var pace: EventPace? { follow ? nil : .unbounded }

  public func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    follow ? Following(self, nodeContext, downstream) : Reading(self, nodeContext, downstream)
  }

  /// Reads files once.
  final class Reading: DecodingSource {
    private let parameters: File
    private lazy var inputQueue = InputQueue(nodeContext, gate: SemaphoreGate())
    /// Files that have been read completely.
    private var finished: [String] = []
    /// The files to read, the next one last.
    private var waiting: [String] = []
    /// Why the files could not be listed.
    private var fault: SignalFailure?
    /// The file being read, and how far its events have been sent.
    private var current: FilePosition?
    private var place = DecodingPosition()
    private var reader: BlockReader?

    /// How far the files have been sent.
    private struct Place {
      /// How many files to their ends.
      var finished = 0
      /// The one behind those, and how far it.
      var current: FilePosition?
      var place = DecodingPosition()
    }
    private lazy var places = PositionLedger(taken)
    private lazy var placement = makePlacement(
      threads: parameters.decode.options.readsBlocksApart ? decodingThreads : 1,
      always: execution.reading.startsAllThreads)
    private var fileOrigin = Origin.none

    init(_ parameters: File, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(nodeContext, downstream: downstream)
    }

    override var readFiles: [PipelineStatistics.ReadFile] {
      let open = current.map {
        PipelineStatistics.ReadFile(
          path: $0.path, device: $0.device, inode: $0.inode, offset: unsentOffset ?? place.offset)
      }
      return [open].compactMap { $0 } + waiting.suffix(PipelineStatistics.mostFiles).map { .init(path: $0, offset: 0) }
    }

    override func begin() {
      waiting = files(except: [])
      read()
    }

    override func dryRun() {
      if current == nil, waiting.isEmpty, finished.isEmpty { waiting = files(except: []) }
      if let fault { return finish(failing: fault) }
      guard makeDecoder(parameters.decode.options) != nil, current == nil, let next = waiting.last else { return }
      do throws(PosixError) {
        _ = try FileDescriptor.openForReading(next)
      } catch {
        finish(failing: SignalFailure(.source, error.message, at: nodeContext.location))
      }
    }

    /// The files of the paths, in reverse. Files that cannot be listed are missing; ``fault`` is then set.
    private func files(except known: [String]) -> [String] {
      var seen = Set(known)
      var files: [String] = []
      for path in parameters.paths {
        guard Glob.isPattern(path.text) else {
          if seen.insert(path.text).inserted { files.append(path.text) }
          continue
        }
        let found = Glob.expand(path.text)
        if let error = found.failures.first {
          fault = fault ?? SignalFailure(.source, error.message, at: path.location ?? nodeContext.location)
        } else if found.paths.isEmpty {
          // An empty directory may be intended, but a mistake looks the same.
          log(.warning, "\(location(of: path))no file matches \(path.shown), so there is nothing to read")
        }
        files += found.paths.filter { seen.insert($0).inserted }
      }
      return files.reversed()
    }

    private func log(_ level: Services.Level, _ message: String) {
      execution.services.log(level, execution.plan.steps[nodeContext.step.number].label, message)
    }

    /// Reads the waiting files; first the one that an earlier execution has read in part, from there on, if it is still
    /// the same file.
    private func read(goingOn resumption: (position: FilePosition, place: DecodingPosition)? = nil) {
      if let fault {
        finish(failing: fault)
        return
      }
      guard resumption != nil || !waiting.isEmpty else {
        finish()
        return
      }
      guard let decoder = makeDecoder(parameters.decode.options) else { return }
      var options = BlockReader.Options()
      options.mode = .init(parameters.decode.options.framing, limit: parameters.maxBytes.bytes)
      options.maxLine = parameters.maxLine.bytes
      options.whenTooLong = parameters.whenTooLong.policy
      options.refusesCompressed = parameters.decode.options.readsText
      if let bytes = execution.reading.blockBytes { options.blockBytes = bytes }
      let inputQueue = inputQueue
      let node = Weak(self)
      do throws(PosixError) {
        var first: FileDescriptor?
        place = DecodingPosition()
        if let resumption {
          let file = try reopen(resumption.position)
          let status = try file.status()
          if file.isFile(of: resumption.position, status), resumption.place.offset <= status.size {
            place = resumption.place
          } else {
            log(.warning, "\(file.name) was replaced or truncated; it is read from its start")
          }
          opened(FilePosition(of: file, status, resumption.position.path))
          first = file
        }
        options.offset = place.offset
        places.reset(to: taken)
        let reader = try BlockReader(first: first, paths: waiting.reversed(), options: options)
        self.reader = reader
        try reader.start(
          by: decoder, decoding: parameters.decode.options, knowing: place.memory, threads: decodingThreads,
          allAtOnce: execution.reading.startsAllThreads, into: inputQueue, placement: placement
        ) { pieces in node.object?.take(pieces[...]) }
      } catch {
        finish(failing: SignalFailure(.source, error.message, at: nodeContext.location))
      }
    }

    /// Opens the file that was being read; another one of its name if it is gone.
    private func reopen(_ position: FilePosition) throws(PosixError) -> FileDescriptor {
      let named: FileDescriptor
      do throws(PosixError) {
        named = try FileDescriptor.openForReading(position.path)
        if file(named, isOf: position) { return named }
      } catch {
        guard let renamed = Self.renamed(position) else { throw error }
        return renamed
      }
      return Self.renamed(position) ?? named
    }

    private func file(_ file: FileDescriptor, isOf position: FilePosition) -> Bool {
      (try? file.status()).map { file.isFile(of: position, $0) } ?? false
    }

    private static func renamed(_ position: FilePosition) -> FileDescriptor? {
      position.findRenamed { try? FileDescriptor.openForReading($0) }?.file
    }

    /// Behind the last row that a turn has sent.
    private var taken: Place {
      Place(
        finished: finished.count, current: current,
        place: DecodingPosition(offset: unsentOffset ?? place.offset, memory: place.memory))
    }

    override func beginPiece() { beginPiece(of: places) { [self] in taken } }

    /// The next pieces belong to this file.
    private func opened(_ start: FilePosition) {
      current = start
      fileOrigin = Origin(
        source: origin.source, path: start.path, receivedAt: executor.wallTime, reply: origin.reply,
        identity: identity(start.fileName))
    }

    /// Takes the pieces one after the other. If the rows of a piece need further turns, the next piece waits for the
    /// last of them.
    private func take(_ pieces: ArraySlice<DecodedPiece>) {
      if !isClosed { beginPiece() }
      var rest = pieces
      while !isClosed, let piece = rest.popFirst() {
        if let file = piece.opened {
          opened(file)
          place = DecodingPosition()
          if waiting.last == file.path { waiting.removeLast() }
        }
        if let rows = piece.rows { take(rows, encoded: piece.encoded, origin: fileOrigin) }
        if let behind = piece.place { place = behind }
        guard isBatchDone else {
          return whenBatchIsDone { [unowned self, rest] in
            placement.usedMore(in: restTime)
            end(piece)
            take(rest)
          }
        }
        end(piece)
      }
      endTurn(placement)
    }

    /// Handles the end of a piece, after its rows.
    private func end(_ piece: DecodedPiece) {
      if let longLine = piece.longLine { rejectLong(longLine, parameters.maxLine, fileOrigin) }
      guard !isClosed else { return }
      if piece.closesFile {
        if let current { finished.append(current.path) }
        current = nil
      }
      switch piece.end {
      case nil: break
      case .finished, .stopped: finish()
      case .failed(let error): finish(failing: SignalFailure(.source, error.message, at: nodeContext.location))
      }
    }

    override func save(_ state: inout StateWriter) {
      let upTo = state.positions == .acknowledged ? places.acknowledged : taken
      let files = finished + (current.map { [$0.path] } ?? []) + waiting.reversed()
      state.write(Array(files.prefix(upTo.finished)))
      state.write(Array(files.dropFirst(upTo.finished + (upTo.current == nil ? 0 : 1)).reversed()))
      state.write(upTo.current)
      state.write(upTo.place)
      state.write(parameters.decode.options.dependence)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      finished = try state.read()
      waiting = try state.read()
      current = try state.read()
      place = try state.read()
      let dependence = try state.read(String.self)
      if !parameters.decode.options.goesOn(at: place, dependence) {
        execution.services.log(
          .warning, execution.plan.steps[nodeContext.step.number].label,
          """
          'decode' has changed and needs the start of the file; \(current?.path ?? "it") is read again from its \
          start
          """)
        place = DecodingPosition()
      }
      if state.hasOtherParameters {
        waiting = files(except: finished + (current.map { [$0.path] } ?? []))
        if let path = current?.path, !parameters.reads(path) { current = nil }
      }
    }

    /// The next execution reads again what no turn has sent.
    override func suspend() {}

    override var isReadAgain: Bool { true }

    override var hasPosition: Bool { current != nil || !finished.isEmpty || !waiting.isEmpty }

    override func resume() {
      read(goingOn: current.map { ($0, place) })
    }

    override func stop() {
      inputQueue.stop()
      reader?.stop()
    }
  }

  /// Follows files.
  final class Following: DecodingSource {
    private let parameters: File
    private lazy var inputQueue = InputQueue(nodeContext, gate: SemaphoreGate())
    private var follower: FileFollower?
    private var inputs: [FileKey: Input] = [:] { didSet { latest = nil } }
    /// The last lookup: most blocks come from the same file.
    private var latest: (key: FileKey, input: Input)?
    /// The number of files found so far.
    private var found = 0
    /// An earlier execution has started with these files.
    private var isResumed = false
    /// When its state was saved, in nanoseconds since 1970.
    private var savedAt: Int64 = 0
    /// The file whose rows are being sent.
    private var piece: Input?
    /// Files that have been read to their ends, as long as not all of it is acknowledged.
    private var leaving: [Input] = []
    /// A block that has been sent in part, and its file.
    private var begun: (block: FileBlock, input: Input)?

    private struct FileKey: Hashable {
      var device: UInt64
      var inode: UInt64
      init(_ position: FilePosition) { (device, inode) = (position.device, position.inode) }
    }

    /// One followed file.
    private final class Input {
      /// How far its events have been sent.
      var position: FilePosition
      /// The file's number in the order of discovery.
      let number: Int
      /// What a decoder needs to continue there.
      var memory: [UInt8]
      var decoder: (any EventDecoder)?
      var origin: Origin?
      /// How far the file has been sent.
      let places: PositionLedger<Place>

      struct Place {
        var position: FilePosition
        var memory: [UInt8]
      }

      init(_ position: FilePosition, _ number: Int, memory: [UInt8] = []) {
        self.position = position
        self.number = number
        self.memory = memory
        places = PositionLedger(Place(position: position, memory: memory))
      }

      /// The file goes on at its position, in front of its next event.
      func begin() { places.reset(to: Place(position: position, memory: decoder?.memory ?? memory)) }
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
      // Files that an earlier execution did not know are new.
      options.start = parameters.start == .beginning || isResumed ? .beginning : .end
      options.resume = inReadingOrder(Array(inputs.values)).map(\.position)
      options.savedAt = savedAt
      options.maxLine = parameters.maxLine.bytes
      options.whenTooLong = parameters.whenTooLong.policy
      options.rotateWait = parameters.rotateWait
      for path in parameters.paths where !Self.exists(path.text) {
        execution.services.log(
          .info, execution.plan.steps[nodeContext.step.number].label,
          "\(location(of: path))no file matches \(path.shown) yet; waiting for one")
      }
      let inputQueue = inputQueue
      let node = Weak(self)
      do throws(PosixError) {
        let follower = try FileFollower(options)
        self.follower = follower
        // The positions are right before anything else can happen, such as a checkpoint.
        _ = try follower.start(
          deliver: { block in _ = inputQueue.deliver(here: block.isNewest) { node.object?.take(block) } },
          notice: { notice in _ = inputQueue.deliver { node.object?.note(notice) } },
          early: { [unowned self] in note($0) })
      } catch {
        finish(failing: SignalFailure(.source, error.message, at: nodeContext.location))
      }
    }

    override func dryRun() { _ = makeDecoder(parameters.decode.options) }

    private func makeInput(_ position: FilePosition, memory: [UInt8] = []) -> Input {
      found += 1
      return Input(position, found, memory: memory)
    }

    /// The files in reading order: the older one first.
    private func inReadingOrder(_ inputs: [Input]) -> [Input] {
      inputs.sorted {
        let (a, b) = ($0.position.born, $1.position.born)
        return a == b || a == 0 || b == 0 ? $0.number < $1.number : a < b
      }
    }

    private static func exists(_ pattern: String) -> Bool {
      Glob.expand(pattern).paths.contains { FileDescriptor.Status(path: $0) != nil }
    }

    /// Sets the position from which the file is read on, before its next event.
    private func moved(to position: FilePosition) {
      if let input = inputs[FileKey(position)] {
        input.position = position
        // What has been sent of it and is not acknowledged may have to be sent again.
        if input.places.outstanding == 0 { input.begin() }
      } else {
        inputs[FileKey(position)] = makeInput(position)
      }
    }

    /// Behind the last row of the file that a turn has sent.
    private func taken(of input: Input) -> Input.Place {
      var position = input.position
      if let begun, begun.input === input, let unsentOffset {
        position = begun.block.position
        position.offset = unsentOffset
      }
      return Input.Place(position: position, memory: input.decoder?.memory ?? input.memory)
    }

    override func beginPiece() {
      guard let piece else { return }
      beginPiece(of: piece.places) { [self] in taken(of: piece) }
    }

    /// The file goes on in another one, before its next event.
    private func moved(from position: FilePosition, to copy: FilePosition) {
      // What the decoder knows belongs to what was copied.
      let memory = inputs.removeValue(forKey: FileKey(position))?.memory ?? []
      inputs[FileKey(copy)] = makeInput(copy, memory: memory)
    }

    private func take(_ block: FileBlock) {
      guard !isClosed else { return }
      let input = input(of: block)
      guard let decoder = input.decoder, let origin = input.origin else { return }
      // The rest of another file's block may be sent in this turn, too.
      if begun != nil { beginPiece() }
      piece = input
      take(block.lines.slab, offset: block.lines.offset, isLast: false, by: decoder, origin: origin)
      if isBatchDone { return end(block, input) }
      begun = (block, input)
      whenBatchIsDone { [unowned self] in
        begun = nil
        end(block, input)
      }
    }

    /// Handles the end of a block, after its rows.
    private func end(_ block: FileBlock, _ input: Input) {
      if let line = block.lines.longLine, let origin = input.origin { rejectLong(line, parameters.maxLine, origin) }
      input.position = block.position
      if let offset = unsentOffset ?? input.decoder?.pendingOffset { input.position.offset = offset }
    }

    /// The file of `block`, under its present name.
    private func input(of block: FileBlock) -> Input {
      let key = FileKey(block.position)
      if let latest, latest.key == key, latest.input.origin?.path == block.path { return latest.input }
      let input = inputs[key] ?? makeInput(block.position)
      if input.decoder == nil {
        input.decoder = makeDecoder(parameters.decode.options)
        input.decoder?.reset(memory: input.memory)
      }
      if input.origin?.path != block.path {
        input.origin = Origin(
          source: origin.source, path: block.path, receivedAt: executor.wallTime,
          identity: identity(block.position.fileName))
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
        execution.services.log(.debug, label, "following \(position.path) from byte \(position.offset)")
      case .truncated(let path, let offset):
        for input in inputs.values where input.position.path == path {
          // The start of the file has changed.
          input.position.offset = 0
          input.position.fingerprintBytes = 0
          input.decoder = nil
          input.memory = []
          input.begin()
        }
        latest = nil
        execution.services.log(
          .warning, label,
          "\(path) was truncated after byte \(offset); data written just before that may be lost")
      case .finished(let path, let position):
        // A successor may have the same path: only the file's identity tells which input ends.
        if let input = inputs.removeValue(forKey: FileKey(position)), let decoder = input.decoder,
          let origin = input.origin
        {
          piece = input
          take(Slab(capacity: 0), offset: position.offset, isLast: true, by: decoder, origin: origin)
          leaving.removeAll { $0.places.outstanding == 0 }
          leaving.append(input)
        }
        execution.services.log(.debug, label, "read \(path) to its end")
      case .failed(let error): execution.services.log(.warning, label, error.message)
      case .retrying(let error):
        execution.services.log(
          .warning, label, "\(error.message); known files are read on, and listing is tried again")
      case .recovered(let path): execution.services.log(.info, label, "\(path) can be read again")
      case .lost(let position):
        inputs[FileKey(position)] = nil
        execution.services.log(
          .warning, label,
          "\(position.path) was removed or truncated; what was added after byte \(position.offset) is lost")
      case .copied(let position, let copy):
        moved(from: position, to: copy)
        execution.services.log(
          .info, label, "\(position.path) was truncated; what had not been read is read from its copy \(copy.path)")
      case .compressed(let position, let copy):
        moved(from: position, to: copy)
        execution.services.log(
          .info, label, "\(position.path) was compressed; what had not been read is read from \(copy.path)")
      case .waiting(let path, let limit):
        execution.services.log(
          .info, label, "\(path) ends in the middle; the rest is awaited until it has not grown for \(limit)")
      case .damaged(let position, let damage):
        let reason =
          switch damage {
          case .damaged: "is damaged"
          case .unfinished: "ends in the middle and does not grow"
          case .tooShort: "is shorter than what was read"
          }
        execution.services.log(
          .warning, label,
          "\(position.path) \(reason); what follows byte \(position.offset) of its decompressed content is lost")
      case .overflow:
        execution.services.log(.warning, label, "the kernel dropped file events; all files were checked")
      case .polling(let error):
        execution.services.log(.warning, label, "\(error.message); polling once a second instead")
      }
    }

    override func save(_ state: inout StateWriter) {
      state.write(parameters.paths.map(\.text))
      leaving.removeAll { $0.places.outstanding == 0 }
      let isAcknowledged = state.positions == .acknowledged
      state.write(each: inReadingOrder(isAcknowledged ? leaving + inputs.values : Array(inputs.values))) {
        state, input in
        let place = isAcknowledged ? input.places.acknowledged : taken(of: input)
        state.write(place.position)
        state.write(place.memory)
      }
      state.write(parameters.decode.options.dependence)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      let paths = try state.read([String].self)
      var saved: [Input] = []
      for _ in 0..<(try state.count()) { saved.append(makeInput(try state.read(), memory: try state.read())) }
      let dependence = try state.read(String.self)
      for input in saved {
        let place = DecodingPosition(offset: input.position.offset, memory: input.memory)
        if !parameters.decode.options.goesOn(at: place, dependence) {
          execution.services.log(
            .warning, execution.plan.steps[nodeContext.step.number].label,
            """
            'decode' has changed and needs the start of the file; \(input.position.path) is read again from its \
            start
            """)
          input.position.offset = 0
          input.memory = []
        }
        // A file renamed away from a watched path is read to its end; a file whose path is no longer configured is not.
        let wasNamed = paths.contains { Glob.matches($0, input.position.path) }
        if !wasNamed || parameters.reads(input.position.path) { inputs[FileKey(input.position)] = input }
      }
      isResumed = true
      savedAt = executor.wallTime &- state.elapsed.nanoseconds
    }

    /// The next execution reads again what no turn has sent.
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

extension File {
  /// Followed files and those read once have different forms, of which only the right one fits.
  public static func savedPositions(_ state: inout StateReader) throws(StateFault) -> [SavedPosition] {
    var other = state
    do throws(StateFault) { return try followedPositions(&state) } catch { return try oncePositions(&other) }
  }

  /// What `Following` saves.
  private static func followedPositions(_ state: inout StateReader) throws(StateFault) -> [SavedPosition] {
    _ = try state.read([String].self)
    var positions: [SavedPosition] = []
    for _ in 0..<(try state.count()) {
      let file = try state.read(FilePosition.self)
      _ = try state.read([UInt8].self)
      positions.append(SavedPosition(path: file.path, inode: file.inode, offset: file.offset))
    }
    _ = try state.read(String.self)
    guard state.isAtEnd else { throw StateFault("it is not that of followed files") }
    return positions
  }

  /// What `Reading` saves.
  private static func oncePositions(_ state: inout StateReader) throws(StateFault) -> [SavedPosition] {
    let finished = try state.read([String].self)
    let waiting = try state.read([String].self)
    let current = try state.read(FilePosition?.self)
    let place = try state.read(DecodingPosition.self)
    var positions = finished.map { SavedPosition(path: $0, offset: nil) }
    if let current {
      positions.append(SavedPosition(path: current.path, inode: current.inode, offset: place.offset))
    }
    return positions + waiting.reversed().map { SavedPosition(path: $0, offset: 0) }
  }

  /// Whether the path is configured.
  fileprivate func reads(_ path: String) -> Bool {
    paths.contains { $0.text == path || Glob.isPattern($0.text) && Glob.matches($0.text, path) }
  }
}

extension RunningSource {
  /// The location of the path in the pipeline file, as the start of a message.
  fileprivate func location(of path: FilePathParameter) -> String {
    (path.location ?? nodeContext.location).map { "\($0): " } ?? ""
  }
}
