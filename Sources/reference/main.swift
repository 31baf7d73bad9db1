// Writes the reference: `reference DIRECTORY`. `make docs` calls it.
import Foundation

guard CommandLine.arguments.count == 2 else {
  print("usage: reference DIRECTORY")
  exit(64)
}
let root = URL(filePath: CommandLine.arguments[1], directoryHint: .isDirectory)
do {
  for page in try ReferencePages().pages() {
    let file = root.appending(path: page.path)
    try FileManager.default.createDirectory(at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
    try Data(page.text.utf8).write(to: file)
  }
} catch {
  FileHandle.standardError.write(Data("reference: \(error)\n".utf8))
  exit(1)
}
