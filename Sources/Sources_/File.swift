import PipelineCore
import Transport

/// `file`: the contents of files, once or as they grow.
package struct File: SourceComponent {
  enum Start: String, ChoiceParameter {
    case beginning, end
    var help: String {
      self == .beginning ? "the whole files" : "only data added from now on"
    }
  }

  enum Compression: String, ChoiceParameter {
    case auto, none, gzip, zstd
    var help: String {
      switch self {
      case .auto: "files that begin as gzip or zstd do are decompressed, if `decode` reads text"
      case .none: "files are read as they are"
      case .gzip: "all files are decompressed as gzip"
      case .zstd: "all files are decompressed as zstd"
      }
    }
  }

  enum Links: String, ChoiceParameter {
    case trusted, always, never
    var help: String {
      switch self {
      case .trusted:
        "those that root or the user of rxd owns, in directories that nobody else may write to, or that have the sticky bit; another one is skipped with a warning"
      case .always: "all links, whoever owns them"
      case .never: "no links; a path without wildcards is none either"
      }
    }
    var policy: LinkPolicy { LinkPolicy(rawValue: rawValue) ?? .trusted }
  }

  enum Watch: String, ChoiceParameter {
    case auto, inotify, poll
    var help: String {
      switch self {
      case .auto:
        "by events of the kernel; by looking once a second on network file systems and where the system refuses watches"
      case .inotify: "by events of the kernel, on every file system"
      case .poll: "by looking once a second"
      }
    }
    var method: WatchMethod { WatchMethod(rawValue: rawValue) ?? .auto }
  }

  var paths: [FilePathParameter] = []
  package var decode = DecodeParameter(.text)
  var join: JoinParameter?
  var charset = CharsetParameter()
  package var follow = false
  var start = Start.beginning
  package var maxLine = ByteSize(1 << 20)
  package var whenTooLong = WhenTooLong.reject
  package var maxBytes = ByteSize(16 << 20)
  var rotateWait = TimeSpan.seconds(5)
  var compression = Compression.auto
  var followLinks = Links.trusted
  var watch = Watch.auto
  var lastLine: TimeSpan?

  package init() {}

  /// The end of a file that is read once also ends its last line.
  private static let decodeConditions: [String: Applicability] = {
    var conditions = DecodeParameter.withCharsetAndJoin
    conditions["container.wait"] = .all([.on("/follow"), .without("/join")])
    return conditions
  }()

  package static let spec = ComponentSpec<File>(
    "file",
    summary: "Reads files once, or follows them as they grow.",
    details: """
      Paths may contain `*`, `?` and `[...]`, and `**` as a part for any number of directories; a leading dot must be written out. Relative paths start at the working directory. Without `follow`, files \
      are read in the order of their names, and the source completes after the last; a path without wildcards that \
      does not exist is an error, and so is a directory that cannot be listed. A pattern without a match is a \
      warning. With `follow`, files are read through renames and replacements, new files from their start, and the \
      source never completes. If a directory cannot be listed for a while, that is a warning: its known files are \
      read on, and listing is tried again.

      Files compressed with gzip or zstd are decompressed as a stream, whatever their names (`compression`); \
      `meta.offset` and saved positions count bytes of the content, and going on in the middle decompresses what comes \
      before again. A file that is damaged or ends in the middle ends the source with an error that names the place, \
      after the whole lines before it. A file compressed with xz or bzip2 is an error. With `follow`, files that are \
      compressed when they are found are skipped with a warning. `meta.path` and `meta.offset` give the origin of an event.

      With `join`, several lines are one event: a stack trace, a wrapped line. The event has the text of its lines, with \
      the line breaks between them, and the `meta.offset` of the first. A pattern may match anywhere in a line, so begin it with `^`; a pattern of \
      `decode: regex` sees the whole event, where `.` matches a line break only behind `(?s)`. With `follow` the last event is sent \
      when no line has come for `wait`; it is also sent at the end of a file, and before the first event of the file that follows by rotation. A saved position never lies inside an event. A \
      line that is longer than `maxLine` ends the event before it. `by` gives each line a key, so that the lines of several senders may mix: \
      `join: { start: '^[^|]+\\| \\d{4}-', by: '^[^ ]+' }`. Events are sent in the order of their first lines, so one that is complete waits for those that began \
      before it, each at most until its key has been silent for `wait`.

      `decode: container` reads the log files of containers, CRI (containerd, CRI-O) and json-file (docker), as `{ stream, message, time }`, like the `docker` source: pieces of a \
      line that the runtime has cut are put together for each stream, and with `join` the lines of a stack trace, too, by the text in `message`.

      `charset` is converted to UTF-8; `meta.offset` and saved positions stay those of the file. A line with bytes that are no \
      characters goes to the errors output, or has U+FFFD in their place, as `invalidUTF8` of `decode` says. A line of UTF-16 that is longer than \
      `maxLine` is always rejected.

      A symbolic link that a wildcard finds, or that lies below such a match, is followed only if root or the user of rxd owns it and nobody else may write \
      to its directory, by its mode, its group or an access list: otherwise whoever may write there could have rxd read files of others (`followLinks`). With `follow`, rotation may also rename the \
      file to which a link leads, as in `/var/log/containers` of Kubernetes, and a link may lead elsewhere (`current/app.log`): the old file is read \
      to its end, the new one from its start.

      With `follow`, changes are noticed by events of the kernel. Network file systems (nfs, cifs, fuse, 9p, ceph and others) have none for changes by other \
      machines: there, and where the system has no watches left, files are looked at once a second (`watch`). A last line without a line feed is sent \
      when no program has the file open for writing any more and it has not grown for 2 s; where the system does not say that (a file of another user, \
      written before rxd started or on a network file system), after 10 minutes. `lastLine` sets another time, whoever has it open.

      Without a state directory, a restart reads all files again from their start, or with `start: end` only what is added from then on. A file \
      with several names (hard links) is read once with `follow`, and otherwise once for each name that `path` finds.

      With a state directory, reading goes on after the last event of the saved state. A file is known by its inode, \
      its birth time and its first bytes. One that was renamed meanwhile is read to its end before its successors; so \
      is, from its copy, one that was copied and truncated, if the copy has the same name plus a suffix. Rotation may \
      have compressed these files: `app.log` is read on in `app.log.1.gz` or `app.log-20261122.zst`, with offsets of \
      the decompressed content. A compressed file that is damaged is a warning with the offset from which its content \
      is lost; so is one that ends in the middle and does not grow for a minute. A file that was moved to another \
      directory or removed meanwhile cannot be read on, which is a warning. If another file has its path by then, with the same content up to the saved position \
      (restored by `tar` or `cp -a`, written by an editor or `sed -i`), that is read on there; with other content, from its start. Compared are the first 256 bytes and the \
      256 before the position; a file with fewer than 64 bytes before it must also be unchanged since. A file that is replaced while rxd runs is a new file.
      """,
    parameters: [
      .init("path", \.paths, primary: true, required: true, "A path, or several."),
      .init("decode", \.decode, nested: decodeConditions, "How bytes are decoded into events."),
      .init(
        "charset", \.charset,
        "How characters are encoded: utf-8, utf-16 (with a byte order mark), utf-16le, utf-16be, latin1, windows-1252, or another one that iconv(3) knows."
      ),
      .init(
        "join", \.join, nested: ["wait": .on("/follow")], "Which lines make one event together; by default each is one."
      ),
      .init("follow", \.follow, "Continue to read data that is added."),
      .init("start", \.start, applies: .on("follow"), "Where to start in files that exist already."),
      .init(
        "maxLine", \.maxLine, applies: .notWord("decode", ["whole", "prometheus", "bytes", "jsonDocuments"]),
        "The longest line."),
      .init(
        "whenTooLong", \.whenTooLong, applies: .notWord("decode", ["whole", "prometheus", "bytes", "jsonDocuments"]),
        "What happens to a longer line."),
      .init("maxBytes", \.maxBytes, applies: .word("decode", ["whole", "prometheus"]), "The largest file."),
      .init(
        "rotateWait", \.rotateWait, range: 0...Int64.max,
        applies: .on("follow"), "How long a renamed file is read on after it last grew."),
      .init("compression", \.compression, applies: .off("follow"), "Which files are decompressed."),
      .init("followLinks", \.followLinks, "Which symbolic links are followed that wildcards find."),
      .init("watch", \.watch, applies: .on("follow"), "How changes are noticed."),
      .init(
        "lastLine", \.lastLine, range: 1...Int64.max, applies: .on("follow"),
        "How long a file must not have grown for a last line without a line feed to be sent, even while a program has it open."
      ),
    ],
    examples: [
      .snippet("one file", "file: pipelines/data/apache-combined.log"),
      .snippet(
        "stack traces, each with the line before it",
        "file: { path: /var/log/app/app.log, follow: true, join: { start: '^\\d{4}-\\d\\d-\\d\\d ' } }"),
      .snippet(
        "the containers of a Kubernetes node",
        "file: { path: '/var/log/containers/*.log', follow: true, start: beginning, decode: container }"),
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
      .init(
        .reading, "join the lines of a stack trace",
        "file: { path: app.log, follow: true, join: { start: '^\\d{4}-' } }"),
      .init(
        .reading, "read the log files of containers",
        "file: { path: '/var/log/containers/*.log', follow: true, decode: container }"),
      .init(
        .reading, "join stack traces of several senders in one file",
        "file: { path: all.log, join: { start: '^\\S+ \\d{4}-', by: '^\\S+' } }"),
      .init(.reading, "read JSON lines from a file", "file: { path: events.ndjson, decode: json }"),
      .init(.reading, "read compressed files", "file: { path: '/var/log/app/*.log.*.gz', decode: json }"),
      .init(.reading, "read a CSV file with a header", "file: { path: people.csv, decode: csv }"),
      .init(
        .reading, "read a CSV file with lines before its header",
        "file: { path: export.csv, decode: { csv: { headerAt: '^id,' } } }"),
    ],
    seeAlso: ["stdin", "docker"])

  package func validate(_ context: inout DecodingContext) {
    if paths.isEmpty, !context.diagnostics.hasErrors {
      context.badValue(at: context.location, "'path' of 'file' is empty")
    }
    join?.check(decode.options, &context)
    charset.check(decode.options, joins: join != nil && follow, &context)
    if follow, start == .end, decoding.charset?.isUTF16 == true {
      context.badValue(
        at: context.location(of: "start"),
        "'start: end' cannot be used with UTF-16, which is read from the start of a file",
        .conflictingParameters, help: "Leave 'start' out, and drop old events by a 'filter'")
    }
    if follow, !decode.options.framing.hasOpenEnd {
      context.badValue(
        at: context.location,
        "a followed file has no end, which 'decode: \(decode.options.name)' needs",
        .conflictingParameters, help: "Decode lines, or leave 'follow' out")
    }
  }

  var decompression: BlockReader.Decompression {
    switch compression {
    case .auto: decode.options.readsText ? .detected : .none
    case .none: .none
    case .gzip: .all(.gzip)
    case .zstd: .all(.zstd)
    }
  }

  /// How bytes become events.
  var decoding: DecoderOptions { charset.reading(join?.joining(decode.options) ?? decode.options, maxLine: maxLine) }

  package var outputType: EventType { decode.options.eventType }
  package var decodesBlocks: Bool { !follow }
  package var readsFiles: [FilePathParameter] { paths }
  // Only regular files are opened, so positions can be restored.
  package var recovery: SourceRecovery { .position }

  package var once: (any SourceComponent)? {
    var once = self
    once.follow = false
    once.start = .beginning
    return once
  }

  package var namesEvents: Bool { true }

  package func threads(_ limit: Int?) -> String? {
    follow
      ? """
      read by a thread of its own, which runs turns while there is nothing to read; decoded on the pipeline thread
      """
      : decoding.threads(limit)
  }

  package var pace: EventPace? { follow ? nil : .unbounded }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    follow ? Following(self, nodeContext, downstream) : Reading(self, nodeContext, downstream)
  }
}

