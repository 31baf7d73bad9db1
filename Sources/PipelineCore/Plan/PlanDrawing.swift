/// A plan as boxes and arrows, for `rxd graph`.
package struct PlanDrawing: Sendable {
  /// The kind of a box.
  package enum Shape: String, Sendable { case source, step, sink }

  /// A step as a box.
  package struct Box: Sendable {
    package var id: String
    package var shape: Shape
    /// The keyword: `filter`.
    package var keyword: String
    /// The first expression of the step's parameters; empty if it has none.
    package var detail: String
    /// The named source, signal or sink that contains the step.
    package var owner: String
    /// The number of the fused run that contains the step; nil if the step runs alone.
    package var run: Int?
    package var location: SourceLocation

    var label: String { detail.isEmpty ? keyword : "\(keyword): \(detail)" }
  }

  /// The kind of an arrow.
  package enum Line: String, Sendable {
    case events, errors
    /// From a step to the inner signal or chain that it runs, or from a table to a step that reads it.
    case inner
  }

  /// An edge between two boxes.
  package struct Arrow: Sendable {
    package var from: String
    package var to: String
    package var line: Line
  }

  package private(set) var name: String
  package private(set) var boxes: [Box] = []
  package private(set) var arrows: [Arrow] = []
  /// Owners in the order of the file.
  package private(set) var owners: [String]

  package init(_ plan: Plan) {
    name = plan.name
    owners = plan.named.map(\.name) + plan.sinks.map(\.name)
    var drawer = Drawer(plan)
    drawer.draw()
    boxes = drawer.boxes
    arrows = drawer.arrows
  }

  // MARK: Forms

  /// A flowchart for Markdown.
  package var mermaid: String {
    var text = "flowchart LR\n"
    for (index, owner) in owners.enumerated() {
      let own = boxes.filter { $0.owner == owner }
      if own.isEmpty { continue }
      text += "  subgraph g\(index)[\"\(Self.mermaidText(owner))\"]\n"
      for box in own {
        let label = "\"\(Self.mermaidText(box.label))\""
        switch box.shape {
        case .source: text += "    \(box.id)([\(label)])\n"
        case .step: text += "    \(box.id)[\(label)]\n"
        case .sink: text += "    \(box.id)[/\(label)/]\n"
        }
      }
      text += "  end\n"
    }
    for arrow in arrows {
      switch arrow.line {
      case .events: text += "  \(arrow.from) --> \(arrow.to)\n"
      case .errors: text += "  \(arrow.from) -. errors .-> \(arrow.to)\n"
      case .inner: text += "  \(arrow.from) -.-> \(arrow.to)\n"
      }
    }
    return text
  }

  private static func mermaidText(_ text: String) -> String {
    var result = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "a"..."z", "A"..."Z", "0"..."9", " ", "_", "-", ".", ":", ",", "(", ")", "/", "+", "*", "=":
        result.unicodeScalars.append(scalar)
      default: result += "#\(scalar.value);"
      }
    }
    return result
  }

  /// The drawing in Graphviz's language.
  package var dot: String {
    func quote(_ text: String) -> String {
      var result = ""
      JSONText.quote(text, to: &result)
      return result
    }
    var text = "digraph \(quote(name)) {\n  rankdir=LR;\n"
    text += "  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n"
    text += "  edge [fontname=\"sans-serif\", fontsize=9];\n"
    for (index, owner) in owners.enumerated() {
      let own = boxes.filter { $0.owner == owner }
      if own.isEmpty { continue }
      text += "  subgraph cluster_\(index) {\n    label=\(quote(owner)); color=gray; fontsize=10;\n"
      for box in own {
        let shape = box.shape == .source ? "oval" : box.shape == .sink ? "cds" : "box"
        text += "    \(box.id) [label=\(quote(box.label)), shape=\(shape)];\n"
      }
      text += "  }\n"
    }
    for arrow in arrows {
      let style =
        switch arrow.line {
        case .events: ""
        case .errors: " [label=\"errors\", style=dashed, color=red]"
        case .inner: " [style=dotted]"
        }
      text += "  \(arrow.from) -> \(arrow.to)\(style);\n"
    }
    return text + "}\n"
  }

  package var json: JSONText {
    .object([
      ("name", .string(name)),
      (
        "nodes",
        .array(
          boxes.map { box in
            .object([
              ("id", .string(box.id)), ("kind", .string(box.shape.rawValue)),
              ("type", .string(box.keyword)), ("detail", .string(box.detail)),
              ("owner", .string(box.owner)), ("run", box.run.map { .int($0) } ?? .null),
              ("line", .int(box.location.line)), ("column", .int(box.location.column)),
            ])
          })
      ),
      (
        "edges",
        .array(
          arrows.map { arrow in
            .object([
              ("from", .string(arrow.from)), ("to", .string(arrow.to)),
              ("kind", .string(arrow.line.rawValue)),
            ])
          })
      ),
    ])
  }

  // MARK: From the plan

  private struct Drawer {
    let plan: Plan
    var boxes: [Box] = []
    var arrows: [Arrow] = []
    private var runs = 0
    /// The last box of each named signal, once it is drawn.
    private var ends: [Int: End] = [:]
    private var boxesOfSteps: [StepID: String] = [:]
    /// The boxes of the sinks, in order.
    private var sinks: [String] = []
    private var open: [(from: End, to: String)] = []

    /// The start of an arrow.
    private enum End {
      case box(String, Line)
      case named(Int, Line)
      /// The errors output of a sink.
      case sink(Int)
    }

    init(_ plan: Plan) { self.plan = plan }

    mutating func draw() {
      for (index, named) in plan.named.enumerated() {
        ends[index] = signal(named.body, owner: named.name, input: nil)
      }
      for sink in plan.sinks {
        let end = signal(sink.input, owner: sink.name, input: nil)
        sinks.append(box(.sink, sink.step, sink.name))
        connect(end, to: sinks[sinks.count - 1])
      }
      for arrow in open {
        if let (id, line) = resolve(arrow.from) { arrows.append(Arrow(from: id, to: arrow.to, line: line)) }
      }
      drawLookups()
    }

    /// Draws lines from each table to the steps that read it.
    private mutating func drawLookups() {
      for report in plan.expressions {
        guard let reader = boxesOfSteps[report.step] else { continue }
        for table in report.checked.tables {
          let step = plan.named[plan.tables[table].named].body.step
          guard let from = boxesOfSteps[step], !arrows.contains(where: { $0.from == from && $0.to == reader }) else {
            continue
          }
          arrows.append(Arrow(from: from, to: reader, line: .inner))
        }
      }
    }

    private func resolve(_ end: End, _ depth: Int = 0) -> (String, Line)? {
      switch end {
      case .box(let id, let line): return (id, line)
      case .sink(let index): return (sinks[index], .errors)
      case .named(let index, let line):
        // A signal that only renames another has no box.
        guard depth < 1000, let target = ends[index], let (id, own) = resolve(target, depth + 1) else {
          return nil
        }
        return (id, line == .events ? own : line)
      }
    }

    private mutating func connect(_ end: End?, to id: String) {
      if let end { open.append((end, id)) }
    }

    private mutating func box(
      _ shape: Shape, _ step: StepID, _ owner: String, run: Int? = nil
    ) -> String {
      let info = plan.steps[step.number]
      let expression = plan.expressions.first { $0.step == step }
      let id = "n\(boxes.count)"
      boxesOfSteps[step] = id
      boxes.append(
        Box(
          id: id, shape: shape, keyword: info.keyword,
          detail: expression.map { Printable.cut($0.checked.text.shown, limit: 48) } ?? "",
          owner: owner, run: run, location: info.location))
      return id
    }

    private mutating func signal(_ signal: SignalPlan, owner: String, input: End?) -> End? {
      switch signal.origin {
      case .named(let index): return .named(index, .events)
      case .errors(.named(let index)): return .named(index, .errors)
      case .errors(.sink(let index)): return .sink(index)
      case .input: return input
      case nil: break
      }
      var before = signal.feeding.map { self.signal($0, owner: owner, input: input) }
      if signal.isHidden { return before[0] }
      if signal.work?.isFused == true { runs += 1 }
      for step in signal.steps {
        let run = signal.steps.count > 1 ? runs : nil
        let id = box(signal.source == nil ? .step : .source, step.id, owner, run: run)
        for end in before { connect(end, to: id) }
        inner(step, id, owner)
        before = [.box(id, .events)]
      }
      return before[0]
    }

    /// Draws the signals and chains in a step's parameters.
    private mutating func inner(_ step: SignalPlan.Step, _ id: String, _ owner: String) {
      for plan in step.inner {
        if let end = signal(plan, owner: owner, input: .box(id, .inner)) {
          switch end {
          case .box(let last, _): open.append((.box(last, .inner), id))
          case .named(let index, _): open.append((.named(index, .inner), id))
          case .sink: open.append((end, id))
          }
        }
      }
    }
  }
}
