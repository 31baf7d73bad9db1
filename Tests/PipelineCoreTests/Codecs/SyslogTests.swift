import Foundation
import PipelineTestSupport
import Testing

@testable import PipelineCore

@Suite struct SyslogTests {
  private func read(_ message: String, unit: InputUnit = .body) throws -> String {
    try decoded(DecoderOptions(.syslog, unit: unit), message).joined(separator: "\n")
  }

  /// The reason why a message is rejected.
  private func reason(_ message: String) throws -> String {
    let rows = RowBatch()
    let slab = Slab(Array(message.utf8))
    var options = DecoderOptions(.syslog, unit: .body)
    options.isStrictSyslog = true
    try options.decoder().decode(slab, arena: Arena(), into: rows)
    return rows.rejected.map { "\($0.reason)" }.joined(separator: "\n")
  }

  /// The examples of RFC 5424, 6.5.
  @Test func readsTheExamplesOfRFC5424() throws {
    #expect(
      try read(
        "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \u{FEFF}'su root' failed for lonvick on /dev/pts/8"
      )
        == #"{"facility":"auth","severity":"crit","facilityCode":4,"severityCode":2,"version":1,"timestamp":"2003-10-11T22:14:15.003Z","hostname":"mymachine.example.com","appname":"su","msgid":"ID47","message":"'su root' failed for lonvick on /dev/pts/8"}@0"#
    )
    #expect(
      try read("<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %% It's time to make the do-nuts.")
        == #"{"facility":"local4","severity":"notice","facilityCode":20,"severityCode":5,"version":1,"timestamp":"2003-08-24T12:14:15.000003Z","hostname":"192.0.2.1","appname":"myproc","procid":"8710","message":"%% It's time to make the do-nuts."}@0"#
    )
    #expect(
      try read(#"<165>1 - - - - - [exampleSDID@32473 iut="3" eventSource="App\"\]\\ \n"][a b="1" b="2" c=""]"#)
        == #"{"facility":"local4","severity":"notice","facilityCode":20,"severityCode":5,"version":1,"structuredData":{"exampleSDID@32473":{"iut":"3","eventSource":"App\"]\\ \\n"},"a":{"b":["1","2"],"c":""}},"message":""}@0"#
    )
  }

  @Test func readsMessagesOfRFC3164() throws {
    #expect(
      try read("<34>Oct 11 22:14:15 mymachine su: 'su root' failed")
        == #"{"facility":"auth","severity":"crit","facilityCode":4,"severityCode":2,"localTime":"Oct 11 22:14:15","hostname":"mymachine","appname":"su","message":"'su root' failed"}@0"#
    )
    #expect(
      try read("<13>Feb  5 17:32:18 sshd[123]: hello\n")
        == #"{"facility":"user","severity":"notice","facilityCode":1,"severityCode":5,"localTime":"Feb  5 17:32:18","procid":"123","appname":"sshd","message":"hello"}@0"#
    )
    #expect(
      try read("<0>2026-01-31T12:00:00+01:00 host no tag")
        == #"{"facility":"kern","severity":"emerg","facilityCode":0,"severityCode":0,"timestamp":"2026-01-31T11:00:00Z","hostname":"host","message":"no tag"}@0"#
    )
  }

  @Test(arguments: [
    ("", ""), ("x", "expected '<' and a priority at byte 0"),
    ("<", "expected a priority from 0 to 191 at byte 1"),
    ("<192>1 - - - - - -", "expected a priority from 0 to 191 at byte 1"),
    ("<01>1 - - - - - -", "expected a priority from 0 to 191 at byte 1"),
    ("<1", "expected '>' after the priority at byte 2"),
    ("<1234>", "expected '>' after the priority at byte 4"),
    ("<1>no date", "expected a date such as 'Oct 11 22:14:15' at byte 3"),
    ("<1>Oct 32 22:14:15 h a: b", "expected a date such as 'Oct 11 22:14:15' at byte 3"),
    ("<1>1 2003-13-01T00:00:00Z - - - - -", "expected a time as in RFC 3339, or '-' at byte 5"),
    ("<1>1 - \u{7}", "expected a host name, or '-' at byte 7"),
    ("<1>1 - - - - -", "expected the kind of the message, or '-' at byte 14"),
    ("<1>1 - - - - - x", "expected '[' or '-' at byte 15"),
    ("<1>1 - - - - - [", "expected the name of an element at byte 16"),
    ("<1>1 - - - - - [a b]", "expected '=' and a value at byte 19"),
    ("<1>1 - - - - - [a b=\"1]\"]", "expected '\\' before ']' at byte 22"),
    ("<1>1 - - - - - [a][a]", "expected a name that no earlier element has at byte 19"),
    ("<1>1 - - - - - -x", "expected a space before the message at byte 16"),
  ]) func refusesWithThePlace(_ message: String, _ reason: String) throws {
    #expect(try self.reason(message) == (reason.isEmpty ? "" : "not a syslog message: " + reason))
  }

  /// Messages of devices: known parts are decoded, and `guessed` names the guessed members.
  @Test(arguments: [
    (
      "<189>82: 00:20:10: %SYS-5-CONFIG_I: Configured",
      #""sequence":82,"message":"00:20:10: %SYS-5-CONFIG_I: Configured","guessed":["message"]"#
    ),
    (
      "<189>83: *Feb 28 00:20:10: %SYS-5-CONFIG_I: Configured",
      #""sequence":83,"localTime":"Feb 28 00:20:10","appname":"%SYS-5-CONFIG_I","message":"Configured","guessed":["localTime"]"#
    ),
    (
      "<189>88: *Feb 28 00:20:10.663: %SYS-5-CONFIG_I: x",
      #""sequence":88,"localTime":"Feb 28 00:20:10.663","appname":"%SYS-5-CONFIG_I","message":"x","guessed":["localTime"]"#
    ),
    (
      "<189>86: *Feb 28 2010 00:20:10: %SYS-5-CONFIG_I: x",
      #""sequence":86,"localTime":"Feb 28 2010 00:20:10","appname":"%SYS-5-CONFIG_I","message":"x","guessed":["localTime"]"#
    ),
    (
      "<189>92: *Feb 28 00:20:10 UTC: %SYS-5-CONFIG_I: x",
      #""sequence":92,"localTime":"Feb 28 00:20:10 UTC","appname":"%SYS-5-CONFIG_I","message":"x","guessed":["localTime"]"#
    ),
    (
      "<189>94: sw1: 000204: .Jan  1 2026 23:25:10.989 CET: %LINK-3-UPDOWN: x",
      #""hostname":"sw1","sequence":204,"localTime":"Jan  1 2026 23:25:10.989 CET","appname":"%LINK-3-UPDOWN","message":"x","guessed":["hostname","localTime"]"#
    ),
    (
      "<189>Sep 8 18:11:57 ise-1 CISE_Failed_Attempts 0001 1 0",
      #""localTime":"Sep 8 18:11:57","hostname":"ise-1","message":"CISE_Failed_Attempts 0001 1 0","guessed":["localTime"]"#
    ),
    (
      "<189>Oct  3 2024 13:19:33 ap-1 WLAN/4/STATION_ONLINE:The station",
      #""localTime":"Oct  3 2024 13:19:33","hostname":"ap-1","message":"WLAN/4/STATION_ONLINE:The station","guessed":["localTime"]"#
    ),
    (
      "<189>date=2026-04-02 time=19:53:43 msg=\"a=b [c]\"",
      #""message":"date=2026-04-02 time=19:53:43 msg=\"a=b [c]\"","guessed":["message"]"#
    ),
    (
      "<189>CEF:0|Vendor|Product|1.0|100|worm stopped|10|src=192.0.2.1",
      #""message":"CEF:0|Vendor|Product|1.0|100|worm stopped|10|src=192.0.2.1","guessed":["message"]"#
    ),
    ("<189>kernel: panic", #""appname":"kernel","message":"panic","guessed":["message"]"#),
    (
      "<189>1 2026-12-31T23:59:60Z h a - - - leap",
      #""version":1,"timestamp":"2027-01-01T00:00:00Z","hostname":"h","appname":"a","message":"leap","guessed":["timestamp"]"#
    ),
    (
      "<189>1 2026-01-01T00:00:00Z h a - - [x b=\"]\"] m",
      #""version":1,"timestamp":"2026-01-01T00:00:00Z","hostname":"h","appname":"a","message":"[x b=\"]\"] m","guessed":["structuredData"]"#
    ),
    (
      "<189>1 2026-01-01T00:00:00Z h",
      #""version":1,"timestamp":"2026-01-01T00:00:00Z","hostname":"h","message":"","guessed":["message"]"#
    ),
    ("<189>", #""message":"","guessed":["message"]"#),
  ]) func devicesAreReadAsFarAsTheyCanBe(_ message: String, _ members: String) throws {
    let priority = #"{"facility":"local7","severity":"notice","facilityCode":23,"severityCode":5,"#
    #expect(try read(message) == priority + members + "}@0", "\(message)")
  }

  @Test(arguments: [
    (
      "Dec 8 16:48:11 node-01 auditd[38707]: Audit",
      #""localTime":"Dec 8 16:48:11","hostname":"node-01","procid":"38707","appname":"auditd","message":"Audit","guessed":["facility","severity","localTime"]"#
    ),
    ("no priority at all", #""message":"no priority at all","guessed":["facility","severity","message"]"#),
    ("<x>", #""message":"<x>","guessed":["facility","severity","message"]"#),
  ]) func withoutAPriorityItIsANoticeOfAUser(_ message: String, _ members: String) throws {
    let priority = #"{"facility":"user","severity":"notice","facilityCode":1,"severityCode":5,"#
    #expect(try read(message) == priority + members + "}@0", "\(message)")
  }

  /// A priority or a time out of range is rejected, not guessed.
  @Test(arguments: [
    ("<999>1 - - - - - - x", "a priority from 0 to 191"),
    ("<13>1 2026-02-30T00:00:00Z h a - - - x", "a time as in RFC 3339"),
    ("<13>2026-02-30T00:00:00Z h a: x", "a time as in RFC 3339"),
  ]) func aMistakeIsRefused(_ message: String, _ reason: String) throws {
    let rows = RowBatch()
    let slab = Slab(Array(message.utf8))
    try DecoderOptions(.syslog, unit: .body).decoder().decode(slab, arena: Arena(), into: rows)
    #expect(rows.rejected.map { "\($0.reason)" }.first?.contains(reason) == true)
  }

  /// No text traps the decoder, and every text that is not rejected has a message.
  @Test func anyTextIsRead() throws {
    var dice = SplitMix(7)
    let pieces = [
      "<13>", "<", ">", "1 ", "12: ", "*", ".", "Feb ", "28 ", "2026 ", "00:20:10", ".5", " UTC", ":", " ", "sw1: ",
      "[", "]", "=", "\"", "2026-01-01T00:00:60Z", "-", "a", "%A-1-B: ", "é",
    ]
    for _ in 0..<5000 {
      let text = (0..<dice.below(9)).map { _ in dice.pick(pieces) }.joined()
      for row in try decoded(DecoderOptions(.syslog, unit: .body), text) {
        #expect(row.hasPrefix("!") || row.contains("\"message\":"), "\(text): \(row)")
      }
    }
  }

  @Test func eachLineOfAStreamIsAMessage() throws {
    var options = DecoderOptions(.syslog)
    options.isStrictSyslog = true
    let rows = try decoded(
      options, Array("<1>Oct 11 22:14:15 h a: b\n\nbad\n<1>1 - - - - - - c\n".utf8))
    #expect(rows.count == 3 && rows[1] == "!malformed_syslog@27:bad" && rows[2].hasSuffix("@31"))
  }

  private func written(_ json: String, _ change: (inout SyslogEncoding) -> Void = { _ in }) throws -> String {
    var options = SyslogEncoding()
    change(&options)
    let encoder = SyslogEncoder(options)
    encoder.now = 1_000_000_000_123_456_789
    let output = OutputBuffer()
    let text = Slab(Array(json.utf8))
    let parser = JSONParser()
    #expect(encoder.append(parser.open(text.bytes, checking: .everything), to: output) == nil)
    withExtendedLifetime((text, parser)) {}
    return String(decoding: output.bytes, as: UTF8.self)
  }

  @Test func writesRFC5424() throws {
    #expect(try written(#""hello""#) == "<14>1 2001-09-09T01:46:40.123456Z - - - - - hello")
    #expect(
      try written(
        #"{"facility":"auth","severity":"err","hostname":"a b","appname":"é","procid":12,"msgid":"m","timestamp":"2026-01-31T12:00:00Z","structuredData":{"x":{"q":"a\"]\\","l":[1,2]}},"message":"text"}"#
      )
        == #"<35>1 2026-01-31T12:00:00Z a_b __ 12 m [x q="a\"\]\\" l="1" l="2"] text"#)
    #expect(
      try written(#"{"a":1}"#) {
        $0.appname = "rxd"
        $0.hostname = "h"
      } == #"<14>1 2001-09-09T01:46:40.123456Z h rxd - - - {"a":1}"#)
  }

  @Test func writesRFC3164() throws {
    #expect(
      try written(#"{"message":"a\nb","hostname":"h","appname":"p[1]:","procid":"7"}"#) {
        $0.isOld = true
        $0.isLine = true
      } == #"<14>Sep  9 01:46:40 h p_1__[7]: a\nb"#)
  }

  /// Encoded messages decode to the same fields, whatever the fields contain.
  @Test(arguments: [true, false]) func whatIsWrittenIsRead(_ isLine: Bool) throws {
    var dice = SplitMix(3)
    let letters = Array("abc019 -_=]\"\\[:<>é\u{1F388}\n\t@.")
    func text(_ most: Int) -> String {
      String((0..<1 + dice.below(most)).map { _ in letters[dice.below(letters.count)] })
    }
    for _ in 0..<2000 {
      var event: [String: Any] = [
        "facilityCode": dice.below(24), "severityCode": dice.below(8), "timestamp": "2026-01-31T12:00:00.5Z",
      ]
      for part in ["hostname", "appname", "procid", "msgid", "message"] where dice.below(3) > 0 {
        event[part] = text(50)
      }
      if dice.below(2) == 0 { event["structuredData"] = ["id": ["name": text(20), "list": ["a", text(5)]]] }
      let json = String(decoding: try JSONSerialization.data(withJSONObject: event), as: UTF8.self)
      let message = try written(json) { $0.isLine = isLine }
      #expect(!isLine || !message.contains("\n"))
      let rows = try decoded(DecoderOptions(.syslog, unit: isLine ? .stream : .body), message)
      #expect(rows.count == 1 && rows.first?.hasPrefix("{") == true, "\(message) \(rows)")
      guard let row = rows.first, let end = row.lastIndex(of: "@"),
        let found = try JSONSerialization.jsonObject(with: Data(row[..<end].utf8)) as? [String: Any]
      else { continue }
      #expect(found["facilityCode"] as? Int == event["facilityCode"] as? Int)
      #expect(found["severityCode"] as? Int == event["severityCode"] as? Int)
      if let message = event["message"] as? String {
        let expected = isLine ? message.replacingOccurrences(of: "\n", with: "\\n") : message.trimmingSuffix("\n")
        #expect((found["message"] as? String ?? "") == expected)
      }
      if !isLine, let data = event["structuredData"] as? [String: [String: Any]] {
        let read = found["structuredData"] as? [String: [String: Any]]
        #expect(read?["id"]?["name"] as? String == data["id"]?["name"] as? String)
        #expect(read?["id"]?["list"] as? [String] == data["id"]?["list"] as? [String])
      }
    }
  }

  /// No malformed message traps; each becomes an event or is rejected.
  @Test func damagedMessagesAreReadOrRefused() throws {
    var dice = SplitMix(5)
    let seeds = [
      "<34>1 2003-10-11T22:14:15.003Z my.example.com su 12 ID47 [a b=\"c\\\"d\" e=\"f\"][g@1] \u{FEFF}text é",
      "<13>Feb  5 17:32:18 host sshd[123]: hello", "<13>2026-01-31T12:00:00Z sshd[]: ",
    ].map { Array($0.utf8) }
    for round in 0..<6000 {
      var input = seeds[round % seeds.count]
      for _ in 0..<1 + dice.below(4) where !input.isEmpty {
        let at = dice.below(input.count)
        switch dice.below(3) {
        case 0: input[at] = UInt8(dice.below(256))
        case 1: input.remove(at: at)
        default: input = Array(input.prefix(at))
        }
      }
      let rows = try decoded(DecoderOptions(.syslog, unit: .body), input)
      #expect(rows.count <= 1)
      if let first = input.first, first != 0, first != 10 { #expect(rows.count == 1, "\(input)") }
    }
  }
}

extension String {
  fileprivate func trimmingSuffix(_ end: Character) -> String {
    var text = self
    while text.last == end { text.removeLast() }
    return text
  }
}
