extension FunctionRegistry {
  private static let row = ExpressionType.list(.string)
  private static let fields = ExpressionType.map(.string, .dyn)

  /// Texts that contain fields.
  static let parsing: [FunctionSpec] = [
    FunctionSpec(
      "parseCsv", "The rows of comma-separated values (RFC 4180), each a list of texts or, with a header, a map.",
      [
        .global([.string], .list(row)) { csv($0, CSVReader()) },
        .global([.string, .map(.string, .dyn)], .list(.dyn), prepare: csvFault) { arguments in
          var reader = CSVReader()
          if let fault = reader.set(arguments[1], arguments.context) {
            return arguments.context.failure(.invalidArgument, .absent, text: fault)
          }
          return csv(arguments, reader)
        },
      ],
      examples: [
        ("parseCsv('a,\"b, c\"\\n1,2')", "[['a', 'b, c'], ['1', '2']]"),
        ("parseCsv('x;y')[0]", "['x;y']"),
        ("parseCsv('x;y', {'delimiter': ';'})[0]", "['x', 'y']"),
        ("parseCsv('id,name\\n1,Ann', {'header': true})", "[{'id': '1', 'name': 'Ann'}]"),
        ("parseCsv('1,Ann', {'header': ['id', 'name']})", "[{'id': '1', 'name': 'Ann'}]"),
      ],
      details:
        "Options: `delimiter` and `quote` are one ASCII character each; `header` is `true` where the first row names the columns, or a list of names. Blank lines are skipped. A row whose number of fields differs from the header's is an error, and so is a quote that does not end. For a single line write `parseCsv(line)[0]`."
    ),
    FunctionSpec(
      "parseLogfmt", "The fields of a line such as level=info msg=\"all well\" retry.",
      [.global([.string], fields) { pairs($0, PairReader()) }],
      examples: [
        (
          "parseLogfmt('level=info msg=\"all well\" retry')", "{'level': 'info', 'msg': 'all well', 'retry': true}"
        ),
        ("parseLogfmt('a= b=\"say \\\\\"no\\\\\"\"').b", "'say \"no\"'"),
      ],
      details:
        """
        A key without `=` has the value `true`; a key with nothing after `=` has the value `''`. JSON's escapes \
        apply within quotes. Of equal keys the first counts.
        """
    ),
    FunctionSpec(
      "parseKv", "The fields of a text of pairs; the separators are white space and =, unless others are given.",
      [
        .global([.string], fields) { pairs($0, PairReader()) },
        .global([.string, .string, .string], fields, prepare: separatorFault) { arguments in
          guard arguments[1].length > 0, arguments[2].length > 0 else {
            return arguments.context.failure(.invalidArgument, .absent, "a separator is empty")
          }
          return pairs(
            arguments, PairReader(between: Array(arguments[1].rawBytes), within: Array(arguments[2].rawBytes)))
        },
      ],
      examples: [
        ("parseKv('a=1 b=2')", "{'a': '1', 'b': '2'}"),
        ("parseKv('a=1 b= c=3', ' ', '=')", "{'a': '1', 'b': '', 'c': '3'}"),
        ("parseKv('user: ann; role: \"a; b\"', ';', ':')", "{'user': 'ann', 'role': 'a; b'}"),
      ],
      details:
        "The second argument separates pairs, the third key and value; white space around both is left out. A value between double quotes may hold either. A key without value is `true`. Of equal keys the first counts."
    ),
    FunctionSpec(
      "parseUrl", "The parts of a URL: scheme, user, password, host, port, path, query, fragment.",
      [
        .global([.string], fields) { arguments in
          URLParts(arguments[0], arguments.context)?.value
            ?? arguments.context.failure(.invalidArgument, arguments[0], "the text is not a URL")
        }
      ],
      examples: [
        (
          "parseUrl('https://ann@example.org:8443/a%20b?q=1#top')",
          "{'scheme': 'https', 'user': 'ann', 'host': 'example.org', 'port': 8443, 'path': '/a%20b', 'query': 'q=1', 'fragment': 'top'}"
        ),
        ("parseUrl('mailto:ann@example.org')", "{'scheme': 'mailto', 'path': 'ann@example.org'}"),
        ("parseUrl('http://[::1]/').host", "'::1'"),
        ("parseUrl('http://h/').?port.orValue(80)", "80"),
      ],
      details:
        "`path` is always there, `port` is an int, the scheme is in lower case; nothing else is decoded: see `urlDecode` and `parseQuery`. A text without a scheme is an error."
    ),
    FunctionSpec(
      "parseQuery", "The parameters of a URL's query, decoded; one that comes more than once is a list.",
      [.global([.string], fields, query)],
      examples: [
        ("parseQuery('q=a+b&lang=d%65')", "{'q': 'a b', 'lang': 'de'}"),
        ("parseQuery('?tag=x&tag=y&flag')", "{'tag': ['x', 'y'], 'flag': ''}"),
      ],
      details: "A leading `?` is left out; `+` is a space."),
  ]

