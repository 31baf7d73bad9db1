/// What a pipeline file may cost at most. Files come from people, generators and pull requests, and
/// checking a hostile one must end soon.
public struct YAMLLimits: Sendable {
  /// Bytes of one file.
  public var fileBytes = 1 << 20
  /// Mappings and lists inside one another, aliases replaced.
  public var depth = 64
  /// Values of a file, keys included.
  public var nodes = 100_000
  public var anchors = 1_000
  /// Values after every alias has been replaced by what it names.
  public var expandedNodes = 100_000
  /// Bytes of one value outside a block scalar.
  public var scalarBytes = 64 << 10
  /// Bytes of one block scalar.
  public var blockScalarBytes = 1 << 20
  public var keyBytes = 256
  /// Mistakes reported per file; reading stops there.
  public var errors = 100

  public init() {}
  public static let standard = YAMLLimits()
}
