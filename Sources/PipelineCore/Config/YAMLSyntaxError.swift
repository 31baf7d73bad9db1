/// Explains a syntax error of libyaml to a person.
///
/// libyaml reports the token that it did not expect, but the cause is often elsewhere: a quote that was never closed,
/// or an expression that YAML read as something else. The source text reveals it.
struct YAMLSyntaxError {
  /// libyaml's message.
  var problem: String
  var context: String
  /// Byte offsets of the problem, and of the construct that libyaml was reading.
  var offset: Int
  var contextOffset: Int?

  func explain(
    _ source: SourceText, lastScalar: YAMLScalar?, openBracket: Int?
  ) -> Diagnostic {
    let view = View(error: self, source: source, lastScalar: lastScalar, openBracket: openBracket)
    return view.explain()
  }
}

private struct View {
  let error: YAMLSyntaxError
  let source: SourceText
  let lastScalar: YAMLScalar?
  let openBracket: Int?
  let line: YAMLLine

  init(error: YAMLSyntaxError, source: SourceText, lastScalar: YAMLScalar?, openBracket: Int?) {
    self.error = error
    self.source = source
    self.lastScalar = lastScalar
    self.openBracket = openBracket
    line = YAMLLine(source, at: error.offset)
  }

  func explain() -> Diagnostic {
    if error.context.contains("quoted scalar") {
      return error.problem.contains("escape") || error.problem.contains("hexdecimal")
        ? badEscape() : unclosedQuote(at: error.contextOffset ?? error.offset)
    }
    if let template = unquotedTemplate() { return template }
    if let marked = markedValue() { return marked }
    if error.problem.contains("tab") || byte(error.offset) == 0x09 { return tab() }
    if error.context.contains("block scalar") { return blockHeader() }
    if error.context.contains("tag") || error.problem.contains("tag") {
      return startsWith("!", "a tag", .tag, at: error.contextOffset ?? error.offset)
    }
    if error.context.contains("alias") || error.context.contains("anchor") {
      let isAlias = error.context.contains("alias")
      return startsWith(
        isAlias ? "*" : "&", isAlias ? "an alias" : "an anchor", .anchorSyntax,
        at: error.contextOffset ?? error.offset)
    }
    switch error.problem {
    case "found character that cannot start any token": return reservedCharacter()
    case "mapping values are not allowed in this context": return unexpectedColon()
    case "could not find expected ':'": return missingColon()
    case "found unexpected ':'": return missingSpace(error.offset)
    case "block sequence entries are not allowed in this context": return listOnSameLine()
    case "mapping keys are not allowed in this context":
      return startsWith("?", "a complex key", .complexKey, at: error.offset)
    default: break
    }
    if let quoted = textAfterQuote() { return quoted }
    if error.context.contains("flow") || error.problem.contains("']'")
      || error.problem.contains("'}'")
    {
      return inBrackets()
    }
    if let text = textAfterBracket() { return text }
    if error.context.contains("block mapping") || error.context.contains("block collection") {
      return indentation()
    }
    return unknown()
  }

  // MARK: Quotes

  private func unclosedQuote(at offset: Int) -> Diagnostic {
    let line = YAMLLine(source, at: offset)
    let quote = byte(offset) == 0x22 ? "\"" : "'"
    return Diagnostic(
      .unclosedQuote, "this quote is never closed", at: location(offset, 1),
      help: line.value == offset
        ? "Close it with \(quote) at the end of the value" : "Close it with \(quote)")
  }

  private func badEscape() -> Diagnostic {
    let length = min(2, max(1, line.end - error.offset))
    let shown = Printable.cut(source.bytes[error.offset..<min(error.offset + length, line.end)])
    let isUnknown = error.problem.contains("unknown")
    return Diagnostic(
      .escape,
      isUnknown
        ? "'\(shown)' is not a valid escape between double quotes"
        : "the number of this escape is not a valid character",
      at: location(error.offset, length),
      help: isUnknown
        ? "Use single quotes, where \\ has no meaning, or write \\\\ for a backslash"
        : "\\x takes 2, \\u 4 and \\U 8 hexadecimal digits, and no surrogates")
  }

