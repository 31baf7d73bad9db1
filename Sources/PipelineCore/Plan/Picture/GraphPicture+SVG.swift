extension GraphPicture {
  /// The use of the SVG text.
  package enum Form: Sendable {
    /// A standalone file, with its colours and size.
    case file
    /// A part of a page that has the ``styleSheet`` and may change classes and texts: without styles and IDs, scaled to
    /// the available room.
    case page
  }

  /// The picture as SVG. Steps have `data-step` with the names of metrics and views, lines have `data-edge` with
  /// `FROM>TO`.
  package func svg(_ form: Form = .file) -> String {
    var writer = SVGWriter()
    let size = "viewBox=\"0 0 \(SVGWriter.number(width)) \(SVGWriter.number(height))\""
    let isFile = form == .file
    let extent = isFile ? " width=\"\(SVGWriter.number(width))\" height=\"\(SVGWriter.number(height))\"" : ""
    writer.text +=
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"rxd-graph\"\(extent) \(size) role=\"\(isFile ? "img" : "group")\""
    writer.text += " aria-label=\"\(SVGWriter.escaped("Pipeline \(name)"))\">\n"
    writer.text += "<title>\(SVGWriter.escaped("Pipeline \(name)"))</title>\n"
    writer.text += "<desc>\(SVGWriter.escaped(summary))</desc>\n"
    if isFile { writer.text += "<style>\n\(Self.styleSheet)</style>\n" }
    if isFile {
      writer.text +=
        "<rect class=\"paper\" width=\"\(SVGWriter.number(width))\" height=\"\(SVGWriter.number(height))\" rx=\"8\"/>\n"
    }
    for group in groups { writer.write(group) }
    // Lines are drawn over boxes that contain others, and under all other boxes.
    for box in boxes where box.frame.height > box.headHeight { writer.write(box) }
    for edge in edges { writer.write(edge) }
    for box in boxes where box.frame.height <= box.headHeight { writer.write(box) }
    writer.text += "</svg>\n"
    return writer.text
  }

  /// The picture in words.
  var summary: String {
    var sentences = description.map { [$0.hasSuffix(".") ? $0 : $0 + "."] } ?? []
    for (index, group) in groups.prefix(100).enumerated() {
      let steps = boxes.filter { $0.group == index && $0.parent == nil && $0.kind != .port && $0.kind != .branch }.map(
        \.keyword)
      var readers: [String] = []
      for edge in edges where edge.fromGroup == index && edge.toGroup != index {
        let reader = groups[edge.toGroup].name + (edge.kind == .errors ? " (errors)" : "")
        if !readers.contains(reader) { readers.append(reader) }
      }
      var name = "\(group.kind.rawValue) \(group.name)"
      if group.members.count > 1 { name += " and \(group.members.count - 1) like it" }
      let goes = readers.isEmpty ? "" : " goes to \(readers.joined(separator: ", "))"
      sentences.append(name + (steps.isEmpty ? "" : " (\(steps.joined(separator: ", ")))") + goes + ".")
    }
    return sentences.joined(separator: " ")
  }

  // MARK: Colours

  private struct Palette {
    var light: String
    var dark: String
  }

  /// The colours of steps by category.
  private static let colors: [(classes: [String], Palette)] = [
    (["reading"], Palette(light: "#0969da", dark: "#58a6ff")),
    (["choosing"], Palette(light: "#0b7285", dark: "#39c5cf")),
    (["shaping"], Palette(light: "#57606a", dark: "#9da7b3")),
    (["time"], Palette(light: "#bc4c00", dark: "#f0883e")),
    (["gathering"], Palette(light: "#7d6608", dark: "#d2b32f")),
    (["combining"], Palette(light: "#1a7f37", dark: "#3fb950")),
    (["asking"], Palette(light: "#bf3989", dark: "#f778ba")),
    (["failing"], Palette(light: "#cf222e", dark: "#ff7b72")),
    (["living", "sharing", "operating"], Palette(light: "#8c959f", dark: "#7d8590")),
    (["commanding"], Palette(light: "#8250df", dark: "#bc8cff")),
    (["writing"], Palette(light: "#4f46c4", dark: "#9a95ff")),
  ]

  static func colorClass(_ box: Box) -> String {
    switch box.kind {
    case .source: "reading"
    case .sink: "writing"
    case .command, .port: "commanding"
    case .branch: "sharing"
    default: box.topic.map { "\($0)" } ?? "living"
    }
  }

  /// The rules for the classes of the picture, in light and dark.
  package static let styleSheet: String = {
    var rules = """
      .rxd-graph text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace;font-size:11px;fill:#1f2328;white-space:pre}
      .rxd-graph .name,.rxd-graph .keyword{font-size:12px;font-weight:600}
      .rxd-graph .branch .keyword,.rxd-graph .port .keyword{font-size:11px}
      .rxd-graph .kind,.rxd-graph .rate,.rxd-graph .count{font-size:9px;fill:#57606a}
      .rxd-graph .detail{fill:#424a53}.rxd-graph .badge{font-weight:600;fill:#57606a}
      .rxd-graph .rate,.rxd-graph .end{text-anchor:end}.rxd-graph .rate.start{text-anchor:start}
      .rxd-graph .paper{fill:#fff}.rxd-graph .frame{fill:#f6f8fa;stroke:#d0d7de}
      .rxd-graph .box{fill:#fff;stroke:#afb8c1}.rxd-graph .inside>.box{fill:#f6f8fa}.rxd-graph .branch>.box{fill:none;stroke:#afb8c1;stroke-dasharray:4 3}
      .rxd-graph .edge{fill:none;stroke:#6e7781;stroke-width:1.5}.rxd-graph .tip{fill:#6e7781;stroke:none}
      .rxd-graph .inner.edge{stroke-dasharray:1 4;stroke-linecap:round;stroke-width:2}
      .rxd-graph .errors.edge{stroke:#cf222e;stroke-dasharray:6 4}.rxd-graph .errors.tip{fill:#cf222e}
      .rxd-graph .timed.edge{stroke:#bc4c00}.rxd-graph .timed.tip{fill:#bc4c00}
      .rxd-graph .command.edge{stroke:#8250df;stroke-dasharray:8 3}.rxd-graph .command.tip{fill:#8250df}
      .rxd-graph .step:focus{outline:none}.rxd-graph .step:focus>.box{stroke:#0969da;stroke-width:2}

      """
    for (classes, palette) in colors {
      rules += classes.map { ".rxd-graph .\($0)>.bar" }.joined(separator: ",") + "{fill:\(palette.light)}\n"
    }
    rules += """
      @media(prefers-color-scheme:dark){
      .rxd-graph text{fill:#e6edf3}.rxd-graph .kind,.rxd-graph .rate,.rxd-graph .count,.rxd-graph .badge{fill:#9198a1}.rxd-graph .detail{fill:#c3cbd4}
      .rxd-graph .paper{fill:#0d1117}.rxd-graph .frame{fill:#151b23;stroke:#3d444d}
      .rxd-graph .box{fill:#212830;stroke:#4c535c}.rxd-graph .inside>.box{fill:#151b23}.rxd-graph .branch>.box{fill:none;stroke:#4c535c}
      .rxd-graph .edge{stroke:#8b949e}.rxd-graph .tip{fill:#8b949e}
      .rxd-graph .errors.edge{stroke:#ff7b72}.rxd-graph .errors.tip{fill:#ff7b72}
      .rxd-graph .timed.edge{stroke:#f0883e}.rxd-graph .timed.tip{fill:#f0883e}
      .rxd-graph .command.edge{stroke:#bc8cff}.rxd-graph .command.tip{fill:#bc8cff}
      .rxd-graph .step:focus>.box{stroke:#58a6ff}

      """
    for (classes, palette) in colors {
      rules += classes.map { ".rxd-graph .\($0)>.bar" }.joined(separator: ",") + "{fill:\(palette.dark)}\n"
    }
    return rules + "}\n"
  }()
}

