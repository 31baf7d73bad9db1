import PipelineCore
import PipelineRuntime
import Transport

/// The messages to readers of the live page: all counts at first, then changes, up to four times a second. Used on the main thread;
/// nothing happens here while there is no reader.
///
/// Each message is a server-sent event with a JSON object. `changes` has the members of pipelines, steps and edges that differ from what the
/// reader knows, under their names in `GET /stats`; a member that is gone is null. `gone` has the elements that have vanished.
final class PageFeed {
  /// The most readers, and the time between two readings.
  static let mostReaders = 16
  private static let interval = TimeSpan.milliseconds(250)
  /// Readings may take this part of the time: large graphs are read less often.
  private static let share: Int64 = 50
  /// The approximate limit of a message; further changes come with the next one.
  private static let mostBytes = 160 << 10
  /// How long the counts are kept from which sentences are made.
  private static let window = 60_000_000_000

  /// One open page.
  final class Reader {
    /// The pipeline whose steps and edges are wanted; nil: all.
    let pipeline: String?
    let stream: ResponseStream
    /// The members that the reader knows, as JSON, by the keys of their elements.
    fileprivate var known: [String: [String: String]] = [:]
    fileprivate var sentences: [String] = []

    fileprivate init(_ pipeline: String?, _ stream: ResponseStream) {
      self.pipeline = pipeline
      self.stream = stream
    }
  }

  private(set) var readers: [(identity: Int, reader: Reader)] = []
  /// How many readers have been given an identity.
  var identities = 0
  /// When to read next; nil: there is no reader.
  var pollAt: Instant?
  /// Readings of the last minute, one per second, the oldest first.
  private var readings: [LiveStatistics] = []
  private var sentences: [String] = []

  func add(_ identity: Int, pipeline: String?, _ stream: ResponseStream, at now: Instant) {
    readers.append((identity, Reader(pipeline, stream)))
    pollAt = now
  }

  func remove(_ identity: Int) {
    readers.removeAll { $0.identity == identity }
    if readers.isEmpty {
      pollAt = nil
      readings = []
      sentences = []
    }
  }

  func end() { for (_, reader) in readers { reader.stream.end() } }

  /// Sends what has changed. `clock`: the time now, to see how long this takes.
  func show(_ view: ProcessView, clock: () -> Instant) {
    guard !readers.isEmpty else { return }
    let start = clock()
    rank(view)
    let all = view.pipelines.map { pipeline in
      readers.contains { $0.reader.pipeline == nil || $0.reader.pipeline == pipeline.name }
        ? Self.elements(of: pipeline) : [Self.head(of: pipeline)]
    }
    for (_, reader) in readers {
      var elements: [Element] = []
      for (pipeline, own) in zip(view.pipelines, all) {
        let isWanted = reader.pipeline == nil || reader.pipeline == pipeline.name
        elements += isWanted ? own[...] : own.prefix(1)
      }
      send(elements, view, to: reader)
    }
    let end = clock()
    let cost = (end - start).nanoseconds
    pollAt = start + max(Self.interval, TimeSpan(nanoseconds: cost &* Self.share))
  }

  // MARK: Sentences

  private func rank(_ view: ProcessView) {
    if let last = readings.last, Int(view.instant.nanoseconds) - last.nanoseconds < 1_000_000_000 { return }
    // The same document that `rxd top` asks for, so that both say the same.
    guard let document = JSONView(Array(view.document.text.utf8)), let look = LiveStatistics(document) else { return }
    readings.append(look)
    while readings.count > 2, readings[1].nanoseconds < look.nanoseconds - Self.window { readings.removeFirst() }
    guard readings.count > 1, let first = readings.first else { return }
    sentences = LiveRanking(LiveRates(from: first, to: look)).sentences
  }

  // MARK: Differences

  /// A pipeline, a step or an edge.
  private struct Element {
    var key: String
    /// The members of each change that name it.
    var names: String
    var members: [(name: String, value: String)]

    /// Adds the counts of another edge between the same ends.
    mutating func add(_ others: [(name: String, value: String)]) {
      for (name, value) in others {
        guard let place = members.firstIndex(where: { $0.name == name }), let own = Int(members[place].value),
          let more = Int(value)
        else { continue }
        members[place].value = "\(own + more)"
      }
    }
  }

