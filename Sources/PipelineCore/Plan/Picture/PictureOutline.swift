/// The contents of a plan's picture without coordinates: groups, boxes within them, and links.
struct PictureOutline {
  struct Group {
    var name: String
    var kind: GraphPicture.Kind
    /// Indexes of the boxes directly within the group, from top to bottom.
    var children: [Int] = []
    var members: [String]
    var location: SourceLocation
  }

  struct Box {
    var id: String
    var kind: GraphPicture.Kind
    var topic: UseCase.Topic?
    var keyword: String
    /// The settings; the picture cuts the first one if it is long.
    var details: [String] = []
    /// Remarks for the title, added to the settings.
    var remarks: [String] = []
    var group: Int
    var parent: Int?
    var children: [Int] = []
    var location: SourceLocation
    /// ``location`` as text.
    var fileAndLine = ""
  }

  enum Anchor: Hashable {
    case box(Int)
    /// The start of the box's contents.
    case feed(Int)
    /// The inside of the box, which inner signals send to.
    case inside(Int)
    /// The output of a group.
    case group(Int)
    case errors(Int)
  }

  struct Link {
    var from: Anchor
    var to: Anchor
    var fromName: String
    var toName: String
    var kind: GraphPicture.Edge.Kind
    var isTimed = false
    var count = 1
  }

  var groups: [Group] = []
  var boxes: [Box] = []
  var links: [Link] = []

  init(_ plan: Plan) {
    var walk = Walk(plan)
    walk.run()
    groups = walk.groups
    boxes = walk.boxes
    links = walk.links
  }

  func group(of anchor: Anchor) -> Int {
    switch anchor {
    case .box(let box), .feed(let box), .inside(let box): boxes[box].group
    case .group(let group), .errors(let group): group
    }
  }

  // MARK: From the plan

  private struct Walk {
    let plan: Plan
    var groups: [Group] = []
    var boxes: [Box] = []
    var links: [Link] = []
    /// The box of each step, or the anchor that replaces a step that no file names.
    private var anchors: [Int: Anchor] = [:]
    /// The origins of a named signal's events, in the order of the plan; nil: the signal is not in the picture.
    private var outputs: [Anchor?] = []
    /// For each group, the box whose output is the output of the group.
    private var lastBoxes: [Int: Int] = [:]
    private var groupsByName: [String: Int] = [:]
    private var sinkGroups: [Int] = []
    /// The steps whose events have event time.
    private var timed: Set<Int> = []

    init(_ plan: Plan) { self.plan = plan }

    mutating func run() {
      for named in plan.named {
        guard named.kind == .part else {
          let kind: GraphPicture.Kind = named.kind == .source ? .source : named.kind == .command ? .command : .signal
          let group = addGroup(named.name, kind, named.location)
          outputs.append(.group(group))
          if let last = chain(named.body, nil, group) { lastBoxes[group] = last }
          continue
        }
        outputs.append(part(named))
      }
      for sink in plan.sinks {
        let group = addGroup(sink.name, .sink, sink.location)
        sinkGroups.append(group)
        _ = chain(sink.input, nil, group)
        lastBoxes[group] = addStep(sink.step, .sink, nil, group, sink.component)
      }
      connect()
    }

    private mutating func addGroup(_ name: String, _ kind: GraphPicture.Kind, _ location: SourceLocation) -> Int {
      groups.append(Group(name: name, kind: kind, members: [name], location: location))
      groupsByName[name] = groups.count - 1
      return groups.count - 1
    }

    /// An output of a command, or its `enabled` signal.
    private mutating func part(_ named: NamedPlan) -> Anchor? {
      let (owner, output) =
        named.name.firstIndex(of: ".").map {
          (String(named.name[..<$0]), String(named.name[named.name.index(after: $0)...]))
        } ?? (named.name, "")
      guard let group = groupsByName[owner] else { return nil }
      if output != "enabled?" {
        guard named.references > 0, let step = named.body.steps.first else { return nil }
        return .box(addStep(step.id, .port, nil, group, step.component))
      }
      let box = addBox(
        Box(id: named.name, kind: .port, keyword: "enabled", group: group, location: named.location), first: true)
      if named.body.isShared { return .box(box) }
      boxes[box].kind = .branch
      _ = chain(named.body, box, group)
      return .box(box)
    }

