// swift-tools-version: 6.1
import PackageDescription

let package = Package(
  name: "bench-swift",
  products: [.library(name: "bench-swift", type: .dynamic, targets: ["Bench"])],
  dependencies: [.package(path: "../../../Plugins/RxdPlugin")],
  targets: [.target(name: "Bench", dependencies: [.product(name: "RxdPlugin", package: "RxdPlugin")])],
  swiftLanguageModes: [.v6]
)
