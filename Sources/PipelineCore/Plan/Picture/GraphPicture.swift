/// A plan as a picture: boxes and lines with coordinates, in pixels from the upper left corner. The same plan always makes the same picture.
///
/// Each named source, signal, command and sink is a group, whose steps stand below each other in the order of the file; inner signals and
/// chains are boxes within the box of their step. Groups stand in columns, so that events go from left to right, and downwards inside.
public struct GraphPicture: Sendable {
  /// A rectangle.
  public struct Frame: Sendable, Equatable {
    public var x = 0.0
    public var y = 0.0
    public var width = 0.0
    public var height = 0.0

    public init(x: Double = 0, y: Double = 0, width: Double = 0, height: Double = 0) {
      (self.x, self.y, self.width, self.height) = (x, y, width, height)
    }

    public var right: Double { x + width }
    public var bottom: Double { y + height }
    public var middle: Double { x + width / 2 }

    public func contains(_ other: Frame) -> Bool {
      x <= other.x && y <= other.y && right >= other.right && bottom >= other.bottom
    }
    public func meets(_ other: Frame) -> Bool {
      x < other.right && other.x < right && y < other.bottom && other.y < bottom
    }
  }

  /// A text in a box, one line.
  public struct Line: Sendable, Equatable {
    /// The style of a text.
    public enum Style: String, Sendable { case name, kind, keyword, detail, badge }
    public var text: String
    public var style: Style
    /// The x of its start, and its base line.
    public var x: Double
    public var y: Double
    /// The largest width of the text.
    public var width: Double
  }

  /// The kind of a group or a box.
  public enum Kind: String, Sendable {
    case source, signal, command, sink
    case `operator`, combination
    /// An output of a command, or its `enabled` signal.
    case port
    /// An input of a combination that has steps of its own.
    case branch
  }

  /// A named source, signal, command or sink, or several of the same shape.
  public struct Group: Sendable {
    public var name: String
    public var kind: Kind
    public var frame: Frame
    public var lines: [Line]
    /// The tooltip.
    public var title: String
    /// The names of the groups that it represents: its own, and those that are folded into it.
    public var members: [String]
    /// The index of its column, from 0.
    public var column: Int
    public var location: SourceLocation
  }

  /// A step, port or branch.
  public struct Box: Sendable {
    /// The step's name in metrics and views (``Plan/id(of:)-(StepID)``); of a port or branch the name that it has in edges, or "".
    public var id: String
    public var kind: Kind
    /// The purpose of the operator; nil: unknown.
    public var topic: UseCase.Topic?
    public var keyword: String
    /// All of it; inner signals are inside.
    public var frame: Frame
    /// The height of the part with the texts.
    public var headHeight: Double
    public var lines: [Line]
    /// The tooltip: the settings in full.
    public var title: String
    /// The index of the group that it belongs to, and of the box that it stands in.
    public var group: Int
    public var parent: Int?
    /// The right end of the place for a count, on the base line of the keyword.
    public var countX: Double
    public var location: SourceLocation
  }

  /// A line between two boxes.
  public struct Edge: Sendable {
    /// The kind of an edge.
    public enum Kind: String, Sendable {
      case events, errors
      /// Between a step and the inner signal or chain that it runs.
      case inner
      /// From a step to the command that it executes. Its events, the values of the execution, come back.
      case command
    }
    /// A part of the path of an edge.
    public enum Segment: Sendable, Equatable {
      case line(x: Double, y: Double)
      /// From the last point to this one, horizontal at both ends.
      case curve(x: Double, y: Double)
    }
    /// Both ends as `rxd_edge_events_total{from,to}` has them.
    public var from: String
    public var to: String
    public var kind: Kind
    /// The indexes of the groups at both ends.
    public var fromGroup: Int
    public var toGroup: Int
    public var startX: Double
    public var startY: Double
    public var segments: [Segment]
    /// Whether it ends at the border of its group, from where the readers get the events.
    public var isExit = false
    /// Whether it leads back to a column on its left, as only commands do.
    public var isBackward: Bool
    /// How many edges of the plan it stands for.
    public var count: Int
    /// The place for a rate, and whether the text is left of that point.
    public var labelX: Double
    public var labelY: Double
    public var labelEndsThere: Bool

    /// `FROM>TO`.
    public var name: String { "\(from)>\(to)" }
    public var end: (x: Double, y: Double) {
      switch segments.last {
      case .line(let x, let y), .curve(let x, let y): (x, y)
      case nil: (startX, startY)
      }
    }
  }

  public let name: String
  public let description: String?
  public private(set) var width = 0.0
  public private(set) var height = 0.0
  public private(set) var groups: [Group] = []
  /// A box comes after the one that it stands in.
  public private(set) var boxes: [Box] = []
  public private(set) var edges: [Edge] = []

  /// `folding`: groups of the same shape, with readers and origins of the same shape, become one if there are at least ``foldedFrom``.
  public init(_ plan: Plan, folding: Bool = true) {
    name = plan.name
    description = plan.description
    var outline = PictureOutline(plan)
    if folding { outline.fold(atLeast: Self.foldedFrom) }
    var layout = PictureLayout(outline)
    layout.run()
    width = layout.width
    height = layout.height
    (groups, boxes, edges) = layout.finished()
  }

  /// The least number of groups that become one.
  static let foldedFrom = 5
}
