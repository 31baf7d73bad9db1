/// Supplies the files that pipeline files include.
package struct IncludedFiles: Sendable {
  /// The result of reading an included file.
  package enum Outcome: Sendable {
    /// The text, and the name to show in messages; a file has one name however it is included.
    case found(name: String, bytes: [UInt8])
    /// The reason, which continues "the file ... ".
    case refused(String)
  }

  /// Reads `path`, which is relative and has no `..`, from the directory of the file `including`.
  package var read: @Sendable (_ path: String, _ including: String) -> Outcome

  package init(read: @escaping @Sendable (_ path: String, _ including: String) -> Outcome) { self.read = read }

  /// Supplies no files.
  package static let none = IncludedFiles { _, _ in .refused("cannot be read here") }
}
