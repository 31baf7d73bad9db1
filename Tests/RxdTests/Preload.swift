/// The libraries of Tests/Faults/preload for `LD_PRELOAD`. Each is built once.
enum Preload {
  static let refuse: Result<String, any Error> = Result { try build("refuse") }
  static let checks: Result<String, any Error> = Result { try build("checks") }

  private static func build(_ name: String) throws -> String {
    let path = "\(Rxd.runtime)/\(name).so"
    let source = "\(Rxd.root)/Tests/Faults/preload/\(name).c"
    let outcome = try Program.run("/usr/bin/env", ["cc", "-O1", "-shared", "-fPIC", "-o", path, source, "-ldl"])
    guard outcome.status == 0 else { throw TimedOut(description: "cc cannot build \(source): \(outcome.output)") }
    return path
  }
}
