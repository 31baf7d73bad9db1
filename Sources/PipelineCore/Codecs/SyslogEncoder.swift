/// How events become syslog messages.
package struct SyslogEncoding: Sendable, Equatable {
  /// RFC 3164 instead of RFC 5424.
  package var isOld = false
  /// Defaults for events without these parts: facility and severity as numbers, and texts for the header; an empty text
  /// means none.
  package var facility = 1
  package var severity = 6
  package var hostname = ""
  package var appname = ""
  /// Whether messages are lines: line feeds in a message are then written as `\n`, because they would end it.
  package var isLine = false
  package init() {}
}

/// Writes events as messages of RFC 5424 or RFC 3164, in the form that `decode: syslog` reads.
///
/// The members of a map are the parts of the message; without `message` the whole event is the message, as JSON. Any
/// other event is itself the message. Characters that a part cannot contain become `_`, and parts longer than the RFC
/// allows are truncated.
package final class SyslogEncoder: EventEncoder {
  private let options: SyslogEncoding
  private let parser = JSONParser()
  private let arena = Arena()
  private let text = OutputBuffer()
  /// The time of an event that has none, in nanoseconds since 1970.
  package var now: Int64 = 0

  package init(_ options: SyslogEncoding) { self.options = options }

  package var mediaType: String { "text/plain; charset=utf-8" }

  private struct Parts {
    var facility: Int
    var severity: Int
    var time: (seconds: Int64, nanoseconds: UInt32)
    var localTime: Value?
    var hostname: Value?
    var appname: Value?
    var procid: Value?
    var msgid: Value?
    var structuredData: Value?
    var message: Value?
  }

  package func append(_ value: Value, to output: OutputBuffer) -> EncodingFailure? {
    defer { arena.reset() }
    let value = parser.expand(value.unwrapped, into: arena)
    if value.is(.error) { return .error }
    let (seconds, rest) = Calendar.floor(now, 1_000_000_000)
    var parts = Parts(facility: options.facility, severity: options.severity, time: (seconds, UInt32(rest)))
    if value.is(.map) { read(value, &parts) }
    if parts.message == nil, !value.is(.map) || !isRead(value) { parts.message = value }
    text.clear()
    if let message = parts.message, let failure = appendBare(message, to: text) { return failure }
    let start = output.count
    output.append("<\(parts.facility << 3 | parts.severity)>")
    if options.isOld { appendOld(parts, output) } else { appendNew(parts, output) }
    if text.count > 0 { appendMessage(output) }
    if output.count == start { return .error }
    return nil
  }

  private static let headerNames: [StaticString] = [
    "hostname", "appname", "procid", "msgid", "structuredData", "facilityCode", "severityCode",
  ]

  /// Whether the map has any part of a message besides priority and time.
  private func isRead(_ value: Value) -> Bool {
    value.entries.contains { entry in Self.headerNames.contains { entry.key.rawBytes.equals($0) } }
  }

  private func read(_ value: Value, _ parts: inout Parts) {
    for entry in value.entries {
      let value = parser.expand(entry.value.unwrapped, into: arena)
      let key = entry.key.rawBytes
      guard !value.is(.null) else { continue }
      if key.equals("facilityCode") {
        if value.is(.int), (0...23).contains(value.asInt) { parts.facility = Int(value.asInt) }
      } else if key.equals("severityCode") {
        if value.is(.int), (0...7).contains(value.asInt) { parts.severity = Int(value.asInt) }
      } else if key.equals("facility") {
        if let found = SyslogNames.number(of: bare(value), in: SyslogNames.facilities) { parts.facility = found }
      } else if key.equals("severity") {
        if let found = SyslogNames.number(of: bare(value), in: SyslogNames.severities) { parts.severity = found }
      } else if key.equals("timestamp") {
        if value.is(.timestamp) {
          parts.time = (value.asInt, value.length)
        } else if let found = TimeText.timestamp(bare(value)) {
          parts.time = found
        }
      } else if key.equals("localTime") {
        parts.localTime = value
      } else if key.equals("hostname") {
        parts.hostname = value
      } else if key.equals("appname") {
        parts.appname = value
      } else if key.equals("procid") {
        parts.procid = value
      } else if key.equals("msgid") {
        parts.msgid = value
      } else if key.equals("structuredData") {
        parts.structuredData = value
      } else if key.equals("message") {
        parts.message = value
      }
    }
  }

  /// The text of a value, unescaped; empty for a value that is not text.
  private func bare(_ value: Value) -> UnsafeRawBufferPointer {
    value.is(.string) ? JSONParser.unescape(value, into: arena).rawBytes : UnsafeRawBufferPointer(start: nil, count: 0)
  }

  // MARK: The header

  private func appendNew(_ parts: Parts, _ output: OutputBuffer) {
    output.append("1 ")
    // The RFC allows no more than microseconds.
    JSONWriter.appendTimestamp(
      seconds: parts.time.seconds, nanoseconds: parts.time.nanoseconds / 1000 * 1000, to: output)
    appendField(parts.hostname, options.hostname, 255, output)
    appendField(parts.appname, options.appname, 48, output)
    appendField(parts.procid, "", 128, output)
    appendField(parts.msgid, "", 32, output)
    output.append(0x20)
    appendStructuredData(parts.structuredData, output)
    if text.count > 0 { output.append(0x20) }
  }

  private func appendField(_ value: Value?, _ usual: String, _ most: Int, _ output: OutputBuffer) {
    output.append(0x20)
    let start = output.count
    if let value { appendPlain(value, most, output) } else { appendPlain(Array(usual.utf8), most, output) }
    if output.count == start { output.append(UInt8(ascii: "-")) }
  }

  private func appendPlain(_ value: Value, _ most: Int, _ output: OutputBuffer, except: StaticString = "") {
    let field = OutputBuffer()
    guard !value.is(.map), !value.is(.list), appendBare(value, to: field) == nil else { return }
    appendPlain(Array(field.bytes), most, output, except: except)
  }

  private func appendPlain(_ bytes: [UInt8], _ most: Int, _ output: OutputBuffer, except: StaticString = "") {
    for byte in bytes.prefix(most) {
      let isPlain = byte > 0x20 && byte < 0x7F && !except.contains(byte)
      output.append(isPlain ? byte : UInt8(ascii: "_"))
    }
  }

  private func appendStructuredData(_ value: Value?, _ output: OutputBuffer) {
    guard let value, value.is(.map), !value.entries.isEmpty else { return output.append(UInt8(ascii: "-")) }
    for element in value.entries {
      output.append(UInt8(ascii: "["))
      appendName(element.key, output)
      let parameters = parser.expand(element.value.unwrapped, into: arena)
      if parameters.is(.map) {
        for parameter in parameters.entries {
          let value = parser.expand(parameter.value.unwrapped, into: arena)
          let values = value.is(.list) ? Array(value.elements) : [value]
          for one in values { appendParameter(parameter.key, one, output) }
        }
      }
      output.append(UInt8(ascii: "]"))
    }
  }

  private func appendName(_ key: Value, _ output: OutputBuffer) {
    let start = output.count
    appendPlain(key, 32, output, except: "=]\"")
    if output.count == start { output.append(UInt8(ascii: "_")) }
  }

  private func appendParameter(_ key: Value, _ value: Value, _ output: OutputBuffer) {
    output.append(0x20)
    appendName(key, output)
    output.append("=\"")
    let field = OutputBuffer()
    if appendBare(value, to: field) == nil {
      for byte in field.bytes {
        if byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") || byte == UInt8(ascii: "]") {
          output.append(UInt8(ascii: "\\"))
        }
        output.append(byte == 0x0A && options.isLine ? 0x20 : byte)
      }
    }
    output.append(UInt8(ascii: "\""))
  }

  private static let months: [StaticString] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
  ]

  private func appendOld(_ parts: Parts, _ output: OutputBuffer) {
    if let local = parts.localTime, bare(local).count == 15 {
      appendDate(Array(bare(local)), output)
    } else {
      let (days, second) = Calendar.floor(parts.time.seconds, 86_400)
      let date = Calendar.date(days: days)
      output.append(Self.months[Int(date.month - 1)])
      output.append(0x20)
      append(date.day, output, padding: 0x20)
      output.append(0x20)
      append(second / 3600, output)
      output.append(UInt8(ascii: ":"))
      append(second / 60 % 60, output)
      output.append(UInt8(ascii: ":"))
      append(second % 60, output)
    }
    if parts.hostname != nil || !options.hostname.isEmpty {
      appendField(parts.hostname, options.hostname, 255, output)
    }
    let start = output.count
    output.append(0x20)
    if let name = parts.appname {
      appendPlain(name, 48, output, except: "[]:")
    } else {
      appendPlain(Array(options.appname.utf8), 48, output, except: "[]:")
    }
    guard output.count > start + 1 else { return }
    if let process = parts.procid {
      output.append(UInt8(ascii: "["))
      appendPlain(process, 128, output, except: "[]:")
      output.append(UInt8(ascii: "]"))
    }
    output.append(": ")
  }

  private func appendDate(_ bytes: [UInt8], _ output: OutputBuffer) {
    for byte in bytes { output.append(byte >= 0x20 && byte < 0x7F ? byte : UInt8(ascii: "_")) }
  }

  private func append(_ number: Int64, _ output: OutputBuffer, padding: UInt8 = 0x30) {
    output.append(number < 10 ? padding : UInt8(0x30 + number / 10))
    output.append(UInt8(0x30 + number % 10))
  }

  private func appendMessage(_ output: OutputBuffer) {
    guard options.isLine else { return output.append(text.bytes) }
    for byte in text.bytes {
      if byte == 0x0A { output.append("\\n") } else { output.append(byte) }
    }
  }
}

extension StaticString {
  fileprivate func contains(_ byte: UInt8) -> Bool {
    UnsafeBufferPointer(start: utf8Start, count: utf8CodeUnitCount).contains(byte)
  }
}
