/// A plan as a picture: boxes and lines with coordinates, in pixels from the upper left corner. The same plan always
/// gives the same picture.
///
/// Each named source, signal, command and sink is a group, whose steps are arranged from top to bottom in the order of
/// the file; inner signals and chains are boxes within the box of their step. Groups are arranged in columns, so that
/// events flow from left to right, and downwards within a group.
package struct GraphPicture: Sendable {
  /// A rectangle.
  package struct Frame: Sendable, Equatable {
    package var x = 0.0
    package var y = 0.0
    package var width = 0.0
    package var height = 0.0

    package init(x: Double = 0, y: Double = 0, width: Double = 0, height: Double = 0) {
      (self.x, self.y, self.width, self.height) = (x, y, width, height)
    }

    package var right: Double { x + width }
    package var bottom: Double { y + height }
    package var middle: Double { x + width / 2 }

    package func contains(_ other: Frame) -> Bool {
      x <= other.x && y <= other.y && right >= other.right && bottom >= other.bottom
    }
    package func meets(_ other: Frame) -> Bool {
      x < other.right && other.x < right && y < other.bottom && other.y < bottom
    }
  }

  /// A text in a box, one line.
  package struct Line: Sendable, Equatable {
    /// The style of a text.
    package enum Style: String, Sendable { case name, kind, keyword, detail, badge }
    package var text: String
    package var style: Style
    /// The x of its start, and its base line.
    package var x: Double
    package var y: Double
    /// The largest width of the text.
    package var width: Double
  }

  /// The kind of a group or a box.
  package enum Kind: String, Sendable {
    case source, signal, command, sink
    case `operator`, combination
    /// An output of a command, or its `enabled` signal.
    case port
    /// An input of a combination that has its own steps.
    case branch
  }

  /// A named source, signal, command or sink, or several of the same shape.
  package struct Group: Sendable {
    package var name: String
    package var kind: Kind
    package var frame: Frame
    package var lines: [Line]
    /// The tooltip.
    package var title: String
    /// The names of the groups that it represents: its own, and those that are folded into it.
    package var members: [String]
    /// The index of its column, from 0.
    package var column: Int
    package var location: SourceLocation
  }

  /// A step, port or branch.
  package struct Box: Sendable {
    /// The step's name in metrics and views (``Plan/id(of:)-(StepID)``); for a port or branch its name in edges, or "".
    package var id: String
    package var kind: Kind
    /// The purpose of the operator; nil: unknown.
    package var topic: UseCase.Topic?
    package var keyword: String
    /// The whole box; inner signals are inside.
    package var frame: Frame
    /// The height of the part with the texts.
    package var headHeight: Double
    package var lines: [Line]
    /// The tooltip: the settings in full.
    package var title: String
    /// The indices of its group and of the enclosing box.
    package var group: Int
    package var parent: Int?
    /// The right end of the space for a count, on the base line of the keyword.
    package var countX: Double
    package var location: SourceLocation
  }

  /// A line between two boxes.
  package struct Edge: Sendable {
    /// The kind of an edge.
    package enum Kind: String, Sendable {
      case events, errors
      /// Between a step and the inner signal or chain that it runs.
      case inner
      /// From a step to the command that it executes. The values of the execution return along the edge.
      case command
    }
    /// A part of the path of an edge.
    package enum Segment: Sendable, Equatable {
      case line(x: Double, y: Double)
      /// From the previous point to this one, horizontal at both ends.
      case curve(x: Double, y: Double)
    }
    /// The ends, as the labels of `rxd_edge_events_total{from,to}` name them.
    package var from: String
    package var to: String
    package var kind: Kind
    /// Whether the edge's events have event time, so that watermarks travel along it.
    package var isTimed = false
    /// The indexes of the groups at both ends.
    package var fromGroup: Int
    package var toGroup: Int
    package var startX: Double
    package var startY: Double
    package var segments: [Segment]
    /// Whether the edge ends at the border of its group, where the readers get the events.
    package var isExit = false
    /// Whether the edge leads back to a column on its left, as only edges to commands do.
    package var isBackward: Bool
    /// The number of plan edges that this edge represents.
    package var count: Int
    /// The point at which a rate is drawn, and whether the text is left of it.
    package var labelX: Double
    package var labelY: Double
    package var labelEndsThere: Bool

    /// `FROM>TO`.
    package var name: String { "\(from)>\(to)" }
    package var end: (x: Double, y: Double) {
      switch segments.last {
      case .line(let x, let y), .curve(let x, let y): (x, y)
      case nil: (startX, startY)
      }
    }
  }

  package let name: String
  package let description: String?
  package private(set) var width = 0.0
  package private(set) var height = 0.0
  package private(set) var groups: [Group] = []
  /// A box comes after its enclosing box.
  package private(set) var boxes: [Box] = []
  package private(set) var edges: [Edge] = []

  /// - Parameter folding: Whether groups of the same shape, with readers and origins of the same shape, become one if
  ///   there are at least ``foldedFrom``.
  package init(_ plan: Plan, folding: Bool = true) {
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

  /// The minimum number of groups that become one.
  static let foldedFrom = 5
}
