/// A function that a pipeline file defines: an expression with typed parameters.
///
/// It sees only its parameters and functions that do not call it, so evaluation always ends. A call is replaced by a
/// copy of the body (``ExpressionSyntax/expanded(_:into:)``): nothing is looked up or allocated at run time.
package final class UserFunction: Sendable {
  /// A parameter of the function.
  package struct Parameter: Sendable {
    package let name: String
    package let type: ExpressionType
    package let location: SourceLocation

    package init(_ name: String, _ type: ExpressionType, at location: SourceLocation) {
      self.name = name
      self.type = type
      self.location = location
    }
  }

  package let name: String
  /// The location of the name.
  package let location: SourceLocation
  package let summary: String?
  package let parameters: [Parameter]
  /// The result type that the file declares, if any.
  package let returns: ExpressionType?
  /// The body, without the bodies of the functions that it calls.
  let body: ExpressionSyntax
  /// The type of the result for arguments of exactly the declared types.
  package let type: ExpressionType
  /// The number of nodes and the depth, including the bodies of the functions that it calls.
  let extent: Extent

  struct Extent: Sendable {
    var nodes = 0
    var depth = 0
  }

  init(
    _ name: String, at location: SourceLocation, summary: String?, parameters: [Parameter], returns: ExpressionType?,
    body: ExpressionSyntax, type: ExpressionType, extent: Extent
  ) {
    self.name = name
    self.location = location
    self.summary = summary
    self.parameters = parameters
    self.returns = returns
    self.body = body
    self.type = type
    self.extent = extent
  }

  /// `celsius(f: double) -> double`
  package var signature: String {
    "\(name)(\(parameters.map { "\($0.name): \($0.type)" }.joined(separator: ", "))) -> \(type)"
  }

  /// The source text of the body.
  package var text: LocatedText { body.text }

  /// Whether the function comes from an included file.
  package var isIncluded: Bool { location.text.origin != nil }

  static let parameterLimit = 16
}

/// The functions of a pipeline file and of the files that it includes, and those of plugins.
package struct UserFunctions: Sendable {
  package static let none = UserFunctions()

  /// In the order of their definitions.
  package private(set) var all: [UserFunction] = []
  private var table: [String: UserFunction] = [:]
  /// Functions whose definition has an error, which is reported there: calling one is not another error.
  var broken: Set<String> = []
  /// The functions of plugins, by the names by which they are called: `geo.lookup`.
  package var offered: [String: CallableFunction] = [:]

  /// Whether the file defines none.
  package var isEmpty: Bool { table.isEmpty && broken.isEmpty }
  var names: [String] { Array(table.keys) + broken + offered.keys }

  subscript(name: String) -> UserFunction? { table[name] }

  mutating func add(_ function: UserFunction) {
    all.append(function)
    table[function.name] = function
  }

  mutating func sort(by order: [String: Int]) {
    all.sort { order[$0.name] ?? 0 < order[$1.name] ?? 0 }
  }
}

extension SyntaxTree {
  /// The name of the function that a node calls, and the number of its arguments; `x.f(y)` has two.
  func called(_ node: Node) -> (name: String, count: Int)? {
    guard case .call(let target, let function, _, let arguments) = node.kind else { return nil }
    let name = function.utf8.first == UInt8(ascii: ".") ? String(function.dropFirst()) : function
    return (name, arguments.count + (target == nil ? 0 : 1))
  }
}

extension ExpressionSyntax {
  /// The function that a node calls, if the number of arguments is correct.
  private func called(_ node: SyntaxTree.Node, _ functions: UserFunctions) -> UserFunction? {
    guard let (name, count) = tree.called(node), let function = functions[name], function.parameters.count == count
    else { return nil }
    return function
  }

  /// The size, including the bodies of all functions that are called.
  func extent(_ functions: UserFunctions) -> UserFunction.Extent {
    var depths: [Int] = []
    var result = UserFunction.Extent()
    for node in tree.nodes {
      var depth = tree.children(of: SyntaxTree.ID(depths.count)).reduce(0) { max($0, depths[Int($1)]) } + 1
      result.nodes += 1
      if let function = called(node, functions) {
        result.nodes += function.extent.nodes
        // Each parameter is a binding around the body.
        depth = max(depth, function.extent.depth + 1) + function.parameters.count
      }
      depths.append(depth)
      result.depth = max(result.depth, depth)
    }
    return result
  }

  /// The location at which a node names the function that it calls.
  func nameLocation(_ node: SyntaxTree.Node) -> SourceLocation {
    guard case .call(_, let function, let at, _) = node.kind else { return text.location }
    let length = function.utf8.count - (function.utf8.first == UInt8(ascii: ".") ? 1 : 0)
    return text(node.text).location(Int(at), Int(at) + length)
  }

  /// A copy with the bodies in place of the calls of functions; nil, with a diagnostic, if it would be too large.
  ///
  /// Nodes of a body keep their offsets, in a copy of its text whose origin is the call.
  func expanded(_ functions: UserFunctions, into diagnostics: inout Diagnostics) -> ExpressionSyntax? {
    guard !functions.isEmpty, let first = tree.nodes.first(where: { called($0, functions) != nil }) else { return self }
    let extent = extent(functions)
    guard extent.nodes <= ExpressionLimits.nodes, extent.depth <= ExpressionLimits.depth else {
      diagnostics.report(
        Diagnostic(
          .expressionTooLong,
          "with the functions that it calls, the expression "
            + (extent.nodes > ExpressionLimits.nodes
              ? "has more than \(ExpressionLimits.nodes) parts"
              : "nests deeper than \(ExpressionLimits.depth) levels"),
          at: nameLocation(first), help: "Split it into several steps."))
      return nil
    }
    var result = ExpressionSyntax(text: text, tree: SyntaxTree())
    result.tree.root = result.append(self, 0, functions)
    return result
  }

  /// Appends the nodes of `other`, whose text has the number `number`; returns the new root.
  private mutating func append(
    _ other: ExpressionSyntax, _ number: Int32, _ functions: UserFunctions
  ) -> SyntaxTree.ID {
    var ids: [SyntaxTree.ID] = []
    ids.reserveCapacity(other.tree.nodes.count)
    for var node in other.tree.nodes {
      node.text = number
      if let function = other.called(node, functions), case .call(let target, _, _, let arguments) = node.kind {
        var body = function.body.text
        body.source = SourceText(
          body.source, origin: .init("by this call of '\(function.name)'", at: nameLocation(node)))
        inserted.append(body)
        let root = append(function.body, Int32(inserted.count), functions)
        node.kind = .apply(
          .init(
            function: function, arguments: ((target.map { [$0] } ?? []) + arguments).map { ids[Int($0)] }, body: root))
      } else {
        node.kind = node.kind.mapChildren { ids[Int($0)] }
      }
      tree.nodes.append(node)
      ids.append(SyntaxTree.ID(tree.nodes.count - 1))
    }
    return ids[Int(other.tree.root)]
  }
}
