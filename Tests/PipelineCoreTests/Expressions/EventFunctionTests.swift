import PipelineTestSupport
import Testing

@testable import PipelineCore

/// Cases that the examples of the functions for events omit: invalid, odd and large input.
@Suite struct EventFunctionTests {
  @Test(arguments: [
    // CSV
    ("parseCsv('')", "[]"), ("parseCsv('\\n\\r\\n')", "[]"), ("parseCsv('a,')", "[[\"a\",\"\"]]"),
    ("parseCsv('a\\r\\n\"b\\r\\n\"\"c\"\"\",d\\r\\n')", "[[\"a\"],[\"b\\r\\n\\\"c\\\"\",\"d\"]]"),
    ("parseCsv('\"a')", "error: the quote that begins at byte 0 does not end (parseCsv('\"a'))"),
    ("parseCsv('\"a\"b')", "error: text follows a closing quote, at byte 3 (parseCsv('\"a\"b'))"),
    (
      "parseCsv('a,b\\n1', {'header': true})",
      "error: row 1 has 1 fields and the header 2 (parseCsv('a,b\\n1', {'header': true}))"
    ),
    // pairs
    ("parseLogfmt('')", "{}"), ("parseLogfmt('a a=2')", "{\"a\":true}"),
    ("parseLogfmt('=1')", "error: the pair at byte 0 has no key (parseLogfmt('=1'))"),
    ("parseLogfmt('a=\"x')", "error: the quote that begins at byte 2 does not end (parseLogfmt('a=\"x'))"),
    ("parseKv('a->1|b->x=y|c', '|', '->')", "{\"a\":\"1\",\"b\":\"x=y\",\"c\":true}"),
    ("parseKv('a=1 b= c=3', ' ', '=')", "{\"a\":\"1\",\"b\":\"\",\"c\":\"3\"}"),
    ("parseKv('a:; b: x', ';', ':')", "{\"a\":\"\",\"b\":\"x\"}"),
    ("parseLogfmt('a= b=1')", "{\"a\":\"\",\"b\":\"1\"}"),
    ("parseCsv('a\t\tb', {'delimiter': '\t'})[0]", "[\"a\",\"\",\"b\"]"),
    ("parseQuery('a=&b=1')", "{\"a\":\"\",\"b\":\"1\"}"),
    ("cidr('10.0.0.0/8').containsIP('::ffff:10.0.0.1')", "true"),
    ("cidr('::ffff:10.0.0.0/104').containsIP('10.1.2.3')", "true"),
    ("isIP('::ffff:10.0.0.1')", "true"), ("'ÄÖÜ-ß-İ-Σ'.lower()", "\"äöü-ß-i̇-σ\""),
    ("'äöü-ß-ﬁ'.upper()", "\"ÄÖÜ-SS-FI\""),
    ("'AbC'.lower() + 'AbC'.upper()", "\"abcABC\""),
    (
      "string(parseTime('Feb 29 12:00:00', '%b %e %H:%M:%S', 'UTC', timestamp('2026-11-27T00:00:00Z')))",
      "\"2024-02-29T12:00:00Z\""
    ),
    ("parseKv(';;a=1;', ';', '=')", "{\"a\":\"1\"}"),
    // URLs
    ("parseUrl('HTTP://h')", "{\"scheme\":\"http\",\"host\":\"h\",\"path\":\"\"}"),
    (
      "parseUrl('http://u:p:q@h:1')",
      "{\"scheme\":\"http\",\"user\":\"u\",\"password\":\"p:q\",\"host\":\"h\",\"port\":1,\"path\":\"\"}"
    ),
    ("parseUrl('file:///etc/x').host", "\"\""),
    ("parseUrl('/a')", "error: the text is not a URL: '/a' (parseUrl('/a'))"),
    ("parseUrl('http://h:99999')", "error: the text is not a URL: 'http://h:99999' (parseUrl('http://h:99999'))"),
    ("parseUrl('http://a b')", "error: the text is not a URL: 'http://a b' (parseUrl('http://a b'))"),
    ("parseQuery('&&a&=b&a=%')", "{\"a\":[\"\",\"%\"],\"\":\"b\"}"),
    ("parseQuery('a=%ff')", "error: the bytes are not valid UTF-8 (parseQuery('a=%ff'))"),
    // Time
    ("parseTime('1 Feb 2024', '%d %b %Y')", "\"2024-02-01T00:00:00Z\""),
    (
      "parseTime('30 Feb 2024', '%d %b %Y')",
      "error: February 2024 has no day 30: '30 Feb 2024' (parseTime('30 Feb 2024', '%d %b %Y'))"
    ),
    ("parseTime('12:30 AM 1/2/26', '%I:%M %p %m/%d/%y')", "\"2026-01-02T00:30:00Z\""),
    ("parseTime('2026-03-29 02:30', '%F %R', 'Europe/Berlin')", "\"2026-03-29T01:30:00Z\""),
    ("parseTime('2026-10-25 02:30', '%F %R', 'Europe/Berlin')", "\"2026-10-25T00:30:00Z\""),
    (
      "parseTime('2026-07-01 12:00 CEST', '%F %R')",
      "error: the text continues after the time, at byte 16: '2026-07-01 12:00 CEST' (parseTime('2026-07-01 12:00 CEST', '%F %R'))"
    ),
    ("parseTime('2026-07-01 12:00 PDT', '%F %R %Z')", "\"2026-07-01T19:00:00Z\""),
    ("parseTime('2026-07-01 12:00 Europe/Berlin', '%F %R %Z')", "\"2026-07-01T10:00:00Z\""),
    ("parseTime('2026-060', 'iso8601')", "\"2026-03-01T00:00:00Z\""),
    ("parseTime('2026-01-31T12:00:00.123456789123+01', 'iso8601')", "\"2026-01-31T11:00:00.123456789Z\""),
    ("parseTime('-1', 'unix')", "\"1969-12-31T23:59:59Z\""),
    ("parseTime('-1', 'unixMillis')", "\"1969-12-31T23:59:59.999Z\""),
    ("parseTime('Sat, 31 Jan 2026 12:00:00 GMT', 'rfc1123')", "\"2026-01-31T12:00:00Z\""),
    ("parseTime('Saturday, 31-Jan-26 12:00:00 GMT', 'rfc850')", "\"2026-01-31T12:00:00Z\""),
    (
      "parseTime('Feb 29 00:00:00', 'syslog', 'UTC', timestamp('2024-03-01T00:00:00Z'))", "\"2024-02-29T00:00:00Z\""
    ),
    (
      "formatTime(timestamp('2026-02-03T04:05:06.007Z'), '%y|%e|%j|%I|%l|%k|%P|%f|%N|%s|%u|%w|%C|%%')",
      "\"26|3|034|04|4|4|am|007000|007000000|1770091506|2|2|20|%\""
    ),
    ("formatTime(timestamp('2026-01-04T00:00:00Z'), '%U %W %V %G %g')", "\"010001202626\""),
    ("formatTime(timestamp(0), 'rfc3339', 'Nowhere/Else' + '')", "error"),
    // Maps and lists
    ("mergeDeep({}, {'a': 1})", "{\"a\":1}"), ("{'a': {'b': {'c': 1}}}.flatten('/')", "{\"a/b/c\":1}"),
    ("[].sum()", "0"), ("[].avg()", "error: the list is empty ([].avg())"),
    ("[1, dyn('a')].sum()", "error: the list holds a string among its numbers ([1, dyn('a')].sum())"),
    (
      "[9223372036854775807, 1].sum()",
      "error: the result is outside the range of its type ([9223372036854775807, 1].sum())"
    ),
    ("[1, dyn(2.5), dyn(3u)].max()", "3"), ("[dyn(1), 'a'].min()", "error"),
    ("[1, 2].percentile(101)", "error: the percentage is not from 0 to 100: 101 ([1, 2].percentile(101))"),
    // Hashes
    ("hash(b'', 'sha1')", "\"da39a3ee5e6b4b0d3255bfef95601890afd80709\""),
    ("hash('', 'xxh3')", "\"2d06800538d394c2\""), ("hash('', 'crc32')", "\"00000000\""),
    ("hash('abc', 'sha512').size()", "128"),
    ("hash('a', 'sha' + '3')", "error: there is no hash 'sha3' (hash('a', 'sha' + '3'))"),
    ("hmac(b'', b'', 'md5')", "\"74e6f7298a9c2d168935f58c001bad88\""),
    ("hex.decode('0')", "error: the number of hexadecimal digits is odd (hex.decode('0'))"),
    ("base64.encode(hex.decode('00ff'))", "\"AP8=\""),
    ("uuid.v5('6ba7b810-9dad-11d1-80b4-00c04fd430c8', 'example.org') == uuid.v5('dns', 'example.org')", "true"),
    // Patterns
    ("grok('x', '%{INT:a}')", "error: the text does not match: 'x' (grok('x', '%{INT:a}'))"),
    ("grok('99999999999999999999', '%{INT:a:int}')", "error"),
    ("grok('fe80::1%eth0 10.0.0.1', '%{IP:a} %{IP:b}')", "{\"a\":\"fe80::1%eth0\",\"b\":\"10.0.0.1\"}"),
    ("grok('::ffff:1.2.3.4', '^%{IPV6:a}$').a", "\"::ffff:1.2.3.4\""),
    (
      "grok('127.0.0.1 - ann [10/Oct/2000:13:55:36 -0700] \"GET /a?b HTTP/1.0\" 200 2326', '%{COMMONAPACHELOG}')",
      "{\"clientip\":\"127.0.0.1\",\"ident\":\"-\",\"auth\":\"ann\",\"timestamp\":\"10/Oct/2000:13:55:36-0700\",\"verb\":\"GET\",\"request\":\"/a?b\",\"httpversion\":\"1.0\",\"response\":\"200\",\"bytes\":\"2326\"}"
    ),
    ("redact('aaa', 'x*')", "\"aaa\""), ("redact('axxb', 'x*', '-')", "\"a-b\""),
    ("redact([{'a': 1}, 2], ['A'])", "[{\"a\":\"[REDACTED]\"},2]"),
  ])
  func gives(_ expression: String, _ expected: String) {
    let got = evaluate(expression)
    if expected == "error" {
      #expect(got?.hasPrefix("error") == true, "\(expression): \(got ?? "")")
    } else {
      #expect(got == expected, "\(expression)")
    }
  }

