import Foundation
import PipelineTestSupport
import Testing

@testable import PipelineCore

/// Inputs that are not UTF-8. Offsets refer to the original input.
@Suite struct CharsetTests {
  private func options(
    _ charset: String, _ format: DecoderFormat = .text, invalid: InvalidUTF8 = .reject, maxLine: Int = 1 << 20
  ) throws -> DecoderOptions {
    var options = DecoderOptions(format)
    options.charset = try Charset(charset)
    options.charset?.maxLine = maxLine
    options.invalidUTF8 = invalid
    return options
  }

  private func units(_ text: String, isBig: Bool, mark: Bool = false) -> [UInt8] {
    ((mark ? [0xFEFF] : []) + Array(text.utf16)).flatMap { unit in
      let (high, low) = (UInt8(unit >> 8), UInt8(unit & 0xFF))
      return isBig ? [high, low] : [low, high]
    }
  }

  /// U+0A00 and U+0A0A contain the byte of a line feed.
  static let text = "gr\u{00FC}n\r\n\u{0A00}\u{0A0A}\u{0100}\n\n\u{1F388} end"

  @Test(arguments: [true, false]) func utf16(_ isBig: Bool) throws {
    let lines = ["\"gr\u{00FC}n\"@0", "\"\u{0A00}\u{0A0A}\u{0100}\"@12", "\"\"@20", "\"\u{1F388} end\"@22"]
    let options = try options(isBig ? "UTF-16BE" : "utf-16le")
    #expect(try decoded(options, units(Self.text, isBig: isBig)) == lines)
    try expectSameForAllCuts(options, units(Self.text, isBig: isBig))
  }

  @Test(arguments: [true, false]) func aMarkSaysWhichByteComesFirst(_ isBig: Bool) throws {
    let lines = ["\"gr\u{00FC}n\"@2", "\"\u{0A00}\u{0A0A}\u{0100}\"@14", "\"\"@22", "\"\u{1F388} end\"@24"]
    let input = units(Self.text, isBig: isBig, mark: true)
    for charset in ["utf-16", isBig ? "utf-16be" : "utf-16le"] {
      #expect(try decoded(options(charset), input) == lines)
      try expectSameForAllCuts(options(charset), input)
    }
    // Without a byte order mark, little endian.
    #expect(try decoded(options("utf-16"), units("a\nb", isBig: false)) == ["\"a\"@0", "\"b\"@4"])
  }

