import FigureTable
import PipelineCore
import PipelineRuntime
import Transport

/// The messages to readers of the live page: all counts at first, then changes, up to four times a second. Used on the
/// main thread; there is no work while there is no reader.
///
/// Each message is a server-sent event with a JSON object. `changes` has the members of pipelines, steps and edges that
/// differ from those that the reader has, under their names in `GET /stats`; a removed member is null. On `restart` the
/// reader discards everything it has, because steps or edges have been removed. A message is sent at least every two
/// seconds, so that a reader notices when the process hangs.
final class PageFeed {
  /// The port of the page; nil: the process has none.
  var port: Int?

  /// The maximum number of readers, and the time between two readings.
  static let mostReaders = 16
  private static let interval = TimeSpan.milliseconds(250)
  /// The maximum time between two messages; a longer silence means that the process hangs.
  private static let longestInterval = TimeSpan.seconds(2)
  /// Readings may take a twenty-fifth of a processor's time on the main thread: very large graphs are read less often.
  /// The limit is on the CPU time that readings use, not on their duration, which is longer if others use the
  /// processor.
  private static let share: Int64 = 25
  /// The approximate limit of a message; further changes come with the next one. Two messages may wait for a reader.
  private static let mostBytes = 1 << 20
  static let room = mostBytes * 2 + (256 << 10)

  /// One open page.
  final class Reader {
    /// The pipeline whose steps and edges the reader requests; nil: all.
    let pipeline: String?
    let stream: ResponseStream
    /// The pipelines that the reader knows; nil: it knows nothing.
    fileprivate var known: [Frame]?
    /// The first element of the next message, after one that was too large for all.
    fileprivate var next = 0
    fileprivate var facts: [LiveRanking.Fact] = []

    fileprivate init(_ pipeline: String?, _ stream: ResponseStream) {
      self.pipeline = pipeline
      self.stream = stream
    }

    fileprivate func wants(_ name: String) -> Bool { pipeline.map { $0 == name } ?? true }
  }

  private(set) var readers: [(identity: Int, reader: Reader)] = []
  /// The number of readers that have been given an identity.
  var identities = 0
  /// The time of the next reading; nil: there is no reader.
  var pollAt: Instant?
  private var window = LiveWindow()
  private var facts: [LiveRanking.Fact] = []
  /// The time at which to update the sentences.
  private var rankAt = Instant(nanoseconds: .min)
  /// The names of elements, by pipeline.
  private var names: [String: ElementNames] = [:]

  func add(_ identity: Int, pipeline: String?, _ stream: ResponseStream, at now: Instant) {
    readers.append((identity, Reader(pipeline, stream)))
    pollAt = now
  }

  func remove(_ identity: Int) {
    readers.removeAll { $0.identity == identity }
    if readers.isEmpty {
      pollAt = nil
      window = LiveWindow()
      rankAt = Instant(nanoseconds: .min)
      facts = []
      names = [:]
    }
  }

  func end() { for (_, reader) in readers { reader.stream.end() } }

  /// A requested reading.
  struct Reading {
    var begun: Instant
    /// The CPU time of this thread when the reading began, in nanoseconds.
    var used: Int64
  }

  /// Sends the changes. `used`: the CPU time of this thread so far, in nanoseconds.
  func show(_ view: ProcessView, _ reading: Reading, used: () -> Int64) {
    guard !readers.isEmpty else { return }
    let gathered = used() - reading.used
    if view.instant >= rankAt { rank(view, used) }
    let start = used()
    var frames: [Frame] = []
    // While a file is renamed, two pipelines have one name.
    var seen: Set<String> = []
    for pipeline in view.pipelines where seen.insert(pipeline.name).inserted {
      let isWhole = readers.contains { $0.reader.wants(pipeline.name) }
      frames.append(Frame(pipeline, names(of: pipeline), isWhole: isWhole))
    }
    for (_, reader) in readers { send(frames, view, to: reader) }
    let cost = gathered + used() - start
    pollAt = reading.begun + min(max(Self.interval, TimeSpan(nanoseconds: cost &* Self.share)), Self.longestInterval)
  }

  // MARK: Sentences

  private func rank(_ view: ProcessView, _ used: () -> Int64) {
    let start = used()
    // Built from the document of `rxd top`, so that both show the same.
    if let look = LiveStatistics(view.document), let rates = window.rates(to: look) { facts = LiveRanking(rates).facts }
    rankAt = view.instant + max(.seconds(1), TimeSpan(nanoseconds: (used() - start) &* Self.share))
  }

  // MARK: Differences

  /// The JSON members with which a change names its element: the pipeline, a step or a link.
  fileprivate final class ElementNames {
    let index: PlanIndex
    let texts: [String]

    init(_ index: PlanIndex) {
      self.index = index
      func text(_ members: [(String, String)]) -> String {
        members.map { "\"\($0)\": \(JSONText.string($1).line)" }.joined(separator: ", ")
      }
      let pipeline = ("pipeline", index.plan.name)
      texts =
        [text([pipeline])] + index.steps.map { text([pipeline, ("id", $0.name)]) }
        + index.links.map { text([pipeline, ("from", $0.from), ("to", $0.to), ("output", $0.output)]) }
    }
  }

  private func names(of pipeline: ProcessView.Pipeline) -> ElementNames {
    if let known = names[pipeline.name], known.index === pipeline.index { return known }
    let new = ElementNames(pipeline.index)
    names[pipeline.name] = new
    return new
  }

