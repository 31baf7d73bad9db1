/// The limits of a pipeline file. Files come from people, generators and pull requests, so checking must end soon even
/// for a hostile one.
package struct YAMLLimits: Sendable {
  /// The size of a file in bytes.
  package var fileBytes = 1 << 20
  /// The depth of mappings and lists, with aliases replaced.
  package var depth = 64
  /// The number of values in a file, including keys.
  package var nodes = 100_000
  package var anchors = 1_000
  /// The number of values after all aliases have been replaced.
  package var expandedNodes = 100_000
  /// The size of a value outside a block scalar, in bytes.
  package var scalarBytes = 64 << 10
  /// The size of a block scalar, in bytes.
  package var blockScalarBytes = 1 << 20
  package var keyBytes = 256
  /// The number of errors reported per file; reading stops there.
  package var errors = 100

  package init() {}
  package static let standard = YAMLLimits()
}