  private static let csvFault: FunctionOverload.Prepare = { constants in
    guard let options = constants[1], options.is(.map) else { return .none }
    let frame = EvaluationFrame(arena: Arena(), json: JSONParser())
    var reader = CSVReader()
    return reader.set(options, Context(state: frame.state)).map { .fault(1, message: $0) } ?? .none
  }

  private static let separatorFault: FunctionOverload.Prepare = { constants in
    for index in 1...2 {
      if let text = constants[index], text.is(.string), text.length == 0 {
        return .fault(index, message: "a separator is empty")
      }
    }
    return .none
  }

  private static func csv(_ arguments: Arguments, _ reader: CSVReader) -> Value {
    reader.read(arguments[0].rawBytes, arguments.context)
  }

  private static func pairs(_ arguments: Arguments, _ reader: PairReader) -> Value {
    var reader = reader
    return reader.read(arguments[0].rawBytes, arguments.context)
  }

  private static let query: FunctionOverload.Body = { arguments in
    let context = arguments.context
    var text = arguments[0].rawBytes[...]
    if text.first == UInt8(ascii: "?") { text = text.dropFirst() }
    var keys: [Value] = []
    var values: [[Value]] = []
    var indexes: [[UInt8]: Int] = [:]
    var count = 0
    for piece in text.split(separator: UInt8(ascii: "&"), omittingEmptySubsequences: true) {
      count += 1
      guard count <= ExpressionLimits.parts else { return context.failure(.tooLarge) }
      let equals = piece.firstIndex(of: UInt8(ascii: "=")) ?? piece.endIndex
      let key = URLText.decode(UnsafeRawBufferPointer(rebasing: piece[..<equals]), plusIsSpace: true)
      let value = URLText.decode(
        UnsafeRawBufferPointer(rebasing: piece[min(equals + 1, piece.endIndex)...]), plusIsSpace: true)
      guard key.withUnsafeBytes({ CodePoints.areValid($0) }), value.withUnsafeBytes({ CodePoints.areValid($0) })
      else { return context.failure(.invalidArgument, .absent, "the bytes are not valid UTF-8") }
      if let known = indexes[key] {
        values[known].append(context.string(value))
      } else {
        indexes[key] = keys.count
        keys.append(context.string(key))
        values.append([context.string(value)])
      }
    }
    return context.arena.map(
      keys.indices.map { at in
        (key: keys[at], value: values[at].count == 1 ? values[at][0] : context.arena.list(values[at]))
      })
  }
}

/// Percent-encoding of URLs.
enum URLText {
  /// The bytes with %-escapes resolved; invalid escapes stay.
  static func decode(_ text: UnsafeRawBufferPointer, plusIsSpace: Bool = false) -> [UInt8] {
    var out: [UInt8] = []
    out.reserveCapacity(text.count)
    var at = 0
    while at < text.count {
      if text[at] == 0x25, at + 2 < text.count, let high = ASCII.hexValue(text[at + 1]),
        let low = ASCII.hexValue(text[at + 2])
      {
        out.append(UInt8(truncatingIfNeeded: high << 4 | low))
        at += 3
      } else {
        out.append(plusIsSpace && text[at] == UInt8(ascii: "+") ? 0x20 : text[at])
        at += 1
      }
    }
    return out
  }
}

