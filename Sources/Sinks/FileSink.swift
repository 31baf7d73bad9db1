import PipelineCore
import Transport

/// `file`: appends to a file, or replaces it.
package struct FileSink: StreamSinkComponent {
  enum Mode: String, ChoiceParameter {
    case append, replace
    var help: String {
      switch self {
      case .append: "events are added to the end"
      case .replace: "each event replaces the whole content, in one atomic step"
      }
    }
  }
  enum Sync: String, ChoiceParameter {
    case never, batch, interval
    var help: String {
      switch self {
      case .never: "the kernel decides when data reaches the disk; with a state directory, at most 100 ms after a write"
      case .batch: "after each write"
      case .interval: "at most `syncInterval` after a write"
      }
    }
  }

  /// When files are full, and how full files are treated.
  struct Rotation: RecordParameter {
    enum Form: String, ChoiceParameter {
      case none, gzip, zstd
      var help: String {
        switch self {
        case .none: "full files stay as they are"
        case .gzip: "full files become NAME.gz"
        case .zstd: "full files become NAME.zst"
        }
      }
    }
    var size: ByteSize?
    var every: TimeSpan?
    var keep: Int?
    var compress = Form.none
    static var fields: [RecordField<Rotation>] {
      [
        .init("size", \.size, primary: true, "A file that would be larger is full; one turn's rows are not divided."),
        .init(
          "every", \.every, range: 1_000_000_000...Int64.max,
          "A file is full at each multiple of this since 1970, in UTC: `1h` at each full hour, `1d` at midnight; with a row or without one."
        ),
        .init("keep", \.keep, range: 1...1_000_000, "How many full files are kept, the newest; all by default."),
        .init("compress", \.compress, "How full files are compressed."),
      ]
    }
    var value: FileRotation {
      FileRotation(
        size: size.map { Int64($0.bytes) }, every: every?.nanoseconds, keep: keep,
        compression: Compressor.Format(rawValue: compress.rawValue))
    }
  }

  package var path = FilePathTemplate()
  package var encode = EncodeParameter(.json)
  var mode = Mode.append
  var sync = Sync.never
  var syncInterval = TimeSpan.seconds(1)
  /// Nil: ``TemplatedFileSink/usualMaxOpenFiles``.
  var maxOpenFiles: Int?
  /// Nil: ``TemplatedFileSink/usualIdleTimeout``.
  var idleTimeout: TimeSpan?
  var rotate: Rotation?

  package init() {}

  package static let spec = ComponentSpec<FileSink>(
    "file",
    summary: "Writes events to a file, or to one of many that each event names.",
    details: """
      A file that log rotation renames is reopened. While the disk is full, the pipeline waits. An event counts as \
      delivered when the system has taken it, with `sync: batch` or a state directory when it is on the disk. Events \
      that cannot be written when the pipeline ends are counted as undelivered in a warning.

      With a state directory, a pipeline that goes on after a crash cuts off the lines that it will write again, those after its last \
      checkpoint: each row is in the file once. In `delivery: light`, that needs sources that read the same again, such as `file`; \
      behind any other source (`httpServer`, `tcp`, a poll, a timer) nothing is cut, and lines may be repeated. A file that was \
      renamed in its directory meanwhile is cut, too. A file that is shorter than at the checkpoint, is gone, or was replaced is left alone, \
      and a warning says that lines may be repeated; so it is with a file that others write to, too. A reader that \
      has read the cut lines sees the file become shorter. Without a state directory, and where nothing can be cut, a \
      line that an earlier run left incomplete gets its line feed before the first event.

      With `{{ }}` in `path`, each event names its file, below the directory that is written out before the first `{{ }}`. \
      Directories behind it are made as needed. No event leaves it: a value that is empty or has a slash or a control \
      character, a name `.` or `..`, and a path through a symbolic link are refused; the event goes to the errors output, \
      and the pipeline continues. So does an event whose file cannot be opened for a reason of its path, such as missing \
      permission. At most `maxOpenFiles` files are open; the one that was used least recently is closed first.

      With a state directory every row is in its file once after a crash, as for one file: the state has the lengths of the \
      open files and of the 1,000 that were closed last, and an extended attribute (`user.rxd.file`) tells what a file had \
      before, if it was opened after the last checkpoint. A row whose path depends on `now` may be written to another file \
      when it comes again, so a time of the event is the better name. Where the file system has no extended attributes, \
      rows of newly opened files may be repeated.

      With `rotate`, a full file is renamed to `NAME-YYYYMMDD-HHMMSS` (UTC, with `.1`, `.2` where that is taken), as logrotate \
      does with `dateext`, and never again; a thread of its own compresses and removes full files. With `every`, a file is renamed to the end of its \
      period when that is over, also if no row follows, and the next row begins a new one; where events name their files, these are the open ones and the \
      1,000 that were closed last. With a state directory a \
      file is compressed when nothing of it can have to be cut any more, so each row is in one file once, whenever rxd is \
      killed. A file that cannot be renamed goes on growing, which is logged. Programs that rotate files themselves need none \
      of this: a file that was moved away is created again with the next event, without a signal.
      """,
    parameters: [
      .init(
        "path", \.path, primary: true, required: true,
        """
        The file; its directory must exist. With `{{ }}`, a file for each event below the directory that is written out, \
        which must exist.
        """),
      .init("encode", \.encode, "How events are encoded as bytes."),
      .init("mode", \.mode, "Whether events are added or replace each other."),
      .init("sync", \.sync, "When data must be on the disk."),
      .init(
        "syncInterval", \.syncInterval, range: 1...Int64.max, applies: .word("sync", ["interval"]),
        "The longest delay of a write to the disk."),
      .init(
        "maxOpenFiles", \.maxOpenFiles, range: 1...10_000,
        applies: .template("path"), "How many files are open; 64 by default."),
      .init(
        "idleTimeout", \.idleTimeout, range: 1_000_000...Int64.max,
        applies: .template("path"), "The longest time without events before a file is closed; 30s by default."),
      .init(
        "rotate", \.rotate, applies: .notWord("mode", ["replace"]),
        "When the file is full and a new one begins; never by default."),
    ],
    examples: [
      .snippet("a log of events", "file: { path: /tmp/events.ndjson }"),
      .snippet(
        "a file for each day and service",
        "file: \"/tmp/out/{{ formatTime(timestamp(event.at), '%F') }}/{{ event.service }}.ndjson\""),
      .snippet(
        "a log that rotates",
        "file: { path: /tmp/events.ndjson, rotate: { size: 100MB, every: 1d, keep: 7, compress: gzip } }"),
      .snippet("the newest state", "file: { path: /tmp/state.json, mode: replace, sync: batch }"),
    ],
    edges: EdgeCases(
      empty: "The file is created and stays empty; with `{{ }}` in `path` there is none.",
      error: """
        A file that cannot be written ends the pipeline; a full disk makes it wait. An event whose own file cannot be opened \
        goes to the errors output.
        """,
      completion: "Waiting events are written, then the file is closed.",
      disposal: "Waiting events are written within the time limit for stopping."),
    memory: """
      With `mode: append`: which file it writes, and where that ends. With `{{ }}` in `path`: the same of the open files and of \
      the 1,000 that were closed last.
      """,
    knownAs: ["Vector file", "Benthos file", "Fluent Bit file", "rsyslog dynaFile"],
    useCases: [
      .init(.writing, "append events to a file", "file: { path: out.ndjson }"),
      .init(.writing, "write a file a program can rely on after a crash", "file: { path: out.ndjson, sync: interval }"),
      .init(.writing, "write CSV", "file: { path: out.csv, encode: csv }"),
      .init(
        .writing, "write a file for each day, tenant or service", "file: \"/tmp/out/{{ event.service }}.ndjson\""),
    ],
    seeAlso: ["stdout"])

  package func validate(_ context: inout DecodingContext) {
    validateRotation(&context)
    if path.template != nil, mode == .replace {
      context.badValue(
        at: context.location(of: "mode"), "'mode: replace' of 'file' takes one path, without {{ }}",
        .conflictingParameters,
        help: "Leave 'mode' out, or write a component for each path, with a 'filter' before it")
    }
  }

  private func validateRotation(_ context: inout DecodingContext) {
    guard let rotate else { return }
    if rotate.size == nil, rotate.every == nil {
      context.badValue(
        at: context.location(of: "rotate"), "'rotate' of 'file' has no limit of size or time",
        .conflictingParameters,
        help: "Add 'size: 100MB' or 'every: 1d'")
    }
    if encode.options.format == .csv, encode.options.csv.header {
      context.badValue(
        at: context.location(of: "rotate"), "with 'rotate', only the first file would have the header of 'encode: csv'",
        .conflictingParameters, help: "Write 'encode: { csv: { header: false } }'")
    }
  }

  /// Whether files are opened and closed, or renamed, while the sink runs.
  private var hasManyFiles: Bool { path.template != nil || rotate != nil }

  package var threads: String? {
    !hasManyFiles
      ? StreamSink.threads : "encoded on the pipeline's thread, written by one of the threads that files share"
  }
  package var encoding: EncodeParameter? { encode }
  package var streamEncoding: EncodeParameter? { mode == .append && !hasManyFiles ? encode : nil }
  package var writesFile: FilePathParameter? { path.literal }
  // Whatever `sync` says: see `Execution.Settings.acknowledgesOnDisk`.
  package var confirmation: SinkConfirmation { .disk }

  private var writerSync: FileWriter.Sync {
    switch sync {
    case .never: .never
    case .batch: .batch
    case .interval: .interval(syncInterval)
    }
  }

  var streamTarget: StreamTarget? {
    hasManyFiles || mode == .replace
      ? nil : StreamTarget(target: .append(path: path.literal.text), sync: writerSync)
  }

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink {
    if hasManyFiles { return TemplatedFileSink(nodeContext, self, writerSync) }
    var options = FileWriter.Options()
    options.sync = writerSync
    return StreamSink(nodeContext, encode, streamTarget?.target ?? .replace(path: path.literal.text), options)
  }
}
