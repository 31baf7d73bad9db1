import Foundation
import Testing

/// The output that a guide shows is the program's real output.
@Suite(.timeLimit(.minutes(5)))
struct GuideTests {
  struct Guide {
    /// The files in the guide, each after its name.
    var files: [(name: String, text: String)] = []
    /// The commands in the guide with their output, in order.
    var commands: [(command: String, output: String)] = []

    init(_ name: String) throws {
      let text = try String(contentsOfFile: "\(Rxd.root)/docs/\(name).md", encoding: .utf8)
      var block: (form: String, name: String, lines: [String])?
      var name = ""
      for line in text.components(separatedBy: "\n") {
        if line.hasPrefix("```") {
          if let whole = block {
            add(whole.form, whole.name, whole.lines)
            block = nil
          } else {
            block = (String(line.dropFirst(3)), name, [])
          }
          name = ""
        } else if block != nil {
          block?.lines.append(line)
        } else if line.hasPrefix("`"), line.hasSuffix("`:") {
          name = String(line.dropFirst().dropLast(2))
        }
      }
    }

    private mutating func add(_ form: String, _ name: String, _ lines: [String]) {
      if form != "console" {
        if !name.isEmpty { files.append((name, lines.map { $0 + "\n" }.joined())) }
        return
      }
      for line in lines {
        if line.hasPrefix("$ ") {
          commands.append((String(line.dropFirst(2)), ""))
        } else if !commands.isEmpty {
          commands[commands.count - 1].output += line + "\n"
        }
      }
    }
  }

  @Test(arguments: [("trying-out", 10), ("reuse", 5), ("event-time", 3), ("tables", 3)]) func commandsPrintWhatIsShown(
    _ name: String, _ least: Int
  )
    throws
  {
    let guide = try Guide(name)
    #expect(guide.commands.count >= least)
    let folder = try Scratch()
    try FileManager.default.createSymbolicLink(atPath: folder.path + "/rxd", withDestinationPath: Rxd.binary)
    for file in guide.files { try folder.write(file.name, file.text) }
    for (command, shown) in guide.commands {
      let (_, output) = try Program.run(
        "/bin/sh", ["-c", "cd '\(folder.path)' && \(command) 2>&1"],
        environment: ["PATH": folder.path + ":/usr/bin:/bin", "HOME": folder.path, "LANG": "C.UTF-8"])
      #expect(output == shown, "$ \(command)")
    }
  }
}
