import PipelineCore

// The stub of Docker: `docker: [ { container: web, lines: [hello] }, { event: die, type: container, id: c1 } ]`.

extension PipelineTestReader {
  mutating func docker(_ node: YAMLNode) -> DockerStub? {
    guard let items = node.items else {
      report(
        .testStep, "'docker' takes a list of containers and events, not \(node.kindName)", node.location,
        help: "Write - { container: web, lines: [hello] }")
      return nil
    }
    var stub = DockerStub()
    for item in items {
      guard let entries = item.entries, item["container"] != nil || item["event"] != nil else {
        report(
          .testStep, "a stub of Docker is a container or an event", item.location,
          help: "Write { container: web, lines: [hello] } or { event: die, type: container, id: c1 }")
        continue
      }
      if item["container"] != nil {
        if let container = container(item, entries) { stub.containers.append(container) }
      } else if let event = event(item, entries) {
        stub.events.append(event)
      }
    }
    if let twice = Dictionary(grouping: stub.containers, by: \.id).first(where: { $1.count > 1 }) {
      report(
        .testStep, "two containers have the id '\(Printable.cut(twice.key))'", node.location,
        help: "Give each an 'id' of its own, or another name")
      return nil
    }
    return stub
  }

  private mutating func container(_ node: YAMLNode, _ entries: [YAMLEntry]) -> DockerStub.Container? {
    let keys = ["container", "id", "image", "labels", "starts", "ends", "lines"]
    guard check(keys: entries, keys, "a container"), let name = node["container"].flatMap({ text($0, "'container'") })
    else { return nil }
    var container = DockerStub.Container(id: name, name: name)
    if let id = node["id"] { container.id = text(id, "'id'") ?? name }
    if let image = node["image"] { container.image = text(image, "'image'") ?? "" }
    container.labels = texts(node["labels"], "'labels'")
    if let starts = node["starts"] { container.starts = duration(starts, "'starts'") ?? .zero }
    if let ends = node["ends"] { container.ends = duration(ends, "'ends'") }
    // A line without a time has the time of the previous one.
    var at = container.starts
    for item in node["lines"]?.items ?? [] {
      guard let line = line(item, at) else { return nil }
      at = line.at
      container.lines.append(line)
    }
    if let lines = node["lines"], lines.items == nil {
      report(
        .testStep, "'lines' takes a list, not \(lines.kindName)", lines.location,
        help: "Write 'lines: [hello, { text: oops, stream: stderr, at: 4ms }]'")
      return nil
    }
    return container
  }

  private mutating func line(_ node: YAMLNode, _ at: TimeSpan) -> DockerStub.Line? {
    guard let entries = node.entries else { return text(node, "a line").map { DockerStub.Line(at: at, text: $0) } }
    guard check(keys: entries, ["text", "stream", "at"], "a line") else { return nil }
    var line = DockerStub.Line(at: at, text: node["text"].flatMap { text($0, "'text'") } ?? "")
    if let at = node["at"] { line.at = duration(at, "'at'") ?? line.at }
    if let stream = node["stream"] {
      let word = text(stream, "'stream'") ?? ""
      guard word == "stdout" || word == "stderr" else {
        report(.testStep, "'stream' is stdout or stderr, not '\(Printable.cut(word))'", stream.location)
        return nil
      }
      line.isError = word == "stderr"
    }
    return line
  }

  private mutating func event(_ node: YAMLNode, _ entries: [YAMLEntry]) -> DockerStub.Event? {
    guard check(keys: entries, ["event", "type", "id", "attributes", "at"], "an event of Docker") else { return nil }
    guard let action = node["event"].flatMap({ text($0, "'event'") }) else { return nil }
    var event = DockerStub.Event(at: .zero, type: "container", action: action, id: "")
    if let type = node["type"] { event.type = text(type, "'type'") ?? event.type }
    if let id = node["id"] { event.id = text(id, "'id'") ?? "" }
    if let at = node["at"] { event.at = duration(at, "'at'") ?? .zero }
    event.attributes = texts(node["attributes"], "'attributes'")
    return event
  }

  private mutating func texts(_ node: YAMLNode?, _ what: String) -> [(name: String, value: String)] {
    guard let node, !node.isNull else { return [] }
    guard let entries = node.entries else {
      report(.testStep, "\(what) takes a mapping, not \(node.kindName)", node.location)
      return []
    }
    return entries.compactMap { entry in text(entry.value, what).map { (entry.name, $0) } }
  }
}
