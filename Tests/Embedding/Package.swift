// swift-tools-version: 6.1
import PackageDescription

// Programs that embed rxd as a versioned package; `Tests/Embedding/run` builds and runs them.
let package = Package(
  name: "embedding",
  dependencies: [.package(url: "RXD_URL", from: "0.0.1")],
  targets: [
    .executableTarget(name: "Embedding", dependencies: [.product(name: "PipelineRuntime", package: "rxd")]),
    .executableTarget(
      name: "Components",
      dependencies: [.product(name: "PipelineCore", package: "rxd"), .product(name: "PipelineRuntime", package: "rxd")]),
  ],
  swiftLanguageModes: [.v6]
)
