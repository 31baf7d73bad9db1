import CJSON

extension Machine {
  /// The maximum number of terms of one ``Operation/Code/sum``; longer sums are added in steps.
  static let sumLimit = 16

  /// Text terms are concatenated once, when all are known. At the first term of another kind, everything before it is
  /// concatenated and added as `+` does, so the result, or the failure, equals that of successive additions.
  @inline(never)
  func sum(_ at: Int32) -> Value {
    let operation = operations + Int(at)
    let terms = code.pointee.children + Int(operation.pointee.a)
    let count = Int(operation.pointee.b)
    return withUnsafeTemporaryAllocation(of: Value.self, capacity: Self.sumLimit) { texts in
      guard let texts = texts.baseAddress, count <= Self.sumLimit else { return .absent }
      var length = 0
      for term in 0..<count {
        let value = quickValue(terms[2 &* term])
        if value.isError { return value }
        guard value.is(.string), value.flags & Value.netFlags == 0 else {
          return sum(terms, count, from: term, value, after: texts, length)
        }
        texts[term] = context.plain(value)
        length &+= Int(texts[term].length)
        if length > ExpressionLimits.stringBytes { return located(context.failure(.tooLarge), terms[2 &* term &+ 1]) }
      }
      return located(context.joined(texts, count, length), at)
    }
  }

  @inline(never)
  private func sum(
    _ terms: UnsafePointer<Int32>, _ count: Int, from first: Int, _ value: Value,
    after texts: UnsafeMutablePointer<Value>, _ length: Int
  ) -> Value {
    var total = value
    var next = first
    if first > 0 {
      total = located(context.joined(texts, first, length), terms[2 * first - 1])
    } else {
      next = 1
    }
    while next < count {
      if total.isError { return total }
      let term = next == first ? value : self.value(terms[2 * next])
      if term.isError { return term }
      let addition = terms[2 * next + 1]
      total = located(
        context.arithmetic(.add, total, term, mixes: operations[Int(addition)].flags != 0), addition)
      next += 1
    }
    return total
  }
}

extension Context {
  /// Concatenates `count` plain texts of `length` bytes together.
  @inline(__always)
  fileprivate func joined(_ texts: UnsafeMutablePointer<Value>, _ count: Int, _ length: Int) -> Value {
    guard hasRoom else { return failure(.tooLarge) }
    let target = state.pointee.arena._withUnsafeGuaranteedRef { $0.allocate(length) }
    var result = Value(kind: .string, pointer: target, length: length)
    var hints = UInt16(RX_PLAIN)
    var end = target
    for index in 0..<count {
      let text = texts[index]
      hints &= text.aux
      if text.length > 0, let start = text.pointer {
        end.copyMemory(from: start, byteCount: Int(text.length))
        end += Int(text.length)
      }
    }
    result.aux = hints
    return result
  }
}
