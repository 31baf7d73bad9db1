import Foundation
import Testing

/// The output that a guide shows is the program's real output.
@Suite(.timeLimit(.minutes(5)))
struct GuideTests {
  struct Guide {
    /// The contents of the guide in order: a file after its name, or a command with its output.
    enum Part {
      case file(name: String, text: String)
      case command(String, output: String)
    }
    var parts: [Part] = []
    var commandCount = 0

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
        if !name.isEmpty { parts.append(.file(name: name, text: lines.map { $0 + "\n" }.joined())) }
        return
      }
      for line in lines {
        if line.hasPrefix("$ ") {
          parts.append(.command(String(line.dropFirst(2)), output: ""))
          commandCount += 1
        } else if case .command(let command, let output)? = parts.last {
          parts[parts.count - 1] = .command(command, output: output + line + "\n")
        }
      }
    }
  }

  static let guides = [
    ("trying-out", 10), ("reuse", 5), ("event-time", 3), ("tables", 3), ("first-pipeline", 14), ("pipeline-file", 2),
    ("four-texts", 5), ("secrets", 5), ("alerting", 4), ("formats", 30), ("coming-from", 1), ("troubleshooting", 2),
    ("export-flink", 2),
  ]

  /// A file may be shown again with more in it: each command sees what the page has shown before it.
  @Test(arguments: guides) func commandsPrintWhatIsShown(_ name: String, _ least: Int) throws {
    let guide = try Guide(name)
    #expect(guide.commandCount >= least)
    let folder = try Scratch()
    try FileManager.default.createSymbolicLink(atPath: folder.path + "/rxd", withDestinationPath: Rxd.binary)
    for part in guide.parts {
      switch part {
      case .file(let name, let text): try folder.write(name, text)
      case .command(let command, let shown):
        let (_, output) = try Program.run(
          "/bin/sh", ["-c", "cd '\(folder.path)' || exit\n{ \(command)\n} 2>&1"],
          environment: [
            "PATH": folder.path + ":/usr/bin:/bin", "HOME": folder.path, "LANG": "C.UTF-8", "RXD_LOG_FORMAT": "text",
          ])
        // Lines of the log are shown without their times.
        let times = #/^\d{4}-\d\d-\d\dT[\d:.]+Z (?=info|warning|error)/#.anchorsMatchLineEndings()
        #expect(output.replacing(times, with: "") == shown, "$ \(command)")
      }
    }
  }

  /// Whoever looks for a format finds it, with an example that runs.
  @Test func everyFormatIsOnItsPage() throws {
    let page = try String(contentsOfFile: Rxd.root + "/docs/formats.md", encoding: .utf8)
    let listed = try Rxd.run("list", "decoders", "encoders", "--format", "json")
    let names = listed.output.matches(of: #/"name": ?"(\w+)"/#).map { String($0.1) }
    #expect(names.count > 15)
    for name in names { #expect(page.contains("`\(name)`"), "\(name)") }
  }

  /// Files that people copy cause no warning, and have the usual layout.
  @Test func theCookbookIsTidy() throws {
    let checked = try Rxd.run("check", "--deny-warnings", "--no-environment", "pipelines/cookbook", in: Rxd.root)
    #expect(checked.status == 0, "\(checked.output)\(checked.errors)")
    #expect(try Rxd.run("fmt", "--check", "pipelines/cookbook", in: Rxd.root).output == "")
  }
}
