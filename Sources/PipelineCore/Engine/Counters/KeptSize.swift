/// The size of the state that one instance of a step keeps between events: the number of keys and of events, and the
/// bytes of keys, events and values, without the tables around them. Used in turns.
///
/// The step's counters hold the sum over all instances, so inspecting a running pipeline visits no instance. Storing or
/// removing something costs an addition; an event of which nothing is stored costs nothing.
struct KeptSize {
  private(set) var keys = 0
  private(set) var events = 0
  private(set) var bytes = 0
  /// The counters to which the size is added; nil: the instance has not been attached, or it has ended.
  private var counters: UnsafeMutablePointer<StepCounters>?

  init(_ counters: UnsafeMutablePointer<StepCounters>? = nil) { self.counters = counters }

  /// Adds to `counters` from now on.
  mutating func attach(_ counters: UnsafeMutablePointer<StepCounters>) {
    guard self.counters == nil else { return }
    self.counters = counters
    let (keys, events, bytes) = (keys, events, bytes)
    (self.keys, self.events, self.bytes) = (0, 0, 0)
    add(keys: keys, events: events, bytes: bytes)
  }

  /// Adds this amount to the stored size; a negative one is subtracted.
  @inline(__always)
  mutating func add(keys more: Int = 0, events moreEvents: Int = 0, bytes moreBytes: Int) {
    keys &+= more
    events &+= moreEvents
    bytes &+= moreBytes
    guard let counters else { return }
    counters.pointee.keptEvents &+= moreEvents
    counters.pointee.keptBytes &+= moreBytes
    counters.pointee.hasKept = true
    if more != 0 {
      counters.pointee.keptKeys &+= more
      counters.pointee.hasKeys = true
    }
  }

  /// Sets the stored size.
  @inline(__always)
  mutating func set(keys now: Int = 0, events nowEvents: Int = 0, bytes nowBytes: Int) {
    if now != keys || nowEvents != events || nowBytes != bytes {
      add(keys: now &- keys, events: nowEvents &- events, bytes: nowBytes &- bytes)
    }
  }

  /// Sets the stored size to zero; later changes are ignored.
  mutating func end() {
    set(bytes: 0)
    counters = nil
  }
}

extension OwnedValue {
  /// The bytes of the value and of the memory that it points to.
  var keptBytes: Int { MemoryLayout<Value>.stride &+ byteCount }
}
