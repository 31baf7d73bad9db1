public import PipelineCore
import Transport

/// `file`: what files hold, once or as they grow.
public struct File: SourceComponent {
  enum Start: String, ChoiceParameter {
    case beginning, end
    var help: String {
      self == .beginning ? "all that the files hold" : "only what is added from now on"
    }
  }

  var paths: [String] = []
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
      Paths may hold `*`, `?` and `[...]`; relative ones start at the working directory. Read once, the \
      files come in the order of their names, and the source completes behind the last; a path without \
      wildcards that does not exist is an error. Followed, files are read through renamings and \
      replacements, new ones from their beginning, and the source never completes. `meta.path` and \
      `meta.offset` tell where an event stood.
      """,
    parameters: [
      .init("path", \.paths, primary: true, required: true, "A path, or several."),
      .init("decode", \.decode, "How bytes become events."),
      .init("follow", \.follow, "Go on reading what is added."),
      .init("start", \.start, "With `follow`: where to begin in files that are there already."),
      .init("maxLine", \.maxLine, "The longest line."),
      .init("whenTooLong", \.whenTooLong, "What becomes of a longer line."),
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
      empty: "Completes at once; followed, it waits for lines.",
      error:
        "A file that cannot be read ends it with an error; a line that cannot be decoded goes to the errors output.",
      completion: "Behind the last line of the last file; followed, never.", disposal: "Closes the files."),
    rivals: ["Vector file", "Fluent Bit tail", "Logstash file"],
    wants: [
      .init(.reading, "read files once", "file: { path: access.log }"),
      .init(.reading, "follow a log file through rotations", "file: { path: '/var/log/app/*.log', follow: true }"),
      .init(.reading, "read JSON lines from a file", "file: { path: events.ndjson, decode: json }"),
      .init(.reading, "read a CSV file with a header", "file: { path: people.csv, decode: csv }"),
    ],
    seeAlso: ["stdin"])

  public func validate(_ context: inout DecodingContext) {
    if paths.contains(where: \.isEmpty) || paths.isEmpty {
      context.badValue(at: context.location, "'path' of 'file' is empty")
    }
    if follow, !decode.options.framing.hasOpenEnd {
      context.badValue(
        at: context.location,
        "a file that is followed has no end, so 'decode: \(decode.options.format.rawValue)' cannot wait for it",
        .conflictingParameters, help: "Decode lines, or leave 'follow' out")
    }
  }

  public var outputType: EventType { decode.options.eventType }

  public func threads(_ limit: Int?) -> String? {
    follow
      ? "read by a thread of its own, which runs turns while there is nothing to read; decoded in the turns"
      : decode.options.threads(limit)
  }

  public func makeSource(_ seat: Seat, downstream: Downstream) -> RunningSource {
    follow ? Following(self, seat, downstream) : Reading(self, seat, downstream)
  }

  /// Reads once.
  final class Reading: DecodingSource {
    private let parameters: File
    private lazy var intake = Intake(seat, gate: SemaphoreGate())
    private var waiting: [String] = []
    private var reader: BlockReader?
    private lazy var place = BlockWorkPlace(
      threads: parameters.decode.options.readsBlocksApart ? decodingThreads : 1,
      always: execution.reading.startsAllThreads)
    private var fileOrigin = Origin.none

    init(_ parameters: File, _ seat: Seat, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(seat, downstream: downstream)
    }

    override func begin() {
      var seen: Set<String> = []
      for path in parameters.paths {
        let found = Glob.isPattern(path) ? Glob.expand(path) : [path]
        waiting += found.filter { seen.insert($0).inserted }
      }
      waiting.reverse()
      next()
    }

    private func next() {
      guard !isClosed else { return }
      guard let path = waiting.popLast() else {
        finish()
        return
      }
      fileOrigin = Origin(
        source: origin.source, path: path, receivedAt: executor.wallTime, reply: origin.reply)
      var options = BlockReader.Options()
      options.mode = .init(parameters.decode.options.framing, limit: parameters.maxBytes.bytes)
      options.maxLine = parameters.maxLine.bytes
      options.whenTooLong = parameters.whenTooLong.policy
      if let bytes = execution.reading.blockBytes { options.blockBytes = bytes }
      let intake = intake
      let node = Weak(self)
      do throws(PosixError) {
        let file = try FileDescriptor.openForReading(path)
        let reader = try BlockReader(file, options: options)
        self.reader = reader
        try reader.start(
          decoding: parameters.decode.options, threads: decodingThreads, allAtOnce: execution.reading.startsAllThreads,
          into: intake, place: place
        ) { piece in node.object?.take(piece) }
      } catch {
        finish(failing: SignalFailure(.source, error.message, at: seat.location))
      }
    }

    private func take(_ piece: DecodedPiece) {
      if let rows = piece.rows { take(rows, encoded: piece.encoded, origin: fileOrigin) }
      shareWork(through: place)
      if let longLine = piece.longLine { rejectLong(longLine, parameters.maxLine, fileOrigin) }
      guard !isClosed, let end = piece.end else { return }
      switch end {
      case .finished: next()
      case .stopped: finish()
      case .failed(let error):
        finish(failing: SignalFailure(.source, error.message, at: seat.location))
      }
    }

    override func stop() {
      intake.stop()
      reader?.stop()
    }
  }

  /// Follows.
  final class Following: DecodingSource {
    private let parameters: File
    private lazy var intake = Intake(seat, gate: SemaphoreGate())
    private var follower: FileFollower?
    private var inputs: [FileKey: Input] = [:] { didSet { latest = nil } }
    /// What was looked up last: most blocks come from one file.
    private var latest: (key: FileKey, input: Input)?

    private struct FileKey: Hashable {
      var device: UInt64
      var inode: UInt64
    }
    private struct Input {
      var decoder: any EventDecoder
      var origin: Origin
    }

    init(_ parameters: File, _ seat: Seat, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(seat, downstream: downstream)
    }

    override func begin() {
      var options = FileFollower.Options(paths: parameters.paths)
      options.start = parameters.start == .beginning ? .beginning : .end
      options.maxLine = parameters.maxLine.bytes
      options.whenTooLong = parameters.whenTooLong.policy
      options.rotateWait = parameters.rotateWait
      let intake = intake
      let node = Weak(self)
      do throws(PosixError) {
        let follower = try FileFollower(options)
        self.follower = follower
        try follower.start(
          deliver: { block in _ = intake.deliver(here: block.isNewest) { node.object?.take(block) } },
          notice: { notice in _ = intake.deliver { node.object?.note(notice) } })
      } catch {
        finish(failing: SignalFailure(.source, error.message, at: seat.location))
      }
    }

    private func take(_ block: FileBlock) {
      guard let input = input(of: block) else { return }
      take(
        block.lines.slab, offset: block.lines.offset, isLast: false, by: input.decoder,
        origin: input.origin)
      if let line = block.lines.longLine { rejectLong(line, parameters.maxLine, input.origin) }
    }

    /// Of the file of `block`, by the name that it has now.
    private func input(of block: FileBlock) -> Input? {
      let key = FileKey(device: block.position.device, inode: block.position.inode)
      if let latest, latest.key == key, latest.input.origin.path == block.path { return latest.input }
      var input = inputs[key]
      if input?.origin.path != block.path {
        guard let decoder = input?.decoder ?? (try? parameters.decode.options.decoder()) else { return nil }
        if inputs.count > 10_000 { inputs.removeAll() }
        input = Input(
          decoder: decoder,
          origin: Origin(source: origin.source, path: block.path, receivedAt: executor.wallTime))
        inputs[key] = input
      }
      if let input { latest = (key, input) }
      return input
    }

    private func note(_ notice: FileFollower.Notice) {
      let label = execution.plan.steps[seat.step.number].label
      switch notice {
      case .opened(let path, let offset):
        execution.services.log(.debug, label, "following \(path) from byte \(offset)")
      case .truncated(let path, let offset):
        inputs = inputs.filter { $0.value.origin.path != path }
        execution.services.log(
          .warning, label,
          "\(path) was truncated after byte \(offset); what was written just before that may be lost")
      case .finished(let path, let position):
        // Its successor may have the same path by now: only the file itself tells which input ends.
        let key = FileKey(device: position.device, inode: position.inode)
        if let input = inputs.removeValue(forKey: key) {
          take(
            Slab(capacity: 0), offset: position.offset, isLast: true, by: input.decoder,
            origin: input.origin)
        }
        execution.services.log(.debug, label, "read \(path) to its end")
      case .failed(let error): execution.services.log(.warning, label, error.message)
      case .lost(let position):
        execution.services.log(.warning, label, "\(position.path) is gone or shorter than it was")
      case .overflow:
        execution.services.log(.warning, label, "the kernel dropped file events; looked at everything again")
      case .polling(let error):
        execution.services.log(.warning, label, "\(error.message); looking once a second instead")
      }
    }

    override func stop() {
      intake.stop()
      follower?.stop()
    }
  }
}
