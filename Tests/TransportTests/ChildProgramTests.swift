import Foundation
import Glibc
import PipelineHost
import Testing

@testable import Transport

@Suite struct ChildProgramTests {
  /// A newly written program may still be open in a process that is about to close it.
  @Test func aBusyProgramIsStarted() throws {
    let scratch = Scratch()
    let path = scratch.path + "/busy"
    try Data("#!/bin/sh\nexit 7\n".utf8).write(to: URL(fileURLWithPath: path))
    chmod(path, 0o755)
    for _ in 0..<10 {
      var holder = try ChildProgram(
        "/bin/sh", ["-c", "exec 3>>\"$0\"; echo; read line", path], environment: [:], directory: nil)
      #expect(isReady(holder.output, POLLIN))
      // The holder ends now, and closes the file.
      holder.closeInput()
      let program = try ChildProgram(path, [], environment: [:], directory: nil)
      #expect(isReady(program.ending, POLLIN) && isReady(holder.ending, POLLIN))
      #expect(program.status().map { $0 >> 8 } == 7)
      _ = holder.status()
    }
  }

  private func isReady(_ descriptor: Int32, _ events: Int32) -> Bool {
    var one = pollfd(fd: descriptor, events: Int16(events), revents: 0)
    return poll(&one, 1, 60_000) == 1
  }
}
