extension FunctionRegistry {
  private static let fields = ExpressionType.map(.string, .dyn)
  private static let any = ExpressionType.map(.dyn, .dyn)
  private static let keys = ExpressionType.list(.string)

  /// Patterns with names for what is well known.
  static let grok: [FunctionSpec] = [
    FunctionSpec(
      "grok", "The fields that a grok pattern, or the first of several that matches, finds in a text.",
      [
        .global([.string, .string], fields, prepare: prepareMatch) { match($0) },
        .global([.string, keys], fields, prepare: prepareMatch) { match($0) },
      ],
      examples: [
        (
          "grok('GET /index.html 200', r'%{WORD:verb} %{URIPATH:path} %{INT:status:int}')",
          "{'verb': 'GET', 'path': '/index.html', 'status': 200}"
        ),
        (
          "grok('Nov 21 08:00:01 web1 sshd[812]: Accepted', '%{SYSLOGLINE}').pick(['program', 'pid', 'message'])",
          "{'program': 'sshd', 'pid': '812', 'message': 'Accepted'}"
        ), ("grok('took 12ms', [r'took %{INT:s:int}s', r'took %{INT:ms:int}ms'])", "{'ms': 12}"),
        ("grok('id=7', r'id=(?<id>\\d+)').id", "'7'"),
      ],
      details:
        "`%{NAME}` stands for a well-known pattern, `%{NAME:field}` keeps what it matched as a text, `%{NAME:field:int}` (or `float`, `number`, `bool`) as that type; named groups are fields, too. All else is RE2's syntax; the pattern may match anywhere in the text unless `^` and `$` say otherwise. A part that did not match leaves its field out. A text that does not match is an error. Time is linear in the text.\n\nThe patterns: \(GrokPattern.library.keys.sorted().map { "`\($0)`" }.joined(separator: " "))."
    ),
    FunctionSpec(
      "redact", "A text with what a pattern matches, or a value with the fields of some names, replaced by [REDACTED].",
      [
        .global([.string, .string], .string, prepare: prepareRedaction) { redactText($0) },
        .global([.string, .string, .string], .string, prepare: prepareRedaction) { redactText($0) },
        .global([any, keys], any) { redactFields($0) },
        .global([any, keys, .string], any) { redactFields($0) },
        .global([.list(.dyn), keys], .list(.dyn)) { redactFields($0) },
      ],
      examples: [
        ("redact('mail to ann@example.org', '%{EMAILADDRESS}')", "'mail to [REDACTED]'"),
        ("redact('card 1234-5678', r'\\d{4}-\\d{4}', '****')", "'card ****'"),
        (
          "redact({'user': 'ann', 'login': {'Password': 'x'}}, ['password'])",
          "{'user': 'ann', 'login': {'Password': '[REDACTED]'}}"
        ),
      ],
      details:
        "The pattern is one of `grok`. Names of fields are found at any depth, whatever the case of their letters."
    ),
  ]

  // MARK: Patterns

  private static let prepareMatch: FunctionOverload.Prepare = { constants in
    prepared(constants[1]) { patterns in { match($0, patterns) } }
  }

  private static let prepareRedaction: FunctionOverload.Prepare = { constants in
    prepared(constants[1]) { patterns in { redactText($0, patterns[0]) } }
  }

  /// Compiles constant patterns once.
  private static func prepared(
    _ given: Value?, _ body: ([GrokPattern]) -> FunctionOverload.Body
  ) -> FunctionOverload.Preparation {
    guard let given, given.is(.string) || given.is(.list) else { return .none }
    let sources = given.is(.list) ? Array(given.elements) : [given]
    var patterns: [GrokPattern] = []
    for source in sources {
      guard source.is(.string), source.flags == 0 else { return .none }
      do throws(GrokPattern.Fault) {
        patterns.append(try GrokPattern(source.rawBytes))
      } catch {
        return .fault(1, message: error.message, help: error.help)
      }
    }
    if patterns.isEmpty { return .fault(1, message: "there is no pattern") }
    return .body(body(patterns))
  }

  /// Calls `body` with the patterns that are computed while running.
  private static func compiled(_ arguments: Arguments, _ body: ([GrokPattern]) -> Value) -> Value {
    let sources = arguments[1].is(.list) ? Array(arguments[1].elements) : [arguments[1]]
    let context = arguments.context
    do throws(GrokPattern.Fault) {
      var patterns: [GrokPattern] = []
      for source in sources {
        guard source.is(.string) else { throw GrokPattern.Fault(message: "a \(source.typeName) is no pattern") }
        patterns.append(try context.frame.grokPattern(context.plain(source).rawBytes))
      }
      if patterns.isEmpty { throw GrokPattern.Fault(message: "there is no pattern") }
      return body(patterns)
    } catch {
      return context.failure(.badPattern, .absent, text: error.message)
    }
  }

  // MARK: grok

  private static func match(_ arguments: Arguments) -> Value {
    compiled(arguments) { match(arguments, $0) }
  }

