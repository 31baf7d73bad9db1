/// How far a source has read, according to a saved state.
public struct SavedPosition: Sendable, Equatable {
  /// The file; nil: the source reads none.
  package var path: String?
  /// The inode of the file; 0: unknown.
  package var inode: UInt64
  /// The amount that has been read, in bytes or, without `path`, in the unit `unit`. Nil: everything has been read.
  package var offset: Int64?
  /// `bytes`, `values`, `ticks`.
  package var unit: String

  /// A position in one input.
  public init(path: String? = nil, inode: UInt64 = 0, offset: Int64?, unit: String = "bytes") {
    self.path = path
    self.inode = inode
    self.offset = offset
    self.unit = unit
  }
}
