import Foundation
import PipelineHost
import Testing

/// A process that reads the journal and is killed at random instants loses nothing, even across rotations; a durable one repeats nothing
/// either, because a file knows its position.
@Suite(
  .timeLimit(.minutes(10)), .enabled(if: JournalFiles.canBeMade, "needs systemd-journal-remote of Debian"))
struct KilledJournalTests {
  @Test(arguments: ["durable", "light"]) func nothingIsLostByKills(_ delivery: String) throws {
    let folder = try Scratch()
    let journal = JournalFiles()
    let out = folder.path + "/out"
    let parts = 6
    let perPart = 2000
    let file = try folder.write(
      "take.yaml",
      """
      name: take
      delivery: \(delivery)
      sources: { log: { journald: { directory: '\(journal.path)' } } }
      sinks: { out: { from: log, chain: [ { map: event.MESSAGE } ], file: { path: '\(out)', encode: text } } }

      """)
    func lines() -> [Substring] {
      ((try? String(contentsOfFile: out, encoding: .utf8)) ?? "").split(separator: "\n")
    }
    for part in 0..<parts {
      try journal.write(messages: (0..<perPart).map { "\(part * perPart + $0)" })
      if part % 2 == 1 { try journal.rotate() }
      let process = try RunningRxd(["run", "--state-dir", folder.path + "/state", file])
      // In the middle of a part or at its end; the last part is read to the end.
      let wanted = part == parts - 1 ? parts * perPart : part * perPart + (part + 1) * 300
      Polling.until(pause: 2) { lines().count >= wanted }
      if part < parts - 1 {
        process.send(SIGKILL)
        _ = try? process.wait()
      } else {
        process.send(SIGTERM)
        #expect(try process.wait() == 0)
      }
    }
    let found = lines().compactMap { Int($0) }
    #expect(Set(found) == Set(0..<(parts * perPart)))
    if delivery == "durable" { #expect(found == Array(0..<(parts * perPart))) }
  }
}
