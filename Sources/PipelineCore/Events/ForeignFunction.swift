/// An opened pure function of a plugin. May be called on several threads at once; it never waits.
package protocol PluginRowFunction: AnyObject, Sendable {
  /// Whether it ended its output when it was opened.
  var endsAtOnce: Bool { get }
  /// Replaces `value` by the result.
  ///
  /// - Parameters:
  ///   - arguments: The values of the parameters of type expression or template, in the order of the spec; absent: not given.
  ///   - arena: Holds the result.
  func call(_ value: inout Value, _ arguments: UnsafePointer<Value>?, _ arena: Arena) -> RowVerdict
}

extension PluginRowFunction {
  package var endsAtOnce: Bool { false }
}

/// The outcome of a call of a pure function.
package enum RowVerdict {
  case pass, drop
  /// The event passes, and the output completes after it.
  case last
  /// The output completes without the event.
  case finish
  case failed(String)
}

/// Why a function of a plugin cannot be opened.
package struct FunctionRefusal: Error, Sendable {
  /// A clause.
  package var message: String
  /// The path of the parameter at fault, such as `server.port`; empty: none.
  package var path: String

  package init(_ message: String, at path: String = "") {
    self.message = message
    self.path = path
  }
}

/// A pure function of a plugin that is opened when it is first needed, and then stays open.
package protocol ForeignFunction: AnyObject, Sendable {
  func open() -> Result<any PluginRowFunction, FunctionRefusal>
  /// Equal for functions that do the same: those of the same version of a plugin with the same parameters.
  var identity: String { get }
}