    /// Adds the steps of a signal; returns the box of the last one, nil if there is none.
    private mutating func chain(_ signal: SignalPlan, _ parent: Int?, _ group: Int) -> Int? {
      if signal.isHidden {
        let last = chain(signal.inputs[0], parent, group)
        anchors[signal.step.number] = last.map { .box($0) } ?? origin(signal.inputs[0])
        return last
      }
      let inputs = signal.inputs
      if inputs.filter(Self.hasSteps).count < 2 {
        for input in inputs { _ = chain(input, parent, group) }
      } else {
        let names = plan.steps[signal.step.number].settings.inputs
        for (index, input) in inputs.enumerated() where Self.hasSteps(input) {
          let name = names.indices.contains(index) && !names[index].isEmpty ? names[index] : "input \(index + 1)"
          let branch = addBox(
            Box(
              id: "", kind: .branch, keyword: name, group: group, parent: parent,
              location: plan.steps[input.step.number].location))
          _ = chain(input, branch, group)
        }
      }
      let kind: GraphPicture.Kind = signal.source != nil ? .source : inputs.count > 1 ? .combination : .operator
      var last: Int?
      for step in signal.steps {
        if signal.type.isTimed { timed.insert(step.id.number) }
        last = addStep(step.id, kind, parent, group, step.component)
      }
      return last
    }

    private static func hasSteps(_ signal: SignalPlan) -> Bool {
      signal.origin == nil && (!signal.isHidden || hasSteps(signal.inputs[0]))
    }

    /// The origin of a reference's events.
    private func origin(_ signal: SignalPlan) -> Anchor? {
      switch signal.origin {
      case .named(let index): outputs.indices.contains(index) ? outputs[index] : nil
      case .errors(let owner): errors(owner)
      case .input, nil: nil
      }
    }

    private func errors(_ owner: ErrorsOwner) -> Anchor? {
      switch owner {
      case .named(let index): groupsByName[plan.named[index].name].map { .errors($0) }
      case .sink(let index): sinkGroups.indices.contains(index) ? .errors(sinkGroups[index]) : nil
      }
    }

    @discardableResult
    private mutating func addBox(_ box: Box, first: Bool = false) -> Int {
      var box = box
      box.fileAndLine = plan.fileAndLine(box.location)
      let index = boxes.count
      boxes.append(box)
      if let parent = box.parent {
        boxes[parent].children.append(index)
      } else if first {
        groups[box.group].children.insert(index, at: 0)
      } else {
        groups[box.group].children.append(index)
      }
      return index
    }

    private mutating func addStep(
      _ step: StepID, _ kind: GraphPicture.Kind, _ parent: Int?, _ group: Int, _ component: any Component
    ) -> Int {
      let info = plan.steps[step.number]
      let isCommand = kind == .operator && info.keyword == "command" && groups[group].kind == .command && parent == nil
      var box = Box(
        id: plan.id(of: step), kind: isCommand ? .command : kind, keyword: info.keyword, group: group, parent: parent,
        location: info.location)
      box.details = PictureDetails.lines(info.settings, component)
      box.topic = PictureDetails.topic(component)
      if let onError = info.onError { box.remarks.append("onError: \(onError.rawValue)") }
      let index = addBox(box)
      anchors[step.number] = .box(index)
      for inner in PictureDetails.innerPlans(component) { _ = chain(inner, index, group) }
      return index
    }

    // MARK: Links

    private mutating func connect() {
      var known: [String: Int] = [:]
      for edge in plan.edges.dropFirst() {
        guard var link = link(edge) else { continue }
        link.fromName = plan.id(of: edge.from)
        link.toName = plan.id(of: edge.to)
        let name = link.fromName + ">" + link.toName
        if let index = known[name] {
          links[index].count += 1
        } else {
          known[name] = links.count
          links.append(link)
        }
      }
    }

