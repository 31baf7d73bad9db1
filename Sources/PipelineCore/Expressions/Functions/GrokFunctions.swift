extension FunctionRegistry {
  private static let fields = ExpressionType.map(.string, .dyn)
  private static let any = ExpressionType.map(.dyn, .dyn)
  private static let keys = ExpressionType.list(.string)

  private static let texts = ExpressionType.map(.string, .string)

  private static func overloads(_ naming: GrokPattern.Naming) -> [FunctionOverload] {
    [[.string, .string], [.string, keys], [.string, .string, texts], [.string, keys, texts]].map { parameters in
      .global(
        parameters, fields,
        prepare: { constants in prepared(constants, naming) { arguments, patterns in match(arguments, patterns) } }
      ) { arguments in compiled(arguments, [], naming) { match(arguments, $0) } }
    }
  }

  /// Grok patterns.
  static let grok: [FunctionSpec] = [
    FunctionSpec(
      "grok", "The fields that a grok pattern, or the first of several that matches, finds in a text.",
      overloads(.common),
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
        ("grok('order A-17', '%{ORDER:order}', {'ORDER': '[A-Z]-[0-9]+'})", "{'order': 'A-17'}"),
        (
          "grok('ann 10.0.0.1', '%{WORD:user.name} %{IP:[source][ip]}')",
          "{'user': {'name': 'ann'}, 'source': {'ip': '10.0.0.1'}}"
        ),
      ],
      details: details
    ),
    FunctionSpec(
      "grok.ecs", "The same, with the field names of the Elastic Common Schema for well-known patterns.",
      overloads(.ecs),
      examples: [
        (
          "grok.ecs('Nov 21 08:00:01 web1 sshd[812]: Accepted', '%{SYSLOGLINE}').process",
          "{'name': 'sshd', 'pid': 812}"
        )
      ],
      details:
        """
        Fields are maps in maps, numbers are numbers, and `-` for a missing value leaves its field out. Fields of \
        your own patterns keep their names. Everything else is as in `grok`.
        """
    ),
    FunctionSpec(
      "redact", "A text with the matches of a pattern, or a value with some fields, replaced by [REDACTED].",
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
        "The pattern is one of `grok`. Fields are found by name at any depth, in upper or lower case."
    ),
  ]

  private static var details: String {
    let sets = GrokLibrary.sets.map { set in
      "- \(set.title): \(GrokLibrary.names(of: set.text).map { "`\($0)`" }.joined(separator: " "))"
    }
    let types = GrokPattern.Conversion.allCases.map { "`\($0.rawValue)`" }.joined(separator: ", ")
    return """
      `%{NAME}` stands for a well-known pattern, `%{NAME:field}` keeps what it matched as a text, `%{NAME:field:int}` \
      as a number; the types are \(types), where `long` is `int`, `double` is `float`, `boolean` is `bool`, and \
      `number` is whatever the text is. Named groups, `(?<field>...)`, are fields, too. `outer.field` and \
      `[outer][field]` are fields of a map. A part that does not match, and one that matches the empty text, sets no \
      field; if several parts with one name match, the field is a list of their values. A text that does not match is an error.

      Your own patterns are given as a map after the pattern or, for the whole file, under `patterns`; they take \
      precedence over the well-known ones.

      The rest of a pattern is a regular expression as Oniguruma and Ruby write it, matched in one pass, in time \
      linear in the text, anywhere in it: `.` matches line breaks, too, `^` and `$` stand at lines (`\\A` and `\\z` \
      at the ends of the text), `\\w` and `\\b` know the letters of all scripts, `\\d` and `\\h` are ASCII. \
      Lookaround sees one character, as in `(?<![0-9])` and `(?![0-9])`. Atomic groups and possessive quantifiers are \
      accepted where they match the same texts as plain ones. References to groups, conditions and longer lookaround \
      are refused with a message.

      On text of its kind a pattern finds what Logstash's finds, with its fields: those of its first patterns \
      (`ecs_compatibility: disabled`) for `grok`, of `ecs-v1` for `grok.ecs`. What differs: `NUMBER` has an exponent, \
      `TZ` more zones, `SYSLOG5424SD` respects quotes and takes several elements, `WINPATH` ends before a quote, \
      `HOSTNAME` and `EMAILLOCALPART` have no limit to their length, `MONTHNUM` and `SECOND` take two digits where \
      there are two, also those of a leap second, `TIME` stands not inside a number, `DAY` and `TZ` not inside a word, \
      `LOGLEVEL` has no fragments such as `er`, `CATALINALOG` and `TOMCATLOG` keep the level in a field of its own, \
      `IPTABLES4_FRAG` takes several flags, a column of Zeek or Bro never contains a tab, and `BACULA_*`, `CISCOFW*`, \
      `IPTABLES`, `CLOUDFRONT_ACCESS_LOG` and `ELB_ACCESS_LOG` also read lines, or columns at their end, that \
      Logstash's do not. In Logstash an empty text as `int` is 0, here it has no field, too. `grok` keeps the `-` and \
      `(empty)` of `BRO_*` as texts, as Logstash does; everywhere else a missing value has no field.

      \(sets.joined(separator: "\n"))
      """
  }

  // MARK: Patterns

  /// Redaction needs no field names. It uses the ECS forms of the patterns, because they match whole addresses.
  private static let prepareRedaction: FunctionOverload.Prepare = { constants in
    prepared(constants, .ecs, definitions: nil) { arguments, patterns in redactText(arguments, patterns[0]) }
  }

  /// Compiles constant patterns once. `definitions` is the index of the argument that contains definitions.
  private static func prepared(
    _ constants: FunctionOverload.Constants, _ naming: GrokPattern.Naming, definitions: Int? = 2,
    _ body: @escaping @Sendable (Arguments, [GrokPattern]) -> Value
  ) -> FunctionOverload.Preparation {
    let shared = constants.patterns.isEmpty ? [] : [constants.patterns]
    /// Compiles patterns at run time, with the file's definitions.
    let later = FunctionOverload.Preparation.body { arguments in
      compiled(arguments, shared, naming, definitions: definitions) { body(arguments, $0) }
    }
    var own: [GrokDefinitions] = []
    if let definitions, constants.count > definitions {
      guard let given = constants[definitions], given.is(.map) else { return shared.isEmpty ? .none : later }
      switch Self.definitions(given, { $0 }) {
      case .success(let known): own = [known]
      case .failure(let fault): return .fault(definitions, message: fault.message, help: fault.help)
      }
    }
    guard let given = constants[1], given.is(.string) || given.is(.list) else { return shared.isEmpty ? .none : later }
    let sources = given.is(.list) ? Array(given.elements) : [given]
    var patterns: [GrokPattern] = []
    for source in sources {
      guard source.is(.string), source.flags == 0 else { return shared.isEmpty ? .none : later }
      do throws(GrokPattern.Fault) {
        patterns.append(try GrokPattern(source.rawBytes, own + shared, naming))
      } catch {
        return .fault(1, message: error.message, help: error.help)
      }
    }
    if patterns.isEmpty { return .fault(1, message: "there is no pattern") }
    let ready = patterns
    return .body { body($0, ready) }
  }

  /// The patterns of a map; `plain` resolves escapes in texts.
  private static func definitions(
    _ map: Value, _ plain: (Value) -> Value
  ) -> Result<GrokDefinitions, GrokPattern.Fault> {
    var patterns: [String: String] = [:]
    for entry in map.entries {
      guard entry.key.is(.string), entry.value.is(.string) else {
        return .failure(.init(message: "the patterns are not texts by name", help: "Write {'NAME': 'pattern'}."))
      }
      let name = String(decoding: plain(entry.key).rawBytes, as: UTF8.self)
      guard GrokDefinitions.isName(name) else {
        return .failure(
          .init(
            message: "'\(name)' cannot be the name of a grok pattern",
            help: "Names have letters, digits, '_', '-' and '.'."))
      }
      patterns[name] = String(decoding: plain(entry.value).rawBytes, as: UTF8.self)
    }
    return .success(GrokDefinitions(patterns))
  }

  /// Calls `body` with patterns computed at run time.
  private static func compiled(
    _ arguments: Arguments, _ shared: [GrokDefinitions], _ naming: GrokPattern.Naming, definitions: Int? = 2,
    _ body: ([GrokPattern]) -> Value
  ) -> Value {
    let sources = arguments[1].is(.list) ? Array(arguments[1].elements) : [arguments[1]]
    let context = arguments.context
    do throws(GrokPattern.Fault) {
      var own: [GrokDefinitions] = []
      if let definitions, arguments.count > definitions {
        switch Self.definitions(arguments[definitions], { context.plain($0) }) {
        case .success(let known): own = [known]
        case .failure(let fault): throw fault
        }
      }
      var patterns: [GrokPattern] = []
      for source in sources {
        guard source.is(.string) else { throw GrokPattern.Fault(message: "a \(source.typeName) is not a pattern") }
        patterns.append(try context.frame.grokPattern(context.plain(source).rawBytes, own + shared, naming))
      }
      if patterns.isEmpty { throw GrokPattern.Fault(message: "there is no pattern") }
      return body(patterns)
    } catch {
      return context.failure(.badPattern, .absent, text: error.message)
    }
  }

  // MARK: grok

  private static func match(_ arguments: Arguments, _ patterns: [GrokPattern]) -> Value {
    let context = arguments.context
    let text = arguments[0].rawBytes
    for grok in patterns {
      let found = withUnsafeTemporaryAllocation(of: Int.self, capacity: grok.slotCount) { groups in
        grok.find(text, from: 0, into: groups) ? members(grok.fields, grok, groups, arguments[0], context) : nil
      }
      if let found {
        context.arena.keep(grok.names.keys)
        return found
      }
    }
    return context.failure(
      .invalidArgument, arguments[0], patterns.count == 1 ? "the text does not match" : "no pattern matches the text")
  }

  /// The map of the matched fields.
  private static func members(
    _ fields: [(key: Int, shape: GrokPattern.Shape)], _ grok: GrokPattern, _ groups: UnsafeMutableBufferPointer<Int>,
    _ text: Value, _ context: Context
  ) -> Value {
    let target = context.entries(fields.count)
    var count = 0
    for field in fields {
      var value: Value
      switch field.shape {
      case .map(let inner):
        value = members(inner, grok, groups, text, context)
        if value.is(.map), value.length == 0 { continue }
      case .field(let parts):
        value = .absent
        var others: [Value] = []
        for part in parts {
          let start = groups[2 * part.group]
          let end = groups[2 * part.group + 1]
          // A group that did not participate, or matched the empty text, sets no field.
          guard start >= 0, end > start else { continue }
          let one = convert(context.slice(text, start..<end), part.conversion, context)
          if one.isError { return one }
          if value.isAbsent { value = one } else { others.append(one) }
        }
        if value.isAbsent { continue }
        if !others.isEmpty {
          // Earlier matches of the field are kept.
          let all = context.elements(others.count + 1)
          all[0] = value
          for (index, other) in others.enumerated() { all[index + 1] = other }
          value = Value(kind: .list, pointer: all.baseAddress, length: all.count)
        }
      }
      if value.isError { return value }
      target[count] = Entry(key: grok.names.keys.keys[field.key], value: value)
      count += 1
    }
    return Value(kind: .map, pointer: target.baseAddress, length: count)
  }

  private static func convert(
    _ part: Value, _ conversion: GrokPattern.Conversion, _ context: Context
  ) -> Value {
    let text = part.rawBytes
    switch conversion {
    case .string: return part
    case .int, .long:
      return NumberText.int(text).map { .int($0) } ?? context.failure(.conversion, part, "int")
    case .float, .double:
      return NumberText.double(text).map { .double($0) } ?? context.failure(.conversion, part, "double")
    case .number:
      if let whole = NumberText.int(text) { return .int(whole) }
      return NumberText.double(text).map { .double($0) } ?? context.failure(.conversion, part, "number")
    case .bool, .boolean:
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
    compiled(arguments, [], .ecs, definitions: nil) { redactText(arguments, $0[0]) }
  }

  private static func redactText(_ arguments: Arguments, _ grok: GrokPattern) -> Value {
    let text = arguments[0].rawBytes
    let mark = mark(arguments).rawBytes
    var memory = (0, 0)
    return withUnsafeMutableBytes(of: &memory) { redactText(arguments, grok, text, mark, $0.bindMemory(to: Int.self)) }
  }

  private static func redactText(
    _ arguments: Arguments, _ grok: GrokPattern, _ text: UnsafeRawBufferPointer, _ mark: UnsafeRawBufferPointer,
    _ whole: UnsafeMutableBufferPointer<Int>
  ) -> Value {
    guard grok.find(text, from: 0, into: whole) else { return arguments[0] }
    return arguments.context.build { buffer in
      var at = 0
      var copied = 0
      while at <= text.count, grok.find(text, from: at, into: whole) {
        if whole[1] > whole[0] {
          buffer.append(UnsafeRawBufferPointer(rebasing: text[copied..<whole[0]]))
          buffer.append(mark)
          copied = whole[1]
          at = whole[1]
        } else {
          // An empty match hides nothing.
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
  /// The bytes with the letters A to Z in lower case.
  fileprivate var lowered: [UInt8] { map { $0 >= 0x41 && $0 <= 0x5A ? $0 | 0x20 : $0 } }
}
