// swift-tools-version: 6.1
import PackageDescription

let package = Package(
  name: "swift-shout",
  products: [.library(name: "shout", type: .dynamic, targets: ["Shout"])],
  dependencies: [.package(path: "../../RxdPlugin")],
  targets: [.target(name: "Shout", dependencies: [.product(name: "RxdPlugin", package: "RxdPlugin")])],
  swiftLanguageModes: [.v6]
)