/// The parts of a URL (RFC 3986), as slices of its text.
private struct URLParts {
  private var members: [(key: Value, value: Value)] = []
  private let context: Context

  var value: Value { context.arena.map(members) }

  /// Nil if the text is not a URL with a scheme.
  init?(_ url: Value, _ context: Context) {
    self.context = context
    let text = url.rawBytes
    guard let first = text.first, ASCII.isLetterOrUnderscore(first), first != UInt8(ascii: "_"),
      let colon = text.firstIndex(of: UInt8(ascii: ":")),
      text.allSatisfy({ $0 > 0x20 && $0 != 0x7F }),
      text[..<colon].allSatisfy({
        ASCII.isLetterOrUnderscore($0) && $0 != UInt8(ascii: "_") || ASCII.isDigit($0) || $0 == 0x2B
          || $0 == 0x2D || $0 == 0x2E
      })
    else { return nil }
    members.append(
      (
        .literal("scheme"),
        context.string(text[..<colon].map { $0 >= 0x41 && $0 <= 0x5A ? $0 | 0x20 : $0 })
      ))
    func end(of start: Int, at stops: StaticString) -> Int {
      var at = start
      while at < text.count {
        for index in 0..<stops.utf8CodeUnitCount where stops.utf8Start[index] == text[at] { return at }
        at += 1
      }
      return at
    }
    var at = colon + 1
    if at + 1 < text.count, text[at] == 0x2F, text[at + 1] == 0x2F {
      let stop = end(of: at + 2, at: "/?#")
      guard authority(url, at + 2..<stop) else { return nil }
      at = stop
    }
    let pathEnd = end(of: at, at: "?#")
    members.append((.literal("path"), context.slice(url, at..<pathEnd)))
    at = pathEnd
    if at < text.count, text[at] == UInt8(ascii: "?") {
      let stop = end(of: at + 1, at: "#")
      members.append((.literal("query"), context.slice(url, at + 1..<stop)))
      at = stop
    }
    if at < text.count { members.append((.literal("fragment"), context.slice(url, at + 1..<text.count))) }
  }

  private mutating func authority(_ url: Value, _ range: Range<Int>) -> Bool {
    let text = url.rawBytes
    var start = range.lowerBound
    if let sign = text[range].lastIndex(of: UInt8(ascii: "@")) {
      let colon = text[start..<sign].firstIndex(of: UInt8(ascii: ":")) ?? sign
      members.append((.literal("user"), context.slice(url, start..<colon)))
      if colon < sign { members.append((.literal("password"), context.slice(url, colon + 1..<sign))) }
      start = sign + 1
    }
    var host = start..<range.upperBound
    var port: Range<Int>?
    if start < range.upperBound, text[start] == UInt8(ascii: "[") {
      guard let close = text[host].firstIndex(of: UInt8(ascii: "]")) else { return false }
      if close + 1 < range.upperBound {
        guard text[close + 1] == UInt8(ascii: ":") else { return false }
        port = close + 2..<range.upperBound
      }
      host = start + 1..<close
    } else if let colon = text[host].lastIndex(of: UInt8(ascii: ":")) {
      port = colon + 1..<range.upperBound
      host = start..<colon
      if text[host].contains(UInt8(ascii: ":")) { return false }
    }
    members.append((.literal("host"), context.slice(url, host)))
    if let port, !port.isEmpty {
      guard let number = NumberText.uint(UnsafeRawBufferPointer(rebasing: text[port])), number <= 65_535 else {
        return false
      }
      members.append((.literal("port"), .int(Int64(number))))
    }
    return true
  }
}

/// Reads `key=value` pairs.
private struct PairReader {
  /// The separator between pairs; empty: white space.
  var between: [UInt8] = []
  /// The separator between key and value.
  var within: [UInt8] = [UInt8(ascii: "=")]
  private var members: [Entry] = []
  private var known: Set<[UInt8]> = []

  init(between: [UInt8] = [], within: [UInt8] = [UInt8(ascii: "=")]) {
    self.between = between
    self.within = within
  }

