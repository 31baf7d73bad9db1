/// What a node or a step keeps between events: keys that it remembers, events, and the bytes of its keys, events and values.
///
/// rxd shows it for built-in operators only. What a plugin keeps is counted here for the plugin itself, and so that an operator of the core
/// compiles unchanged.
public struct KeptSize: Sendable {
  public private(set) var keys = 0
  public private(set) var events = 0
  public private(set) var bytes = 0

  public init() {}

  /// So much more is kept, or less.
  public mutating func add(keys more: Int = 0, events moreEvents: Int = 0, bytes moreBytes: Int) {
    keys &+= more
    events &+= moreEvents
    bytes &+= moreBytes
  }

  /// So much is kept now.
  public mutating func set(keys now: Int = 0, events nowEvents: Int = 0, bytes nowBytes: Int) {
    (keys, events, bytes) = (now, nowEvents, nowBytes)
  }
}

extension OwnedValue {
  /// The bytes of the value and of the memory that it points to.
  public var keptBytes: Int { 16 + byteCount }
}
