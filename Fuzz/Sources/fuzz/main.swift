// Feeds one part of the product with what libFuzzer makes up: `fuzz TARGET [libFuzzer's arguments]`.
import CLibFuzzer
import Glibc

/// Seconds that this thread has computed.
func computed() -> Double {
  var time = timespec()
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
  return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
}

/// Runs one input, which may compute for a second; libFuzzer's own limit is of the clock on the wall, which
/// other programs move on, too.
func run(_ data: UnsafePointer<UInt8>?, _ count: Int, _ target: (UnsafeRawBufferPointer) -> Void) -> CInt {
  let start = computed()
  target(UnsafeRawBufferPointer(start: data, count: count))
  precondition(computed() - start < 1, "this input takes more than a second")
  return 0
}

let targets: [String: @convention(c) (UnsafePointer<UInt8>?, Int) -> CInt] = [
  "parser": { data, count in run(data, count, ExpressionTargets.parse) },
  "checker": { data, count in run(data, count, ExpressionTargets.check) },
  "evaluator": { data, count in run(data, count, ExpressionTargets.evaluate) },
  "yaml": { data, count in run(data, count, InputTargets.pipeline) },
  "frames": { data, count in run(data, count, FrameTarget.read) },
  "decoders": { data, count in run(data, count, InputTargets.decode) },
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