  @Test func utf16OfOtherFormats() throws {
    #expect(
      try decoded(options("utf-16le", .ndjson), units("{\"a\":1}\n{\"b\":\n[2]\n", isBig: false))
        == ["{\"a\":1}@0", "!malformed_json@16:{\"b\":", "[2]@28"])
    #expect(
      try decoded(options("utf-16", .csv), units("n,m\n1,\"\u{00FC}\n2\"\n3,4\n", isBig: true, mark: true))
        == ["{\"n\":\"1\",\"m\":\"\u{00FC}\\n2\"}@10", "{\"n\":\"3\",\"m\":\"4\"}@26"])
    #expect(
      try decoded(options("utf-16", .whole), units("a\n\u{00FC}", isBig: true, mark: true)) == ["\"a\\n\u{00FC}\"@0"])
  }

  /// A decoder that continues in the middle knows the byte order.
  @Test func decodingContinues() throws {
    let options = try options("utf-16")
    let input = units("ab\ncd\nef", isBig: true, mark: true)
    for cut in 2..<input.count {
      let decoder = try options.decoder()
      let (arena, rows) = (Arena(), RowBatch())
      let slab = Slab(input)
      decoder.decode(slab, 0..<cut, offset: 0, isLast: false, arena: arena, into: rows)
      let first = rows.rows.map { written($0.value) }
      let (place, memory) = (Int(decoder.pendingOffset ?? Int64(cut)), decoder.memory)
      let other = try options.decoder()
      other.reset(memory: memory)
      rows.clear()
      other.decode(slab, place..<input.count, offset: Int64(place), isLast: true, arena: arena, into: rows)
      #expect(first + rows.rows.map { written($0.value) } == ["\"ab\"", "\"cd\"", "\"ef\""], "cut at \(cut)")
    }
  }

  @Test func oneByteACharacter() throws {
    let input: [UInt8] = Array("a\n".utf8) + [0xFC, 0x0A, 0x80, 0x93, 0x0A]
    #expect(try decoded(options("latin1"), input) == ["\"a\"@0", "\"\u{FC}\"@2", "\"\u{80}\u{93}\"@4"])
    #expect(try decoded(options("windows-1252"), input) == ["\"a\"@0", "\"\u{FC}\"@2", "\"\u{20AC}\u{201C}\"@4"])
    try expectSameForAllCuts(options("windows-1252"), input)
    // JSON tokens that span lines.
    #expect(
      try decoded(options("latin1", .json), Array("{\"a\":\"".utf8) + [0xFC] + Array("\"}\n{\"b\":[1]}\n".utf8))
        == ["{\"a\":\"\u{FC}\"}@0", "{\"b\":[1]}@10"])
  }

  /// The tables of all single-byte charsets equal those of the C library.
  @Test func tablesAreThoseOfTheLibrary() throws {
    let bytes: [UInt8] = (0x80...0xFF).filter { ![0x81, 0x8D, 0x8F, 0x90, 0x9D].contains($0) }
    for (own, other) in [("windows-1252", "ms-ansi"), ("latin1", "iso_8859-1")] {
      guard let library = try? options(other) else { continue }
      #expect(try decoded(options(own), bytes) == decoded(library, bytes))
    }
  }

  @Test func charsetsOfTheLibrary() throws {
    guard (try? Charset("shift_jis")) != nil else { return }  // Debian has it in libc6, others in a separate package.
    // The second byte of a character may equal an ASCII letter.
    let input: [UInt8] = [0x83, 0x5C, 0x0A, 0x93, 0xFA, 0x0A, 0x61]
    #expect(try decoded(options("Shift_JIS"), input) == ["\"\u{30BD}\"@0", "\"\u{65E5}\"@3", "\"a\"@6"])
    #expect(
      try decoded(options("shift_jis"), [0x61, 0x0A, 0x83, 0x0A, 0x62]).map { $0.prefix(18) }
        == ["\"a\"@0", "!invalid_charset@2", "\"b\"@4"])
    #expect(try decoded(options("shift_jis", invalid: .replace), [0x61, 0xFD, 0x62]) == ["\"a\u{FFFD}b\"@0"])
  }

  @Test func bytesThatAreNoCharacters() throws {
    let input: [UInt8] = [0x61, 0, 0x00, 0xD8, 0x62, 0, 0x0A, 0, 0x63, 0, 0x0A, 0]
    #expect(try decoded(options("utf-16le"), input).map { $0.prefix(18) } == ["!invalid_charset@0", "\"c\"@8"])
    #expect(try decoded(options("utf-16le", invalid: .replace), input) == ["\"a\u{FFFD}b\"@0", "\"c\"@8"])
    #expect(try decoded(options("utf-16le"), [0x61, 0, 0x62]).map { $0.prefix(18) } == ["!invalid_charset@0"])
  }

  @Test func longLinesOfUTF16() throws {
    let input = units("ab\nabcdefgh\ncd\n", isBig: false)
    let options = try options("utf-16le", maxLine: 8)
    let expected = ["\"ab\"@0", "!row_too_long@6", "\"cd\"@24"]
    #expect(try decoded(options, input).map { $0.prefix { $0 != ":" } } == expected.map { $0.prefix { $0 != ":" } })
    for cut in 0...input.count {
      #expect(
        try decoded(options, input, cuts: [cut]).map { $0.prefix { $0 != ":" } }
          == expected.map { $0.prefix { $0 != ":" } })
    }
  }

  @Test func names() {
    for (name, message) in [
      ("utf-61", "there is no charset 'utf-61'"), ("x//TRANSLIT", "there is no charset"),
      ("utf-32", "'utf-32' does not extend ASCII"),
    ] {
      #expect {
        _ = try Charset(name)
      } throws: {
        ($0 as? CodecFailure)?.message.contains(message) == true
      }
    }
  }

  // MARK: Advice

  @Test(
    arguments: [
      (DecoderFormat.ndjson, "{\n  \"a\": 1\n}\n", "JSON documents over several lines: write 'decode: jsonDocuments'"),
      (.json, "[\n  {\n", "JSON documents over several lines: write 'decode: jsonDocuments'"),
      (.json, "{\"a\":1}{\"b\":2}\n", "JSON documents one after another: write 'decode: jsonDocuments'"),
      (.csv, "{\"a\":1,\"b\":2}\n{\"a\":2,\"b\":3}\n", "JSON documents, one a line: write 'decode: ndjson'"),
      (.csv, "a;b\n1;2\n", "CSV with a semicolon between the fields"),
      (.json, "a,b\n1,2\n", "CSV: write 'decode: csv'"),
      (.ndjson, "a\tb\n1\t2\n", "CSV with a tab between the fields"),
      (.json, "level=info msg=x\n", "logfmt: write 'decode: logfmt'"),
      (.json, "<34>1 2026-01-01T00:00:00Z h a - - - x\n", "syslog: write 'decode: syslog'"),
      (.json, "hello\n", "lines of text: write 'decode: text'"),
      (.syslog, "{\"a\":1}\n", "JSON documents, one a line: write 'decode: ndjson'"),
      (.text, "h\0e\0l\0l\0o\0\n\0", "UTF-16: write 'charset: utf-16le'"),
      (.text, "\0h\0e\0l\0l\0o\0\n", "UTF-16: write 'charset: utf-16be'"),
      (.text, "\u{1}\u{2}\u{3}\0ab\u{4}cdefghijkl", "is not text: write 'decode: bytes'"),
    ])
  func theFormatOfTheInput(_ format: DecoderFormat, _ input: String, _ advice: String) throws {
    #expect(
      DecoderAdvice.advice(DecoderOptions(format), Array(input.utf8), hasRejected: true)?.contains(advice) == true)
  }

  @Test(
    arguments: [
      (DecoderFormat.ndjson, "{\"a\":1}\n{\"broken\n"), (.json, "[1]\n"), (.csv, "a,b\n1,2\n"), (.csv, "single\nx\n"),
      (.text, "{\"a\":1}\n"), (.text, "with \0 a zero byte in a long line of text\n"), (.csv, "{x},b\n1,2\n"),
      (.regex, "hello\n"), (.bytes, "\0\0\0\0\0\0"), (.text, ""), (.jsonDocuments, "{\"a\":1}{\"b\""),
      (.text, "[2026-01-01] text\n"), (.syslog, "[x] text\n"),
    ])
  func otherInputsCauseNoMessage(_ format: DecoderFormat, _ input: String) {
    #expect(
      DecoderAdvice.advice(
        DecoderOptions(format), Array(input.utf8), hasRejected: format == .regex || format == .jsonDocuments) == nil)
  }
}

extension DecoderAdvice {
  static func advice(_ options: DecoderOptions, _ input: [UInt8], hasRejected: Bool) -> String? {
    input.withUnsafeBytes { advice(options, startingAs: $0, hasRejected: hasRejected) }
  }
}