  private static func head(of pipeline: ProcessView.Pipeline) -> Element {
    let name = JSONText.string(pipeline.name).line
    var members: [(name: String, value: String)] = [
      ("file", JSONText.string(pipeline.file).line), ("state", JSONText.string(pipeline.state).line),
      ("since", JSONText.string(StoredTime.text(pipeline.since)).line), ("restarts", "\(pipeline.restarts)"),
      ("current", "\(pipeline.isCurrent)"), ("revision", JSONText.string(pipeline.revision).line),
    ]
    for (name, value) in pipeline.statistics.members(of: pipeline.plan) where name != "steps" && name != "edges" {
      members.append((name, value.line))
    }
    return Element(key: "p\(pipeline.name)", names: "\"pipeline\": \(name)", members: members)
  }

  private static func elements(of pipeline: ProcessView.Pipeline) -> [Element] {
    let name = JSONText.string(pipeline.name).line
    var elements = [head(of: pipeline)]
    var places: [String: Int] = [:]
    for (kind, value) in pipeline.statistics.members(of: pipeline.plan) {
      guard kind == "steps" || kind == "edges", case .array(let items) = value else { continue }
      for (index, item) in items.enumerated() {
        guard case .object(let found) = item else { continue }
        var texts: [(name: String, value: String)] = kind == "steps" ? [("index", "\(index)")] : []
        var own: [String] = []
        for (member, value) in found {
          let isName = kind == "steps" ? member == "id" : ["from", "to", "output"].contains(member)
          if isName { own.append("\"\(member)\": \(value.line)") } else { texts.append((member, value.line)) }
        }
        let names = own.joined(separator: ", ")
        let key = "\(kind)\(name)\(names)"
        if let place = places[key] {
          // A step can have two inputs from one signal: one edge to a reader, as in metrics.
          elements[place].add(texts)
        } else {
          places[key] = elements.count
          elements.append(Element(key: key, names: "\"pipeline\": \(name), \(names)", members: texts))
        }
      }
    }
    return elements
  }

  private func send(_ elements: [Element], _ view: ProcessView, to reader: Reader) {
    var text =
      "data: {\"at\": \"\(StoredTime.text(view.at))\", \"nanoseconds\": \(view.instant.nanoseconds), \"stopping\": \(view.isStopping)"
    let isNew = reader.known.isEmpty
    if isNew { text += ", \"version\": \"\(Version.number)\"" }
    if sentences != reader.sentences {
      text += ", \"sentences\": \(JSONText.array(sentences.map(JSONText.string)).line)"
    }
    var known = reader.known
    var changes: [String] = []
    var size = 0
    for element in elements where size < Self.mostBytes {
      let before = known[element.key]
      var now: [String: String] = [:]
      var set: [String] = []
      for (name, value) in element.members {
        now[name] = value
        if before?[name] != value { set.append("\"\(name)\": \(value)") }
      }
      for name in before?.keys.filter({ now[$0] == nil }) ?? [] { set.append("\"\(name)\": null") }
      if set.isEmpty { continue }
      known[element.key] = now
      let change = "{\(element.names), \"set\": {\(set.joined(separator: ", "))}}"
      size += change.utf8.count
      changes.append(change)
    }
    if !changes.isEmpty { text += ", \"changes\": [\(changes.joined(separator: ", "))]" }
    let present = Set(elements.map(\.key))
    // With anything gone the reader begins anew: a step or edge goes only with a reload.
    if known.keys.contains(where: { !present.contains($0) }) {
      reader.known = [:]
      reader.sentences = []
      reader.stream.send(Array("data: {\"restart\": true}\n\n".utf8))
      return
    }
    text += "}\n\n"
    // A reader that does not keep up gets all that has changed since with a later message.
    guard reader.stream.send(Array(text.utf8)) else { return }
    reader.known = known
    reader.sentences = sentences
  }
}

extension JSONText {
  /// The text on one line.
  var line: String {
    switch self {
    case .array, .object:
      // A text has no line feeds of its own: they are escaped.
      text.split(separator: "\n").map { $0.drop { $0 == " " } }.joined()
    default: text
    }
  }
}