  private static func match(_ arguments: Arguments, _ patterns: [GrokPattern]) -> Value {
    let context = arguments.context
    let text = arguments[0].rawBytes
    for grok in patterns {
      var groups = [Int](repeating: -1, count: 2 * (grok.pattern.groupCount + 1))
      guard grok.pattern.find(text, from: 0, into: &groups) else { continue }
      var members: [Entry] = []
      for field in grok.fields {
        let (start, end) = (groups[2 * field.group], groups[2 * field.group + 1])
        // Of alternatives with the same field the one that took part counts.
        guard start >= 0, !members.contains(where: { $0.key.rawBytes.elementsEqual(field.name.utf8) })
        else { continue }
        let part = context.slice(arguments[0], start..<end)
        let value = convert(part, field.conversion, context)
        if value.isError { return value }
        members.append(Entry(key: context.arena.string(field.name), value: value))
      }
      let target = context.arena.entries(members.count)
      _ = target.update(fromContentsOf: members)
      return Value(kind: .map, pointer: target.baseAddress, length: target.count)
    }
    return context.failure(
      .invalidArgument, arguments[0], patterns.count == 1 ? "the text does not match" : "no pattern matches the text")
  }

  private static func convert(
    _ part: Value, _ conversion: GrokPattern.Conversion, _ context: Context
  ) -> Value {
    let text = part.rawBytes
    switch conversion {
    case .string: return part
    case .int:
      return NumberText.int(text).map { .int($0) } ?? context.failure(.conversion, part, "int")
    case .float:
      return NumberText.double(text).map { .double($0) } ?? context.failure(.conversion, part, "double")
    case .number:
      if let whole = NumberText.int(text) { return .int(whole) }
      return NumberText.double(text).map { .double($0) } ?? context.failure(.conversion, part, "number")
    case .bool:
      if text.lowered.elementsEqual("true".utf8) { return .bool(true) }
      if text.lowered.elementsEqual("false".utf8) { return .bool(false) }
      return context.failure(.conversion, part, "bool")
    }
  }

  // MARK: redact

  private static func mark(_ arguments: Arguments) -> Value {
    arguments.count > 2 ? arguments[2] : .literal("[REDACTED]")
  }

  private static func redactText(_ arguments: Arguments) -> Value {
    compiled(arguments) { redactText(arguments, $0[0]) }
  }

  private static func redactText(_ arguments: Arguments, _ grok: GrokPattern) -> Value {
    let text = arguments[0].rawBytes
    let mark = mark(arguments).rawBytes
    var whole = [Int](repeating: -1, count: 2)
    guard grok.pattern.find(text, from: 0, into: &whole) else { return arguments[0] }
    return arguments.context.build { buffer in
      var at = 0
      var copied = 0
      while at <= text.count, grok.pattern.find(text, from: at, into: &whole) {
        if whole[1] > whole[0] {
          buffer.append(UnsafeRawBufferPointer(rebasing: text[copied..<whole[0]]))
          buffer.append(mark)
          copied = whole[1]
          at = whole[1]
        } else {
          // Nothing is there to hide.
          at = whole[1] + (whole[1] < text.count ? CodePoints.length(at: whole[1], in: text) : 1)
        }
        if buffer.count > ExpressionLimits.stringBytes { return }
      }
      if copied < text.count { buffer.append(UnsafeRawBufferPointer(rebasing: text[copied...])) }
    }
  }

  private static func redactFields(_ arguments: Arguments) -> Value {
    let context = arguments.context
    var names: Set<[UInt8]> = []
    for name in arguments[1].elements {
      guard name.is(.string) else { return context.noOverload("redact", name) }
      names.insert(context.plain(name).rawBytes.lowered)
    }
    return redacted(arguments[0], names, mark(arguments), context, depth: 0)
  }

  private static func redacted(
    _ value: Value, _ names: Set<[UInt8]>, _ mark: Value, _ context: Context, depth: Int
  ) -> Value {
    guard value.isAnyMap || value.isAnyList else { return value }
    guard depth < 500, context.hasRoom else { return context.failure(.tooLarge) }
    let whole = context.expanded(value)
    if whole.isError { return whole }
    if whole.is(.list) {
      let target = context.elements(Int(whole.length))
      for (at, element) in whole.elements.enumerated() {
        let inner = redacted(element, names, mark, context, depth: depth + 1)
        if inner.isError { return inner }
        target[at] = inner
      }
      return Value(kind: .list, pointer: target.baseAddress, length: target.count)
    }
    let target = context.entries(Int(whole.length))
    for (at, entry) in whole.entries.enumerated() {
      if entry.key.is(.string), names.contains(context.plain(entry.key).rawBytes.lowered) {
        target[at] = Entry(key: entry.key, value: mark)
        continue
      }
      let inner = redacted(entry.value, names, mark, context, depth: depth + 1)
      if inner.isError { return inner }
      target[at] = Entry(key: entry.key, value: inner)
    }
    return Value(kind: .map, pointer: target.baseAddress, length: target.count)
  }
}

extension UnsafeRawBufferPointer {
  /// With the letters A to Z in lower case.
  fileprivate var lowered: [UInt8] { map { $0 >= 0x41 && $0 <= 0x5A ? $0 | 0x20 : $0 } }
}