  mutating func read(_ text: UnsafeRawBufferPointer, _ context: Context) -> Value {
    var at = 0
    while true {
      while at < text.count, text[at] <= 0x20 { at += 1 }
      if begins(between, text, at) {
        at += between.count
        continue
      }
      if at >= text.count { break }
      let start = at
      while at < text.count, !ends(text, at), !begins(within, text, at) { at += 1 }
      let key = trimmed(text, start..<at)
      guard !key.isEmpty else {
        return context.failure(.invalidArgument, .absent, text: "the pair at byte \(start) has no key")
      }
      guard members.count < ExpressionLimits.parts else { return context.failure(.tooLarge) }
      guard begins(within, text, at) else {
        append(text, key, .bool(true))
        continue
      }
      at += within.count
      // White space that separates pairs ends an empty value.
      if !between.isEmpty { while at < text.count, text[at] == 0x20 || text[at] == 0x09, !ends(text, at) { at += 1 } }
      if at < text.count, text[at] == 0x22 {
        let open = at
        guard let close = closing(text, at + 1) else {
          return context.failure(.invalidArgument, .absent, text: "the quote that begins at byte \(open) does not end")
        }
        var value = Value.string(UnsafeRawBufferPointer(rebasing: text[open + 1..<close]))
        if value.rawBytes.contains(0x5C) {
          value.flags = 1
          value = context.plain(value)
          if value.isError {
            return context.failure(
              .invalidArgument, .absent, text: "an escape is malformed in the quotes at byte \(open)")
          }
        }
        append(text, key, value)
        at = close + 1
        if at < text.count, !ends(text, at), text[at] > 0x20 {
          return context.failure(.invalidArgument, .absent, text: "text follows a closing quote, at byte \(at)")
        }
      } else {
        let first = at
        while at < text.count, !ends(text, at) { at += 1 }
        append(text, key, .string(UnsafeRawBufferPointer(rebasing: text[trimmed(text, first..<at)])))
      }
    }
    let target = context.arena.entries(members.count)
    _ = target.update(fromContentsOf: members)
    return Value(kind: .map, pointer: target.baseAddress, length: target.count)
  }

  /// Whether a pair ends here.
  private func ends(_ text: UnsafeRawBufferPointer, _ at: Int) -> Bool {
    between.isEmpty ? text[at] <= 0x20 : begins(between, text, at)
  }

  private func begins(_ what: [UInt8], _ text: UnsafeRawBufferPointer, _ at: Int) -> Bool {
    guard !what.isEmpty, at + what.count <= text.count else { return false }
    for offset in what.indices where text[at + offset] != what[offset] { return false }
    return true
  }

  private func closing(_ text: UnsafeRawBufferPointer, _ start: Int) -> Int? {
    var at = start
    while at < text.count {
      if text[at] == 0x22 { return at }
      at += text[at] == 0x5C ? 2 : 1
    }
    return nil
  }

  private func trimmed(_ text: UnsafeRawBufferPointer, _ range: Range<Int>) -> Range<Int> {
    var (start, end) = (range.lowerBound, range.upperBound)
    while start < end, text[start] <= 0x20 { start += 1 }
    while end > start, text[end - 1] <= 0x20 { end -= 1 }
    return start..<end
  }

  private mutating func append(_ text: UnsafeRawBufferPointer, _ key: Range<Int>, _ value: Value) {
    guard known.insert(Array(text[key])).inserted else { return }
    members.append(Entry(key: .string(UnsafeRawBufferPointer(rebasing: text[key])), value: value))
  }
}

/// Reads comma-separated values.
private struct CSVReader {
  private var delimiter = UInt8(ascii: ",")
  private var quote = UInt8(ascii: "\"")
  private var firstRowNames = false
  private var names: [Value]?

