extension FunctionSpec {
  /// A function of a plugin: one overload for each number of arguments that a call may have.
  package init(_ callable: CallableFunction) {
    let kinds = callable.parameters.map(KindSet.widened)
    let resultKinds = KindSet.widened(callable.result)
    let body: FunctionOverload.Body = { arguments in Self.call(callable, arguments, kinds, resultKinds) }
    self.init(
      callable.name, callable.summary,
      (callable.least...callable.parameters.count).map { count in
        FunctionOverload(
          isMember: false, Array(callable.parameters.prefix(count)), callable.result, takesWholeNumbers: true, body)
      }, examples: callable.examples, details: callable.details, plugin: callable.function)
  }

  private static func call(
    _ callable: CallableFunction, _ arguments: Arguments, _ kinds: [UInt32], _ resultKinds: UInt32
  ) -> Value {
    let context = arguments.context
    let opened: any PluginRowFunction
    switch callable.function.open() {
    case .success(let function): opened = function
    case .failure(let refusal):
      return context.failure(.invalidArgument, .absent, text: "the plugin cannot be used: \(refusal.message)")
    }
    // The plugin sees each argument as its spec says, whatever the machine has checked.
    let all = context.arena.elements(kinds.count)
    for (index, type) in callable.parameters.enumerated() {
      guard index < arguments.count else {
        all[index] = .absent
        continue
      }
      guard kinds[index] & KindSet.of(arguments[index]) != 0 else {
        return context.failure(
          .noSuchOverload, .absent,
          text:
            "the argument \(index + 1) of '\(callable.name)' is \(arguments[index].kindName), not \(type.withArticle)")
      }
      all[index] = asDouble(arguments[index], type)
    }
    var value = Value.null
    switch opened.call(&value, UnsafePointer(all.baseAddress), context.arena) {
    case .pass, .last:
      guard resultKinds & KindSet.of(value) != 0 else {
        return context.failure(
          .invalidArgument, .absent,
          text: "'\(callable.name)' returned \(value.kindName), and its spec says \(callable.result.withArticle)")
      }
      return asDouble(value, callable.result)
    case .drop, .finish:
      return context.failure(.invalidArgument, .absent, text: "'\(callable.name)' returned nothing")
    case .failed(let message): return context.failure(.invalidArgument, .absent, text: message)
    }
  }

  /// A whole number where the type is a double, as a double.
  private static func asDouble(_ value: Value, _ type: ExpressionType) -> Value {
    guard type.unwrapped == .double else { return value }
    if value.is(.int) { return .double(Double(value.asInt)) }
    return value.is(.uint) ? .double(Double(value.asUInt)) : value
  }
}
