import Foundation
import PipelineCore
import PipelineHost
import PluginHost
import Testing

/// A native plugin compiled when a version of the contract was released: `Plugins/examples/native-c` against the header of that time. It
/// must load forever, so the file is never rebuilt.
#if arch(x86_64)
  @Suite struct ReferencePluginTests {
    private static func copy(_ name: String) throws -> String {
      // The permissions that a checkout sets do not matter.
      let file = URL(fileURLWithPath: "\(PluginFixtures.root)/Tests/PluginHostTests/Fixtures/\(name)")
      return try PluginFixtures.program(name, Data(contentsOf: file))
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

    /// Header 1.1: operators that complete their output.
    @Test(arguments: ["exampleTake: 2", "exampleTakeWhile: event < 3"])
    func thePluginOfVersion1_1Works(_ step: String) throws {
      let path = try Self.copy("reference-1.1-x86_64.so")
      #expect(PluginFixtures.plugins.refusal(path) == "")
      let pipeline = try PluginFixtures.pipeline(path, values: "[1, 2, 3, 4]", chain: "[ { \(step) } ]")
      pipeline.run()
      #expect(pipeline.probe().events == ["1", "2"])
      #expect(pipeline.outcome == .completed)
    }

    /// Header 1.2: functions and formats.
    @Test func thePluginOfVersion1_2Works() throws {
      let path = try Self.copy("reference-1.2-x86_64.so")
      #expect(PluginFixtures.plugins.refusal(path) == "")
      let pipeline = try PluginFixtures.pipeline(
        path, values: "['Ada Lovelace']", chain: "[ { map: 'example.initials(event)' } ]")
      pipeline.run()
      #expect(pipeline.probe().events == [#""A.L.""#])
    }

    /// Sizes of released versions never change: a plugin compares them with the size that it receives.
    @Test func theTableOnlyGrows() throws {
      let source = PluginFixtures.scratch("sizes.c")
      try Data(
        """
        #include "rxd_plugin.h"
        _Static_assert(RXD_HOST_SIZE_1_0 == 344, "of version 1.0");
        _Static_assert(RXD_HOST_SIZE_1_1 == 352, "of version 1.1");
        _Static_assert(RXD_HOST_SIZE_1_2 == 376, "of version 1.2");
        _Static_assert(RXD_HOST_SIZE_1_3 == 400, "of version 1.3");
        _Static_assert(sizeof(rxd_host) == RXD_HOST_SIZE_1_3, "the newest version has a size");

        """.utf8
      ).write(to: URL(fileURLWithPath: source))
      try PluginFixtures.run([
        "clang", "-fsyntax-only", "-Wall", "-Werror", "-I", "\(PluginFixtures.root)/Sources/CPlugin/include", source,
      ])
    }
  }
#endif