  private func textAfterQuote() -> Diagnostic? {
    guard let scalar = lastScalar, scalar.style == .singleQuoted || scalar.style == .doubleQuoted
    else { return nil }
    let end = scalar.location.offset + scalar.location.length
    guard skipBlanks(end) == error.offset, error.offset < line.end,
      byte(error.offset) != UInt8(ascii: ",")
    else { return nil }
    let first = scalar.location.line
    if first != line.number {
      return Diagnostic(
        .unclosedQuote, "this quote is closed only on line \(source.position(at: end - 1).line)",
        at: location(scalar.location.offset, 1),
        notes: [.init("it closes here, and text follows", at: location(end - 1, 1))],
        help: "Close it on its own line")
    }
    return Diagnostic(
      .textAfterQuote, "a quoted value ends at its closing quote, but more text follows",
      at: rest(error.offset),
      help: scalar.style == .singleQuoted && end == error.offset
        ? "Write '' for an apostrophe between single quotes; if the value is an expression, quote all "
          + "of it or put it in a block scalar (|)"
        : "If the value is an expression, quote all of it or put it in a block scalar (|)",
      fixIts: quoting(scalar.location.offset))
  }

  // MARK: Expressions that YAML reads as something else

  private func unquotedTemplate() -> Diagnostic? {
    for offset in [line.value, openBracket, error.contextOffset].compactMap({ $0 })
    where byte(offset) == UInt8(ascii: "{") && byte(offset + 1) == UInt8(ascii: "{") {
      return YAMLSyntaxError.template(source, offset)
    }
    return nil
  }

  /// Explains a value whose first character has a meaning in YAML, so that the rest is invalid.
  private func markedValue() -> Diagnostic? {
    guard line.value <= error.offset, line.value > line.start, error.offset < line.end else {
      return nil
    }
    switch byte(line.value) {
    case UInt8(ascii: "!"): return startsWith("!", "a tag", .tag, at: line.value)
    case UInt8(ascii: "*"): return startsWith("*", "an alias", .anchorSyntax, at: line.value)
    case UInt8(ascii: "&"): return startsWith("&", "an anchor", .anchorSyntax, at: line.value)
    default: return nil
    }
  }

  private func startsWith(
    _ mark: String, _ meaning: String, _ code: Diagnostic.Code, at offset: Int
  ) -> Diagnostic {
    Diagnostic(
      code, "an unquoted value that begins with \(mark) is \(meaning) to YAML", at: rest(offset),
      help: "Quote the value, or put it in a block scalar (|)",
      fixIts: quoting(offset))
  }

  private func reservedCharacter() -> Diagnostic {
    let shown = Printable.cut([byte(error.offset)])
    return Diagnostic(
      .reservedStart, "an unquoted value may not begin with \(shown)", at: location(error.offset, 1),
      help: "Quote the value, or put it in a block scalar (|)",
      fixIts: quoting(error.offset))
  }

  private func blockHeader() -> Diagnostic {
    let offset = error.contextOffset ?? error.offset
    let mark = byte(offset) == UInt8(ascii: ">") ? ">" : "|"
    if error.problem.contains("indentation indicator") {
      return Diagnostic(
        .blockScalar, "the indentation of a block scalar is a number from 1 to 9",
        at: location(offset, 2))
    }
    return Diagnostic(
      .blockScalar, "the line must end after \(mark), which begins a block scalar",
      at: rest(offset),
      help:
        "Put the text on the next line, indented; to mean the character \(mark), quote the value",
      fixIts: quoting(offset))
  }

