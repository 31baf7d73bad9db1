import Foundation
import Testing

@testable import PipelineCore

@Suite struct CodesTests {
  @Test func codesAreUnique() {
    let names = Diagnostic.Code.all.map(\.name)
    #expect(Set(names).count == names.count)
  }

  @Test(arguments: Diagnostic.Code.all.map(\.name)) func isWellFormed(_ name: String) throws {
    let code = try #require(Diagnostic.Code.named(name))
    #expect(name.utf8.count == 5 && name.hasPrefix("RX") && Int(name.dropFirst(2)) != nil)
    #expect(code.summary.hasSuffix("."))
    #expect(code.summary.first?.isLowercase == false)
  }

  /// Codes that no small file shows: limits, bytes that are no text, other files, and what only happens while running.
  private static let withoutExample: Set<String> = [
    "RX101", "RX102", "RX103", "RX104", "RX109", "RX110", "RX111", "RX112", "RX117", "RX118", "RX122", "RX130", "RX211",
    "RX212", "RX225", "RX231", "RX232", "RX233", "RX240", "RX305", "RX308", "RX321", "RX324", "RX325", "RX338",
    "RX403",
  ]

  @Test(arguments: Diagnostic.Code.all.filter { "1234".contains($0.name.dropFirst(2).first ?? " ") }.map(\.name))
  func exampleShowsTheMistakeAndItsRemedy(_ name: String) throws {
    let code = try #require(Diagnostic.Code.named(name))
    guard let example = CodeExample.of(code) else {
      #expect(Self.withoutExample.contains(name), "\(name) has no example")
      return
    }
    #expect(!Self.withoutExample.contains(name))
    let wrong = CheckingTests.check(Array(example.file(example.wrong).utf8)).diagnostics
    #expect(
      wrong.contains { $0.code == code },
      "\(example.file(example.wrong))\n\(wrong.map { "\($0.code.name) \($0.message)" })")
    let right = CheckingTests.check(Array(example.file(example.right).utf8)).diagnostics
    #expect(
      !right.contains { $0.code == code || $0.severity == .error },
      "\(example.file(example.right))\n\(right.map { "\($0.code.name) \($0.message)" })")
  }

  @Test func everyCodeOfTheSourcesIsInTheTable() throws {
    let sources = packageRoot.appending(path: "Sources")
    let files = try #require(FileManager.default.enumerator(atPath: sources.path))
    var written: Set<String> = []
    for case let path as String in files where path.hasSuffix(".swift") {
      let text = try String(contentsOf: sources.appending(path: path), encoding: .utf8)
      for match in text.matches(of: /"(RX[0-9]{3})"/) { written.insert(String(match.1)) }
    }
    let known = Set(Diagnostic.Code.all.map(\.name))
    #expect(written.subtracting(known).sorted() == [])
  }
}
