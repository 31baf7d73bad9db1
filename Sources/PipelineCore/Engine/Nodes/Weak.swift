/// A weak reference to a node, for other threads; read only in the node's turns.
package final class Weak<Object: AnyObject>: @unchecked Sendable {
  package private(set) weak var object: Object?
  package init(_ object: Object) { self.object = object }
}