/// Writes the parts of a picture.
private struct SVGWriter {
  var text = ""

  /// Whole numbers without a fraction, others with one digit.
  static func number(_ value: Double) -> String {
    let tenths = Int((value * 10).rounded())
    return tenths % 10 == 0 ? "\(tenths / 10)" : "\(tenths < 0 ? "-" : "")\(abs(tenths) / 10).\(abs(tenths) % 10)"
  }

  static func escaped(_ text: String) -> String {
    var result = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "&": result += "&amp;"
      case "<": result += "&lt;"
      case ">": result += "&gt;"
      case "\"": result += "&quot;"
      case "\n": result += "\n"
      default: Printable.append(scalar, to: &result)
      }
    }
    return result
  }

  mutating func write(_ group: GraphPicture.Group) {
    text += "<g class=\"group \(group.kind.rawValue)\" data-group=\"\(Self.escaped(group.name))\">"
    text += "<title>\(Self.escaped(group.title))</title>"
    // Stacked sheets mark a group that represents several.
    if group.members.count > 1 {
      for offset in [8.0, 4] { rectangle("frame", group.frame, offset: offset, radius: 8) }
    }
    rectangle("frame", group.frame, radius: 8)
    for line in group.lines { write(line) }
    text += "</g>\n"
  }

  mutating func write(_ box: GraphPicture.Box) {
    let hasStep = box.kind != .branch && !box.id.hasSuffix("?")
    var classes = hasStep ? "step \(box.kind.rawValue)" : box.kind.rawValue
    classes += " \(GraphPicture.colorClass(box))"
    if box.frame.height > box.headHeight { classes += " inside" }
    text += "<g class=\"\(classes)\""
    if hasStep { text += " data-step=\"\(Self.escaped(box.id))\" tabindex=\"0\"" }
    text += "><title>\(Self.escaped(box.title))</title>"
    rectangle("box", box.frame, radius: 5)
    if box.kind != .branch {
      let bar = GraphPicture.Frame(x: box.frame.x + 3, y: box.frame.y + 3, width: 3, height: box.headHeight - 6)
      rectangle("bar", bar, radius: 1.5)
    }
    for line in box.lines { write(line) }
    if hasStep, let keyword = box.lines.first {
      text +=
        "<text class=\"count end\" data-step=\"\(Self.escaped(box.id))\" x=\"\(Self.number(box.countX))\" y=\"\(Self.number(keyword.y))\"/>"
    }
    text += "</g>\n"
  }

  private mutating func rectangle(_ name: String, _ frame: GraphPicture.Frame, offset: Double = 0, radius: Double) {
    text += "<rect class=\"\(name)\" x=\"\(Self.number(frame.x + offset))\" y=\"\(Self.number(frame.y + offset))\""
    text +=
      " width=\"\(Self.number(frame.width))\" height=\"\(Self.number(frame.height))\" rx=\"\(Self.number(radius))\"/>"
  }

  private mutating func write(_ line: GraphPicture.Line) {
    // Text in an unknown font is squeezed or stretched to the computed width.
    let fit =
      PictureText.isUnusual(line.text)
      ? " textLength=\"\(Self.number(line.width))\" lengthAdjust=\"spacingAndGlyphs\"" : ""
    text +=
      "<text class=\"\(line.style.rawValue)\" x=\"\(Self.number(line.x))\" y=\"\(Self.number(line.y))\"\(fit)>\(Self.escaped(line.text))</text>"
  }

  mutating func write(_ edge: GraphPicture.Edge) {
    let name = Self.escaped(edge.name)
    var path = "M\(Self.number(edge.startX)) \(Self.number(edge.startY))"
    var (x, y) = (edge.startX, edge.startY)
    var before = (x, y)
    for segment in edge.segments {
      before = (x, y)
      switch segment {
      case .line(let toX, let toY):
        if toX == x, toY == y { continue }
        path +=
          toY == y
          ? "H\(Self.number(toX))" : toX == x ? "V\(Self.number(toY))" : "L\(Self.number(toX)) \(Self.number(toY))"
        (x, y) = (toX, toY)
      case .curve(let toX, let toY):
        let middle = Self.number((x + toX) / 2)
        path += "C\(middle) \(Self.number(y)) \(middle) \(Self.number(toY)) \(Self.number(toX)) \(Self.number(toY))"
        (x, y) = (toX, toY)
      }
    }
    let kind = edge.kind.rawValue + (edge.isTimed ? " timed" : "")
    text += "<g class=\"link\"><path class=\"edge \(kind)\" data-edge=\"\(name)\" d=\"\(path)\">"
    let times = edge.count > 1 ? " (\(edge.count) ×)" : ""
    let time = edge.isTimed ? ", with event time" : ""
    text += "<title>\(Self.escaped("\(edge.from) → \(edge.to)\(times)\(time)"))</title></path>"
    if !edge.isExit {
      let (tipX, tipY) = (Self.number(x), Self.number(y))
      let shape =
        y > before.1 && x == before.0
        ? "l-4-7h8z" : y < before.1 && x == before.0 ? "l-4 7h8z" : x < before.0 ? "l7-4v8z" : "l-7-4v8z"
      text += "<path class=\"tip \(kind)\" d=\"M\(tipX) \(tipY)\(shape)\"/>"
    }
    text +=
      "<text class=\"rate\(edge.labelEndsThere ? "" : " start")\" data-edge=\"\(name)\" x=\"\(Self.number(edge.labelX))\" y=\"\(Self.number(edge.labelY))\"/></g>\n"
  }
}
