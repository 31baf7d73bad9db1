extension Program {
  /// The result for the loaded event; an error if the expression fails. It is valid until the end of the turn.
  @inline(__always)
  public func evaluate(_ frame: EventFrame) -> Value { evaluate(frame.evaluation) }

  /// The result of a condition for the loaded event; anything but a bool counts as failed.
  @inline(__always)
  public func evaluateBool(_ frame: EventFrame) -> Tri { evaluateBool(frame.evaluation) }
}

extension Program {
  /// The members of a value that is written as an object; the evaluation type describes the form.
  @inline(__always)
  func evaluateMembers(_ frame: EventFrame, into target: UnsafeMutablePointer<Value>) -> Bool {
    evaluateMembers(frame.evaluation, into: target)
  }
}

extension KeyText {
  /// Appends the elements of a list expression without building the list. False if the program is not a list expression
  /// or an element failed; the appended bytes are then invalid.
  @inline(__always)
  static func append(
    listOf program: Program, _ state: UnsafeMutablePointer<EvaluationFrame.State>, to output: OutputBuffer
  ) -> Bool {
    let context = Context(state: state)
    return program.evaluateElements(
      state, begin: { append(.list, UInt64($0), to: output) },
      each: { element in
        if element.is(.string), !element.isEscaped {
          append(.text, element.rawBytes, to: output)
        } else if element.is(.int) {
          append(.int, element.payload, to: output)
        } else {
          append(element, to: output, context, depth: 1)
        }
      })
  }

  /// Puts the key of the loaded event into `output`, replacing its contents. Returns the reason if there is no key.
  @inline(__always)
  static func failureToWrite(_ program: Program, _ frame: EventFrame, to output: OutputBuffer) -> Value? {
    output.clear()
    if append(listOf: program, frame.evaluation, to: output) { return nil }
    let key = program.evaluate(frame)
    if key.isError { return key }
    output.clear()
    append(key, to: output, Context(state: frame.evaluation))
    return nil
  }
}

extension EventFrame {
  /// The text of a scalar for use outside of the pipeline, such as in a URL: numbers without an exponent, unless JSON
  /// text gave them one. Nil: the value is not a scalar.
  package func text(of value: Value) -> String? {
    let buffer = OutputBuffer(capacity: 64)
    if value.is(.double) {
      if value.hasNumberText {
        buffer.append(value.numberText)
      } else {
        NumberText.appendPlain(value.asDouble, to: buffer)
      }
    } else if !ValueText.append(value, to: buffer, Context(state: evaluation)) {
      return nil
    }
    return String(decoding: buffer.bytes, as: UTF8.self)
  }
}
