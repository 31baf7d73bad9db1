/// FNV-1a, 64 bits: detects accidental changes, not attacks.
package struct Fingerprint {
  package private(set) var value: UInt64 = 0xCBF2_9CE4_8422_2325

  mutating func add(_ byte: UInt8) { value = (value ^ UInt64(byte)) &* 0x0000_0100_0000_01B3 }
  mutating func add(_ bytes: some Sequence<UInt8>) { for byte in bytes { add(byte) } }
  package init() {}

  package mutating func add(_ number: UInt64) {
    for shift in stride(from: UInt64(0), to: 64, by: 8) { add(UInt8(truncatingIfNeeded: number &>> shift)) }
  }

  package static func of(_ bytes: some Sequence<UInt8>) -> UInt64 {
    var print = Fingerprint()
    print.add(bytes)
    return print.value
  }
}
