/// The values of `$(NAME)` in one copy of a template or of a repetition.
struct ReuseScope {
  struct Binding {
    /// Nil for an optional parameter without a value.
    var node: YAMLNode?
    var type: ReuseParameter.Form
  }

  var bindings: [String: Binding] = [:]
  private let instance: Instance

  /// `origin`: the use that produces the copy.
  init(origin: Diagnostic.Note) { instance = Instance(origin) }

  /// Copies of the source texts of the template's nodes, one per text.
  private final class Instance {
    let origin: Diagnostic.Note
    var texts: [ObjectIdentifier: SourceText] = [:]
    init(_ origin: Diagnostic.Note) { self.origin = origin }
  }

  func text(_ text: SourceText) -> SourceText {
    if let known = instance.texts[ObjectIdentifier(text)] { return known }
    let made = SourceText(text, origin: instance.origin)
    instance.texts[ObjectIdentifier(text)] = made
    return made
  }

  func location(_ location: SourceLocation) -> SourceLocation {
    SourceLocation(text(location.text), offset: location.offset, length: location.length)
  }

  func scalar(_ scalar: YAMLScalar) -> YAMLScalar {
    var scalar = scalar
    scalar.text.source = text(scalar.text.source)
    scalar.location = location(scalar.location)
    return scalar
  }
}

extension YAMLNode {
  /// The node with `origin` as its origin, unless it already has one.
  func inserted(_ origin: Diagnostic.Note) -> YAMLNode {
    if location.text.origin != nil { return self }
    return relocated(ReuseScope(origin: origin))
  }

  private func relocated(_ scope: ReuseScope) -> YAMLNode {
    var node = self
    node.location = scope.location(location)
    switch content {
    case .scalar(let scalar): node.content = .scalar(scope.scalar(scalar))
    case .sequence(let items): node.content = .sequence(items.map { $0.relocated(scope) })
    case .mapping(let entries):
      node.content = .mapping(entries.map { YAMLEntry(key: scope.scalar($0.key), value: $0.value.relocated(scope)) })
    }
    return node
  }
}

extension Diagnostics {
  /// The diagnostics, each with notes that name the uses of templates, repetitions and files that lead to its location.
  /// Diagnostics at one location for several uses become one.
  func withOrigins() -> Diagnostics {
    var found: [Diagnostic] = []
    var further: [Int: Int] = [:]
    for var diagnostic in all {
      guard let location = diagnostic.location, location.text.origin != nil else {
        found.append(diagnostic)
        continue
      }
      if let first = found.firstIndex(where: {
        $0.code == diagnostic.code && $0.location == location && $0.message == diagnostic.message
      }) {
        further[first, default: 0] += 1
        continue
      }
      var origin = location.text.origin
      while let note = origin, diagnostic.notes.count < 20 {
        if !diagnostic.notes.contains(note) { diagnostic.notes.append(note) }
        origin = note.location?.text.origin
      }
      found.append(diagnostic)
    }
    for (index, count) in further {
      found[index].notes.append(.init("the same for \(count) more"))
    }
    var result = Diagnostics()
    result.report(contentsOf: found)
    return result
  }
}
