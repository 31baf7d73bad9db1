import PipelineCore
import Transport

extension File {
  /// Reads files once.
  final class Reading: BlockSource {
    private let parameters: File
    /// Files that have been read completely.
    private var finished: [String] = []
    /// The files to read, in reverse order.
    private var waiting: [String] = []
    /// Why the files could not be listed.
    private var fault: SignalFailure?
    /// The file being read, with the position up to which its events have been sent.
    private var current: FilePosition?
    private var currentFile: FileDescriptor?
    private var decodingPosition = DecodingPosition()

    /// The position up to which the files have been sent.
    private struct ReadPosition {
      /// The number of files that have been sent completely.
      var finished = 0
      /// The next file, and the position in it.
      var current: FilePosition?
      var decodingPosition = DecodingPosition()
    }
    private lazy var ledger = PositionLedger(taken)
    private var fileOrigin = Origin.none
    /// The files that have not been read to their end.
    private var parts: [String: InputPart] = [:]
    /// The time when the source's state was saved, in nanoseconds since 1970.
    private var savedAt: Int64 = 0

    init(_ parameters: File, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(parameters.decoding, nodeContext, downstream)
    }

    override var readFiles: [PipelineStatistics.ReadFile] {
      let open = current.map {
        PipelineStatistics.ReadFile(
          path: $0.path, device: $0.device, inode: $0.inode, offset: unsentOffset ?? decodingPosition.offset)
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
      guard makeDecoder(parameters.decoding) != nil, current == nil, let next = waiting.last else { return }
      do throws(PosixError) {
        _ = try found.open(next)
      } catch {
        finish(failing: SignalFailure(.source, error.message, at: nodeContext.location))
      }
    }

    /// The files of the paths, in reverse order. Files that cannot be listed are missing; ``fault`` is then set.
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
          // An empty directory may be intended, but a wrong path looks the same.
          log(.warning, "\(location(of: path))no file matches \(path.shown), so there is nothing to read")
        }
        files += found.paths.filter { seen.insert($0).inserted && !isUntrusted($0) }
      }
      return files.reversed()
    }

    private lazy var found = FoundFiles(by: parameters.paths.map(\.text), parameters.followLinks.policy)

    /// Whether the path leads through a link that must not be followed; that is a warning.
    private func isUntrusted(_ path: String) -> Bool {
      guard let error = found.refusedLink(onWayTo: path) else { return false }
      log(.warning, "\(error.message); it is skipped. 'followLinks: always' follows it")
      return true
    }

    private func log(_ level: Services.Level, _ message: String) {
      execution.services.log(level, execution.plan.steps[nodeContext.step.number].label, message)
    }

    /// Reads the waiting files. If an earlier execution has read a part of a file and that is still the same file,
    /// reading continues there first.
    private func read(goingOn resumption: (position: FilePosition, decodingPosition: DecodingPosition)? = nil) {
      if let fault {
        finish(failing: fault)
        return
      }
      guard resumption != nil || !waiting.isEmpty else {
        finish()
        return
      }
      guard let decoder = makeDecoder(parameters.decoding) else { return }
      var options = BlockReader.Options(
        parameters.decoding, limit: parameters.maxBytes, maxLine: parameters.maxLine,
        whenTooLong: parameters.whenTooLong, execution)
      options.refusesCompressed = parameters.decoding.readsText
      options.decompresses = parameters.decompression
      options.open = { [found] path throws(PosixError) in try found.open(path) }
      let inputQueue = inputQueue
      let node = Weak(self)
      do throws(PosixError) {
        var first: FileDescriptor?
        decodingPosition = DecodingPosition()
        if let resumption {
          let file = try reopen(resumption.position)
          let status = try file.status()
          let isCompressed = options.decompresses.format(of: file) != nil
          let isSame = file.isFile(of: resumption.position, status)
          var position = resumption.position
          position.offset = resumption.decodingPosition.offset
          if isSame, isCompressed || position.offset <= status.size, file.endsAs(position) {
            decodingPosition = resumption.decodingPosition
          } else if !isSame, position.tail?.isOfCompressed == isCompressed, file.startsAs(position),
            file.holdsContent(of: position, status, savedAt: savedAt)
          {
            decodingPosition = resumption.decodingPosition
            log(
              .info,
              "\(file.name) is another file than before, with the same content up to byte \(decodingPosition.offset): reading continues there"
            )
          } else {
            log(
              .warning,
              "\(file.name) was replaced, truncated or rewritten after \(position.offset) bytes of it were read; it is read from its start"
            )
          }
          opened(.init(of: file, status, resumption.position.path, isCompressed: isCompressed), file)
          first = file
        }
        options.offset = decodingPosition.offset
        for path in [current?.path].compactMap({ $0 }) + waiting.reversed() { partOpened(part(path), isBehind: true) }
        ledger.reset(to: taken)
        let reader = try BlockReader(first: first, paths: waiting.reversed(), options: options)
        self.reader = reader
        try reader.start(
          by: decoder, decoding: parameters.decoding, knowing: decodingPosition.memory, threads: decodingThreads,
          into: inputQueue, placement: placement
        ) { pieces in node.object?.take(pieces[...]) }
      } catch {
        finish(failing: SignalFailure(.source, error.message, at: nodeContext.location))
      }
    }

    /// Opens the file that was being read, or the file that has its name now if it is gone.
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

    /// The position after the last row that has been sent.
    private var taken: ReadPosition {
      ReadPosition(
        finished: finished.count, current: current,
        decodingPosition: DecodingPosition(
          offset: unsentOffset ?? decodingPosition.offset, memory: decodingPosition.memory))
    }

    override func beginPiece() { beginPiece(of: ledger) { [self] in taken } }

    private func part(_ path: String) -> InputPart {
      if let known = parts[path] { return known }
      let part = InputPart(path)
      parts[path] = part
      return part
    }

    /// Called before the first piece of this file.
    private func opened(_ start: FilePosition, _ file: FileDescriptor?) {
      current = start
      currentFile = file
      fileOrigin = Origin(
        source: origin.source, path: start.path, receivedAt: executor.wallTime, reply: origin.reply,
        identity: identity(start.fileName), part: part(start.path))
    }

    override func begin(_ piece: DecodedPiece) -> Origin {
      if let file = piece.opened {
        opened(file, piece.file)
        decodingPosition = DecodingPosition()
        if waiting.last == file.path { waiting.removeLast() }
      }
      return fileOrigin
    }

    override func took(_ piece: DecodedPiece) {
      if let behind = piece.position { decodingPosition = behind }
    }

    override func end(_ piece: DecodedPiece) {
      if let longLine = piece.longLine { rejectLong(longLine, parameters.maxLine, fileOrigin) }
      guard !isClosed else { return }
      if piece.closesFile {
        if let current {
          finished.append(current.path)
          if let part = parts.removeValue(forKey: current.path) { partEnded(part) }
        }
        current = nil
        currentFile = nil
      }
      switch piece.end {
      case nil: break
      case .finished, .stopped: finish()
      case .failed(let error): finish(failing: SignalFailure(.source, error.message, at: nodeContext.location))
      }
    }

    override func save(_ state: inout StateWriter) {
      let upTo = state.positions == .acknowledged ? ledger.acknowledged : taken
      let files = finished + (current.map { [$0.path] } ?? []) + waiting.reversed()
      state.write(Array(files.prefix(upTo.finished)))
      state.write(Array(files.dropFirst(upTo.finished + (upTo.current == nil ? 0 : 1)).reversed()))
      state.write(upTo.current)
      state.write(upTo.decodingPosition)
      state.write(parameters.decoding.dependence)
      state.write(upTo.current.flatMap { $0.tail ?? tail(of: $0, before: upTo.decodingPosition.offset) })
    }

    /// The last bytes before an offset. A file that has been read to the end is opened again until its events are
    /// acknowledged, because the process may not have enough descriptors for all such files.
    private func tail(of position: FilePosition, before offset: Int64) -> FileTail? {
      if let currentFile, position == current { return currentFile.tail(before: offset) }
      guard let file = try? found.open(position.path), self.file(file, isOf: position) else { return nil }
      return file.tail(before: offset)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      finished = try state.read()
      waiting = try state.read()
      current = try state.read()
      decodingPosition = try state.read()
      let dependence = try state.read(String.self)
      // States of older versions end here.
      if !state.isAtEnd { current?.tail = try state.read(FileTail?.self) }
      savedAt = executor.wallTime &- state.elapsed.nanoseconds
      if !parameters.decoding.goesOn(at: decodingPosition, dependence) {
        execution.services.log(
          .warning, execution.plan.steps[nodeContext.step.number].label,
          """
          'decode' has changed and needs the start of the file; \(current?.path ?? "it") is read again from its \
          start
          """)
        decodingPosition = DecodingPosition()
        current?.tail = nil
      }
      if state.hasOtherParameters {
        waiting = files(except: finished + (current.map { [$0.path] } ?? []))
        if let path = current?.path, !parameters.reads(path) { current = nil }
      }
    }

    /// The next execution reads unsent input again.
    override func suspend() {}

    override var isReadAgain: Bool { true }

    override var hasPosition: Bool { current != nil || !finished.isEmpty || !waiting.isEmpty }

    override func resume() {
      read(goingOn: current.map { ($0, decodingPosition) })
    }
  }
}
