// swift-tools-version: 6.1
import PackageDescription

// Native plugins for rxd in Swift. A package of its own: it needs nothing of rxd but rxd_plugin.h, and rxd is built without it.
let package = Package(
  name: "RxdPlugin",
  products: [.library(name: "RxdPlugin", targets: ["RxdPlugin"])],
  targets: [
    // rxd_plugin.h, and the two names that a shared library must have.
    .target(name: "CRxdPlugin"),
    .target(name: "RxdPlugin", dependencies: ["CRxdPlugin"]),
  ],
  swiftLanguageModes: [.v6]
)
