import PipelineCore
import PipelineRuntime

/// The index from questions to components: the use cases of the specs, by topic.
enum QuestionIndex {
  static var page: String {
    var page = ReferencePages.note + "# I want to ...\n\n"
    page += "Each line leads to a page; the YAML is a step of a chain, or what stands under a name.\n\n"
    let sections = UseCase.Topic.allCases.map { ($0, rows($0)) }.filter { !$0.1.isEmpty }
    page += sections.map { "[\($0.0.rawValue)](#\(anchor($0.0.rawValue)))" }.joined(separator: " · ") + "\n"
    for (topic, lines) in sections {
      page += "\n## \(topic.rawValue)\n\n| I want to ... | look at | written |\n|---|---|---|\n"
      for line in lines { page += line }
    }
    return page
  }

  private static func rows(_ topic: UseCase.Topic) -> [String] {
    var rows: [String] = []
    for kind in ComponentKind.allCases {
      let entries = Catalogue.builtIn.components.filter { $0.kind == kind }
        .sorted { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }
      for entry in entries {
        for useCase in entry.useCases where useCase.topic == topic {
          rows.append(row(useCase, "[`\(entry.name)`](\(ComponentPage.folder(kind))/\(entry.name).md)"))
        }
      }
    }
    for useCase in GeneralUseCases.all where useCase.useCase.topic == topic {
      rows.append(row(useCase.useCase, "[\(useCase.title)](\(useCase.page))"))
    }
    return rows
  }

  private static func row(_ useCase: UseCase, _ link: String) -> String {
    let written = useCase.yaml.isEmpty ? "" : "`\(ComponentPage.cell(useCase.yaml))`"
    return "| \(ComponentPage.cell(useCase.text)) | \(link) | \(written) |\n"
  }

  private static func anchor(_ heading: String) -> String {
    String(heading.lowercased().compactMap { $0 == " " ? "-" : $0.isLetter || $0.isNumber ? $0 : nil })
  }
}

/// Use cases of the language, the commands and the daemon that belong to no single component.
enum GeneralUseCases {
  struct Entry {
    var useCase: UseCase
    /// Relative to docs/reference.
    var page: String
    var title: String

    init(_ topic: UseCase.Topic, _ text: String, _ written: String, _ page: String, _ title: String) {
      useCase = UseCase(topic, text, written)
      self.page = page
      self.title = title
    }
  }

  private static let contracts = "../contracts.md"

