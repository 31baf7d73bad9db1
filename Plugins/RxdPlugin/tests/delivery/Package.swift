// swift-tools-version: 6.1
import PackageDescription

// A sink whose connector does what its events say, for test_delivery.py.
let package = Package(
  name: "delivery",
  products: [.library(name: "delivery", type: .dynamic, targets: ["Delivery"])],
  dependencies: [.package(path: "../..")],
  targets: [.target(name: "Delivery", dependencies: [.product(name: "RxdPlugin", package: "RxdPlugin")])],
  swiftLanguageModes: [.v6]
)
