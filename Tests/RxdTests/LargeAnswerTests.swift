import Foundation
import Testing

/// The memory that a polled answer needs.
@Suite(.timeLimit(.minutes(3))) struct LargeAnswerTests {
  /// An object of 1.2 million keys in 14.5 MB needs its text, the index of the text, and the values of its fields while it is
  /// read, and not much more.
  @Test func aLargeObjectTakesLittleMoreThanItsText() throws {
    let folder = try Scratch()
    var text = "{"
    text.reserveCapacity(15_000_000)
    for index in 0..<1_200_000 { text += "\(index == 0 ? "" : ",")\"k\(index)\":\(index % 10)" }
    try folder.write("large.json", text + "}")
    try folder.write("small.json", "{\"k1\":1}")
    let server = Process()
    let output = Pipe()
    server.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    server.arguments = [
      "python3", "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", folder.path,
    ]
    server.standardOutput = output
    server.standardError = FileHandle.nullDevice
    try server.run()
    defer { kill(server.processIdentifier, SIGKILL) }
    var reported = Data()
    while !reported.contains(0x0A) {
      let piece = output.fileHandleForReading.availableData
      try #require(!piece.isEmpty)
      reported += piece
    }
    let words = String(decoding: reported, as: UTF8.self).split(separator: " ")
    let port = try #require(words.firstIndex(of: "port").map { words[$0 + 1] })
    func peak(of name: String) throws -> Int {
      let file = try folder.write(
        "\(name).yaml",
        """
        sources: { answers: { http: { url: 'http://127.0.0.1:\(port)/\(name).json', decode: json, every: 1h } } }
        sinks: { out: { from: answers, chain: [ { map: "[size(event), event.k1]" } ], stdout: {} } }

        """)
      let process = try RunningRxd([file])
      #expect(try process.line() == (name == "large" ? "[1200000,1]" : "[1,1]"))
      let status = try String(contentsOfFile: "/proc/\(process.pid)/status", encoding: .utf8)
      let line = try #require(status.split(separator: "\n").first { $0.hasPrefix("VmHWM:") })
      let kilobytes = try #require(line.split(separator: " ").dropFirst().first.flatMap { Int($0) })
      process.send(SIGTERM)
      #expect(try process.wait() == 0)
      return kilobytes >> 10
    }
    let (small, large) = (try peak(of: "small"), try peak(of: "large"))
    #expect(large - small < 120, "\(small) MiB, \(large) MiB")
  }
}
