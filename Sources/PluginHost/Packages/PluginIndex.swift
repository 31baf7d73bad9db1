import Glibc
import PipelineCore

/// A list of packages, as a plain file: a JSON document beside the packages, on a disk or a web server.
package struct PluginIndex: Sendable {
  /// A package in the list.
  package struct Entry: Sendable {
    /// Without files.
    package var manifest: PluginManifest
    /// The name of the archive, in the directory of the index.
    package var file: String
    package var size: Int
    package var sha256: String
  }
  private static let format = 1
  /// The maximum size of an index in bytes.
  package static let mostBytes = 16 << 20

  package private(set) var entries: [Entry] = []

  package init() {}

  /// Reads an index, which anyone may have written.
  /// - Parameter source: Its path or URL, for messages.
  package init(_ bytes: [UInt8], from source: String) throws(PackageFault) {
    var diagnostics = Diagnostics()
    let root = YAMLReader.read(SourceText(name: source, bytes: bytes), into: &diagnostics)
    guard let items = root?["packages"]?.items, let format = root?["format"]?.int else {
      throw PackageFault(
        "'\(Printable.cut(source))' is not an index of packages: \(diagnostics.all.first?.message ?? "it has no 'packages'")",
        help: "'rxd plugin pack --index FILE' writes one")
    }
    guard format == Self.format else {
      throw PackageFault(
        "the index '\(Printable.cut(source))' has the format \(format), and this rxd reads \(Self.format)",
        help: "Use a newer rxd")
    }
    for item in items {
      func fault(_ what: String) -> PackageFault {
        PackageFault("the index '\(Printable.cut(source))' has a wrong entry in line \(item.location.line): \(what)")
      }
      let manifest = try PluginManifest(described: item, fault)
      guard let file = item["file"]?.string, PackageFile.isName(file), let sha256 = item["sha256"]?.string,
        PackageFile.isDigest(sha256), let size = item["size"]?.int, size > 0, size <= Int64(PluginPackage.mostBytes)
      else { throw fault("it needs 'file', 'size' and 'sha256'") }
      entries.append(Entry(manifest: manifest, file: file, size: Int(size), sha256: sha256))
    }
  }

  /// Adds a package in place of one with the same name, version and machine.
  package mutating func add(_ package: PluginPackage) {
    let new = Entry(
      manifest: package.manifest, file: splitName(package.path), size: package.size, sha256: package.sha256)
    entries.removeAll { $0.file == new.file || $0.manifest.archive == new.manifest.archive }
    entries.append(new)
    entries.sort { a, b in
      let (first, second) = (a.manifest, b.manifest)
      if first.name != second.name { return first.name < second.name }
      let (one, other) = (PluginVersion(first.version), PluginVersion(second.version))
      return one == other ? first.machine < second.machine : one > other
    }
  }

  package var document: JSONText {
    .object([
      ("format", .int(Self.format)),
      (
        "packages",
        .array(
          entries.map {
            .object(
              $0.manifest.described + [
                ("file", .string($0.file)), ("size", .int($0.size)), ("sha256", .string($0.sha256)),
              ])
          })
      ),
    ])
  }

  /// The newest package of a plugin that this machine and this version of rxd can use. Throws if there is none.
  package func newest(_ name: String, _ range: VersionRange?) throws(PackageFault) -> Entry {
    let named = entries.filter { $0.manifest.name == name }
    guard !named.isEmpty else {
      let near = Suggestion.nearest(to: name, among: Array(Set(entries.map(\.manifest.name))))
      throw PackageFault(
        "no package in the index is called '\(Printable.cut(name))'",
        help: near.map { "Did you mean '\($0)'?" } ?? "'rxd plugin search WORD' searches the index")
    }
    let fitting = named.filter { range?.contains($0.manifest.version) ?? true }
    guard !fitting.isEmpty else {
      throw PackageFault(
        "the index has no version of \(name) that is \(range?.text ?? "")",
        help: "It has \(named.map(\.manifest.version).joined(separator: ", "))")
    }
    let usable = fitting.filter { $0.manifest.obstacle == nil }
    guard let best = usable.max(by: { PluginVersion($0.manifest.version) < PluginVersion($1.manifest.version) }) else {
      throw fitting[0].manifest.obstacle ?? PackageFault("\(name) cannot be used")
    }
    return best
  }

  /// The components whose package, name, kind or summary has all words, ignoring case; with their packages, each package
  /// once, in its newest version.
  package func search(_ words: [String]) -> [(entry: Entry, component: (kind: String, name: String, summary: String))] {
    var seen: Set<String> = []
    return entries.filter { seen.insert($0.manifest.name).inserted }.flatMap { entry in
      entry.manifest.components.filter { component in
        let text = [entry.manifest.name, entry.manifest.summary, component.kind, component.name, component.summary]
          .joined(separator: " ").lowercased()
        return words.allSatisfy { text.contains($0.lowercased()) }
      }.map { (entry, $0) }
    }
  }
}