  /// Reads the options; returns an error message, or nil.
  mutating func set(_ options: Value, _ context: Context) -> String? {
    for entry in options.entries {
      let value = context.argument(entry.value)
      switch String(decoding: context.plain(entry.key).rawBytes, as: UTF8.self) {
      case "delimiter":
        guard let byte = character(value) else { return "'delimiter' is not one ASCII character" }
        delimiter = byte
      case "quote":
        guard let byte = character(value) else { return "'quote' is not one ASCII character" }
        quote = byte
      case "header":
        if value.is(.bool) {
          firstRowNames = value.asBool
        } else if value.is(.list), value.elements.allSatisfy({ $0.is(.string) }) {
          names = value.elements.map { context.plain($0) }
        } else {
          return "'header' is neither a bool nor a list of texts"
        }
      case let other:
        let nearest = NearestName.of(other, among: ["delimiter", "quote", "header"])
        return "there is no option '\(other)'" + (nearest.map { "; did you mean '\($0)'" } ?? "")
      }
    }
    return delimiter == quote ? "'delimiter' and 'quote' are the same" : nil
  }

  private func character(_ value: Value) -> UInt8? {
    guard value.is(.string), value.length == 1, let byte = value.rawBytes.first, byte < 0x80, byte != 0x0A,
      byte != 0x0D
    else { return nil }
    return byte
  }

  func read(_ text: UnsafeRawBufferPointer, _ context: Context) -> Value {
    var header = names
    var rows: [Value] = []
    var fields: [Value] = []
    var count = 0
    var at = 0
    while at < text.count {
      if text[at] == 0x0A || text[at] == 0x0D && at + 1 < text.count && text[at + 1] == 0x0A {
        at += text[at] == 0x0A ? 1 : 2
        continue
      }
      fields.removeAll(keepingCapacity: true)
      // Reads one row.
      while true {
        count += 1
        guard count <= ExpressionLimits.parts, context.hasRoom else { return context.failure(.tooLarge) }
        if at < text.count, text[at] == quote {
          let open = at
          guard let (field, next) = quoted(text, at, context) else {
            return context.failure(
              .invalidArgument, .absent, text: "the quote that begins at byte \(open) does not end")
          }
          fields.append(field)
          at = next
          if at < text.count, text[at] == 0x0D, at + 1 == text.count || text[at + 1] == 0x0A { at += 1 }
          if at < text.count, text[at] != delimiter, text[at] != 0x0A {
            return context.failure(.invalidArgument, .absent, text: "text follows a closing quote, at byte \(at)")
          }
        } else {
          let start = at
          while at < text.count, text[at] != delimiter, text[at] != 0x0A { at += 1 }
          let isLast = at == text.count || text[at] == 0x0A
          let end = isLast && at > start && text[at - 1] == 0x0D ? at - 1 : at
          fields.append(.string(UnsafeRawBufferPointer(rebasing: text[start..<end])))
        }
        if at >= text.count || text[at] == 0x0A {
          at += 1
          break
        }
        at += 1
      }
      if firstRowNames, header == nil {
        header = fields
        continue
      }
      guard let header else {
        rows.append(context.arena.list(fields))
        continue
      }
      guard header.count == fields.count else {
        return context.failure(
          .invalidArgument, .absent,
          text: "row \(rows.count + 1) has \(fields.count) fields and the header \(header.count)")
      }
      let row = context.distinctMap(
        header.indices.map { Entry(key: header[$0], value: fields[$0]) }, replaces: true)
      rows.append(row)
    }
    return context.arena.list(rows)
  }

  /// The field whose opening quote is at `start`, and the offset after its closing quote.
  private func quoted(
    _ text: UnsafeRawBufferPointer, _ start: Int, _ context: Context
  ) -> (Value, next: Int)? {
    var at = start + 1
    // Doubled quotes: the text before them is copied.
    var copy: [UInt8] = []
    var from = at
    while at < text.count {
      guard text[at] == quote else {
        at += 1
        continue
      }
      if at + 1 < text.count, text[at + 1] == quote {
        copy += text[from...at]
        at += 2
        from = at
        continue
      }
      let rest = UnsafeRawBufferPointer(rebasing: text[from..<at])
      if copy.isEmpty { return (.string(rest), at + 1) }
      copy += rest
      return (context.string(copy), at + 1)
    }
    return nil
  }
}
