extension FunctionSpec {
  /// A function of a plugin: one overload for each number of arguments that a call may have.
  package init(_ callable: CallableFunction) {
    let kinds = KindSet.of(callable.result)
    let body: FunctionOverload.Body = { arguments in Self.call(callable, arguments, kinds) }
    self.init(
      callable.name, callable.summary,
      (callable.least...callable.parameters.count).map { count in
        .global(Array(callable.parameters.prefix(count)), callable.result, body)
      }, examples: callable.examples, details: callable.details, plugin: callable.function)
  }

  private static func call(_ callable: CallableFunction, _ arguments: Arguments, _ kinds: UInt32) -> Value {
    let context = arguments.context
    let opened: any PluginRowFunction
    switch callable.function.open() {
    case .success(let function): opened = function
    case .failure(let refusal):
      return context.failure(.invalidArgument, .absent, text: "the plugin cannot be used: \(refusal.message)")
    }
    var value = Value.null
    let verdict: RowVerdict
    let count = callable.parameters.count
    if arguments.count == count {
      verdict = opened.call(&value, UnsafePointer(arguments.values), context.arena)
    } else {
      let all = context.arena.elements(count)
      for index in 0..<count { all[index] = index < arguments.count ? arguments[index] : .absent }
      verdict = opened.call(&value, UnsafePointer(all.baseAddress), context.arena)
    }
    switch verdict {
    case .pass, .last:
      guard kinds & KindSet.of(value) != 0 else {
        return context.failure(
          .invalidArgument, .absent,
          text: "'\(callable.name)' returned \(value.kindName), and its spec says \(callable.result.withArticle)")
      }
      return value
    case .drop, .finish:
      return context.failure(.invalidArgument, .absent, text: "'\(callable.name)' returned nothing")
    case .failed(let message): return context.failure(.invalidArgument, .absent, text: message)
    }
  }
}
