import ArgumentParser
import Glibc
import PipelineCore
import Storage

extension StateVerb {
  struct Rename: ParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "rename",
      abstract: "Moves all that a pipeline keeps to another name.",
      discussion: """
        State, events to deliver and dead letters belong to the name of a pipeline. If its file has another 'name' now, or \
        is called differently, this lets it go on where it was.
        """)

    @Argument(help: "The pipeline.")
    var name: String
    @Argument(help: "Its new name, under which nothing may be stored yet.")
    var newName: String
    @OptionGroup var directory: StateDirectoryOptions

    func run() throws {
      guard ExportedState.isName(newName) else {
        throw ValidationError("'\(newName)' cannot be the name of a pipeline.")
      }
      let folder = try directory.folder()
      try folder.checkExistence(name)
      try StateFolder.locked(folder.path) {
        guard folder.allFiles(newName).isEmpty else {
          Console.printError(
            "'\(newName)' has stored data already; 'rxd state export' saves it, 'rxd state delete' removes it")
          throw ExitStatus.failure
        }
        // Opening and closing the store merges its log, so that a store that was closed properly is one file.
        try folder.edit(name) { _ in }
        // The store is renamed last: until then a second attempt finds everything.
        let stores = (folder.store(name), folder.store(newName))
        let letters = zip(folder.letterFiles(name), folder.letterFiles(newName))
        let keys = (folder.keys(name), folder.keys(newName))
        for (old, new) in Array(letters) + [(stores.0 + ".hand", stores.1 + ".hand"), keys, stores]
        where access(old, F_OK) == 0 && rename(old, new) != 0 {
          Console.printError("cannot rename \(old): \(String(cString: strerror(errno)))")
          throw ExitStatus.inputOutput
        }
        try StateFolder.sync(stores.1)
      }
      let state = try StateFolder.exits { () throws(StoreRefusal) in try PipelineState(newName, folder) }
      Console.print("'\(newName)' now has the stored data of '\(name)': \(state.summary)")
    }
  }

  struct Delete: ParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "delete",
      abstract: "Removes everything stored for a pipeline: state, events to deliver and dead letters.",
      discussion: "For pipelines that are gone: 'rxd state ls' names those that the last start had no file of.")

    @Argument(help: "The pipeline.")
    var name: String
    @Flag(help: "Do it without a question.")
    var yes = false
    @OptionGroup var directory: StateDirectoryOptions

    func run() throws {
      let folder = try directory.folder()
      try folder.checkExistence(name)
      try StateFolder.locked(folder.path) {
        let what = (try? PipelineState(name, folder))?.summary ?? "a store that cannot be read"
        try StateFolder.confirm("This removes all that '\(name)' keeps: \(what).", yes)
        // The longest names go first, so that a log is removed before its store: a later store must not find the log.
        for path in folder.allFiles(name).sorted(by: { $0.utf8.count > $1.utf8.count })
        where remove(path) != 0 && errno != ENOENT {
          Console.printError("cannot remove \(path): \(String(cString: strerror(errno)))")
          throw ExitStatus.inputOutput
        }
        try StateFolder.sync(folder.store(name))
        Console.print("removed all that '\(name)' kept: \(what)")
      }
    }
  }
}

extension StateFolder {
  /// The paths of a pipeline's dead-letter files, whether they exist or not.
  fileprivate func letterFiles(_ pipeline: String) -> [String] {
    [".ndjson.1", ".ndjson"].map { "\(path)/\(DeadLetters.folder)/\(pipeline)\($0)" }
  }

  /// Syncs the directory of a file, so that its names survive a power cut.
  fileprivate static func sync(_ path: String) throws {
    try exits { () throws(StoreRefusal) in try StoreEditor.syncDirectory(of: path) }
  }
}