  static let all: [Entry] = [
    .init(
      .sharing, "ask once, though several signals use the answer", "a name, referred to twice", "\(contracts)#sharing",
      "sharing"),
    .init(.sharing, "give late listeners the newest event", "share: { replay: 1 }", "\(contracts)#sharing", "sharing"),
    .init(
      .sharing, "start a signal with the pipeline, listened to or not", "share: { start: eager, stop: never }",
      "\(contracts)#sharing", "sharing"),
    .init(
      .sharing, "run a named signal separately for each reference", "cold: true", "\(contracts)#sharing", "sharing"),
    .init(
      .failing, "read the events that failed", "from: NAME.errors",
      "\(contracts)#a-failed-event-is-not-a-failed-signal", "errors outputs"),
    .init(
      .failing, "keep the events that a sink cannot deliver", "kept: { from: SINK.errors, file: kept.ndjson }",
      "\(contracts)#what-a-sink-gives-up", "what a sink gives up"),
    .init(
      .failing, "find the events that failed and that nothing reads", "rxd deadletters show NAME",
      "../state.md#dead-letters", "dead letters"),
    .init(
      .failing, "deliver events once more that a sink could not deliver", "rxd deadletters replay NAME",
      "../state.md#dead-letters", "dead letters"),
    .init(
      .failing, "decide what happens to an event that fails at a step", "- { filter: event.level > 3, onError: route }",
      "\(contracts)#a-failed-event-is-not-a-failed-signal", "onError"),
    .init(.commanding, "show whether a job is running", "from: NAME.executing", "commands/command.md", "command"),
    .init(.commanding, "enable a job by a condition", "enabled: SIGNAL", "commands/command.md", "command"),
    .init(.shaping, "know which functions expressions have", "", "functions.md", "functions"),
    .init(.shaping, "come from jq, VRL or Bloblang", "", "../expressions.md", "guide to expressions"),
    .init(
      .shaping, "parse dates and format them", "parseTime(event.at, '%d/%b/%Y:%H:%M:%S %z')", "functions.md",
      "functions"),
    .init(
      .reading, "read the access log of Apache or nginx", "file: { path: access.log, decode: { regex: combined } }",
      "sources/file.md", "file"),
    .init(.shaping, "hash or anonymise a field", "hash(event.user, 'sha256')", "functions.md", "functions"),
    .init(
      .combining, "add what a file, a database or a service knows to events", "set: { name: 'users[event.user].name' }",
      "../tables.md", "tables"),
    .init(
      .combining, "look up what other events have said before",
      "tables: { devices: { from: announcements, key: event.id } }",
      "../tables.md#where-the-rows-come-from", "tables"),
    .init(
      .combining, "know why a diamond fires twice", "settle: true", "\(contracts)#a-diamond-fires-once-per-arrival",
      "diamonds"),
    .init(.operating, "begin", "rxd init", "../first-pipeline.md", "first pipeline"),
    .init(.operating, "begin with a whole file for a common job", "", "../cookbook.md", "cookbook"),
    .init(.operating, "know every key that a file can have", "rxd schema", "../pipeline-file.md", "the pipeline file"),
    .init(
      .operating, "know when a text needs quotes, and which", "kind: \"'alert'\"", "../four-texts.md", "four texts"),
    .init(.operating, "keep a password out of the file", "${secret:NAME}", "../secrets.md", "secrets"),
    .init(
      .operating, "be notified when something begins and when it is over", "distinctUntilChanged", "../alerting.md",
      "alerting"),
    .init(.operating, "see what a decoder makes of a line", "rxd describe csv", "../formats.md", "formats"),
    .init(.operating, "know why nothing comes out", "rxd run --stats FILE", "../troubleshooting.md", "troubleshooting"),
    .init(.operating, "find out what is wrong with a file", "rxd check FILE", "../../README.md#a-tour", "tour"),
    .init(.operating, "test a pipeline without waiting", "rxd test FILE", "../testing.md", "testing"),
    .init(.operating, "answer requests in tests", "stubs:", "../testing.md", "testing"),
    .init(.operating, "try one expression out", "rxd eval EXPRESSION", "../expressions.md", "guide to expressions"),
    .init(.operating, "see how a file will run", "rxd explain FILE", "../threads.md", "threads"),
    .init(
      .operating, "lose no event when the process is killed", "require: atLeastOnce",
      "../reliability.md#what-is-promised", "what is promised"),
    .init(
      .operating, "know the delivery guarantee for my events", "rxd check -v FILE",
      "../reliability.md#what-is-promised",
      "what is promised"),
    .init(
      .operating, "keep an unimportant sink from holding up a pipeline",
      "{ from: SIGNAL, stdout: {}, delivery: bestEffort }",
      "../reliability.md#ask-for-a-guarantee", "delivery"),
    .init(
      .operating, "decide what happens to timers that were due while rxd was down", "whenLate: skip",
      "../reliability.md#time-that-passed-while-down", "time while down"),
    .init(.operating, "draw a pipeline", "rxd graph --format svg FILE", "../../README.md#a-tour", "tour"),
    .init(.operating, "have completion and checks in my editor", "rxd schema", "../../README.md#a-tour", "tour"),
    .init(
      .operating, "run pipelines as a service", "systemctl enable --now rxd", "../service.md", "service"),
    .init(
      .operating, "change pipelines without a restart", "systemctl reload rxd", "../service.md#change-pipelines",
      "service"),
    .init(
      .operating, "find our word for Vector's, Benthos's, Fluent Bit's, Logstash's, Node-RED's or RxJS's",
      "rxd describe debounce", "../coming-from.md", "coming from"),
    .init(.operating, "find our word for ReactiveCocoa's", "", "../reactivecocoa.md", "from ReactiveCocoa"),
    .init(.operating, "look up a code of a message", "rxd explain RX301", "codes.md", "codes"),
    .init(.operating, "write an operator of my own", "", "../../CONTRIBUTING.md", "contributing"),
  ]
}
