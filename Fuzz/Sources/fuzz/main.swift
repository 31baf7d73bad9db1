// Feeds one part of the product with what libFuzzer makes up: `fuzz TARGET [libFuzzer's arguments]`.
import CLibFuzzer
import Glibc

let targets: [String: @convention(c) (UnsafePointer<UInt8>?, Int) -> CInt] = [
  "parser": { data, count in
    ExpressionTargets.parse(UnsafeRawBufferPointer(start: data, count: count))
    return 0
  },
  "checker": { data, count in
    ExpressionTargets.check(UnsafeRawBufferPointer(start: data, count: count))
    return 0
  },
  "evaluator": { data, count in
    ExpressionTargets.evaluate(UnsafeRawBufferPointer(start: data, count: count))
    return 0
  },
  "yaml": { data, count in
    InputTargets.pipeline(UnsafeRawBufferPointer(start: data, count: count))
    return 0
  },
  "decoders": { data, count in
    InputTargets.decode(UnsafeRawBufferPointer(start: data, count: count))
    return 0
  },
]

guard CommandLine.arguments.count >= 2, let target = targets[CommandLine.arguments[1]] else {
  print("usage: fuzz \(targets.keys.sorted().joined(separator: "|")) [arguments of libFuzzer]")
  exit(64)
}
var rest = CommandLine.arguments
rest.remove(at: 1)
// libFuzzer keeps the pointers for as long as the process lives.
var pointers: [UnsafeMutablePointer<CChar>?] = rest.map { strdup($0) } + [nil]
var count = CInt(rest.count)
let status = pointers.withUnsafeMutableBufferPointer { buffer -> CInt in
  var base = buffer.baseAddress
  return LLVMFuzzerRunDriver(&count, &base, target)
}
exit(status)
