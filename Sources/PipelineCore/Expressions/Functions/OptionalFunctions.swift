extension FunctionRegistry {
  private static let t = ExpressionType.param("T")

  /// Optional values. `or` and `orValue` evaluate their argument only if needed; `optional.try` is the only function
  /// that can receive a failure.
  static let optionals: [FunctionSpec] = [
    FunctionSpec(
      "optional.of", "An optional that holds the value.",
      [.global([t], .optional(t)) { $0.context.arena.optional($0[0]) }],
      examples: [("optional.of(1).value()", "1")]),
    FunctionSpec(
      "optional.none", "An empty optional.",
      [.global([], .optional(t)) { _ in Value(kind: .optional) }],
      examples: [("optional.none().hasValue()", "false")]),
    FunctionSpec(
      "optional.ofNonZeroValue", "An optional that holds the value unless it is null, zero, false or empty.",
      [
        .global([t], .optional(t)) { $0[0].isZero ? Value(kind: .optional) : $0.context.arena.optional($0[0]) }
      ], examples: [("optional.ofNonZeroValue('').hasValue()", "false")]),
    FunctionSpec(
      "optional.ofNonNull", "An optional that holds the value unless it is null.",
      [
        .global([t], .optional(t)) { $0[0].isNull ? Value(kind: .optional) : $0.context.arena.optional($0[0]) }
      ],
      examples: [
        ("optional.ofNonNull(dyn(null)).orValue(7)", "7"), ("optional.ofNonNull(0).orValue(7)", "0"),
      ]),
    FunctionSpec(
      "optional.try", "An optional that holds the value, or nothing where the expression fails.",
      [.global([t], .optional(t)) { $0.context.arena.optional($0[0]) }],
      examples: [
        ("optional.try(parseTime('yesterday', 'clf')).hasValue()", "false"),
        ("optional.try(int('7')).orValue(0)", "7"), ("optional.try(1 / 0).orValue(-1)", "-1"),
      ],
      details:
        """
        One failure is not caught: an expression that exceeds the limits of one evaluation in time or memory fails \
        as a whole.
        """
    ),
    FunctionSpec(
      "hasValue", "Whether the optional has a value.",
      [.member([.optional(t)], .bool) { .bool($0[0].pointer != nil) }],
      examples: [("{'a': 1}.?a.hasValue()", "true")]),
    FunctionSpec(
      "value", "The value of the optional; an error if it has none.",
      [.member([.optional(t)], t) { $0[0].wrapped ?? $0.context.failure(.emptyOptional) }],
      examples: [("{'a': 1}.?a.value()", "1")]),
    FunctionSpec(
      "or", "The optional if it has a value, else the other optional.",
      [.member([.optional(t), .optional(t)], .optional(t)) { $0[0].pointer != nil ? $0[0] : $0[1] }],
      examples: [("optional.none().or(optional.of(2)).value()", "2")]),
    FunctionSpec(
      "orValue", "The value of the optional if it has one, else the other value.",
      [.member([.optional(t), t], t) { $0[0].wrapped ?? $0[1] }],
      examples: [("optional.of(dyn({'a': 1})).?b.orValue(0)", "0")]),
  ]
}

extension Value {
  /// Whether the value is null, zero, false, empty or an optional without a value.
  var isZero: Bool {
    switch what {
    case .null, .absent: return true
    case .bool, .int, .uint, .duration: return payload == 0
    case .double: return asDouble == 0
    case .string, .bytes, .list, .map: return length == 0
    case .jsonList, .jsonMap: return rawBytes.dropFirst().first { $0 > 0x20 }.map { $0 == 0x5D || $0 == 0x7D } ?? true
    case .optional: return pointer == nil
    case .timestamp: return payload == 0 && length == 0
    case .type, .error: return false
    }
  }
}
