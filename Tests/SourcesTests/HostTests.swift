import Foundation
import PipelineCore
import PipelineHost
import Testing

@testable import Transport

/// The source `host`, on files in the kernel's format.
@Suite struct HostTests {
  let folder = Scratch()

  private func write(_ path: String, _ text: String) {
    let file = folder(path)
    try? FileManager.default.createDirectory(
      atPath: (file as NSString).deletingLastPathComponent, withIntermediateDirectories: true)
    folder.append(text, to: path)
  }

  private func makeRoot() {
    write(
      "proc/stat",
      """
      cpu  300 0 0 0 0 0 0 0 0 0
      cpu0 100 200 300 400 500 600 700 800 50 25
      cpu1 1 2 3 4
      intr 42 1 2 3
      ctxt 43
      btime 1700000000
      processes 44
      procs_running 2
      procs_blocked 1

      """)
    write("proc/meminfo", "MemTotal:       1024 kB\nMemAvailable:  100 kB\nActive(anon):  7 kB\nHugePages_Total:   3\n")
    write("proc/loadavg", "0.50 1.25 2.00 2/345 6789\n")
    write(
      "proc/diskstats",
      "   8       0 sda 10 1 20 3000 11 2 40 4000 5 6000 7000 1 2 3 4 5 6\n   8       1 sda1 1 1 1 1\n 259       0 nvme0n1 1 0 2 3 4 5 6 7 8 9 10\n 259       1 nvme0n1p1 1 2 3 4\n   7       0 loop0 1 2 3\n"
    )
    let head = "Inter-|   Receive                                                |  Transmit\n face |bytes\n"
    write(
      "proc/net/dev",
      head + "  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n    lo:100 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n")
    write("proc/1/net/dev", head + "  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n")
    write(
      "proc/1/mounts",
      "/dev/hidden / ext4 rw 0 0\n/dev/sda1 / ext4 rw,relatime 0 0\n/dev/sdb1 /a\\040b xfs ro 0 0\nproc /proc proc rw 0 0\nserver:/x /nfs nfs4 rw 0 0\ngone /gone ext4 rw 0 0\n"
    )
    write("a b/x", "")
    write("proc/1/stat", "1 (sh) (x) S 0 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 5 0 1\n")
    write("proc/77/stat", "77 (a) R 0 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 2 0 1\n")
    write("sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
    write("sys/fs/cgroup/cpu.stat", "usage_usec 5000000\n")
    let unit = "sys/fs/cgroup/system.slice/nginx.service/"
    write(
      unit + "cpu.stat",
      "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\nnr_periods 3\nnr_throttled 2\nthrottled_usec 250000\n"
    )
    write(unit + "memory.current", "4096\n")
    write(unit + "memory.max", "max\n")
    write(unit + "memory.stat", "anon 1000\nfile 2000\n")
    write(unit + "memory.events", "low 0\noom_kill 4\n")
    write(unit + "pids.current", "6\n")
    write(unit + "io.stat", "8:0 rbytes=11 wbytes=22 rios=3 wios=4 dbytes=0 dios=0\n")
    write(unit + "deeper/memory.current", "1\n")
  }

  private func samples(_ collector: HostCollector) throws -> [String: Double] {
    var found: [String: Double] = [:]
    for sample in try HostMetrics(root: folder.path).collect(collector) {
      let labels = sample.labels.map { "\($0.name)=\($0.value)" }.joined(separator: ",")
      let key = "\(sample.isCounter ? "c" : "g") \(sample.name){\(labels)}"
      #expect(found[key] == nil, "\(key)")
      found[key] = sample.value
    }
    return found
  }

  @Test func readsProcessors() throws {
    makeRoot()
    let found = try samples(.cpu)
    #expect(found["c node_cpu_seconds_total{cpu=0,mode=user}"] == 1)
    #expect(found["c node_cpu_seconds_total{cpu=0,mode=steal}"] == 8)
    #expect(found["c node_cpu_guest_seconds_total{cpu=0,mode=nice}"] == 0.25)
    // An older kernel has fewer columns.
    #expect(found["c node_cpu_seconds_total{cpu=1,mode=idle}"] == 0.04)
    #expect(found["c node_cpu_seconds_total{cpu=1,mode=iowait}"] == nil)
    #expect(found["c node_intr_total{}"] == 42 && found["c node_context_switches_total{}"] == 43)
    #expect(found["g node_boot_time_seconds{}"] == 1_700_000_000)
    #expect(found.count == 8 + 2 + 4 + 3)
  }

  @Test func readsMemoryAndLoad() throws {
    makeRoot()
    #expect(
      try samples(.memory) == [
        "g node_memory_MemTotal_bytes{}": 1_048_576, "g node_memory_MemAvailable_bytes{}": 102_400,
        "g node_memory_Active_anon_bytes{}": 7168, "g node_memory_HugePages_Total{}": 3,
      ])
    #expect(try samples(.load) == ["g node_load1{}": 0.5, "g node_load5{}": 1.25, "g node_load15{}": 2])
  }

