/// Supplies the files that pipeline files include.
package struct IncludedFiles: Sendable {
  /// The result of reading an included file.
  package enum Outcome: Sendable {
    /// The text, and the name to show in messages; a file has the same name however it is included.
    case found(name: String, bytes: [UInt8])
    /// The reason, as a continuation of "the file ... ".
    case refused(String)
  }

  /// Reads `path`, which is relative to the directory of the file `including` and has no `..`.
  package var read: @Sendable (_ path: String, _ including: String) -> Outcome

  package init(read: @escaping @Sendable (_ path: String, _ including: String) -> Outcome) { self.read = read }

  /// Supplies no files.
  package static let none = IncludedFiles { _, _ in .refused("cannot be read here") }
}
