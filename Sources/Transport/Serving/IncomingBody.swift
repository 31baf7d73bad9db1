import PipelineCore

/// The body of a request while it is received.
struct IncomingBody {
  private(set) var slab = Slab.empty
  var count: Int { slab.count }

  init() {}

  /// A whole body.
  init(_ slab: Slab) { self.slab = slab }

  /// Adds a part, which the limit allows; false: there is no memory for it.
  mutating func append(_ bytes: UnsafeRawBufferPointer, of head: RequestHead, most: Int, _ charge: ByteCharge?) -> Bool
  {
    let count = slab.count + bytes.count
    if count > slab.capacity {
      // Reserves no more than the announced length; without one, the capacity doubles each time.
      let wanted = max(
        min(head.length, 64 << 10), count,
        min(2 * slab.capacity, most), 1 << 10)
      let room = head.isChunked ? wanted : min(wanted, head.length)
      guard let charge, charge.grow(by: room - slab.capacity) else { return false }
      let larger = Slab(capacity: room)
      larger.charge = charge
      larger.append(slab.bytes)
      slab = larger
    }
    slab.append(bytes)
    return true
  }
}
