import PipelineCore
import Transport

/// Reads metrics of events: `{ name, type, labels, value }`.
final class MetricReader {
  private let parser = JSONParser()
  private let store = Arena()

  func metric(_ event: Event) -> Result<MetricStore.Metric, DeliveryRefusal> {
    defer { store.reset() }
    return metric(parser.expand(event.value.unwrapped, into: store))
  }

  private func metric(_ value: Value) -> Result<MetricStore.Metric, DeliveryRefusal> {
    guard value.is(.map) else { return .failure(DeliveryRefusal("the event is not a metric: it is not a map")) }
    var metric = MetricStore.Metric()
    var number: Double?
    var rate = 1.0
    for entry in value.entries {
      let member = parser.expand(entry.value.unwrapped, into: store)
      let key = String(decoding: entry.key.rawBytes, as: UTF8.self)
      switch key {
      case "name": metric.name = text(member) ?? ""
      case "type": metric.type = text(member) ?? ""
      case "family": metric.family = text(member)
      case "help": metric.help = text(member) ?? ""
      case "value": number = Self.number(member)
      case "sampleRate": rate = Self.number(member) ?? 1
      case "relative": metric.isRelative = member.isTrue
      case "timestamp":
        guard !member.isNull else { continue }
        guard let time = Self.milliseconds(member) else {
          return .failure(
            DeliveryRefusal("'timestamp' of the metric is not a time: use timestamp(...), or seconds since 1970")
          )
        }
        metric.timestamp = time
      case "labels":
        guard member.is(.map) else { continue }
        for label in member.entries {
          guard let content = text(parser.expand(label.value.unwrapped, into: store)) else { continue }
          let name = MetricStore.name(text(label.key) ?? "", mayHaveColon: false)
          if MetricStore.isNameOfMetrics(name) { return .failure(DeliveryRefusal(Self.nameAsLabel(metric.name))) }
          metric.labels.append((name, content))
        }
      default: continue
      }
    }
    if metric.name.isEmpty { return .failure(DeliveryRefusal("the event is not a metric: it has no 'name'")) }
    guard let number else {
      return .failure(
        DeliveryRefusal("the metric '\(Printable.cut(metric.name))' has no 'value' that is a number"))
    }
    metric.value = number
    metric.weight = rate > 0 && rate <= 1 ? 1 / rate : 1
    return .success(metric)
  }

  private static func nameAsLabel(_ metric: String) -> String {
    "\(metric.isEmpty ? "the metric" : "the metric '\(Printable.cut(metric))'") has a label '__name__', which is the name of a metric itself"
  }

  private func text(_ value: Value) -> String? {
    switch value.what {
    case .string: return String(decoding: JSONParser.unescape(value, into: store).rawBytes, as: UTF8.self)
    case .null, .absent, .list, .map: return nil
    default:
      let buffer = OutputBuffer()
      return JSONWriter.append(value, to: buffer) == nil ? String(decoding: buffer.bytes, as: UTF8.self) : nil
    }
  }

  private static func number(_ value: Value) -> Double? {
    switch value.what {
    case .double: value.asDouble
    case .int: Double(value.asInt)
    case .uint: Double(value.asUInt)
    case .bool: value.asBool ? 1 : 0
    default: nil
    }
  }

  /// A time, or seconds since 1970, in milliseconds.
  private static func milliseconds(_ value: Value) -> Int64? {
    if value.is(.timestamp) { return value.asInt &* 1000 &+ Int64(value.length) / 1_000_000 }
    return number(value).flatMap { Int64(exactly: ($0 * 1000).rounded()) }
  }
}
