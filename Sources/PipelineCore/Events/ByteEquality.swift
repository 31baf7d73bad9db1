#if canImport(Glibc)
  import Glibc
#endif

/// Whether `count` bytes are equal; short texts, as most keys are, are compared without a call.
@inline(__always)
func areEqual(_ a: UnsafeRawPointer, _ b: UnsafeRawPointer, _ count: Int) -> Bool {
  if count > 16 { return count > 32 ? memcmp(a, b, count) == 0 : areEqualHalves(a, b, count) }
  if count >= 8 {
    let last = count &- 8
    return a.loadUnaligned(as: UInt64.self) == b.loadUnaligned(as: UInt64.self)
      && a.loadUnaligned(fromByteOffset: last, as: UInt64.self)
        == b.loadUnaligned(fromByteOffset: last, as: UInt64.self)
  }
  if count >= 4 {
    let last = count &- 4
    return a.loadUnaligned(as: UInt32.self) == b.loadUnaligned(as: UInt32.self)
      && a.loadUnaligned(fromByteOffset: last, as: UInt32.self)
        == b.loadUnaligned(fromByteOffset: last, as: UInt32.self)
  }
  for at in 0..<count where a.load(fromByteOffset: at, as: UInt8.self) != b.load(fromByteOffset: at, as: UInt8.self) {
    return false
  }
  return true
}

/// Compares 16 to 32 bytes.
@inline(__always)
private func areEqualHalves(_ a: UnsafeRawPointer, _ b: UnsafeRawPointer, _ count: Int) -> Bool {
  func differences(_ at: Int) -> UInt64 {
    a.loadUnaligned(fromByteOffset: at, as: UInt64.self) ^ b.loadUnaligned(fromByteOffset: at, as: UInt64.self)
  }
  return differences(0) | differences(8) | differences(count &- 16) | differences(count &- 8) == 0
}
