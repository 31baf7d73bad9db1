import Glibc
import PipelineCore

/// A group of metrics of a machine.
package enum HostCollector: String, Sendable, CaseIterable {
  case cpu, memory, load, disk, network, filesystems, processes, cgroup
}

/// One measured value, with the metric names of Prometheus's node_exporter; for control groups, those of cAdvisor.
package struct HostSample: Sendable {
  package var name: String
  package var isCounter: Bool
  package var labels: [(name: String, value: String)]
  package var value: Double
}

/// The reason why a metric could not be measured.
package struct HostFailure: Error, Sendable {
  /// One sentence without a full stop.
  package var message: String
}

/// Reads the metrics of a machine from its /proc, its /sys and its file systems.
package struct HostMetrics: Sendable {
  /// The directory that contains `proc` and `sys`; empty: those of this machine.
  package var root: String
  /// The depth below the root to which control groups are read.
  package var cgroupDepth: Int
  /// The maximum number of control groups; more are left out.
  package static let mostGroups = 1000

  private static let sector = 512.0
  /// Ticks per second in /proc/stat.
  private static let ticks = Double(max(1, sysconf(Int32(_SC_CLK_TCK))))

  package init(root: String = "/", cgroupDepth: Int = 2) {
    self.root = root.hasSuffix("/") ? String(root.dropLast()) : root
    self.cgroupDepth = cgroupDepth
  }

  package func collect(_ collector: HostCollector) throws(HostFailure) -> [HostSample] {
    var found = Samples()
    switch collector {
    case .cpu: try cpu(&found)
    case .memory: try memory(&found)
    case .load: try load(&found)
    case .disk: try disk(&found)
    case .network: try network(&found)
    case .filesystems: try filesystems(&found)
    case .processes: try processes(&found)
    case .cgroup: try cgroup(&found)
    }
    return found.all
  }

  private struct Samples {
    var all: [HostSample] = []
    mutating func counter(_ name: String, _ value: Double?, _ labels: (String, String)...) {
      add(name, true, value, labels)
    }
    mutating func gauge(_ name: String, _ value: Double?, _ labels: (String, String)...) {
      add(name, false, value, labels)
    }
    private mutating func add(_ name: String, _ isCounter: Bool, _ value: Double?, _ labels: [(String, String)]) {
      guard let value else { return }
      all.append(HostSample(name: name, isCounter: isCounter, labels: labels.map { ($0.0, $0.1) }, value: value))
    }
  }

  // MARK: Text

  private typealias Text = ArraySlice<UInt8>

  private func read(_ path: String) throws(HostFailure) -> [UInt8] {
    guard let bytes = SystemFile.read(root + path, limit: 16 << 20) else {
      throw HostFailure(message: "\(root + path) cannot be read: \(PosixError.text(errno))")
    }
    return bytes
  }

  private static func lines(_ bytes: [UInt8]) -> [Text] { bytes.split(separator: 0x0A) }
  private static func words(_ line: Text) -> [Text] { line.split { $0 <= 0x20 } }
  private static func string(_ text: Text) -> String { String(decoding: text, as: UTF8.self) }

  /// Parses a number as the kernel writes it: digits, perhaps with a fraction; nil: the text is not a number.
  private static func number(_ text: Text) -> Double? {
    guard let first = text.first, first &- 0x30 < 10 || first == UInt8(ascii: "-"), text.count < 32 else { return nil }
    return Double(string(text))
  }

  private static func number(_ words: [Text], _ index: Int) -> Double? {
    index < words.count ? number(words[index]) : nil
  }

  // MARK: The collectors

  private func cpu(_ found: inout Samples) throws(HostFailure) {
    let modes = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"]
    for line in Self.lines(try read("/proc/stat")) {
      let words = Self.words(line)
      guard let key = words.first.map(Self.string) else { continue }
      if key.hasPrefix("cpu"), key.utf8.count > 3 {
        let cpu = String(key.dropFirst(3))
        for (index, mode) in modes.enumerated() {
          found.counter(
            "node_cpu_seconds_total", Self.number(words, index + 1).map { $0 / Self.ticks }, ("cpu", cpu),
            ("mode", mode))
        }
        for (index, mode) in ["user", "nice"].enumerated() {
          found.counter(
            "node_cpu_guest_seconds_total", Self.number(words, index + 9).map { $0 / Self.ticks }, ("cpu", cpu),
            ("mode", mode))
        }
      } else if key == "ctxt" {
        found.counter("node_context_switches_total", Self.number(words, 1))
      } else if key == "intr" {
        found.counter("node_intr_total", Self.number(words, 1))
      } else if key == "btime" {
        found.gauge("node_boot_time_seconds", Self.number(words, 1))
      }
    }
  }

  private func memory(_ found: inout Samples) throws(HostFailure) {
    for line in Self.lines(try read("/proc/meminfo")) {
      let words = Self.words(line)
      guard words.count >= 2, let value = Self.number(words[1]) else { continue }
      // `Active(anon):` becomes `Active_anon`.
      let letters = words[0].dropLast().filter { $0 != UInt8(ascii: ")") }
      let name = String(decoding: letters.map { $0 == UInt8(ascii: "(") ? UInt8(ascii: "_") : $0 }, as: UTF8.self)
      let isBytes = words.count > 2 && Self.string(words[2]) == "kB"
      found.gauge("node_memory_\(name)\(isBytes ? "_bytes" : "")", isBytes ? value * 1024 : value)
    }
  }

  private func load(_ found: inout Samples) throws(HostFailure) {
    let words = Self.words(try read("/proc/loadavg")[...])
    for (index, minutes) in [1, 5, 15].enumerated() {
      found.gauge("node_load\(minutes)", Self.number(words, index))
    }
  }

  /// Whether a device is a partition, or has no disk of its own: `sda1`, `nvme0n1p2`, `loop3`, `ram0`.
  static func isPart(_ device: String) -> Bool {
    func isDigit(_ byte: UInt8) -> Bool { byte &- 0x30 < 10 }
    let bytes = Array(device.utf8)
    let letters = bytes.prefix { !isDigit($0) }
    let rest = bytes.dropFirst(letters.count)
    guard !rest.isEmpty else { return false }
    let kind = String(decoding: letters, as: UTF8.self)
    if kind == "nvme" { return rest.contains(UInt8(ascii: "p")) }
    guard rest.allSatisfy(isDigit) else { return false }
    if ["ram", "zram", "loop", "fd"].contains(kind) { return true }
    return ["hd", "sd", "vd", "xvd"].contains { kind.hasPrefix($0) && letters.count == $0.utf8.count + 1 }
  }

  private func disk(_ found: inout Samples) throws(HostFailure) {
    let names: [(name: String, isCounter: Bool, scale: Double)] = [
      ("reads_completed_total", true, 1), ("reads_merged_total", true, 1), ("read_bytes_total", true, Self.sector),
      ("read_time_seconds_total", true, 0.001), ("writes_completed_total", true, 1), ("writes_merged_total", true, 1),
      ("written_bytes_total", true, Self.sector), ("write_time_seconds_total", true, 0.001), ("io_now", false, 1),
      ("io_time_seconds_total", true, 0.001), ("io_time_weighted_seconds_total", true, 0.001),
      ("discards_completed_total", true, 1), ("discards_merged_total", true, 1), ("discarded_sectors_total", true, 1),
      ("discard_time_seconds_total", true, 0.001), ("flush_requests_total", true, 1),
      ("flush_requests_time_seconds_total", true, 0.001),
    ]
    for line in Self.lines(try read("/proc/diskstats")) {
      let words = Self.words(line)
      guard words.count > 3 else { continue }
      let device = Self.string(words[2])
      if Self.isPart(device) { continue }
      for (index, (name, isCounter, scale)) in names.enumerated() {
        guard let value = Self.number(words, index + 3) else { break }
        if isCounter {
          found.counter("node_disk_\(name)", value * scale, ("device", device))
        } else {
          found.gauge("node_disk_\(name)", value * scale, ("device", device))
        }
      }
    }
  }

  private func network(_ found: inout Samples) throws(HostFailure) {
    let names = [
      "receive_bytes_total", "receive_packets_total", "receive_errs_total", "receive_drop_total",
      "receive_fifo_total", "receive_frame_total", "receive_compressed_total", "receive_multicast_total",
      "transmit_bytes_total", "transmit_packets_total", "transmit_errs_total", "transmit_drop_total",
      "transmit_fifo_total", "transmit_colls_total", "transmit_carrier_total", "transmit_compressed_total",
    ]
    // The network namespace of this process; under another root, that of the machine's first process.
    let first = root.isEmpty ? nil : try? read("/proc/1/net/dev")
    let text: [UInt8] = if let first { first } else { try read("/proc/net/dev") }
    for line in Self.lines(text).dropFirst(2) {
      guard let colon = line.lastIndex(of: UInt8(ascii: ":")) else { continue }
      let device = Self.string(line[..<colon].drop { $0 == 0x20 })
      let words = Self.words(line[(colon + 1)...])
      for (index, name) in names.enumerated() {
        found.counter("node_network_\(name)", Self.number(words, index), ("device", device))
      }
    }
  }

  /// File systems that hold no files of their own, or that hang if a server does not answer.
  static let ignoredTypes: Set<String> = [
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs",
    "fusectl", "hugetlbfs", "iso9660", "mqueue", "nsfs", "overlay", "proc", "procfs", "pstore", "rpc_pipefs",
    "securityfs", "selinuxfs", "squashfs", "erofs", "sysfs", "tracefs", "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph",
    "9p", "afs", "glusterfs", "lustre",
  ]
  private static let ignoredMountPoints = [
    "/dev", "/proc", "/sys", "/run/credentials", "/var/lib/docker", "/var/lib/containers/storage",
  ]

  private func filesystems(_ found: inout Samples) throws(HostFailure) {
    let first = root.isEmpty ? nil : try? read("/proc/1/mounts")
    let text: [UInt8] = if let first { first } else { try read("/proc/self/mounts") }
    var seen = Set<String>()
    // Later mounts hide earlier ones at the same path.
    for line in Self.lines(text).reversed() {
      let words = Self.words(line)
      guard words.count > 3 else { continue }
      let (device, mountPoint) = (Self.unescaped(words[0]), Self.unescaped(words[1]))
      let type = Self.string(words[2])
      if Self.ignoredTypes.contains(type) || type.hasPrefix("fuse.") { continue }
      if Self.ignoredMountPoints.contains(where: { mountPoint == $0 || mountPoint.hasPrefix($0 + "/") }) { continue }
      guard seen.insert(mountPoint).inserted else { continue }
      let labels = [("device", device), ("fstype", type), ("mountpoint", mountPoint)]
      func gauge(_ name: String, _ value: Double) {
        found.gauge("node_filesystem_\(name)", value, labels[0], labels[1], labels[2])
      }
      var status = statvfs()
      guard statvfs(root + mountPoint, &status) == 0 else {
        gauge("device_error", 1)
        continue
      }
      gauge("device_error", 0)
      let size = Double(status.f_frsize)
      gauge("size_bytes", Double(status.f_blocks) * size)
      gauge("free_bytes", Double(status.f_bfree) * size)
      gauge("avail_bytes", Double(status.f_bavail) * size)
      gauge("files", Double(status.f_files))
      gauge("files_free", Double(status.f_ffree))
      let isReadOnly = words[3].split(separator: UInt8(ascii: ",")).contains { Self.string($0) == "ro" }
      gauge("readonly", isReadOnly ? 1 : 0)
    }
  }

  /// Decodes a path of a mount table, in which a space is `\040`.
  private static func unescaped(_ text: Text) -> String {
    var bytes: [UInt8] = []
    var rest = text
    while let byte = rest.popFirst() {
      let digits = rest.prefix(3)
      if byte == UInt8(ascii: "\\"), digits.count == 3, digits.allSatisfy({ $0 &- 0x30 < 8 }) {
        bytes.append(digits.reduce(0) { $0 &* 8 &+ ($1 &- 0x30) })
        rest.removeFirst(3)
      } else {
        bytes.append(byte)
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  private func processes(_ found: inout Samples) throws(HostFailure) {
    for line in Self.lines(try read("/proc/stat")) {
      let words = Self.words(line)
      switch words.first.map(Self.string) {
      case "processes": found.counter("node_forks_total", Self.number(words, 1))
      case "procs_running": found.gauge("node_procs_running", Self.number(words, 1))
      case "procs_blocked": found.gauge("node_procs_blocked", Self.number(words, 1))
      default: break
      }
    }
    let names: [String]
    do throws(PosixError) { names = try directoryEntries(root + "/proc").map(\.name) } catch {
      throw HostFailure(message: error.message)
    }
    var states: [String: Double] = [:]
    var (count, threads) = (0.0, 0.0)
    for name in names where name.utf8.allSatisfy({ $0 &- 0x30 < 10 }) {
      // A process that has ended meanwhile is left out.
      guard let text = SystemFile.read("\(root)/proc/\(name)/stat"), let end = text.lastIndex(of: UInt8(ascii: ")"))
      else { continue }
      let words = Self.words(text[(end + 1)...])
      guard let state = words.first else { continue }
      count += 1
      states[Self.string(state), default: 0] += 1
      threads += Self.number(words, 17) ?? 0
    }
    found.gauge("node_processes_pids", count)
    found.gauge("node_processes_threads", threads)
    for (state, count) in states.sorted(by: { $0.key < $1.key }) {
      found.gauge("node_processes_state", count, ("state", state))
    }
  }

  // MARK: Control groups

  private func cgroup(_ found: inout Samples) throws(HostFailure) {
    let top = root + "/sys/fs/cgroup"
    guard access(top + "/cgroup.controllers", R_OK) == 0 else {
      throw HostFailure(message: "\(top) is not a tree of control groups (version 2): \(PosixError.text(errno))")
    }
    var left = Self.mostGroups
    group(top, "", 0, &left, &found)
  }

  private func group(_ top: String, _ id: String, _ depth: Int, _ left: inout Int, _ found: inout Samples) {
    guard left > 0 else { return }
    left -= 1
    measure(top + id, id.isEmpty ? "/" : id, &found)
    guard depth < cgroupDepth, let entries = try? directoryEntries(top + id) else { return }
    for name in entries.map(\.name).sorted() where !name.hasPrefix(".") {
      var status = stat()
      let path = "\(top)\(id)/\(name)"
      guard lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFDIR else { continue }
      group(top, "\(id)/\(name)", depth + 1, &left, &found)
    }
  }

  private func measure(_ path: String, _ id: String, _ found: inout Samples) {
    func value(_ file: String) -> Double? {
      SystemFile.read("\(path)/\(file)").flatMap { Self.number($0.prefix { $0 > 0x20 }) }
    }
    func table(_ file: String) -> [String: Double] {
      var table: [String: Double] = [:]
      for line in Self.lines(SystemFile.read("\(path)/\(file)") ?? []) {
        let words = Self.words(line)
        if words.count == 2 { table[Self.string(words[0])] = Self.number(words[1]) }
      }
      return table
    }
    let label = ("id", id)
    let cpu = table("cpu.stat")
    func seconds(_ key: String) -> Double? { cpu[key].map { $0 / 1_000_000 } }
    found.counter("container_cpu_usage_seconds_total", seconds("usage_usec"), label)
    found.counter("container_cpu_user_seconds_total", seconds("user_usec"), label)
    found.counter("container_cpu_system_seconds_total", seconds("system_usec"), label)
    found.counter("container_cpu_cfs_periods_total", cpu["nr_periods"], label)
    found.counter("container_cpu_cfs_throttled_periods_total", cpu["nr_throttled"], label)
    found.counter("container_cpu_cfs_throttled_seconds_total", seconds("throttled_usec"), label)
    let memory = table("memory.stat")
    found.gauge("container_memory_usage_bytes", value("memory.current"), label)
    found.gauge("container_memory_rss", memory["anon"], label)
    found.gauge("container_memory_cache", memory["file"], label)
    found.gauge("container_memory_swap", value("memory.swap.current"), label)
    found.gauge("container_spec_memory_limit_bytes", value("memory.max"), label)
    found.counter("container_oom_events_total", table("memory.events")["oom_kill"], label)
    found.gauge("container_threads", value("pids.current"), label)
    found.gauge("container_threads_max", value("pids.max"), label)
    for line in Self.lines(SystemFile.read("\(path)/io.stat") ?? []) {
      let words = Self.words(line)
      guard let device = words.first.map(Self.string) else { continue }
      for (key, name) in [
        ("rbytes=", "reads_bytes_total"), ("wbytes=", "writes_bytes_total"), ("rios=", "reads_total"),
        ("wios=", "writes_total"),
      ] {
        let word = words.first { $0.starts(with: key.utf8) }
        found.counter(
          "container_fs_\(name)", word.flatMap { Self.number($0.dropFirst(key.utf8.count)) }, label,
          ("device", device))
      }
    }
  }
}
