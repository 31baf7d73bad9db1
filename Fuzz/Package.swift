// swift-tools-version: 6.1
import PackageDescription

// For developers; `Fuzz/run` builds it with coverage and runs it. Not part of what is installed.
let package = Package(
  name: "fuzz",
  dependencies: [.package(name: "rxd", path: "..")],
  targets: [
    .target(name: "CLibFuzzer"),
    .executableTarget(
      name: "fuzz", dependencies: ["CLibFuzzer", .product(name: "PipelineCore", package: "rxd")]),
  ],
  swiftLanguageModes: [.v6],
  cxxLanguageStandard: .cxx17
)
