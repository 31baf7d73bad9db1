extension FunctionRegistry {
  /// Texts, based on CEL's strings extension. Positions count code points.
  static let strings: [FunctionSpec] = [
    FunctionSpec(
      "charAt", "The character at a position; empty at the very end.",
      [
        .member([.string, .int], .string) { arguments in
          let text = arguments[0].rawBytes
          guard let at = arguments.position(1, in: text) else { return arguments.outOfRange(1) }
          guard at < text.count else { return .literal("") }
          return arguments.context.slice(
            arguments[0], at..<at + CodePoints.length(at: at, in: text))
        }
      ], examples: [("'tacocat'.charAt(3)", "'o'")]),
    FunctionSpec(
      "indexOf",
      """
      The position of the first occurrence of a text in another, from a position on; -1 if there is none.
      """,
      [
        .member([.string, .string], .int) { indexOf($0, from: 0) },
        .member([.string, .string, .int], .int) { arguments in
          guard let start = arguments.position(2, in: arguments[0].rawBytes) else {
            return arguments.outOfRange(2)
          }
          return indexOf(arguments, from: start)
        },
      ], examples: [("'tacocat'.indexOf('ac')", "1"), ("'tacocat'.indexOf('a', 3)", "5")]),
    FunctionSpec(
      "lastIndexOf",
      """
      The position of the last occurrence of a text in another, up to a position; -1 if there is none.
      """,
      [
        .member([.string, .string], .int) { lastIndexOf($0, upTo: $0[0].rawBytes.count) },
        .member([.string, .string, .int], .int) { arguments in
          guard let end = arguments.position(2, in: arguments[0].rawBytes) else {
            return arguments.outOfRange(2)
          }
          return lastIndexOf(arguments, upTo: end)
        },
      ], examples: [("'tacocat'.lastIndexOf('at')", "5")]),
    FunctionSpec(
      "join", "The texts of a list, one after the other, with a separator between them.",
      [
        .member([.list(.string)], .string) { join($0, separator: .literal("")) },
        .member([.list(.string), .string], .string) { join($0, separator: $0[1]) },
      ], examples: [("['x', 'y'].join('-')", "'x-y'")]),
    FunctionSpec(
      "lowerAscii", "The text with the letters A to Z in lower case.",
      [.member([.string], .string) { mapBytes($0, lowered) }],
      examples: [("'TacoCat'.lowerAscii()", "'tacocat'")]),
    FunctionSpec(
      "upperAscii", "The text with the letters a to z in upper case.",
      [.member([.string], .string) { mapBytes($0, raised) }],
      examples: [("'tacoCat'.upperAscii()", "'TACOCAT'")]),
    FunctionSpec(
      "lower", "The text in lower case, by the rules of Unicode, which are those of no language in particular.",
      [.member([.string], .string) { mapCase($0, ascii: lowered) { $0.properties.lowercaseMapping } }],
      examples: [("'ÄRGER Straße'.lower()", "'ärger straße'")]),
    FunctionSpec(
      "upper", "The text in upper case, by the rules of Unicode, which are those of no language in particular.",
      [.member([.string], .string) { mapCase($0, ascii: raised) { $0.properties.uppercaseMapping } }],
      examples: [("'Ärger Straße'.upper()", "'ÄRGER STRASSE'")]),
    FunctionSpec(
      "replace", "The text with the occurrences of a part replaced, all or a limited number.",
      [
        .member([.string, .string, .string], .string) { replace($0, limit: -1) },
        .member([.string, .string, .string, .int], .string) { replace($0, limit: $0[3].asInt) },
      ],
      examples: [("'hello hello'.replace('he', 'we')", "'wello wello'")]),
    FunctionSpec(
      "split", "The pieces of a text between separators; the number of pieces can be limited.",
      [
        .member([.string, .string], .list(.string)) { split($0, limit: -1) },
        .member([.string, .string, .int], .list(.string)) { split($0, limit: $0[2].asInt) },
      ],
      examples: [("'a,b,c'.split(',')", "['a', 'b', 'c']"), ("'a,b,c'.split(',', 2)", "['a', 'b,c']")]),
    FunctionSpec(
      "substring", "The part from one position up to another, or to the end.",
      [
        .member([.string, .int], .string) { arguments in
          let text = arguments[0].rawBytes
          guard let start = arguments.position(1, in: text) else { return arguments.outOfRange(1) }
          return arguments.context.slice(arguments[0], start..<text.count)
        },
        .member([.string, .int, .int], .string) { arguments in
          let text = arguments[0].rawBytes
          guard let start = arguments.position(1, in: text) else { return arguments.outOfRange(1) }
          guard let end = arguments.position(2, in: text), start <= end else {
            return arguments.outOfRange(2)
          }
          return arguments.context.slice(arguments[0], start..<end)
        },
      ], examples: [("'tacocat'.substring(4)", "'cat'"), ("'tacocat'.substring(0, 4)", "'taco'")]),
    FunctionSpec(
      "trim", "The text without the white space at both ends.",
      [
        .member([.string], .string) { arguments in
          let text = arguments[0].rawBytes
          var start = 0
          while start < text.count, CodePoints.isSpace(CodePoints.scalar(at: start, in: text)) {
            start += CodePoints.length(at: start, in: text)
          }
          var end = text.count
          while end > start {
            var at = end - 1
            while at > start, text[at] & 0xC0 == 0x80 { at -= 1 }
            guard CodePoints.isSpace(CodePoints.scalar(at: at, in: text)) else { break }
            end = at
          }
          return arguments.context.slice(arguments[0], start..<end)
        }
      ], examples: [("'  a b '.trim()", "'a b'")]),
    FunctionSpec(
      "reverse", "The characters of a text, or the elements of a list, in reverse order.",
      [
        .member([.string], .string) { arguments in
          let text = arguments[0].rawBytes
          var out = [UInt8](repeating: 0, count: text.count)
          var at = 0
          while at < text.count {
            let length = CodePoints.length(at: at, in: text)
            for offset in 0..<length { out[text.count - at - length + offset] = text[at + offset] }
            at += length
          }
          return arguments.context.string(out)
        },
        .member([.list(.param("T"))], .list(.param("T"))) {
          $0.context.arena.list($0[0].elements.reversed())
        },
      ], examples: [("'abc'.reverse()", "'cba'"), ("[1, 2].reverse()", "[2, 1]")]),
    FunctionSpec(
      "strings.quote", "The text in double quotes, with escapes where they are needed.",
      [
        .global([.string], .string) { arguments in
          arguments.context.build { buffer in
            buffer.append(0x22)
            for byte in arguments[0].rawBytes {
              switch byte {
              case 7: buffer.append("\\a")
              case 8: buffer.append("\\b")
              case 12: buffer.append("\\f")
              case 10: buffer.append("\\n")
              case 13: buffer.append("\\r")
              case 9: buffer.append("\\t")
              case 11: buffer.append("\\v")
              case 0x5C: buffer.append("\\\\")
              case 0x22: buffer.append("\\\"")
              default: buffer.append(byte)
              }
            }
            buffer.append(0x22)
          }
        }
      ], examples: [("strings.quote('a\\nb')", "'\"a\\\\nb\"'")]),
    FunctionSpec(
      "format", "The text with its clauses (%s %d %f %e %b %o %x %X %%) replaced by the list's elements.",
      [.member([.string, .list(.dyn)], .string) { TextFormat.format($0[0], $0[1], $0.context) }],
      examples: [("'%s has %d'.format(['a', 3])", "'a has 3'"), ("'%.2f'.format([1.005])", "'1.00'")]),
  ]

  private static func indexOf(_ arguments: Arguments, from start: Int) -> Value {
    let text = arguments[0].rawBytes
    guard let found = CodePoints.find(arguments[1].rawBytes, in: text, from: start) else {
      return .int(-1)
    }
    return .int(CodePoints.count(UnsafeRawBufferPointer(rebasing: text[..<found])))
  }

  private static func lastIndexOf(_ arguments: Arguments, upTo limit: Int) -> Value {
    let text = arguments[0].rawBytes
    let part = arguments[1].rawBytes
    var at = min(limit, text.count - part.count)
    while at >= 0 {
      let here = UnsafeRawBufferPointer(rebasing: text[at..<at + part.count])
      if here.elementsEqual(part), at == text.count || text[at] & 0xC0 != 0x80 {
        return .int(CodePoints.count(UnsafeRawBufferPointer(rebasing: text[..<at])))
      }
      at -= 1
    }
    return .int(-1)
  }

  private static func join(_ arguments: Arguments, separator: Value) -> Value {
    let context = arguments.context
    for element in arguments[0].elements where !element.is(.string) {
      return context.noOverload("join", element)
    }
    return context.build { buffer in
      for (index, element) in arguments[0].elements.enumerated() {
        if index > 0 { buffer.append(separator.rawBytes) }
        buffer.append(context.plain(element).rawBytes)
      }
    }
  }

  private static let lowered: @Sendable (UInt8) -> UInt8 = { $0 >= 0x41 && $0 <= 0x5A ? $0 | 0x20 : $0 }
  private static let raised: @Sendable (UInt8) -> UInt8 = { $0 >= 0x61 && $0 <= 0x7A ? $0 & 0xDF : $0 }

  /// Maps code points; ASCII, which is most text, needs no tables. A letter may become several.
  private static func mapCase(
    _ arguments: Arguments, ascii: (UInt8) -> UInt8, _ map: (Unicode.Scalar) -> String
  ) -> Value {
    let text = arguments[0].rawBytes
    if text.allSatisfy({ $0 < 0x80 }) { return mapBytes(arguments, ascii) }
    return arguments.context.build { buffer in
      var at = 0
      while at < text.count {
        let first = text[at]
        if first < 0x80 {
          buffer.append(ascii(first))
          at += 1
          continue
        }
        let length = min(first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2, text.count - at)
        var code = UInt32(first) & (length == 4 ? 0x07 : length == 3 ? 0x0F : 0x1F)
        for index in at + 1..<at + length { code = code << 6 | UInt32(text[index] & 0x3F) }
        if let scalar = Unicode.Scalar(code) {
          for byte in map(scalar).utf8 { buffer.append(byte) }
        } else {
          for index in at..<at + length { buffer.append(text[index]) }
        }
        at += length
      }
    }
  }

  private static func mapBytes(_ arguments: Arguments, _ change: (UInt8) -> UInt8) -> Value {
    let text = arguments[0].rawBytes
    guard !text.isEmpty else { return arguments[0] }
    let target = arguments.context.arena.allocate(text.count)
    for (index, byte) in text.enumerated() {
      target.storeBytes(of: change(byte), toByteOffset: index, as: UInt8.self)
    }
    return .string(UnsafeRawBufferPointer(start: target, count: text.count))
  }

  private static func replace(_ arguments: Arguments, limit: Int64) -> Value {
    let text = arguments[0].rawBytes
    let (old, new) = (arguments[1].rawBytes, arguments[2].rawBytes)
    var left = limit < 0 ? Int64.max : limit
    guard left > 0, old.count <= text.count else { return arguments[0] }
    if old.count > 0, CodePoints.find(old, in: text) == nil { return arguments[0] }
    return arguments.context.build { buffer in
      var at = 0
      if old.isEmpty {
        // The empty text matches before each character and at the end.
        while left > 0, at <= text.count {
          buffer.append(new)
          left -= 1
          guard at < text.count else { return }
          let length = CodePoints.length(at: at, in: text)
          buffer.append(UnsafeRawBufferPointer(rebasing: text[at..<at + length]))
          at += length
        }
      } else {
        while left > 0, let found = CodePoints.find(old, in: text, from: at) {
          buffer.append(UnsafeRawBufferPointer(rebasing: text[at..<found]))
          buffer.append(new)
          at = found + old.count
          left -= 1
          if buffer.count > ExpressionLimits.stringBytes { return }
        }
      }
      if at < text.count { buffer.append(UnsafeRawBufferPointer(rebasing: text[at...])) }
    }
  }

  private static func split(_ arguments: Arguments, limit: Int64) -> Value {
    let context = arguments.context
    let text = arguments[0].rawBytes
    let separator = arguments[1].rawBytes
    var left = limit < 0 ? Int64.max : limit
    if left == 0 { return context.arena.list([]) }
    var pieces: [Value] = []
    var at = 0
    while left > 1 {
      let end: Int
      let next: Int
      if separator.isEmpty {
        guard at < text.count else { break }
        end = at + CodePoints.length(at: at, in: text)
        next = end
        if end >= text.count { break }
      } else {
        guard let found = CodePoints.find(separator, in: text, from: at) else { break }
        end = found
        next = found + separator.count
      }
      pieces.append(context.slice(arguments[0], at..<end))
      at = next
      left -= 1
    }
    if !(separator.isEmpty && text.isEmpty) {
      pieces.append(context.slice(arguments[0], at..<text.count))
    }
    return context.arena.list(pieces)
  }
}

extension Arguments {
  /// The byte offset of the code point with this index; nil if the text has fewer.
  func position(_ index: Int, in text: UnsafeRawBufferPointer) -> Int? {
    guard self[index].asInt >= 0, let number = Int(exactly: self[index].asInt) else { return nil }
    return CodePoints.offset(of: number, in: text)
  }

  func outOfRange(_ index: Int) -> Value {
    context.failure(.indexOutOfRange, self[index])
  }
}
