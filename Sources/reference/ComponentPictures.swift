import PipelineCore
import PipelineTesting

extension ComponentPage {
  /// The pictures of all marble examples of a component.
  static func pictures(_ entry: CatalogueEntry) -> [(name: String, text: String)] {
    let page = ComponentPage(entry)
    return entry.examples.compactMap { example in
      guard let picture = MarblePicture(example, of: entry.name) else { return nil }
      return (page.fileName(example), picture.svg())
    }
  }
}

extension MarblePicture {
  /// The picture of an example; nil if it has no marbles.
  init?(_ example: Example, of component: String) {
    guard case .marble(let step, let inputs, let output, let values) = example.body else { return nil }
    title = "\(component): \(example.title)"
    description = SpecText.text(example).joined(separator: "\n")
    rows = []
    self.values = values
    for input in inputs {
      guard let marbles = try? Marbles(input.marbles) else { return nil }
      rows.append(.signal(name: input.name, marbles))
    }
    rows.append(.step(step))
    guard let marbles = try? Marbles(output) else { return nil }
    rows.append(.signal(name: "out", marbles))
  }
}
