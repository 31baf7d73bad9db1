// swift-tools-version: 6.1
import PackageDescription

// A program `rxd` with a connector of its own; `Tests/Connector/run` builds it and runs it against a server.
let package = Package(
  name: "connector",
  dependencies: [.package(url: "RXD_URL", from: "0.0.1")],
  targets: [
    .executableTarget(
      name: "rxd-redis",
      dependencies: [
        .product(name: "PipelineCore", package: "rxd"), .product(name: "Transport", package: "rxd"),
        .product(name: "RxdProgram", package: "rxd"),
      ], path: "Sources/RedisStream")
  ],
  swiftLanguageModes: [.v6]
)
