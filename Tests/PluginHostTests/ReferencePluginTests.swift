import Foundation
import PipelineCore
import PipelineHost
import PluginHost
import Testing

/// A native plugin as it was compiled when a version of the contract was made: `Plugins/examples/native-c` against the header of that time.
/// It must load for ever, so the file is never built again.
#if arch(x86_64)
  @Suite struct ReferencePluginTests {
    private static func copy(_ name: String) throws -> String {
      let path = PluginFixtures.scratch(name)
      try? FileManager.default.removeItem(atPath: path)
      try FileManager.default.copyItem(
        atPath: "\(PluginFixtures.root)/Tests/PluginHostTests/Fixtures/\(name)", toPath: path)
      // What a checkout makes of the rights does not matter.
      chmod(path, 0o755)
      return path
    }

    @Test func thePluginOfContract1Works() throws {
      let path = try Self.copy("reference-1-x86_64.so")
      #expect(PluginFixtures.plugins.refusal(path) == "")
      let pipeline = try PluginFixtures.pipeline(
        path, values: "[{ t: headline, n: 1 }, { t: news, n: 2 }]",
        chain:
          "[ { exampleShorten: { field: t, to: 4 } }, { exampleRunningSum: { field: n, as: sum } }, { exampleDebounce: 5s } ]"
      )
      pipeline.run()
      #expect(pipeline.probe().events == [#"{"t":"news","n":2,"sum":3}"#])
      #expect(pipeline.outcome == .completed)
    }
  }
#endif
