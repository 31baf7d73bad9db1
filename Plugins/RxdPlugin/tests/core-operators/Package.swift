// swift-tools-version: 6.1
import PackageDescription

// The core's operators, unchanged, built as a plugin: test_core_operators.py copies them here.
let package = Package(
  name: "core-operators",
  products: [.library(name: "core-operators", type: .dynamic, targets: ["CoreOperators"])],
  dependencies: [.package(path: "../..")],
  targets: [.target(name: "CoreOperators", dependencies: [.product(name: "RxdPlugin", package: "RxdPlugin")])],
  swiftLanguageModes: [.v6]
)
