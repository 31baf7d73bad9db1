/// A weak reference to a node, for other threads; read only in the node's turns.
public final class Weak<Object: AnyObject>: @unchecked Sendable {
  public private(set) weak var object: Object?
  public init(_ object: Object) { self.object = object }
}
