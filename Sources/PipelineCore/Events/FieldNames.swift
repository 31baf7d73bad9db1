/// The keys of maps that a decoder makes repeatedly. Their bytes live as long as this object; the arena keeps the
/// object alive for the values of the turn.
final class FieldNames {
  let keys: UnsafeBufferPointer<Value>
  private let memory: UnsafeMutableRawBufferPointer

  init(_ names: [[UInt8]]) {
    memory = .allocate(byteCount: max(names.reduce(0) { $0 + $1.count }, 1), alignment: 1)
    let keys = UnsafeMutableBufferPointer<Value>.allocate(capacity: names.count)
    var used = 0
    for (index, name) in names.enumerated() {
      let copy = UnsafeMutableRawBufferPointer(rebasing: memory[used..<used + name.count])
      copy.copyBytes(from: name)
      keys.initializeElement(at: index, to: .string(UnsafeRawBufferPointer(copy)))
      used += name.count
    }
    self.keys = UnsafeBufferPointer(keys)
  }

  deinit {
    keys.deallocate()
    memory.deallocate()
  }

  func name(_ index: Int) -> String { String(decoding: keys[index].rawBytes, as: UTF8.self) }
}