extension File {
  /// The states of followed files and of files read once have different forms, so only one of the two can be read.
  package static func savedPositions(_ state: inout StateReader) throws(StateFault) -> [SavedPosition] {
    var other = state
    do throws(StateFault) { return try followedPositions(&state) } catch { return try oncePositions(&other) }
  }

  /// Reads the state of `Following`.
  private static func followedPositions(_ state: inout StateReader) throws(StateFault) -> [SavedPosition] {
    _ = try state.read([String].self)
    var positions: [SavedPosition] = []
    for _ in 0..<(try state.count()) {
      let file = try state.read(FilePosition.self)
      _ = try state.read([UInt8].self)
      positions.append(SavedPosition(path: file.path, inode: file.inode, offset: file.offset))
    }
    _ = try state.read(String.self)
    if !state.isAtEnd { for _ in 0..<(try state.count()) { _ = try state.read(String?.self) } }
    if !state.isAtEnd { for _ in 0..<(try state.count()) { _ = try state.read(FileTail?.self) } }
    guard state.isAtEnd else { throw StateFault("it is not that of followed files") }
    return positions
  }

  /// Reads the state of `Reading`.
  private static func oncePositions(_ state: inout StateReader) throws(StateFault) -> [SavedPosition] {
    let finished = try state.read([String].self)
    let waiting = try state.read([String].self)
    let current = try state.read(FilePosition?.self)
    let decodingPosition = try state.read(DecodingPosition.self)
    var positions = finished.map { SavedPosition(path: $0, offset: nil) }
    if let current {
      positions.append(SavedPosition(path: current.path, inode: current.inode, offset: decodingPosition.offset))
    }
    return positions + waiting.reversed().map { SavedPosition(path: $0, offset: 0) }
  }

  /// Whether the path is configured.
  func reads(_ path: String) -> Bool {
    paths.contains { $0.text == path || Glob.isPattern($0.text) && Glob.matches($0.text, path) }
  }
}

extension RunningSource {
  /// The location of the path in the pipeline file, as a prefix for messages.
  func location(of path: FilePathParameter) -> String {
    (path.location ?? nodeContext.location).map { "\($0): " } ?? ""
  }
}

extension File: RelationalSource {
  package var relationalInput: RelationalInput { RelationalInput(paths: paths, decoding: decoding, ends: !follow) }
}
