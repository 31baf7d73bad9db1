import PipelineCore

/// One file of a ``FilesWriter`` in a saved state.
package struct SavedFile: Sendable {
  /// The path relative to the directory.
  package var path: String
  /// The file's number among the files of the sink.
  package var number: UInt64
  /// The number of bytes that had been written to it.
  package var count: Int64
  /// The end of the file; nil: unknown.
  package var position: FilePosition?

  package init(path: String, number: UInt64, count: Int64, position: FilePosition?) {
    self.path = path
    self.number = number
    self.count = count
    self.position = position
  }
}

extension FileTree {
  /// Cuts a file back to its end in the state; the part after that is written again.
  ///
  /// - Parameter cutsBack: False: the part after that end is not written again, and stays.
  /// - Returns: `outcome`: the result; nil: none of the file was on disk. `position`: the end of the file that has the path
  ///   now; nil: there is none, or it is not known to be the sink's.
  package func resume(
    _ saved: SavedFile, _ marks: WriterMarks, cutsBack: Bool
  ) -> (outcome: FileWriter.Resumption?, position: FilePosition?) {
    let name = name(saved.path)
    let writer = saved.position.map { WriterPosition($0, name) }
    let opened: FileDescriptor
    let status: FileDescriptor.Status
    do throws(PosixError) {
      opened = try openForAppending(saved.path, makes: false)
      status = try opened.status()
    } catch {
      guard cutsBack, let writer else { return (nil, nil) }
      return (
        writer.restoreRenamed() ?? .lost("\(name) was removed since the last checkpoint; lines may be repeated"), nil
      )
    }
    guard cutsBack else {
      guard var position = saved.position, opened.isFile(of: position, status), status.size >= position.offset else {
        return (nil, nil)
      }
      let outcome = status.size == position.offset ? FileWriter.Resumption.exact : .kept
      position.offset = status.size
      return (outcome, position)
    }
    let mark = WriterMark(of: opened).flatMap { $0.writer == marks.writer && $0.number == saved.number ? $0 : nil }
    if let position = saved.position, opened.isFile(of: position, status) {
      return cut(opened, status, name, to: position.offset)
    }
    let renamed = writer?.restoreRenamed()
    if let mark {
      // All of a file that was begun after the state is written again.
      let found = cut(opened, status, name, to: mark.end(after: saved.count) ?? mark.size)
      return (renamed ?? found.outcome, found.position)
    }
    guard writer != nil else { return (nil, nil) }
    if status.size > 0 || renamed == nil {
      return (.lost("\(name) was truncated or replaced since the last checkpoint; lines may be repeated"), nil)
    }
    return (renamed, nil)
  }

  private func cut(
    _ file: FileDescriptor, _ status: FileDescriptor.Status, _ name: String, to end: Int64
  ) -> (outcome: FileWriter.Resumption?, position: FilePosition?) {
    let outcome = WriterPosition.cut(file, status, name, to: end)
    if case .lost = outcome { return (outcome, nil) }
    guard let now = try? file.status() else { return (outcome, nil) }
    var position = FilePosition(of: file, now, name)
    position.offset = now.size
    return (outcome, position)
  }
}
