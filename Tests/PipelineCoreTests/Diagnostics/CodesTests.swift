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
}
