// Runs the vectors of the expression language: `conformance vectors.json [text in the name]`.
import Glibc
import PipelineTestSupport

let arguments = CommandLine.arguments
guard arguments.count >= 2 else {
  print("usage: conformance VECTORS [NAME]")
  exit(64)
}
let vectors: [ConformanceVector]
do {
  vectors = try ConformanceVector.read(arguments[1])
} catch {
  print("\(arguments[1]) cannot be read as vectors: \(error)")
  exit(66)
}
var passed = 0
var failed = 0
for vector in vectors where vector.applies {
  if arguments.count > 2, !vector.name.contains(arguments[2]) { continue }
  if let reason = vector.run() {
    failed += 1
    print("\(vector.name): \(vector.expression)\n    \(reason)")
  } else {
    passed += 1
  }
}
print("\(passed) passed, \(failed) failed")
exit(failed == 0 ? 0 : 1)
