/// Supplies the files that pipeline files include.
public struct IncludedFiles: Sendable {
  /// The result of reading an included file.
  public enum Outcome: Sendable {
    /// The text, and the name to show in messages; a file has one name however it is included.
    case found(name: String, bytes: [UInt8])
    /// The reason, which continues "the file ... ".
    case refused(String)
  }

  /// Reads `path`, which is relative and has no `..`, from the directory of the file `including`.
  public var read: @Sendable (_ path: String, _ including: String) -> Outcome

  public init(read: @escaping @Sendable (_ path: String, _ including: String) -> Outcome) { self.read = read }

  /// Supplies no files.
  public static let none = IncludedFiles { _, _ in .refused("cannot be read here") }
}
