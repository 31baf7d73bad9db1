import PipelineCore
import Transport

/// `directory`: reports entries of a directory that are created, changed or removed.
package struct DirectorySource: SourceComponent {
  var path = FilePathParameter()
  var include = ["*"]
  var exclude: [String] = []
  var depth = 0
  var existing = false
  var maxEntries = 10_000
  var maxDirectories = 1000
  var watch = File.Watch.auto
  /// Whether it sends the existing entries, then completes.
  private var isOnce = false

  package init() {}

  package static let spec = ComponentSpec<DirectorySource>(
    "directory",
    summary: "Sends an event for each file that is created, changed or removed in a directory.",
    details: """
      An event is `{ event, path, name, type, size, modified }`. `event` is `created`, `changed` or `removed`; `path` is the whole path, `name` the path below \
      the directory, `type` one of `file`, `directory`, `link` and `other`. Size and time are those of the entry; of one that was removed, the last known.

      `changed` comes when a program has closed a file that it has written, or another file has taken the name, not with each write; a file that is \
      written for a while is `created` at first, and `changed` when it is complete. To be sure that a `created` file is complete, write it \
      elsewhere and rename it into the directory. A renamed file is `removed` and `created`. What appears and goes again before the source looks is not reported.

      Patterns of `include` and `exclude` have `*`, `?` and `[...]`. A pattern without a `/` is compared with the last name, another one with the path below the directory; names \
      that begin with a dot need a pattern that does, too. With `depth`, directories below are watched, whether `include` has their names or not; those that begin with a dot are not. \
      Symbolic links are reported and not followed.

      The source compares the directory with its last report; the kernel's events (inotify) only show where to look. If they overflow, it checks everything and logs that; if there \
      are no watches left (fs.inotify.max_user_watches), it looks once a second; so it does on network file systems, where changes by other machines cause no events (`watch`). A directory that \
      does not exist is waited for.

      With a state directory the list of entries is saved, and after a restart everything is sent that has appeared, changed or gone meanwhile. The list is written with each \
      checkpoint, about 60 bytes an entry, so `maxEntries` is a bound for that, too. With `--once` everything that is there is sent as `created`, and the source completes.
      """,
    parameters: [
      .init("path", \.path, primary: true, required: true, "The directory."),
      .init("include", \.include, "Patterns of reported paths."),
      .init("exclude", \.exclude, "Patterns of ignored paths; a directory is ignored with everything in it."),
      .init("depth", \.depth, range: 0...32, "How many levels of directories below it are watched."),
      .init("existing", \.existing, "Report existing files at the first start, too, as `created`."),
      .init(
        "maxEntries", \.maxEntries, range: 1...1_000_000,
        "The maximum number of entries, including directories on the way; further ones are left out, with a warning."),
      .init(
        "maxDirectories", \.maxDirectories, range: 1...100_000,
        "The maximum number of watched directories; further ones are ignored, with a warning."),
      .init("watch", \.watch, "How changes are noticed."),
    ],
    examples: [
      .snippet("files that arrive", "directory: { path: /srv/inbox, include: ['*.csv'] }"),
      .snippet("a tree", "directory: { path: /etc, depth: 8, include: ['*'], exclude: ['*.swp'] }"),
    ],
    edges: EdgeCases(
      empty: "It waits; with `--once` it completes.",
      error: """
        A directory that cannot be read is a warning, and is tried again; with `--once`, the directory itself is an error.
        """,
      completion: "Never; with `--once`, after the last entry.", disposal: "Stops watching."),
    memory: "The list of entries, up to `maxEntries`.", persistence: .position(version: 1),
    knownAs: ["inotifywait", "systemd.path", "Node-RED watch", "Camel file"],
    useCases: [
      .init(.reading, "know when files arrive in a directory", "directory: { path: /srv/inbox, include: ['*.csv'] }")
    ],
    seeAlso: ["file"])

  package func validate(_ context: inout DecodingContext) {
    for (name, patterns) in [("include", include), ("exclude", exclude)] {
      for pattern in patterns where pattern.isEmpty || pattern.hasPrefix("/") || pattern.contains("**") {
        context.badValue(
          at: context.location(of: name),
          "'\(Printable.cut(pattern))' in '\(name)' of 'directory' \(pattern.isEmpty ? "is empty" : pattern.contains("**") ? "has '**', which is unsupported" : "begins with '/'")",
          help: pattern.contains("**")
            ? "A pattern without '/' matches names at every level: '*.csv'"
            : "Patterns are matched with names, or with paths below the directory: '*.csv', 'in/*.csv'")
      }
    }
    if include.isEmpty {
      context.badValue(
        at: context.location(of: "include"), "'include' of 'directory' is empty, so nothing is reported",
        help: "Leave it out to report everything")
    }
    if Glob.isPattern(path.text) {
      context.badValue(
        at: path.location ?? context.location,
        "'path' of 'directory' is one directory, and \(path.shown) has a wildcard",
        help: "Write the directory in 'path', and the pattern in 'include'")
    }
  }

  package var outputType: EventType {
    var event = ExpressionType.Field("event", .string)
    event.choices = ["created", "changed", "removed"]
    var type = ExpressionType.Field("type", .string)
    type.choices = ["file", "directory", "link", "other"]
    return EventType(
      .object(
        fields: [
          event, .init("path", .string), .init("name", .string), type, .init("size", .int),
          .init("modified", .timestamp),
        ], open: false))
  }

  package var recovery: SourceRecovery { .position }
  package func threads(_ limit: Int?) -> String? { "watched by a thread of its own" }

  package var once: (any SourceComponent)? {
    var once = self
    once.isOnce = true
    return once
  }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }

  /// The parameters that determine the list of entries.
  private var dependence: [String] { [path.text, "\(depth)"] + include + ["-"] + exclude }

  private final class Node: RunningSource {
    private let parameters: DirectorySource
    private lazy var inputQueue = InputQueue(nodeContext, gate: SemaphoreGate())
    private var watcher: DirectoryWatcher?
    /// The entries when all changes up to `baseNumber` had been acknowledged; later changes are in `recent`.
    private var base = EntryTable()
    private var baseNumber = 0
    private var recent: [(path: String, entry: DirectoryEntry?)] = []
    /// The number of changes that have been sent.
    private let sent = PositionLedger(0)
    /// Whether the first scan has finished, so that entries found from then on are events.
    private var hasLooked = false
    private var isResumed = false

    init(_ parameters: DirectorySource, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(nodeContext, downstream: downstream)
    }

    private func log(_ level: Services.Level, _ message: String) {
      execution.services.log(level, execution.plan.steps[nodeContext.step.number].label, message)
    }

    override func dryRun() {
      // The source waits for a missing directory, unless it reads only once.
      guard parameters.isOnce, let error = DirectoryWatcher.check(parameters.path.text) else { return }
      finish(failing: SignalFailure(.source, error.message, at: nodeContext.location))
    }

    override func begin() {
      var options = DirectoryWatcher.Options(root: parameters.path.text)
      options.depth = parameters.depth
      options.include = parameters.include
      options.exclude = parameters.exclude
      options.maxEntries = parameters.maxEntries
      options.maxDirectories = parameters.maxDirectories
      options.once = parameters.isOnce
      options.watch = parameters.watch.method
      options.reportsExisting = parameters.existing || parameters.isOnce
      if isResumed { options.known = base.all }
      let queue = inputQueue
      let node = Weak(self)
      do throws(PosixError) {
        let watcher = try DirectoryWatcher(options)
        self.watcher = watcher
        try watcher.start { changes in
          queue.deliver(bytes: changes.reduce(0) { $0 + 64 + $1.path.utf8.count }) { node.object?.take(changes) }
        } notice: { notice in
          _ = queue.deliver { node.object?.note(notice) }
        } end: { error in
          _ = queue.deliver { node.object?.ended(error) }
        }
      } catch {
        finish(failing: SignalFailure(.source, error.message, at: nodeContext.location))
      }
    }

    override func resume() { begin() }

    private func take(_ changes: [DirectoryWatcher.Change]) {
      guard !isClosed else { return }
      if changes.isEmpty {
        hasLooked = true
        return
      }
      forgetAcknowledged()
      beginPiece(of: sent) { [self] in baseNumber + recent.count }
      let origin = Origin(
        source: origin.source, path: parameters.path.text, receivedAt: executor.wallTime, reply: origin.reply,
        identity: origin.identity)
      arena.keep(origin)
      for change in changes where !isClosed {
        recent.append((change.path, change.what == .removed ? nil : change.entry))
        if change.what != .found, change.isReported { produce(event(change), origin: origin) }
      }
    }

    private func event(_ change: DirectoryWatcher.Change) -> Value {
      let kind: Value =
        switch change.entry.kind {
        case .file: .literal("file")
        case .directory: .literal("directory")
        case .link: .literal("link")
        case .other: .literal("other")
        }
      let what: Value =
        switch change.what {
        case .created, .found: .literal("created")
        case .changed: .literal("changed")
        case .removed: .literal("removed")
        }
      let root = parameters.path.text
      let (seconds, rest) = change.entry.modified.quotientAndRemainder(dividingBy: 1_000_000_000)
      let isBefore = rest < 0
      return arena.map([
        "event": what, "path": arena.string(root.hasSuffix("/") ? root + change.path : "\(root)/\(change.path)"),
        "name": arena.string(change.path), "type": kind, "size": .int(change.entry.size),
        "modified": .timestamp(
          seconds: isBefore ? seconds - 1 : seconds, nanoseconds: UInt32(isBefore ? rest + 1_000_000_000 : rest)),
      ])
    }

    private func note(_ notice: DirectoryWatcher.Notice) {
      switch notice {
      case .watching(let directories, let entries):
        log(.debug, "watching \(directories) director\(directories == 1 ? "y" : "ies") with \(entries) entries")
      case .tooManyEntries:
        log(
          .warning,
          "there are more than 'maxEntries', \(parameters.maxEntries), entries: further ones are left out")
      case .tooManyDirectories:
        log(
          .warning,
          "there are more than 'maxDirectories', \(parameters.maxDirectories), directories: further ones are not watched"
        )
      case .overflow: log(.warning, "the kernel dropped events; everything was scanned again")
      case .polling(let error):
        log(Inotify.isNews(error) ? .warning : .debug, "\(error.message); polling once a second instead")
      case .remote(let fileSystem):
        log(
          .info,
          "\(parameters.path.text) is on a file system (\(fileSystem)) that other machines can change without an event; it is polled once a second"
        )
      case .unreadable(let error): log(.warning, "\(error.message); it is tried again")
      case .recovered(let path): log(.info, "\(path) can be read again")
      case .unnamed(let directory):
        log(.warning, "\(directory) has a name that is not UTF-8, which is left out")
      }
    }

    private func ended(_ error: PosixError?) {
      guard !isClosed, parameters.isOnce else { return }
      if let error {
        finish(failing: SignalFailure(.source, error.message, at: nodeContext.location))
      } else {
        finish()
      }
    }

    // MARK: State

    private func forgetAcknowledged() {
      let count = min(sent.acknowledged - baseNumber, recent.count)
      if count > 0 {
        for (path, entry) in recent.prefix(count) { base[path] = entry }
        recent.removeFirst(count)
        baseNumber += count
      }
      if recent.count > 2 * parameters.maxEntries + 1024 { shorten() }
    }

    /// Keeps only the last change of each path; otherwise a failed piece would let the list grow without bound. This
    /// only raises the numbers of changes, so none counts as acknowledged too early.
    private func shorten() {
      var seen: Set<String> = []
      let last = recent.reversed().filter { seen.insert($0.path).inserted && ($0.entry != nil || base[$0.path] != nil) }
      baseNumber += recent.count - last.count
      recent = last.reversed()
    }

    override var hasPosition: Bool { hasLooked || parameters.existing }

    override func save(_ state: inout StateWriter) {
      forgetAcknowledged()
      let changes = state.positions == .taken ? recent : []
      state.write(parameters.dependence)
      state.write(hasPosition)
      base.save(&state, with: Dictionary(changes.map { ($0.path, $0.entry) }) { $1 })
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      let dependence = try state.read([String].self)
      let hasLooked = try state.read(Bool.self)
      var table = EntryTable()
      for _ in 0..<(try state.count()) {
        let path = try state.read(String.self)
        let kind = DirectoryEntry.Kind(rawValue: UInt8(clamping: try state.read(UInt64.self)))
        let inode = try state.read(UInt64.self)
        let (size, modified) = (try state.read(Int64.self), try state.read(Int64.self))
        guard let kind, !path.isEmpty, !path.utf8.contains(0) else {
          throw StateFault("an entry of a directory is invalid")
        }
        table[path] = DirectoryEntry(kind: kind, inode: inode, size: size, modified: modified)
      }
      guard hasLooked else { return }
      if dependence == parameters.dependence {
        base = table
        (isResumed, self.hasLooked) = (true, true)
      } else {
        log(.warning, "the directory, its depth or its patterns have changed, so the list of its entries starts empty")
      }
    }

    /// The next execution finds the changes that have not been sent.
    override func suspend() {}

    override func stop() {
      inputQueue.stop()
      watcher?.stop()
    }
  }
}
