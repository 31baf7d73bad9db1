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
