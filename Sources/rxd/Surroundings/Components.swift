import Glibc
import Transport

/// The parts of the program, the libraries that it is linked to or loads, and their licences.
enum Components {
  /// A part of the program itself.
  struct Linked {
    var name: String
    /// Nil: determined by the toolchain or the build system.
    var version: String?
    /// An SPDX expression.
    var license: String
    var home: String
  }

  /// A library of the system.
  struct Library {
    var name: String
    var license: String
    var home: String
    /// Names of its files without their versions.
    var files: [String]
    /// The names by which the library is loaded on first use; empty: the program is linked to it.
    var loaded: [String]
    /// The name of its Debian packages without the version.
    var package: String
  }

  struct Text {
    var title: String
    var text: String
  }

  /// The version of the Swift runtime, as far as the compiler reveals it.
  static var runtimeVersion: String? {
    #if compiler(>=6.4)
      nil
    #elseif compiler(>=6.3)
      "6.3"
    #elseif compiler(>=6.2)
      "6.2"
    #else
      "6.1"
    #endif
  }

  static func version(_ part: Linked) -> String? {
    part.name == "swift-runtime" ? runtimeVersion : part.version
  }

  /// The whole text of `rxd version --licenses`.
  static func report() -> String {
    var text = "\(Version.line)  Apache-2.0\n\nIn the program:\n\n"
    text += columns(linked.map { [$0.name, version($0) ?? "-", $0.license, $0.home] })
    text += "\nLibraries of the system, which the program is linked to or loads when it first needs them:\n\n"
    for library in libraries where !library.loaded.isEmpty { load(library) }
    let mapped = mappedFiles()
    text += columns(
      libraries.map { library in
        let file = library.file(among: mapped)
        return [library.name, library.license, file ?? "not on this system", license(of: library) ?? library.home]
      })
    text += "\nThe last column is where the text of a licence is. Those of what is in the program follow.\n"
    for part in texts {
      text +=
        "\n\(String(repeating: "-", count: 78))\n\(part.title)\n\(String(repeating: "-", count: 78))\n\n\(part.text)\n"
    }
    return text
  }

  // MARK: Files of this system

  private static func load(_ library: Library) {
    for name in library.loaded where dlopen(name, RTLD_LAZY | RTLD_LOCAL) != nil { return }
  }

  /// The shared libraries of this process.
  private static func mappedFiles() -> [String] {
    let lines = String(decoding: SystemFile.read("/proc/self/maps", limit: 4 << 20) ?? [], as: UTF8.self)
    var seen: Set<Substring> = []
    return lines.split(separator: "\n").compactMap { line in
      guard let start = line.firstIndex(of: "/"), seen.insert(line[start...]).inserted else { return nil }
      return String(line[start...])
    }
  }

  /// The licence file of a library: one installed with the program, or one of the system's packages.
  private static func license(of library: Library) -> String? {
    if let prefix = InstalledProgram.prefix {
      for folder in ["\(prefix)/share/doc/rxd/licenses", "\(prefix)/licenses"] {
        if let name = names(in: folder).first(where: library.isPackage) { return "\(folder)/\(name)" }
      }
    }
    return names(in: "/usr/share/doc").filter(library.isPackage)
      .map { "/usr/share/doc/\($0)/copyright" }.first { access($0, R_OK) == 0 }
  }

  private static func names(in folder: String) -> [String] {
    guard let directory = opendir(folder) else { return [] }
    defer { closedir(directory) }
    var names: [String] = []
    while let entry = readdir(directory) {
      names.append(
        withUnsafeBytes(of: entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) })
    }
    return names.sorted()
  }

  /// Rows with their columns aligned.
  private static func columns(_ rows: [[String]]) -> String {
    let widths = (rows.first ?? []).indices.map { column in rows.map { $0[column].utf8.count }.max() ?? 0 }
    return rows.map { row in
      let cells = row.enumerated().map { column, cell in
        column == row.count - 1 ? cell : cell + String(repeating: " ", count: widths[column] - cell.utf8.count)
      }
      return "  " + cells.joined(separator: "  ") + "\n"
    }.joined()
  }
}

extension Components.Library {
  /// The first file of this library among the paths: libre2.so.9.0.0 belongs to libre2.so.
  func file(among paths: [String]) -> String? {
    for file in files {
      let found = paths.first { path in
        let name = path.split(separator: "/").last ?? ""
        return name == file || name.hasPrefix(file + ".")
      }
      if let found { return found }
    }
    return nil
  }

  /// Whether a Debian package is one of this library's: libcurl4 and libcurl4t64 are, libcurl4-doc is not.
  func isPackage(_ name: String) -> Bool {
    guard name.hasPrefix(package) else { return false }
    let rest = name.utf8.dropFirst(package.utf8.count)
    return rest.first.map { (0x30...0x39).contains($0) } == true && !rest.contains(UInt8(ascii: "-"))
  }
}
