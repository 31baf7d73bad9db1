extension Program {
  @inline(__always)
  func evaluate(_ frame: EventFrame) -> Value { evaluate(frame.evaluation) }

  /// The result of a condition for the loaded event; anything but a bool counts as failed.
  @inline(__always)
  func evaluateBool(_ frame: EventFrame) -> Tri { evaluateBool(frame.evaluation) }
}

extension Program {
  /// The members of a value that is written as an object; the evaluation type describes the form.
  @inline(__always)
  func evaluateMembers(_ frame: EventFrame, into target: UnsafeMutablePointer<Value>) -> Bool {
    evaluateMembers(frame.evaluation, into: target)
  }
}

extension KeyText {
  @inline(__always)
  static func append(listOf program: Program, _ frame: EventFrame, to output: OutputBuffer) -> Bool {
    append(listOf: program, frame.evaluation, to: output)
  }
}
