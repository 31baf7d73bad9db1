import PipelineHost
import Testing

@testable import PipelineCore

/// Event data used as the code of a program gives a warning with the remedy.
@Suite struct ExecCodeTests {
  private func complaints(_ command: String) -> [String] {
    PipelineText.remarks(
      """
      sources: { s: { stdin: { decode: json } } }
      signals: { q: { from: s, chain: [ { flattenMap: { signal: { from: { exec: { command: \(command) } } } } } ] } }
      sinks: { o: { from: q, stdout: {} } }
      """)
  }

  @Test(arguments: [
    "[sh, -c, \"{{ event.p }}\"]", "[/bin/bash, -ec, \"echo {{ event.p }}\"]", "[env, sh, -c, \"{{ event.p }}\"]",
    "[python3, -c, \"print({{ event.p }})\"]", "[perl, -ne, \"{{ event.p }}\"]", "[su, ann, -c, \"{{ event.p }}\"]",
  ]) func eventDataIsNoCode(_ command: String) {
    let found = complaints(command)
    #expect(found.count == 1 && found[0].contains("event data becomes a part of the text that"), "\(found)")
  }

  @Test(arguments: [
    "[sh, -c, 'echo \"$1\"', sh, \"{{ event.p }}\"]", "[echo, --, \"{{ event.p }}\"]", "[grep, -c, \"{{ event.p }}\"]",
    "[python3, tool.py, \"{{ event.p }}\"]",
  ]) func anArgumentIsFine(_ command: String) {
    #expect(complaints(command) == [])
  }
}