  /// A pipeline, its steps and its links, each with its members. An element without members is a link that has not been
  /// used, or belongs to a pipeline whose steps the reader does not request.
  fileprivate struct Frame {
    typealias Members = [(String, JSONText)]
    var names: ElementNames
    var elements: [Members]

    init(_ pipeline: ProcessView.Pipeline, _ names: ElementNames, isWhole: Bool) {
      self.names = names
      let statistics = pipeline.statistics
      var own = Figures.pipelines.members(of: pipeline.figures)
      own.append(("revision", .string(pipeline.revision)))
      own += Figures.runs.members(of: statistics)
      elements = [own]
      guard isWhole else { return }
      elements.reserveCapacity(names.texts.count)
      for (number, step) in pipeline.index.steps.enumerated() {
        var members: Members = [("index", .int(number))]
        members += step.members.dropFirst()
        members += statistics.members(of: step)
        elements.append(members)
      }
      elements += pipeline.index.links.map { statistics.sum(of: $0).members }
    }

    /// The state of a reader that has none of the elements yet.
    init(unknown names: ElementNames) {
      self.names = names
      elements = Array(repeating: [], count: names.texts.count)
    }

    /// This frame with the element numbers of a newer version of the pipeline; nil: the newer version lacks some
    /// elements.
    func moved(to other: ElementNames) -> Frame? {
      if names === other { return self }
      let indexes = Dictionary(other.texts.enumerated().map { ($1, $0) }) { first, _ in first }
      var moved = Frame(unknown: other)
      for (number, members) in elements.enumerated() where !members.isEmpty {
        guard let index = indexes[names.texts[number]] else { return nil }
        moved.elements[index] = members
      }
      return moved
    }

    /// Appends `"name": value` for each member that has changed.
    static func append(_ now: Members, since before: Members, to text: inout String) {
      func add(_ name: String, _ value: JSONText) {
        if !text.isEmpty { text += ", " }
        text += "\"\(name)\": "
        value.writeLine(to: &text)
      }
      for (index, member) in now.enumerated() {
        // The members are usually the same, in the same order.
        let past =
          index < before.count && before[index].0 == member.0
          ? before[index].1 : before.first { $0.0 == member.0 }?.1
        if past != member.1 { add(member.0, member.1) }
      }
      for (index, member) in before.enumerated()
      where !(index < now.count && now[index].0 == member.0) && !now.contains(where: { $0.0 == member.0 }) {
        add(member.0, .null)
      }
    }
  }

  private func send(_ frames: [Frame], _ view: ProcessView, to reader: Reader) {
    var text =
      "data: {\"at\": \"\(StoredTime.text(view.at))\", \"nanoseconds\": \(view.instant.nanoseconds), \"stopping\": \(view.isStopping)"
    if reader.known == nil { text += ", \"version\": \"\(Version.number)\"" }
    if facts != reader.facts {
      text += ", \"sentences\": "
      JSONText.array(facts.map(\.document)).writeLine(to: &text)
    }
    // Moved out, so that the array is uniquely referenced and changed in place.
    let past = reader.known.take() ?? []
    // If an element was removed, the reader starts over: steps and edges are removed only by a reload.
    guard var known = Self.known(past, of: frames) else {
      reader.facts = []
      reader.next = 0
      reader.stream.send(Array("data: {\"restart\": true}\n\n".utf8))
      return
    }
    // All pipelines first, then the steps and links of those that are wanted, from the end of the last message on.
    var order = frames.indices.map { (frame: $0, element: 0) }
    for (number, frame) in frames.enumerated() where reader.wants(frame.names.index.plan.name) {
      for element in frame.elements.indices.dropFirst() { order.append((number, element)) }
    }
    let heads = frames.count
    let rest = order.count - heads
    let first = rest > 0 ? reader.next % rest : 0
    var next = 0
    var changed: [(frame: Int, element: Int)] = []
    var changes = ""
    var set = ""
    for index in order.indices {
      let (number, element) = index < heads ? order[index] : order[heads + (index - heads + first) % rest]
      let frame = frames[number]
      set.removeAll(keepingCapacity: true)
      Frame.append(frame.elements[element], since: known[number].elements[element], to: &set)
      if set.isEmpty { continue }
      changes += changes.isEmpty ? "{" : ", {"
      changes += frame.names.texts[element]
      changes += ", \"set\": {"
      changes += set
      changes += "}}"
      changed.append((number, element))
      if changes.utf8.count > Self.mostBytes, index >= heads {
        next = (index - heads + first + 1) % rest
        break
      }
    }
    if !changes.isEmpty { text += ", \"changes\": [\(changes)]" }
    text += "}\n\n"
    // A reader that does not keep up gets all changes since then with a later message.
    if reader.stream.send(Array(text.utf8)) {
      for (frame, element) in changed { known[frame].elements[element] = frames[frame].elements[element] }
      reader.facts = facts
      reader.next = next
    }
    reader.known = known
  }

  /// The elements that a reader has of the frames, in the order of the frames; nil: it has an element that the frames
  /// lack.
  private static func known(_ past: consuming [Frame], of frames: [Frame]) -> [Frame]? {
    // The pipelines are nearly always the same.
    if past.count == frames.count, zip(past, frames).allSatisfy({ $0.names === $1.names }) { return past }
    var left = Dictionary(past.map { ($0.names.index.plan.name, $0) }) { first, _ in first }
    var known: [Frame] = []
    for frame in frames {
      guard let one = left.removeValue(forKey: frame.names.index.plan.name) else {
        known.append(Frame(unknown: frame.names))
        continue
      }
      guard let moved = one.moved(to: frame.names) else { return nil }
      known.append(moved)
    }
    return left.isEmpty ? known : nil
  }
}
