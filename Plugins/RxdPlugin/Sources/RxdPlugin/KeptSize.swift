/// The numbers of keys, events and bytes that a node or step holds between events.
///
/// rxd shows them for built-in operators only. Here they are for the plugin's own use, and let an operator of the core compile unchanged.
public struct KeptSize: Sendable {
  public private(set) var keys = 0
  public private(set) var events = 0
  public private(set) var bytes = 0

  public init() {}

  /// Adds to the numbers, or subtracts.
  public mutating func add(keys more: Int = 0, events moreEvents: Int = 0, bytes moreBytes: Int) {
    keys &+= more
    events &+= moreEvents
    bytes &+= moreBytes
  }

  /// Sets the numbers that are given.
  public mutating func set(keys now: Int = 0, events nowEvents: Int = 0, bytes nowBytes: Int) {
    (keys, events, bytes) = (now, nowEvents, nowBytes)
  }
}

extension OwnedValue {
  /// The bytes of the value and of the memory that it points to.
  public var keptBytes: Int { 16 + byteCount }
}
