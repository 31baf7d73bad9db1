/// `movedFrom` next to a named source, signal, command or sink: the name of that part in an earlier version of the
/// file.
package struct FormerName: Sendable {
  /// The present name, and the former one.
  package var name: String
  package var former: String
  package var isSink: Bool
  /// `source`, `signal`, `command`, `sink`.
  package var kind: String
  /// The location of the former name.
  package var location: SourceLocation

  /// The report that the saved state has neither name.
  package var isUnknown: Diagnostic {
    Diagnostic(
      .stateRefused, "the saved state has no \(kind) '\(former)', so '\(name)' starts empty", at: location,
      help: "Name the \(kind) as it was called when the state was saved, or remove 'movedFrom'")
  }

  /// The prefix of the keys of the steps of a part with this name.
  static func prefix(_ name: String, isSink: Bool) -> String { isSink ? "sinks.\(name)/" : "\(name)/" }
}