  private func textAfterBracket() -> Diagnostic? {
    var before = error.offset
    while before > line.start, byte(before - 1) == 0x20 { before -= 1 }
    guard before > line.start else { return nil }
    let last = byte(before - 1)
    guard last == UInt8(ascii: "}") || last == UInt8(ascii: "]") else { return nil }
    let start = byte(line.value)
    let whole = start == UInt8(ascii: "{") || start == UInt8(ascii: "[")
    return Diagnostic(
      .textAfterBracket,
      "a value that begins with \(start == UInt8(ascii: "{") ? "{" : "[") ends at its closing "
        + "bracket, but more text follows",
      at: rest(error.offset),
      help: "If the value is an expression, quote all of it or put it in a block scalar (|)",
      fixIts: whole ? quoting(line.value) : [])
  }

  private func unexpectedColon() -> Diagnostic {
    if let key = line.key, key.upperBound < error.offset, line.value < error.offset {
      let first = byte(line.value)
      if first == 0x22 || first == 0x27, let after = closingQuote(line.value), after < error.offset {
        return Diagnostic(
          .textAfterQuote, "a quoted value ends at its closing quote, but more text follows",
          at: rest(skipBlanks(after + 1)),
          help: "Quote all of it, or put it in a block scalar (|)",
          fixIts: quoting(line.value))
      }
      return Diagnostic(
        .colonInValue, "an unquoted value may not contain ': '", at: location(error.offset, 1),
        help: "Quote the value, or put it in a block scalar (|)",
        fixIts: quoting(line.value))
    }
    return valueAndKeys()
  }

  // MARK: Indentation

  /// Explains keys below a line that already has a value.
  private func valueAndKeys() -> Diagnostic {
    if let above = line.above, above.key == nil, let colon = unspacedColon(above) { return missingSpace(colon) }
    var notes: [Diagnostic.Note] = []
    var help = "Check the indentation"
    if let above = line.above, let key = above.key {
      let name = Printable.cut(source.bytes[key])
      notes = [
        .init(
          "'\(name)' has its value here", at: location(above.value, above.contentEnd - above.value))
      ]
      help =
        above.column == line.column
        ? "Check the line above"
        : "To be next to '\(name)' this key must begin in column \(above.column); to be inside "
          + "it, '\(name)' must have no value of its own"
    } else if let above = line.above {
      notes = [
        .init(
          "the value above begins here", at: location(above.first, above.contentEnd - above.first))
      ]
    }
    return Diagnostic(
      .indentation, "a key is not allowed here, because the line above already has a value",
      at: line.key.map { location($0.lowerBound, $0.count) } ?? location(error.offset, 1), notes: notes,
      help: help)
  }

  private func indentation() -> Diagnostic {
    let isList = error.problem.contains("'-'")
    let outer = error.contextOffset ?? error.offset
    let location = self.location(error.offset, max(1, wordLength(error.offset)))
    let expected = source.position(at: outer).column
    let column = source.position(at: error.offset).column
    let note = Diagnostic.Note(
      isList ? "the list begins here" : "the mapping begins here", at: self.location(outer, 1))
    let isFirst = skipBlanks(line.start) == error.offset
    let isItem = byte(error.offset) == UInt8(ascii: "-") && byte(error.offset + 1) <= 0x20
    if byte(error.offset) == UInt8(ascii: ":") {
      return Diagnostic(
        .invalidKey, "the key before ':' is missing", at: location,
        help: "A text that begins with ':' must be quoted")
    }
    if isFirst, column != expected {
      var others = "column \(expected)"
      if let above = line.above, above.indentColumn != expected, above.indentColumn != column {
        others += " or \(above.indentColumn)"
      }
      return Diagnostic(
        .indentation, "this line begins in column \(column), where nothing above begins", at: location,
        notes: [note], help: "Begin it in \(others)")
    }
    if !isList, isItem {
      return Diagnostic(
        .indentation, "found a list item where a key is expected", at: location, notes: [note],
        help: "Put the list below its own key")
    }
    if isList, isFirst {
      return Diagnostic(
        .indentation, "a list continues only with '- ', but this is a key", at: location,
        notes: [note], help: "Indent the key by less than the list, or begin the line with '- '")
    }
    return Diagnostic(
      .syntax, "\(isList ? "'- '" : "a key") was expected here", at: location, notes: [note],
      help: "If the value is an expression, quote it or put it in a block scalar (|)")
  }

  private func tab() -> Diagnostic {
    var offset = error.offset
    if byte(offset) != 0x09 {
      offset = line.start
      while offset < line.end, byte(offset) == 0x20 { offset += 1 }
    }
    var length = 0
    while byte(offset + length) == 0x09 { length += 1 }
    return Diagnostic(
      .tab, "tabs cannot indent", at: location(offset, length), help: "Indent with spaces",
      fixIts: [.init(location(offset, length), String(repeating: "  ", count: min(length, 40)))])
  }

  private func listOnSameLine() -> Diagnostic {
    Diagnostic(
      .indentation, "a list cannot begin on the line of its key", at: location(error.offset, 1),
      help: "Begin the list on the next line; if '- ' is part of the value, quote it",
      fixIts: quoting(error.offset))
  }

  private func missingColon() -> Diagnostic {
    let offset = error.contextOffset ?? error.offset
    let line = YAMLLine(source, at: offset)
    let bytes = source.bytes[min(offset, line.contentEnd)..<line.contentEnd]
    if let colon = bytes.firstIndex(of: UInt8(ascii: ":")), line.key == nil {
      return missingSpace(colon)
    }
    if let first = bytes.first, first == 0x22 || first == 0x27, closingQuote(offset) == nil {
      return unclosedQuote(at: offset)
    }
    return Diagnostic(
      .missingColon, "this line is neither 'key: value' nor part of the value above",
      at: rest(offset),
      help: "Add the ':', or indent the line if it belongs to the value above")
  }

  private func missingSpace(_ colon: Int) -> Diagnostic {
    Diagnostic(
      .missingColon, "the ':' after a key must be followed by a space", at: location(colon, 1),
      fixIts: [.init(location(colon, 1), ": ")])
  }

  /// The colon of `from:a`, which YAML reads as one word; nil in an address such as `http://host`.
  private func unspacedColon(_ line: YAMLLine) -> Int? {
    let bytes = source.bytes[min(line.first, line.contentEnd)..<line.contentEnd]
    guard let colon = bytes.firstIndex(of: UInt8(ascii: ":")), colon > line.first, colon + 1 < line.contentEnd,
      bytes[..<colon].allSatisfy(Name.isPart), byte(colon + 1) != UInt8(ascii: "/"), byte(colon + 1) != 0x20
    else { return nil }
    return colon
  }

  // MARK: Brackets

  private func inBrackets() -> Diagnostic {
    let open = openBracket ?? error.contextOffset
    guard let open, byte(open) == UInt8(ascii: "{") || byte(open) == UInt8(ascii: "[") else {
      return unknown()
    }
    let isMapping = byte(open) == UInt8(ascii: "{")
    let closing = isMapping ? "}" : "]"
    let openLine = source.position(at: open).line
    if error.offset >= source.bytes.count || openLine != line.number {
      return Diagnostic(
        .unclosedBracket, "this \(isMapping ? "{" : "[") is not closed", at: location(open, 1),
        notes: [
          .init("',' or '\(closing)' was expected here", at: location(error.offset, 0))
        ],
        help: "Close it with \(closing); if it begins an expression, quote the expression")
    }
    return Diagnostic(
      .bracket, "',' or '\(closing)' was expected here", at: location(error.offset, 1),
      notes: [.init("inside this \(isMapping ? "{" : "[")", at: location(open, 1))],
      help: "A value that contains any of , [ ] { } must be quoted inside brackets")
  }

  private func unknown() -> Diagnostic {
    let byte = byte(error.offset)
    if byte == UInt8(ascii: "]") || byte == UInt8(ascii: "}") || byte == UInt8(ascii: ",") {
      return Diagnostic(
        .bracket, "found '\(Printable.cut([byte]))' where a value is expected",
        at: location(error.offset, 1), help: "Remove it, or quote the value")
    }
    let context = error.context.isEmpty ? "" : " (\(error.context))"
    return Diagnostic(
      .syntax, "this is not YAML: \(error.problem)\(context)", at: location(error.offset, 1),
      help: "If the value is an expression, quote it or put it in a block scalar (|)")
  }

  // MARK: Text

  private func quoting(_ offset: Int) -> [Diagnostic.FixIt] {
    [YAMLLine(source, at: offset).quoting(from: offset, isFlow: openBracket != nil)].compactMap {
      $0
    }
  }

  private func byte(_ offset: Int) -> UInt8 {
    source.bytes.indices.contains(offset) ? source.bytes[offset] : 0
  }

  private func location(_ offset: Int, _ length: Int) -> SourceLocation {
    let offset = min(max(0, offset), source.bytes.count)
    return SourceLocation(
      source, offset: offset, length: min(max(0, length), source.bytes.count - offset))
  }

  /// From `offset` to the end of the line's content.
  private func rest(_ offset: Int) -> SourceLocation {
    let line = YAMLLine(source, at: offset)
    return location(offset, max(1, line.contentEnd - offset))
  }

  private func skipBlanks(_ offset: Int) -> Int {
    var offset = offset
    while byte(offset) == 0x20 || byte(offset) == 0x09 { offset += 1 }
    return offset
  }

  private func wordLength(_ offset: Int) -> Int {
    var length = 0
    while byte(offset + length) > 0x20, byte(offset + length) != UInt8(ascii: ":") { length += 1 }
    return length
  }

  /// The offset of the quote that closes the one at `offset` on the same line.
  private func closingQuote(_ offset: Int) -> Int? {
    let quote = byte(offset)
    var cursor = offset + 1
    let end = source.lineRange(source.position(at: offset).line).upperBound
    while cursor < end {
      if quote == 0x22, byte(cursor) == 0x5C {
        cursor += 2
      } else if byte(cursor) == quote {
        if quote == 0x27, byte(cursor + 1) == quote {
          cursor += 2
        } else {
          return cursor
        }
      } else {
        cursor += 1
      }
    }
    return nil
  }
}

extension YAMLSyntaxError {
  /// Explains `{{ ... }}` without quotes, which is a mapping with a mapping as its key.
  static func template(_ source: SourceText, _ offset: Int) -> Diagnostic {
    let line = YAMLLine(source, at: offset)
    var end = offset + 2
    while end < line.contentEnd, !line.starts(with: "}}", at: end) { end += 1 }
    return Diagnostic(
      .unquotedTemplate, "an unquoted value that begins with {{ is a mapping to YAML",
      at: SourceLocation(source, offset: offset, length: min(end + 2, line.end) - offset),
      help: "Quote the template",
      fixIts: [line.quoting(from: offset)].compactMap { $0 })
  }

  static func complexKey(_ source: SourceText, _ node: YAMLNode) -> Diagnostic {
    let offset = node.location.offset
    if offset > 0, source.bytes[offset - 1] == UInt8(ascii: "{"),
      source.bytes.indices.contains(offset), source.bytes[offset] == UInt8(ascii: "{")
    {
      return template(source, offset - 1)
    }
    return Diagnostic(
      .complexKey, "a key must be a text, not \(node.kindName)", at: node.location,
      help: "If this is an expression, quote it or put it in a block scalar (|)")
  }

  static func tag(_ source: SourceText, _ offset: Int, isFlow: Bool) -> Diagnostic {
    let bytes = source.bytes
    var offset = offset
    // The tag may follow an anchor.
    while offset < bytes.count, bytes[offset] != UInt8(ascii: "!"), bytes[offset] != 0x0A {
      offset += 1
    }
    let line = YAMLLine(source, at: offset)
    var length = 0
    while offset + length < line.end, bytes[offset + length] > 0x20 { length += 1 }
    let shown = Printable.cut(bytes[offset..<min(offset + length, bytes.count)])
    return Diagnostic(
      .tag, "an unquoted value that begins with ! is a tag to YAML, and there is no tag \(shown)",
      at: SourceLocation(source, offset: offset, length: length),
      help: "To mean 'not', quote the expression or put it in a block scalar (|)",
      fixIts: [line.quoting(from: offset, isFlow: isFlow)].compactMap { $0 })
  }

  /// The error for text after the end of the first document; nil if it is only another `...`.
  static func afterDocument(_ source: SourceText, _ offset: Int, root: YAMLNode?) -> Diagnostic? {
    let bytes = source.bytes
    let line = YAMLLine(source, at: offset)
    let location = SourceLocation(source, offset: offset, length: max(1, line.contentEnd - offset))
    let mark = bytes[offset..<min(offset + 3, bytes.count)]
    let isWord = offset == line.start && (offset + 3 >= bytes.count || bytes[offset + 3] <= 0x20)
    if isWord, mark.elementsEqual("...".utf8) { return nil }
    if isWord, mark.elementsEqual("---".utf8) {
      return Diagnostic(
        .severalDocuments, "a second document begins here, but a file holds one pipeline",
        at: SourceLocation(source, offset: offset, length: 3),
        help: "Put it into a separate file")
    }
    guard let root, case .mapping = root.content else {
      return Diagnostic(
        .syntax, "text follows the end of the document", at: location,
        help: "A pipeline file is one mapping: 'sources:', 'signals:', 'sinks:'")
    }
    let expected = root.location.column
    let column = source.position(at: offset).column
    if column < expected {
      return Diagnostic(
        .indentation,
        "this line begins in column \(column), but the first key of the file in column \(expected)",
        at: location, notes: [.init("the first key", at: root.entries?.first?.key.location)],
        help: "Align the keys of the top level")
    }
    return Diagnostic(.syntax, "text follows the end of the document", at: location)
  }
}