  @Test func readsDisksWithoutPartitions() throws {
    makeRoot()
    let found = try samples(.disk)
    #expect(found["c node_disk_read_bytes_total{device=sda}"] == 10240)
    #expect(found["c node_disk_write_time_seconds_total{device=sda}"] == 4)
    #expect(found["g node_disk_io_now{device=sda}"] == 5)
    #expect(found["c node_disk_flush_requests_time_seconds_total{device=sda}"] == 0.006)
    #expect(found["c node_disk_io_time_weighted_seconds_total{device=nvme0n1}"] == 0.01)
    #expect(Set(found.keys.map { $0.split(separator: "=").last.map(String.init) ?? "" }) == ["sda}", "nvme0n1}"])
  }

  @Test func readsNetworkOfTheFirstProcess() throws {
    makeRoot()
    let found = try samples(.network)
    #expect(found["c node_network_receive_bytes_total{device=eth0}"] == 1)
    #expect(found["c node_network_receive_multicast_total{device=eth0}"] == 8)
    #expect(found["c node_network_transmit_compressed_total{device=eth0}"] == 16)
    #expect(found.count == 16)
  }

  @Test func readsFileSystems() throws {
    makeRoot()
    let found = try samples(.filesystems)
    #expect(found["g node_filesystem_size_bytes{device=/dev/sda1,fstype=ext4,mountpoint=/}"].map { $0 > 0 } == true)
    #expect(found["g node_filesystem_readonly{device=/dev/sda1,fstype=ext4,mountpoint=/}"] == 0)
    #expect(found["g node_filesystem_readonly{device=/dev/sdb1,fstype=xfs,mountpoint=/a b}"] == 1)
    #expect(found["g node_filesystem_device_error{device=gone,fstype=ext4,mountpoint=/gone}"] == 1)
    #expect(found.keys.allSatisfy { !$0.contains("nfs") && !$0.contains("hidden") && !$0.contains("fstype=proc") })
  }