  /// The same with arguments known only at run time, so that no pattern or format is compiled in advance.
  @Test func computedArguments() {
    let event = #"{"p": "%{WORD:w}", "t": "a \"b\" x", "f": "%Y", "bad": "%{NO}", "h": "md5", "z": "Nowhere"}"#
    #expect(evaluate("grok(event.t, event.p)", event) == #"{"w":"a"}"#)
    #expect(evaluate("redact(event.t, event.p)", event) == #""[REDACTED]\"[REDACTED]\"[REDACTED]""#)
    #expect(
      evaluate("grok(event.t, event.bad)", event)
        == "error: malformed pattern: there is no grok pattern 'NO' (grok(event.t, event.bad))")
    #expect(evaluate("parseTime('2026', event.f)", event) == "\"2026-01-01T00:00:00Z\"")
    #expect(evaluate("hash('', event.h)", event) == "\"d41d8cd98f00b204e9800998ecf8427e\"")
    #expect(
      evaluate("formatTime(now, event.f, event.z)", event)?.hasPrefix("error: there is no time zone 'Nowhere'") == true)
    #expect(evaluate("redact(event, ['T', 'bad']).t", event) == "\"[REDACTED]\"")
  }

  @Test(arguments: [
    ("grok(event, '%{WROD:a}')", "RX418 12+11 there is no grok pattern 'WROD' | Did you mean 'WORD'?"),
    (
      "grok(event, ['%{WORD}', '%{INT:a:integer}'])",
      "RX418 12+31 a grok field cannot be of type 'integer' | The types are string, int"
    ),
    ("grok(event, '(')", "RX418 12+3 the pattern does not compile: missing )"),
    ("hash(event, 'sha265')", "RX418 12+8 there is no hash 'sha265' | Did you mean 'sha256'?"),
    ("hmac(event, 'k', 'crc32')", "RX418 17+7 there is no hash 'crc32'"),
    ("parseTime(event, 'rfc1132')", "RX418 17+9 there is no time format called 'rfc1132' | Did you mean 'rfc1123'?"),
    ("parseTime(event, '%G')", "RX418 17+4 '%G' can be written and not read"),
    ("parseTime(event, '%H:%M')", "RX418 17+7 this form of time has no year"),
    ("formatTime(now, '%F', 'Europe/Berlim')", "RX418 22+15 there is no such time zone"),
    ("parseKv(event, '', '=')", "RX418 15+2 a separator is empty"),
    ("parseCsv(event, {'delimeter': ';'})", "RX418 16+18 there is no option 'delimeter'; did you mean 'delimiter'"),
    ("uuid.v5('dsn', event)", "RX418 8+5 this is not a namespace of UUIDs"),
  ])
  func constantsAreChecked(_ expression: String, _ expected: String) {
    let got = diagnose(expression.replacing("now", with: "timestamp(0)"))
    let wanted = expression.contains("now") ? expected.replacing("22+15", with: "31+15") : expected
    #expect(got.count == 1 && got.first?.hasPrefix(wanted) == true, "\(expression): \(got)")
  }

  /// No text traps a function; random, but the same in every run.
  @Test func damagedTexts() throws {
    var state: UInt64 = 7
    func next(_ bound: Int) -> Int {
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return Int(state >> 33) % bound
    }
    let calls = [
      "parseCsv(event)", "parseCsv(event, {'header': true, 'delimiter': ';'})", "parseLogfmt(event)",
      "parseKv(event, ';', ':')", "parseUrl(event)", "parseQuery(event)", "parseTime(event, 'iso8601')",
      "parseTime(event, 'rfc1123')", "parseTime(event, '%d/%b/%Y:%T %z')", "parseTime(event, '%s')",
      "parseTime(event, 'syslog', 'Europe/Berlin', now)", "parseTime(event, '%Y %j %I %p %N %Z')",
      "formatTime(now, event)", "parseTime('1', event)", "grok(event, '%{COMBINEDAPACHELOG}')", "grok('x', event)",
      "redact(event, '%{EMAILADDRESS}|%{IP}')", "redact('x', event)", "hash(event, 'xxh3')", "hex.decode(event)",
      "urlDecode(event)", "uuid.v5(event, event)", "base64.decode(event)", "hmac(event, event, 'sha1')",
    ]
    let seeds = [
      "a,\"b\"\"c\";d\r\n1;2", "level=info msg=\"x \\\" y\" retry", "a: \"1;\"; b:2", "https://u:p@[::1]:80/p?q=%41#f",
      "2026-01-31T12:00:00.5+01:00", "Sat, 31 Jan 2026 12:00:00 GMT", "31/Jan/2026:12:00:00 +0000", "1769860800",
      "Feb 29 00:00:00", "2024 366 12 PM 000000001 Europe/Berlin", "%Y-%m-%dT%H:%M:%S%z%%%j",
      "1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200 1 \"-\" \"x\"", "%{IP:a:int} (?<b>x)|%{DATA}$",
      "ann@example.org fe80::1", "00ffA", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "é\u{1F600}\u{0}",
    ].map { Array($0.utf8) }
    var programs: [(String, Program)] = []
    for call in calls {
      var diagnostics = Diagnostics()
      let scope = ExpressionScope([.init("event", .string), .init("now", .timestamp)])
      let checked = try #require(
        ExpressionSyntax.parse(LocatedText(call), into: &diagnostics)?.check(in: scope, into: &diagnostics))
      programs.append((call, checked.compile()))
    }
    let arena = Arena()
    let frame = EvaluationFrame(variables: 2, arena: arena, json: JSONParser())
    frame.now = .timestamp(seconds: 1_769_860_800, nanoseconds: 0)
    for _ in 0..<20_000 {
      var bytes = seeds[next(seeds.count)]
      for _ in 0..<next(6) {
        let other = seeds[next(seeds.count)]
        switch next(4) {
        case 0: bytes.remove(at: next(bytes.count))
        case 1: bytes.insert(UInt8(next(128)), at: next(bytes.count + 1))
        case 2: bytes.insert(contentsOf: other[next(other.count)...], at: next(bytes.count + 1))
        default: bytes = Array(bytes.prefix(next(bytes.count) + 1))
        }
        if bytes.isEmpty { bytes = [0x20] }
      }
      // Invalid UTF-8 is repaired: functions receive texts.
      let text = Array(String(decoding: bytes, as: UTF8.self).utf8)
      let (call, program) = programs[next(programs.count)]
      text.withUnsafeBytes { bytes in
        frame[0] = .string(bytes)
        let value = program.evaluate(frame)
        if value.isError {
          #expect(!program.failureMessage(value, frame).isEmpty, "\(call)")
        } else if value.is(.string) {
          #expect(UTF8Text.isValid(value.rawBytes), "\(call)")
        }
      }
      arena.reset()
    }
  }

  /// Linear time, on texts made to be slow: with quadratic time each would take minutes. Only the CPU time of this thread counts.
  @Test func hostileTextsAreLinear() {
    let start = threadTime()
    defer { #expect(threadTime() - start < .seconds(30)) }
    let count = 400_000
    let quotes = String(repeating: "\\\"\\\"", count: count)
    #expect(evaluate("parseCsv('\"' + event.t + '\"')[0][0].size()", "{\"t\":\"\(quotes)\"}") == "\(count)")
    let pairs = (0..<60_000).map { "k\($0)=v" }.joined(separator: " ")
    #expect(evaluate("parseLogfmt(event.t).size()", "{\"t\":\"\(pairs)\"}") == "60000")
    let query = (0..<60_000).map { "k\($0 % 7)=v" }.joined(separator: "&")
    #expect(evaluate("parseQuery(event.t).k0.size()", "{\"t\":\"\(query)\"}") == "8572")
    let lists = (0..<20_000).map { "[\($0), [[\($0)]]]" }.joined(separator: ",")
    #expect(evaluate("event.l.distinct().size()", "{\"l\": [\(lists)]}") == "20000")
    #expect(evaluate("sets.equivalent(event.l, event.l.reverse())", "{\"l\": [\(lists)]}") == "true")
    #expect(evaluate("[{'a': 1, 'b': [2.0]}, {'b': [2], 'a': 1.0}, {'a': [2]}].distinct().size()") == "2")
    let text = String(repeating: "a", count: 100_000)
    #expect(evaluate("grok(event.t + '!', '^(?:a|a)*%{NOTSPACE:w}!$').w", "{\"t\":\"\(text)\"}") == "\"a\"")
    #expect(evaluate("redact(event.t, 'a').size()", "{\"t\":\"\(text)\"}") == "1000000")
  }

  /// `Z` and `+00:00` mean the same, in every text that resembles a timestamp.
  @Test func timestampsInTheUsualFormAreReadAsInAnyOther() {
    func read(_ text: String) -> String {
      Array(text.utf8).withUnsafeBytes { bytes in
        TimeText.timestamp(bytes).map { "\($0.seconds) \($0.nanoseconds)" } ?? "none"
      }
    }
    #expect(read("2026-01-31T12:00:00.5Z") == "1769860800 500000000")
    #expect(read("0000-01-01T00:00:00Z") == "none")
    var dice = SplitMix(41)
    var sound = 0
    for _ in 0..<20_000 {
      func number(_ bound: Int, _ width: Int) -> String {
        let digits = String(dice.below(bound))
        return String(repeating: "0", count: max(0, width - digits.count)) + digits
      }
      var text = Array(
        "\(number(10_000, 4))-\(number(14, 2))-\(number(33, 2))T\(number(25, 2)):\(number(61, 2)):\(number(61, 2))".utf8
      )
      if dice.below(2) == 0 { text += Array(".".utf8) + (0..<dice.below(11)).map { _ in UInt8(0x30 + dice.below(10)) } }
      if dice.below(4) == 0 { text[dice.below(text.count)] = dice.pick(Array("0:-. Tt/;ZA\u{7F}".utf8)) }
      let start = String(decoding: text, as: UTF8.self)
      let usual = read(start + "Z")
      #expect(usual == read(start + "+00:00"), "\(start)")
      if usual != "none" { sound += 1 }
    }
    #expect(sound > 1000)
  }
}
