/// A template that is built into rxd, as text.
package struct Preset: Sendable {
  package var name: String
  /// One sentence.
  package var summary: String
  /// The text of a file that defines the template.
  package var text: String

  package static func named(_ name: String) -> Preset? { all.first { $0.name == name } }

  init(_ name: String, _ summary: String, _ text: String) {
    self.name = name
    self.summary = summary
    self.text = text
  }

  /// Sorted by name.
  package static let all: [Preset] = [
    clickhouse, elasticsearch, influxdb, kinesis, loki, ntfy, pagerduty, s3, slack, splunk, sqs, telegram,
  ]
}

extension Reuse {
  /// The preset of this name, as a template.
  mutating func preset(_ name: String) -> Template? {
    guard let preset = Preset.named(name) else { return nil }
    var found = Diagnostics()
    let source = SourceText(name: SourceText.presetPrefix + name, text: preset.text)
    let root = YAMLReader.read(source, into: &found)
    guard let entry = root?["templates"]?.entries?.first, let template = template(entry) else {
      preconditionFailure("the preset \(name) is not a template: \(found.all)")
    }
    templates[name] = template
    return template
  }
}
