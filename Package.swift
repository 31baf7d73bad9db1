// swift-tools-version: 6.1
import PackageDescription

// C libraries come from Debian; `scripts/install-packages` installs them.

/// The C library checks the sizes of buffers where they are known (_FORTIFY_SOURCE); it needs optimisation.
let checkedC: [CSetting] = [.define("_FORTIFY_SOURCE", to: "2", .when(configuration: .release))]
let checkedCXX: [CXXSetting] = [.define("_FORTIFY_SOURCE", to: "2", .when(configuration: .release))]

let package = Package(
  name: "rxd",
  products: [
    .executable(name: "rxd", targets: ["rxd"]),
    // For other packages: no target of theirs needs unsafe flags, and `Tests/Embedding` depends on them as a version.
    .library(name: "PipelineCore", targets: ["PipelineCore"]),
    .library(name: "PipelineRuntime", targets: ["PipelineRuntime"]),
    .library(name: "RxdProgram", targets: ["RxdProgram"]),
    .library(name: "Transport", targets: ["Transport"]),
    // For tests: loaded before the C library.
    .library(name: "CHang", type: .dynamic, targets: ["CHang"]),
    .library(name: "CTrap", type: .dynamic, targets: ["CTrap"]),
  ],
  dependencies: [
    .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
    .package(url: "https://github.com/apple/swift-collections", from: "1.6.0"),
    .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
    .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
  ],
  targets: [
    // Shims: each C library is known to one Swift file, and each C++ library has a C interface here.
    .target(
      name: "CJSON", path: "Sources/CJSON", cxxSettings: checkedCXX,
      linkerSettings: [.linkedLibrary("simdjson")]),
    .target(
      name: "CRE2", path: "Sources/CRE2", cxxSettings: checkedCXX,
      linkerSettings: [.linkedLibrary("re2")]),
    .systemLibrary(
      name: "CYAML", path: "Sources/CYAML", providers: [.apt(["libyaml-dev"])]),
    // These load their libraries when they are first used: a request, a digest, a body that is compressed, a person
    // who types.
    .target(name: "CCurl", path: "Sources/CCurl", cSettings: checkedC),
    .target(name: "CDigest", path: "Sources/CDigest", cSettings: checkedC),
    .target(name: "CCompress", path: "Sources/CCompress", cSettings: checkedC),
    .target(name: "CEdit", path: "Sources/CEdit", cSettings: checkedC),
    .target(name: "CSQLite", path: "Sources/CSQLite", cSettings: checkedC),
    .target(name: "CRocks", path: "Sources/CRocks", cSettings: checkedC),
    .target(name: "CTLS", path: "Sources/CTLS", cSettings: checkedC),
    .target(name: "CJournal", path: "Sources/CJournal", cSettings: checkedC),

    .target(name: "CLinux", path: "Sources/CLinux", cSettings: checkedC),
    // rxd_plugin.h, which plugins are compiled with; `make install` puts it among the system's headers.
    .target(name: "CPlugin", path: "Sources/CPlugin", cSettings: checkedC),

    // Codes, locations, the renderer; part of the core for all others, which see it through the core.
    .target(name: "PipelineDiagnostics", path: "Sources/PipelineCore/Diagnostics"),
    .target(
      name: "PipelineCore",
      dependencies: [
        "CDigest", "CJSON", "CRE2", "CYAML", "PipelineDiagnostics",
        .product(name: "DequeModule", package: "swift-collections"),
      ],
      exclude: ["Diagnostics"]),
    // Pipelines in virtual time: marbles, stubs, the runner of `rxd test`, coverage.
    .target(name: "PipelineTesting", dependencies: ["PipelineCore"]),
    .target(
      name: "Transport",
      dependencies: [
        "PipelineCore", "CCompress", "CCurl", "CDigest", "CJournal", "CLinux", "CSQLite", "CTLS",
        .product(name: "DequeModule", package: "swift-collections"),
        .product(name: "NIOCore", package: "swift-nio"),
        .product(name: "NIOPosix", package: "swift-nio"),
      ]),
    // What a pipeline keeps between runs of the process, on SQLite.
    .target(name: "Storage", dependencies: ["PipelineCore", "Transport", "CDigest", "CRocks"]),
    // Components of plugins: shared libraries, and programs on their standard streams.
    .target(
      name: "PluginHost",
      dependencies: [
        "PipelineCore", "PipelineTesting", "Transport", "CPlugin", "CDigest", "CLinux",
        .product(name: "DequeModule", package: "swift-collections"),
      ]),
    .target(name: "Sources_", dependencies: ["PipelineCore", "Transport"]),
    .target(
      name: "Sinks",
      dependencies: [
        "PipelineCore", "Transport", .product(name: "DequeModule", package: "swift-collections"),
      ]),
    // Every figure of a running process: its names, kinds, labels and meaning.
    .target(name: "FigureTable", dependencies: ["PipelineCore"]),
    // Plans as Flink SQL.
    .target(name: "FlinkExport", dependencies: ["PipelineCore"]),
    // Loads pipeline files of this machine and runs them in real time.
    .target(
      name: "PipelineRuntime",
      dependencies: ["PipelineCore", "Sources_", "Sinks", "Transport", "CLinux"]),
    // The program with all its verbs, for `rxd` and for programs that link components of their own.
    .target(
      name: "RxdProgram",
      dependencies: [
        "FigureTable", "FlinkExport", "PipelineCore", "PipelineRuntime", "PipelineTesting", "PluginHost", "Sources_",
        "Sinks", "Storage", "Transport",
        "CEdit", "CLinux",
        .product(name: "ArgumentParser", package: "swift-argument-parser"),
        .product(name: "Logging", package: "swift-log"),
      ],
      path: "Sources/rxd"),
    .executableTarget(
      name: "rxd", dependencies: ["RxdProgram"], path: "Sources/Main",
      // Fewer and smaller tables for the dynamic loader; docs/decisions/0012-start-up.md has the figures.
      linkerSettings: [
        .unsafeFlags(
          [
            "-use-ld=lld", "-Xlinker", "-O2", "-Xlinker", "--icf=safe", "-Xlinker", "--no-export-dynamic",
            // The tables of addresses are complete and read-only before the first function runs.
            "-Xlinker", "-z", "-Xlinker", "relro", "-Xlinker", "-z", "-Xlinker", "now",
          ], .when(platforms: [.linux], configuration: .release))
      ]),

    .target(
      name: "PipelineTestSupport", dependencies: ["PipelineCore", "PipelineTesting"],
      path: "Tests/PipelineTestSupport"),
    // Runs pipeline texts with all sources and sinks, on virtual time or in the real world.
    .target(
      name: "PipelineHost",
      dependencies: [
        "CLinux", "PipelineCore", "PipelineRuntime", "PipelineTesting", "PluginHost", "Sources_", "Sinks", "Transport",
      ],
      path: "Tests/PipelineHost"),
    // For developers: writes docs/reference; not installed.
    .executableTarget(name: "reference", dependencies: ["PipelineCore", "PipelineRuntime", "PipelineTesting"]),
    // For developers: runs the conformance vectors of the expression language; not installed.
    .executableTarget(name: "conformance", dependencies: ["PipelineCore", "PipelineTestSupport"]),
    // For developers: times expressions and counts what they allocate; not installed. Its C target
    // takes the place of malloc in every program that links it.
    .target(name: "CCounting", path: "Benchmarks/CCounting"),
    .target(
      name: "Measuring", dependencies: ["PipelineCore", "CCounting"], path: "Benchmarks/Measuring"),
    .executableTarget(
      name: "measure", dependencies: ["Measuring"], path: "Benchmarks/measure",
      // Each call of these goes to what rx_references.c in CCounting has in its place.
      linkerSettings: [
        .unsafeFlags(
          [
            "swift_retain", "swift_retain_n", "swift_release", "swift_release_n", "swift_unownedRetain",
            "swift_unownedRelease", "swift_unownedRetainStrong", "swift_weakLoadStrong", "swift_weakTakeStrong",
          ].flatMap { ["-Xlinker", "--wrap=\($0)"] })
      ]),
    .testTarget(
      name: "PipelineCoreTests",
      dependencies: [
        "PipelineCore", "PipelineDiagnostics", "PipelineRuntime", "PipelineTesting", "PipelineTestSupport", "Sources_",
        "Sinks", "Measuring", "PipelineHost",
      ]),
    .testTarget(
      name: "TransportTests",
      dependencies: ["Transport", "CCurl", "PipelineCore", "PipelineHost", "PipelineTestSupport"]),
    .testTarget(
      name: "PipelineRuntimeTests",
      dependencies: ["PipelineCore", "PipelineHost", "PipelineRuntime", "PipelineTestSupport"]),
    // Runs the built binary; the dependency is there so that it is built.
    .testTarget(
      name: "RxdTests",
      dependencies: ["rxd", "CLinux", "FigureTable", "PipelineCore", "PipelineHost", "PipelineTestSupport"]),
    .testTarget(
      name: "PluginHostTests", dependencies: ["CPlugin", "PipelineHost", "PipelineTestSupport", "PluginHost"],
      exclude: ["Fixtures"]),
    .testTarget(name: "StorageTests", dependencies: ["PipelineHost", "PipelineTestSupport", "Storage"]),
    .testTarget(
      name: "SourcesTests", dependencies: ["PipelineHost", "PipelineTesting", "PipelineTestSupport", "Sources_", "rxd"]),
    .testTarget(
      name: "SinksTests",
      dependencies: ["CInflate", "PipelineHost", "PipelineTesting", "PipelineTestSupport", "Sinks", "rxd"]),
    .target(name: "CHang", path: "Tests/CHang"),
    .target(name: "CTrap", path: "Tests/CTrap"),
    // Looks into what was compressed.
    .target(
      name: "CInflate", path: "Tests/CInflate", linkerSettings: [.linkedLibrary("z"), .linkedLibrary("zstd")]),
  ],
  swiftLanguageModes: [.v6],
  cxxLanguageStandard: .cxx17
)
