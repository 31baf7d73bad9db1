import Foundation
import PipelineHost
import Testing

/// The source `host` measures what Debian's prometheus-node-exporter measures on the same machine, under the same names.
@Suite(
  .timeLimit(.minutes(10)), .serialized,
  .enabled(if: NodeExporter.path != nil, "needs prometheus-node-exporter of Debian"))
struct NodeExporterTests {
  let folder: Scratch
  init() throws { folder = try Scratch() }

  private struct Series: Hashable, CustomStringConvertible {
    var name: String
    var labels: [String: String]
    var description: String { "\(name) \(labels.sorted { $0.key < $1.key })" }
  }

  private func measure(_ source: String) throws -> [Series: (value: Double, type: String)] {
    let file = try folder.write(
      "measure.yaml", "sources: { in: { \(source) } }\nsinks: { out: { from: in, stdout: ndjson } }\n")
    let outcome = try Rxd.run("run", "--once", file)
    #expect(outcome.status == 0, "\(outcome.errors)")
    var found: [Series: (value: Double, type: String)] = [:]
    for line in outcome.lines {
      let sample = try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
      // node_exporter's own metrics may have values that are not JSON numbers.
      guard let name = sample["name"] as? String, let value = sample["value"] as? Double else { continue }
      found[Series(name: name, labels: sample["labels"] as? [String: String] ?? [:])] = (
        value, sample["type"] as? String ?? ""
      )
    }
    return found
  }

  /// Measured between two scrapes of node_exporter: a counter lies between them, a gauge near them.
  @Test func bothMeasureTheSame() throws {
    let exporter = try NodeExporter()
    let scrape = "http: { url: 'http://127.0.0.1:\(exporter.port)/metrics', decode: prometheus }"
    let before = try measure(scrape)
    let own = try measure("host: { collect: [cpu, memory, load, disk, network, filesystems] }")
    let after = try measure(scrape)

    var compared: Set<String> = []
    for (series, sample) in own {
      // A device or a file system may appear or disappear meanwhile.
      guard let first = before[series], let last = after[series] else {
        let isGone = before[series] != nil || after[series] != nil
        #expect(isGone, "node_exporter has no \(series)")
        continue
      }
      compared.insert(series.name)
      #expect(first.type == sample.type || first.type == "untyped", "\(series): \(first.type), not \(sample.type)")
      let (least, most) = (min(first.value, last.value), max(first.value, last.value))
      let near = sample.type == "counter" ? 0.05 : tolerance(series.name, most)
      #expect(
        least - near <= sample.value && sample.value <= most + near,
        "\(series) is \(sample.value), and node_exporter has \(first.value) and \(last.value)")
    }
    // The comparison must not be empty.
    for name in [
      "node_cpu_seconds_total", "node_load1", "node_load5", "node_load15", "node_memory_MemTotal_bytes",
      "node_memory_MemAvailable_bytes", "node_memory_Cached_bytes", "node_network_receive_bytes_total",
      "node_network_transmit_packets_total", "node_filesystem_size_bytes", "node_filesystem_avail_bytes",
      "node_filesystem_files", "node_context_switches_total", "node_boot_time_seconds",
    ] {
      #expect(compared.contains(name), "\(name) was not compared")
    }
    let modes = own.keys.filter { $0.name == "node_cpu_seconds_total" && $0.labels["cpu"] == "0" }
    #expect(Set(modes.compactMap { $0.labels["mode"] }).isSuperset(of: ["user", "system", "idle", "iowait"]))
    #expect(own.keys.contains { $0.name == "node_network_receive_bytes_total" && $0.labels["device"] == "lo" })
  }

  /// How far a gauge may move between the scrapes, because other programs keep running.
  private func tolerance(_ name: String, _ value: Double) -> Double {
    if name.hasPrefix("node_load") { return 1 }
    if name.hasPrefix("node_memory_") { return name.hasSuffix("Total_bytes") ? 0 : max(536_870_912, value * 0.1) }
    if name == "node_filesystem_files_free" { return max(100_000, value * 0.05) }
    if name.hasPrefix("node_filesystem_") {
      return name.hasSuffix("free_bytes") || name.hasSuffix("avail_bytes") ? max(2_147_483_648, value * 0.05) : 0
    }
    if name == "node_boot_time_seconds" { return 1 }
    if name.hasPrefix("node_procs") || name.hasPrefix("node_disk_io_now") { return 100 }
    return 0
  }
}

/// A node_exporter on a local port, with all collectors; it ends with the value.
final class NodeExporter {
  let port: Int
  private let process: pid_t

  static let path: String? = [
    "/usr/bin/prometheus-node-exporter", ProcessInfo.processInfo.environment["NODE_EXPORTER"],
  ]
  .compactMap { $0 }.first { access($0, X_OK) == 0 }

  init() throws {
    let free = try FreePort()
    port = free.number
    // Not `Process`: a long-running child would keep the pipes open by which other tests notice the end of their
    // processes.
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    for descriptor in [Int32(0), 1, 2] {
      posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_RDWR, 0)
    }
    process = try spawn(
      Self.path ?? "",
      [
        "prometheus-node-exporter", "--web.listen-address=127.0.0.1:\(port)", "--collector.disable-defaults",
        "--collector.cpu", "--collector.stat", "--collector.meminfo", "--collector.loadavg", "--collector.diskstats",
        "--collector.netdev", "--collector.filesystem", "--collector.netdev.device-exclude=^$",
        "--collector.diskstats.device-exclude=^$", "--collector.filesystem.mount-points-exclude=^$",
        "--collector.filesystem.fs-types-exclude=^$",
      ], ["PATH": "/usr/bin:/bin"], &actions)
    let answers = try Polling.until(pause: 50) {
      try Program.run(
        "/usr/bin/env", ["curl", "-sSf", "--noproxy", "*", "-o", "/dev/null", "-m", "60", "http://127.0.0.1:\(port)/"]
      ).status == 0
    }
    guard answers else { throw TimedOut(description: "node_exporter does not answer") }
  }

  deinit {
    kill(process, SIGTERM)
    waitpid(process, nil, 0)
  }
}
