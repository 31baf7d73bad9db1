import Foundation
import Testing

/// Links of the repository lead to files in it: one that leads nowhere breaks packages that the tests do not build, as `Fuzz`.
@Suite struct SymbolicLinksTests {
  struct Link {
    /// From the folder that was searched.
    var path: String
    var destination: String
    /// Whether the destination exists, and is in that folder.
    var leadsIntoTheFolder: Bool
  }

  /// Every link below a folder but in those that are not tracked: what builds write, and what begins with a dot.
  private static func links(below root: URL) -> [Link] {
    let files = FileManager.default
    let inside = root.resolvingSymlinksInPath().path + "/"
    var found: [Link] = []
    var open = [""]
    while let folder = open.popLast() {
      // Tests that run beside this one make and remove folders.
      let names = (try? files.contentsOfDirectory(atPath: root.appending(path: folder).path)) ?? []
      for name in names
      where !name.hasPrefix(".") && !name.hasPrefix("build") && !["dist", "__pycache__"].contains(name) {
        let path = folder.isEmpty ? name : "\(folder)/\(name)"
        let full = root.appending(path: path)
        if let destination = try? files.destinationOfSymbolicLink(atPath: full.path) {
          let end = full.resolvingSymlinksInPath().path
          found.append(
            Link(
              path: path, destination: destination,
              leadsIntoTheFolder: files.fileExists(atPath: full.path) && (end + "/").hasPrefix(inside)))
        } else {
          var isFolder: ObjCBool = false
          if files.fileExists(atPath: full.path, isDirectory: &isFolder), isFolder.boolValue { open.append(path) }
        }
      }
    }
    return found.sorted { $0.path < $1.path }
  }

  @Test func everyLinkLeadsToAFile() {
    let links = Self.links(below: packageRoot)
    #expect(links.count >= 3)
    for link in links {
      #expect(link.leadsIntoTheFolder, "\(link.path) leads to \(link.destination), which is no file of the repository")
      #expect(!link.destination.hasPrefix("/"), "\(link.path): an absolute path is another one in another copy")
    }
  }

  /// The fuzzers read the code that is shipped, not a copy.
  @Test func theFuzzersReadTheFramesOfTheProduct() throws {
    let links = Self.links(below: packageRoot.appending(path: "Fuzz"))
    #expect(links.map(\.path).contains("Sources/fuzz/WebSocketFrames.swift"))
    for link in links {
      let text = try String(contentsOf: packageRoot.appending(path: "Fuzz/\(link.path)"), encoding: .utf8)
      #expect(text.contains("struct WebSocketReader"), "\(link.path)")
    }
  }

  /// The check itself: links that lead nowhere, out of the folder, and to a file of it.
  @Test func brokenLinksAreFound() throws {
    let files = FileManager.default
    let folder = files.temporaryDirectory.appending(path: "rxd-links-\(UUID().uuidString)")
    try files.createDirectory(at: folder.appending(path: "inner/build"), withIntermediateDirectories: true)
    defer { try? files.removeItem(at: folder) }
    try Data("x".utf8).write(to: folder.appending(path: "file"))
    for (path, destination) in [
      ("inner/good", "../file"), ("inner/nowhere", "../fil"), ("outside", "/etc/passwd"),
      ("inner/build/ignored", "none"),
    ] {
      try files.createSymbolicLink(
        atPath: folder.appending(path: path).path, withDestinationPath: destination)
    }
    let links = Self.links(below: folder)
    #expect(links.map(\.path) == ["inner/good", "inner/nowhere", "outside"])
    #expect(links.map(\.leadsIntoTheFolder) == [true, false, false])
    #expect(links.map(\.destination) == ["../file", "../fil", "/etc/passwd"])
  }
}
