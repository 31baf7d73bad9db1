public import PipelineCore
import Transport

/// `file`: appends to a file, or replaces it.
public struct FileSink: SinkComponent {
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

  public var path = FilePathParameter()
  public var encode = EncodeParameter(.json)
  var mode = Mode.append
  var sync = Sync.never
  var syncInterval = TimeSpan.seconds(1)

  public init() {}

  public static let spec = ComponentSpec<FileSink>(
    "file",
    summary: "Writes events to a file.",
    details: """
      A file that log rotation renames is reopened. While the disk is full, the pipeline waits. An event counts as \
      delivered when the system has taken it, with `sync: batch` or a state directory when it is on the disk. Events \
      that cannot be written when the pipeline ends are counted as undelivered in a warning.

      With a state directory, a pipeline that goes on after a crash cuts off what it had written after its last \
      checkpoint, and writes it again: each row is in the file once. That also holds for a file that was renamed in \
      its directory meanwhile. A file that is shorter than at the checkpoint, is gone, or was replaced is left alone, \
      and a warning says that lines may be repeated; so it is with a file that others write to, too. A reader that \
      has read the cut lines sees the file become shorter. Without a state directory, and where nothing can be cut, a \
      line that an earlier run left incomplete gets its line feed before the first event.
      """,
    parameters: [
      .init("path", \.path, primary: true, required: true, "The file; its directory must exist."),
      .init("encode", \.encode, "How events are encoded as bytes."),
      .init("mode", \.mode, "Whether events are added or replace each other."),
      .init("sync", \.sync, "When data must be on the disk."),
      .init("syncInterval", \.syncInterval, range: 1...Int64.max, "The longest delay of `sync: interval`."),
    ],
    examples: [
      .snippet("a log of events", "file: { path: /tmp/events.ndjson }"),
      .snippet("the newest state", "file: { path: /tmp/state.json, mode: replace, sync: batch }"),
    ],
    edges: EdgeCases(
      empty: "The file is created and stays empty.",
      error: "A file that cannot be written ends the pipeline; a full disk makes it wait.",
      completion: "Waiting events are written, then the file is closed.",
      disposal: "Waiting events are written within the time limit for stopping."),
    memory: "With `mode: append`: which file it writes, and where that ends.",
    knownAs: ["Vector file", "Benthos file"],
    useCases: [
      .init(.writing, "append events to a file", "file: { path: out.ndjson }"),
      .init(.writing, "write a file a program can rely on after a crash", "file: { path: out.ndjson, sync: interval }"),
      .init(.writing, "write CSV", "file: { path: out.csv, encode: csv }"),
    ],
    seeAlso: ["stdout"])

  public var threads: String? { StreamSink.threads }
  public var encoding: EncodeParameter? { encode }
  public var streamEncoding: EncodeParameter? { mode == .append ? encode : nil }
  public var writesFile: FilePathParameter? { path }
  // Whatever `sync` says: see `Execution.acknowledgesOnDisk`.
  public var confirmation: SinkConfirmation { .disk }

  public func makeSink(_ nodeContext: NodeContext) -> RunningSink {
    var options = FileWriter.Options()
    switch sync {
    case .never: options.sync = .never
    case .batch: options.sync = .batch
    case .interval: options.sync = .interval(syncInterval)
    }
    return StreamSink(
      nodeContext, encode, mode == .append ? .append(path: path.text) : .replace(path: path.text), options)
  }
}
