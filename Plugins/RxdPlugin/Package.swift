// swift-tools-version: 6.1
import PackageDescription

// Native plugins for rxd in Swift. The package is independent of rxd, of which it needs only rxd_plugin.h, and rxd is built
// without it.
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
