import Glibc
import PipelineCore
import Transport

/// Puts packages into a plugin directory, and takes them out. The files of the version before are kept aside until ``keep()``, so that ``undo()``
/// brings it back: its names begin with a dot, by which the directory's plugins are not found.
package final class PluginInstallation {
  package let directory: String
  private var lock: PluginLock
  private let name: String
  /// The entry of the version before; nil: there was none.
  package private(set) var before: PluginLock.Entry?
  /// The files that have been written.
  private var written: [String] = []

  private static func aside(_ file: String) -> String { ".\(file).before" }

  /// Changes a plugin directory, alone: another change at the same time is refused.
  private final class Hold {
    private let number: Int32
    init(_ directory: String) throws(PackageFault) {
      let path = pathIn(directory, ".\(PluginLock.fileName).held")
      number = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
      guard number >= 0 else { throw PackageFault(PosixError("change", directory).message) }
      guard flock(number, LOCK_EX | LOCK_NB) == 0 else {
        Glibc.close(number)
        throw PackageFault(
          "another process is changing the plugins of '\(directory)'", help: "Try again when it has ended")
      }
    }
    deinit { Glibc.close(number) }
  }
  private let hold: Hold

  /// Installs a package whose content has been checked.
  /// - Parameters:
  ///   - contents: Of the files, in the order of the manifest.
  ///   - key: The number of the key that signed it.
  package static func install(
    _ package: PluginPackage, _ contents: [[UInt8]], from source: String, key: String?, into directory: String
  ) throws(PackageFault) -> PluginInstallation {
    let manifest = package.manifest
    if let obstacle = manifest.obstacle { throw obstacle }
    let installation = try PluginInstallation(manifest.name, in: directory)
    let entry = PluginLock.Entry(
      name: manifest.name, version: manifest.version, machine: manifest.machine, sha256: package.sha256,
      source: source, key: key, files: manifest.files.map { PluginLock.File(name: $0.name, sha256: $0.sha256) })
    for file in entry.files {
      let path = pathIn(directory, file.name)
      guard let owner = installation.lock.entries.first(where: { $0.files.contains { $0.name == file.name } }) else {
        guard access(path, F_OK) != 0 else {
          throw PackageFault(
            "'\(path)' exists, and no package brought it", help: "Move it away, or install into another directory")
        }
        continue
      }
      guard owner.name == manifest.name else {
        throw PackageFault("'\(path)' belongs to the plugin \(owner.name)", help: "Remove that one first")
      }
    }
    try installation.replace(by: entry) { (installation) throws(PackageFault) in
      for (file, content) in zip(manifest.files, contents) {
        installation.written.append(file.name)
        try PackageFile.write(content, to: pathIn(directory, file.name), file.isExecutable ? 0o755 : 0o644)
      }
    }
    return installation
  }

  /// Removes a plugin that a package brought.
  package static func remove(_ name: String, from directory: String) throws(PackageFault) -> PluginInstallation {
    let installation = try PluginInstallation(name, in: directory)
    guard installation.before != nil else {
      let near = Suggestion.nearest(to: name, among: installation.lock.entries.map(\.name))
      throw PackageFault(
        "no package brought a plugin '\(Printable.cut(name))' into '\(directory)'",
        help: near.map { "Did you mean '\($0)'?" })
    }
    try installation.replace(by: nil) { _ in }
    return installation
  }

  /// Sets the version before aside, and writes the files of the new one. After a failure all is as before.
  private func replace(
    by entry: PluginLock.Entry?, _ write: (PluginInstallation) throws(PackageFault) -> Void
  ) throws(PackageFault) {
    do throws(PackageFault) {
      try setAside()
      // Each file is replaced atomically, so that one with the same name is never missing.
      try write(self)
      for file in before?.files ?? [] where !written.contains(file.name) { unlink(pathIn(directory, file.name)) }
      lock.set(name, entry, before: before)
      try lock.write(to: directory)
    } catch {
      try undo()
      throw error
    }
  }

  private init(_ name: String, in directory: String) throws(PackageFault) {
    guard access(directory, F_OK) == 0 else {
      throw PackageFault("there is no directory '\(directory)'", help: "Make it, or name another with --plugin-dir")
    }
    self.directory = directory
    self.name = name
    hold = try Hold(directory)
    lock = try PluginLock(directory: directory)
    before = lock[name]
  }

  /// Keeps the files of the version before under other names, in place of those of an earlier one. A library that is in use stays in memory.
  private func setAside() throws(PackageFault) {
    for file in lock.before(name)?.files ?? [] { unlink(pathIn(directory, Self.aside(file.name))) }
    for file in before?.files ?? [] {
      let (path, aside) = (pathIn(directory, file.name), pathIn(directory, Self.aside(file.name)))
      unlink(aside)
      guard link(path, aside) == 0 || errno == ENOENT else { throw PackageFault(PosixError("keep", path).message) }
    }
  }

  /// Brings the version before back, or removes what was installed if there was none.
  package func undo() throws(PackageFault) {
    for file in before?.files ?? [] {
      let (path, aside) = (pathIn(directory, file.name), pathIn(directory, Self.aside(file.name)))
      if access(aside, F_OK) == 0, rename(aside, path) != 0 {
        throw PackageFault(PosixError("bring back", path).message)
      }
    }
    for file in written where !(before?.files.contains { $0.name == file } ?? false) {
      unlink(pathIn(directory, file))
    }
    written = []
    lock.set(name, before, before: nil)
    try lock.write(to: directory)
  }

  /// Brings the version back that an installation has set aside.
  package static func rollBack(_ name: String, in directory: String) throws(PackageFault) -> PluginInstallation {
    let installation = try PluginInstallation(name, in: directory)
    guard let aside = installation.lock.before(name) else {
      throw PackageFault("no version before of '\(Printable.cut(name))' is kept in '\(directory)'")
    }
    for file in aside.files {
      let path = pathIn(directory, Self.aside(file.name))
      guard let bytes = PluginFile.contents(path), try sha256(bytes) == file.sha256 else {
        throw PackageFault(
          "'\(path)' is missing, or not what \(aside.name) \(aside.version) had", help: "Install it again")
      }
    }
    installation.written = installation.before?.files.map(\.name) ?? []
    installation.before = aside
    try installation.undo()
    return installation
  }

  /// Removes the files of the version before.
  package func keep() {
    for file in before?.files ?? [] { unlink(pathIn(directory, Self.aside(file.name))) }
    lock.set(name, lock[name], before: nil)
    try? lock.write(to: directory)
  }
}
