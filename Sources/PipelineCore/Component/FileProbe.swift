/// How checks of a pipeline file look at the files that it names. The core opens none itself.
public struct FileProbe: Sendable {
  /// Why the file of this path cannot be read, a clause without a full stop; nil: it can be.
  public let problem: @Sendable (String) -> String?

  public init(_ problem: @escaping @Sendable (String) -> String?) { self.problem = problem }

  /// Takes every file for readable.
  public static let none = FileProbe { _ in nil }
}