    private func link(_ edge: EdgePlan) -> Link? {
      var kind = GraphPicture.Edge.Kind.events
      var isTimed = false
      var target: Anchor
      switch edge.to {
      case .step(let step):
        guard case .box(let box)? = anchors[step.number], boxes[box].id == plan.id(of: step) else { return nil }
        target = .box(box)
        if edge.input == nil {
          target = .inside(box)
          kind = .inner
        }
      case .named(let index):
        guard let output = outputs[index] else { return nil }
        target = output
        // The `enabled` signal of a command has a box around its steps.
        if case .box(let box) = output, boxes[box].kind == .branch { target = .inside(box) }
        // The outputs of a command have no other end, and executions read the outputs of a command itself.
        if plan.named[index].kind == .command || plan.named[index].kind == .part && plan.named[index].isCold {
          return nil
        }
        if plan.named[index].isCold, case .step = edge.from { return nil }
      case .errors, .feed, .nothing: return nil
      }
      var from: Anchor
      switch edge.from {
      case .step(let step):
        guard let anchor = anchors[step.number] else { return nil }
        from = anchor
        isTimed = timed.contains(step.number)
      case .feed(let step):
        guard case .box(let box)? = anchors[step.number] else { return nil }
        from = .feed(box)
        kind = .inner
        if target == .inside(box) { return nil }
      case .named(let index):
        guard let output = outputs[index] else { return nil }
        from = output
        isTimed = plan.named[index].body.type.isTimed
        if case .group(let origin) = output, group(target) == origin {
          guard let box = lastBoxes[origin] else { return nil }
          from = .box(box)
        } else if plan.named[index].kind == .command {
          // Drawn from the executing step to the command, although the edge carries the command's values.
          guard case .group(let command) = output, let box = lastBoxes[command] else { return nil }
          return Link(from: target, to: .box(box), fromName: "", toName: "", kind: .command)
        }
      case .errors(let owner):
        guard let anchor = errors(owner) else { return nil }
        from = anchor
        kind = .errors
      case .nothing: return nil
      }
      if from == target { return nil }
      return Link(from: from, to: target, fromName: "", toName: "", kind: kind, isTimed: isTimed)
    }

    private func group(_ anchor: Anchor) -> Int {
      switch anchor {
      case .box(let box), .feed(let box), .inside(let box): boxes[box].group
      case .group(let group), .errors(let group): group
      }
    }
  }
}

/// The texts of a component in the picture.
enum PictureDetails {
  static func topic(_ component: any Component) -> UseCase.Topic? {
    func first<C: Component>(_ component: C) -> UseCase.Topic? { component.ownSpec.useCases.first?.topic }
    return first(component)
  }

  static func innerPlans(_ component: any Component) -> [SignalPlan] { component.innerPlans }

  private static func parameters(_ component: any Component) -> [ParameterInfo] {
    func all<C: Component>(_ component: C) -> [ParameterInfo] { component.ownSpec.parameters.map(\.info) }
    return all(component)
  }

  /// The settings, the most important first; without the signals and chains, which the picture shows.
  static func lines(_ settings: StepSettings, _ component: any Component) -> [String] {
    let parameters = parameters(component)
    let primary = parameters.first(where: \.isPrimary)
    let names = settings.inputs.filter { !$0.isEmpty }
    var lines = names.isEmpty ? [] : [names.joined(separator: ", ")]
    let known = Set(parameters.map(\.name))
    // A mapping may be the value of the primary parameter as a whole, such as the fields of `map`.
    let isWhole = primary?.isWhole == true && !settings.entries.contains { known.contains($0.name) }
    for entry in settings.entries {
      let parameter = entry.name.isEmpty || isWhole ? primary : parameters.first { $0.name == entry.name }
      if let shape = parameter?.shape, entry.isNested || isWhole && !entry.name.isEmpty, shape.isSignal { continue }
      if parameter == nil, entry.isNested, entry.text.contains("from: ") || entry.text.contains("chain: ") { continue }
      if case .chain? = parameter?.shape { continue }
      var text = entry.text
      if case .secret? = parameter?.shape { text = "(secret)" }
      if entry.name.isEmpty {
        lines.append(text)
      } else if let parameter, parameter.isPrimary, !isWhole {
        // A number is meaningless without its name.
        let speaks = parameter.shape.speaksForItself
        lines.insert(speaks ? text : "\(entry.name): \(text)", at: names.isEmpty ? 0 : 1)
      } else {
        lines.append("\(entry.name): \(text)")
      }
    }
    if settings.count > settings.entries.count { lines.append("and \(settings.count - settings.entries.count) more") }
    return lines
  }
}

extension ParameterShape {
  /// Whether a value is understood without the name of its parameter.
  fileprivate var speaksForItself: Bool {
    switch self {
    case .text, .template, .expression, .signalName, .signal: true
    default: false
    }
  }

  /// Whether a mapping of this shape is a signal or a chain.
  fileprivate var isSignal: Bool {
    switch self {
    case .signal, .chain: true
    case .list(let element), .table(let element): element.isSignal
    case .oneOf(let shapes): shapes.contains(where: \.isSignal)
    default: false
    }
  }
}
