/// The limits of a pipeline file. Files come from people, generators and pull requests; checking a hostile one must end
/// soon.
public struct YAMLLimits: Sendable {
  /// The size of a file in bytes.
  public var fileBytes = 1 << 20
  /// The depth of mappings and lists, with aliases replaced.
  public var depth = 64
  /// The number of values in a file, including keys.
  public var nodes = 100_000
  public var anchors = 1_000
  /// The number of values after all aliases have been replaced.
  public var expandedNodes = 100_000
  /// The size of a value outside a block scalar, in bytes.
  public var scalarBytes = 64 << 10
  /// The size of a block scalar, in bytes.
  public var blockScalarBytes = 1 << 20
  public var keyBytes = 256
  /// The errors reported per file; reading stops there.
  public var errors = 100

  public init() {}
  public static let standard = YAMLLimits()
}
