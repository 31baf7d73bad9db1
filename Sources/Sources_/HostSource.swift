import PipelineCore
import Transport

/// `host`: figures of this machine.
package struct HostSource: SourceComponent, RepeatingSource {
  enum Collector: String, ChoiceParameter {
    case cpu, memory, load, disk, network, filesystems, processes, cgroup
    var help: String {
      switch self {
      case .cpu:
        "the time of each processor in each mode, in seconds; context switches, interrupts, the time of the start"
      case .memory: "the values of /proc/meminfo, in bytes"
      case .load: "the load over 1, 5 and 15 minutes"
      case .disk: "operations, bytes and times of each disk, without partitions"
      case .network: "bytes, packets and errors of each interface"
      case .filesystems:
        "sizes and free room of mounted file systems, in bytes, without those of the kernel and of networks"
      case .processes: "how many processes and threads there are, by state"
      case .cgroup: "processor time, memory, threads and disk bytes of control groups (version 2), such as services"
      }
    }
    var collector: HostCollector { HostCollector(rawValue: rawValue) ?? .load }
  }
  enum Emission: String, ChoiceParameter {
    case samples, snapshot
    var help: String {
      switch self {
      case .samples: "an event for each value: `{ name, type, labels, value }`"
      case .snapshot:
        "one event a round, with a member for each name: a number, or, for values with labels, a list of maps with the labels and `value`"
      }
    }
  }

  var every = TimeSpan.seconds(10)
  /// Whether to take one measurement immediately, then complete.
  private var isSingle = false
  var collect: [Collector] = [.cpu, .memory, .load, .disk, .network, .filesystems]
  var emit = Emission.samples
  var jitter = TimeSpan.zero
  var immediate = true
  var cgroupDepth = 2
  var root = "/"

  package init() {}

  package static let spec = ComponentSpec<HostSource>(
    "host",
    summary: "Measures this machine periodically: processors, memory, disks, network, services.",
    details: """
      Names and units are those of Prometheus's node_exporter (`node_cpu_seconds_total`, `node_memory_MemAvailable_bytes`, \
      `node_filesystem_avail_bytes` ...), and for `cgroup` those of cAdvisor (`container_memory_usage_bytes` ...), with the path of the group as `id`. `type` \
      is `counter`, for what grows from the start of the machine on, or `gauge`. The shape is that of the sources and sinks of metrics.

      With `emit: snapshot` a round is one event, so that figures can be compared: \
      `filter: 'event.node_memory_MemAvailable_bytes < 0.1 * event.node_memory_MemTotal_bytes'`.

      What cannot be read goes to the errors output (RX525), once for each collector and round; the others are sent. A round that is under way \
      when the next is due goes on, and the next is left out. `cgroup` looks at 1000 groups at most. \
      A unit with `ProcSubset=pid` hides /proc/stat and its like. File systems of networks are left out, because a server that does \
      not answer would stop all.
      """,
    parameters: [
      .init("every", \.every, primary: true, range: 100_000_000...Int64.max, "The time from one round to the next."),
      .init("collect", \.collect, "What is measured."),
      .init("emit", \.emit, "What becomes an event."),
      .init("jitter", \.jitter, range: 0...Int64.max, "Adds a random delay of up to this to each later round."),
      .init("immediate", \.immediate, "Whether the first round starts at once."),
      .init(
        "cgroupDepth", \.cgroupDepth, range: 0...10,
        applies: .word("collect", ["cgroup"]),
        "How many levels of control groups are looked at: 1 are slices, 2 services too."),
      .init("root", \.root, "The directory with `proc` and `sys`, such as /host in a container."),
    ],
    examples: [
      .snippet("each ten seconds", "host: 10s"),
      .snippet("memory and load in one event", "host: { every: 30s, collect: [memory, load], emit: snapshot }"),
      .snippet("what services use", "host: { every: 1m, collect: [cgroup] }"),
    ],
    edges: EdgeCases(
      empty: "", error: "What cannot be read goes to the errors output; the next round follows.",
      completion: "Only when the pipeline is stopped, after the round under way.", disposal: "Frees its timer."),
    memory: "The values of a round. After a restart the schedule continues.",
    persistence: .state(version: 1),
    lateness: .leavesOut("Missed rounds are skipped; the next one starts in its period."),
    knownAs: [
      "Vector host_metrics", "Telegraf cpu, mem, disk, diskio, net, system", "Fluent Bit node_exporter_metrics",
    ],
    useCases: [
      .init(.reading, "measure processors, memory, disks and network", "host: 10s"),
      .init(.reading, "know what each service uses", "host: { every: 1m, collect: [cgroup] }"),
    ],
    seeAlso: ["http", "exec", "interval"])

  package func validate(_ context: inout DecodingContext) {
    if collect.isEmpty {
      context.badValue(
        at: context.location(of: "collect"), "'collect' of 'host' is empty, so nothing is measured",
        help: "Name what to measure, such as [cpu, memory]")
    }
    if !root.hasPrefix("/") {
      context.badValue(
        at: context.location(of: "root"),
        "'root' of 'host' must be an absolute path, and '\(Printable.cut(root))' is none",
        help: "Write a path such as /host")
    }
  }

  package var outputType: EventType {
    guard emit == .snapshot else { return EventType(.object(fields: Self.sampleFields, open: false)) }
    var fields: [ExpressionType.Field] = []
    if collect.contains(.load) {
      fields += ["node_load1", "node_load5", "node_load15"].map { .init($0, .double, mayBeAbsent: true) }
    }
    if collect.contains(.memory) {
      fields += ["MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", "SwapTotal", "SwapFree"].map {
        .init("node_memory_\($0)_bytes", .double, mayBeAbsent: true)
      }
    }
    return EventType(.object(fields: fields, open: true))
  }

  private static var sampleFields: [ExpressionType.Field] {
    var type = ExpressionType.Field("type", .string)
    type.choices = ["counter", "gauge"]
    return [.init("name", .string), type, .init("labels", .map(.string, .string)), .init("value", .double)]
  }

  package var repeats: TimeSpan? { every }

  package var once: (any SourceComponent)? {
    var once = self
    once.isSingle = true
    return once
  }

  package var recovery: SourceRecovery { .request }
  package func threads(_ limit: Int?) -> String? { "measured on a thread of its own" }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }

  private final class Node: PolledSource {
    private let parameters: HostSource
    private lazy var worker = execution.services.worker("host")

    init(_ parameters: HostSource, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(
        Schedule(
          every: parameters.isSingle ? nil : parameters.every, jitter: parameters.jitter,
          immediate: parameters.immediate),
        ("a round", "it had not ended"), nodeContext, downstream)
    }

    private struct Round: Sendable {
      var samples: [HostSample] = []
      var failures: [String] = []
    }

    private final class Call: Cancellable, Sendable {
      func cancel() {}
    }

    override func ask() -> (any Cancellable)? {
      let metrics = HostMetrics(root: parameters.root, cgroupDepth: parameters.cgroupDepth)
      let collectors = parameters.collect.map(\.collector)
      let executor = executor
      let node = Weak(self)
      worker.enqueue {
        var round = Round()
        for collector in collectors {
          do throws(HostFailure) { round.samples += try metrics.collect(collector) } catch {
            round.failures.append(error.message)
          }
        }
        let result = round
        executor.post { node.object?.ended(result) }
      }
      return Call()
    }

    private func ended(_ round: Round) {
      guard take() else { return }
      for message in round.failures where !isClosed {
        failed(.pollFailed, SignalFailure(.source, message, at: nodeContext.location))
      }
      guard !isClosed else { return }
      let origin = Origin(
        source: origin.source, receivedAt: executor.wallTime, reply: origin.reply, identity: origin.identity)
      arena.keep(origin)
      let events = parameters.emit == .samples ? round.samples.map(event) : snapshot(round.samples)
      sendAnswers(events, origin)
    }

    private func event(_ sample: HostSample) -> Value {
      arena.map([
        "name": arena.string(sample.name), "type": sample.isCounter ? .literal("counter") : .literal("gauge"),
        "labels": labels(sample), "value": .double(sample.value),
      ])
    }

    private func labels(_ sample: HostSample) -> Value {
      arena.map(sample.labels.map { (key: arena.string($0.name), value: arena.string($0.value)) })
    }

    private func snapshot(_ samples: [HostSample]) -> [Value] {
      var order: [String] = []
      var byName: [String: [Value]] = [:]
      for sample in samples {
        if byName[sample.name] == nil { order.append(sample.name) }
        let value = Value.double(sample.value)
        let one =
          sample.labels.isEmpty
          ? value
          : arena.map(
            sample.labels.map { (key: arena.string($0.name), value: arena.string($0.value)) }
              + [(key: Value.literal("value"), value: value)])
        byName[sample.name, default: []].append(one)
      }
      guard !order.isEmpty else { return [] }
      return [
        arena.map(
          order.map { name in
            let values = byName[name] ?? []
            let isPlain = values.count == 1 && !values[0].is(.map)
            return (key: arena.string(name), value: isPlain ? values[0] : arena.list(values))
          })
      ]
    }
  }
}
