import Glibc
import PipelineCore

/// The resident memory of processes, as the kernel reports it.
enum ResidentMemory {
  /// - Parameter process: The process ID; nil: this process.
  /// - Returns: The memory in bytes; nil: the process has ended, or the kernel does not report it.
  static func bytes(of process: Int32? = nil) -> Int? {
    guard let file = fopen("/proc/\(process.map(String.init) ?? "self")/statm", "r") else { return nil }
    defer { fclose(file) }
    var line = [CChar](repeating: 0, count: 128)
    guard fgets(&line, 128, file) != nil else { return nil }
    let numbers = String(decoding: line.map { UInt8(bitPattern: $0) }.prefix { $0 != 0 }, as: UTF8.self).split(
      separator: " ")
    return numbers.count > 1 ? Int(numbers[1]).map { $0 * Int(getpagesize()) } : nil
  }
}

extension PipelineStatistics {
  /// The statistics, with the memory of the plugins' processes filled in.
  var withPluginMemory: PipelineStatistics {
    guard steps.contains(where: { $0.plugin?.processes.isEmpty == false }) else { return self }
    var measured = self
    for index in measured.steps.indices {
      let sizes = (measured.steps[index].plugin?.processes ?? []).compactMap { ResidentMemory.bytes(of: $0) }
      if !sizes.isEmpty { measured.steps[index].plugin?.memory = sizes.reduce(0, +) }
    }
    return measured
  }
}