  @Test func countsProcesses() throws {
    makeRoot()
    #expect(
      try samples(.processes) == [
        "c node_forks_total{}": 44, "g node_procs_running{}": 2, "g node_procs_blocked{}": 1,
        "g node_processes_pids{}": 2, "g node_processes_threads{}": 7, "g node_processes_state{state=R}": 1,
        "g node_processes_state{state=S}": 1,
      ])
  }

  @Test func readsControlGroups() throws {
    makeRoot()
    let found = try samples(.cgroup)
    let id = "id=/system.slice/nginx.service"
    #expect(found["c container_cpu_usage_seconds_total{id=/}"] == 5)
    #expect(found["c container_cpu_usage_seconds_total{\(id)}"] == 1.5)
    #expect(found["c container_cpu_cfs_throttled_seconds_total{\(id)}"] == 0.25)
    #expect(found["g container_memory_rss{\(id)}"] == 1000)
    // An absent limit has no number.
    #expect(found["g container_spec_memory_limit_bytes{\(id)}"] == nil)
    #expect(found["c container_oom_events_total{\(id)}"] == 4)
    #expect(found["c container_fs_writes_bytes_total{\(id),device=8:0}"] == 22)
    #expect(found.keys.allSatisfy { !$0.contains("deeper") })
  }

  @Test func sendsSamplesPeriodically() throws {
    makeRoot()
    let pipeline = try RealPipeline(
      """
      sources: { in: { host: { every: 100ms, collect: load, root: '\(folder.path)' } } }
      sinks: { out: { from: in, chain: [ { take: 6 } ], probe: {} } }
      """)
    #expect(pipeline.runToEnd() == .completed)
    let expected = [
      #"{"name":"node_load1","type":"gauge","labels":{},"value":0.5}"#,
      #"{"name":"node_load5","type":"gauge","labels":{},"value":1.25}"#,
      #"{"name":"node_load15","type":"gauge","labels":{},"value":2}"#,
    ]
    #expect(
      pipeline.events == expected + expected
        || pipeline.events == (expected + expected).map { $0.replacing(":2}", with: ":2.0}") })
  }

  @Test func sendsSnapshots() throws {
    makeRoot()
    let pipeline = try RealPipeline(
      """
      sources: { in: { host: { every: 1m, collect: [load, memory, network], emit: snapshot, root: '\(folder.path)' } } }
      sinks:
        out:
          from: in
          chain:
            - take: 1
            - filter: event.node_memory_MemAvailable_bytes < 0.1 * event.node_memory_MemTotal_bytes
            - map: '[event.node_load15, event.node_network_receive_bytes_total]'
          probe: {}
      """)
    #expect(pipeline.runToEnd() == .completed)
    #expect(
      pipeline.events == [#"[2,[{"device":"eth0","value":1}]]"#]
        || pipeline.events == [#"[2.0,[{"device":"eth0","value":1.0}]]"#], "\(pipeline.events)")
  }

  /// A file that cannot be read is an event of the errors output; the rest is sent.
  @Test func reportsWhatItCannotRead() throws {
    write("proc/loadavg", "1 2 3\n")
    let pipeline = try RealPipeline(
      """
      sources: { in: { host: { every: 1m, collect: [memory, load], root: '\(folder.path)' } } }
      sinks:
        out: { from: in, probe: {} }
        bad: { from: in.errors, chain: [ { map: '[event.code, event.error]' } ], probe: {} }
      """)
    #expect(pipeline.run { pipeline.events.count == 3 && pipeline.probe("bad").events.count == 1 })
    #expect(
      pipeline.probe("bad").events == [
        #"["RX525","\#(folder.path)/proc/meminfo cannot be read: No such file or directory"]"#
      ])
  }

  /// All collectors read this machine.
  @Test func readsThisMachine() throws {
    for collector in HostCollector.allCases
    where collector != .cgroup || access("/sys/fs/cgroup/cgroup.controllers", R_OK) == 0 {
      if collector == .disk, access("/proc/diskstats", R_OK) != 0 { continue }
      let found = try HostMetrics().collect(collector)
      #expect(!found.isEmpty || collector == .disk, "\(collector)")
      #expect(found.allSatisfy { $0.value.isFinite })
    }
  }

  @Test(arguments: [
    ("collect: []", "'collect' of 'host' is empty"), ("root: here", "'root' of 'host' must be an absolute path"),
    ("every: 1ms", "must be at least 100ms"),
  ]) func refuses(_ parameters: String, _ message: String) {
    let complaints = PipelineText.complaints(
      "sources: { in: { host: { \(parameters.contains("every") ? "" : "every: 1s, ")\(parameters) } } }\nsinks: { out: { from: in, discard: {} } }"
    )
    #expect(complaints.count == 1 && complaints.first?.contains(message) == true, "\(complaints)")
  }
}
