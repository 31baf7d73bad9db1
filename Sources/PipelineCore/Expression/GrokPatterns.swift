/// A pattern in which `%{NAME}` stands for a well-known pattern and `%{NAME:field:type}` keeps what it matched.
///
/// Immutable and safe to share between threads.
struct GrokPattern: Sendable {
  /// What becomes of a field's text.
  enum Conversion: String, CaseIterable, Sendable {
    case string, int, float, number, bool
  }

  struct Field: Sendable {
    /// The group of the pattern that holds it, from 1.
    var group: Int
    var name: String
    var conversion: Conversion
  }

  struct Fault: Error {
    var message: String
    var help: String?
  }

  let pattern: Pattern
  let fields: [Field]

  /// Bytes of a pattern once all names stand for what they mean.
  private static let expandedBytes = 64 << 10
  private static let depth = 32

  init(_ source: UnsafeRawBufferPointer) throws(Fault) {
    guard source.count <= ExpressionLimits.patternBytes * 8 else {
      throw Fault(message: "the pattern has more than \(ExpressionLimits.patternBytes * 8) bytes")
    }
    var expansion = Expansion()
    try expansion.append(Array(source), depth: 0)
    pattern = expansion.text.withUnsafeBytes { Pattern($0) }
    if let failure = pattern.failure {
      throw Fault(
        message: "the pattern does not compile: \(failure.reason)",
        help: "Patterns are written in RE2's syntax; backslashes need a raw string: r'%{INT:id}\\s'.")
    }
    var fields: [Field] = []
    for group in 1..<max(pattern.groupCount + 1, 1) {
      guard let name = pattern.groupName(group) else { continue }
      if let known = expansion.fields[name] {
        fields.append(Field(group: group, name: known.name, conversion: known.conversion))
      } else {
        fields.append(Field(group: group, name: name, conversion: .string))
      }
    }
    self.fields = fields
  }

  private struct Expansion {
    var text: [UInt8] = []
    /// By the name of the group.
    var fields: [String: (name: String, conversion: Conversion)] = [:]

    mutating func append(_ source: [UInt8], depth: Int) throws(Fault) {
      guard depth < GrokPattern.depth, text.count < GrokPattern.expandedBytes else {
        throw Fault(message: "the pattern grows too large")
      }
      var at = 0
      while at < source.count {
        let byte = source[at]
        if byte == 0x5C, at + 1 < source.count {
          text += source[at...at + 1]
          at += 2
        } else if byte == 0x25, at + 1 < source.count, source[at + 1] == 0x7B {
          guard let close = source[at...].firstIndex(of: 0x7D) else {
            throw Fault(message: "'%{' is not closed", help: "Write %{NAME} or %{NAME:field}.")
          }
          try reference(source[at + 2..<close], depth: depth)
          at = close + 1
        } else if source[at...].starts(with: "(?<".utf8), at + 3 < source.count,
          ExpressionLexer.isLetter(source[at + 3])
        {
          // What others write for a named group.
          text += Array("(?P<".utf8)
          at += 3
        } else {
          text.append(byte)
          at += 1
        }
      }
    }

    private mutating func reference(_ inside: ArraySlice<UInt8>, depth: Int) throws(Fault) {
      let parts = inside.split(separator: 0x3A, maxSplits: 2, omittingEmptySubsequences: false)
        .map { String(decoding: $0, as: UTF8.self) }
      let name = parts.first ?? ""
      guard let meaning = GrokPattern.library[name] else {
        let nearest = NearestName.of(name, among: GrokPattern.library.keys.sorted())
        throw Fault(
          message: "there is no grok pattern '\(name)'",
          help: nearest.map { "Did you mean '\($0)'?" } ?? "'rxd describe grok' lists the patterns.")
      }
      guard parts.count > 1 else {
        text += Array("(?:".utf8)
        try append(Array(meaning.utf8), depth: depth + 1)
        text.append(0x29)
        return
      }
      guard !parts[1].isEmpty else {
        throw Fault(message: "the field of %{\(name):} has no name", help: "Write %{\(name)} or %{\(name):field}.")
      }
      var conversion = Conversion.string
      if parts.count > 2 {
        guard let known = Conversion(rawValue: parts[2]) else {
          let names = Conversion.allCases.map(\.rawValue)
          throw Fault(
            message: "a grok field cannot be of type '\(parts[2])'",
            help: NearestName.of(parts[2], among: names).map { "Did you mean '\($0)'?" }
              ?? "The types are \(names.joined(separator: ", ")).")
        }
        conversion = known
      }
      let group = "rx\(fields.count)"
      fields[group] = (parts[1], conversion)
      text += Array("(?P<\(group)>".utf8)
      try append(Array(meaning.utf8), depth: depth + 1)
      text.append(0x29)
    }
  }

  // MARK: The well-known patterns

  /// Names are those that Logstash made common; the meanings are written for RE2, without groups.
  static let library: [String: String] = {
    let octet = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
    let v4 = "\(octet)(?:\\.\(octet)){3}"
    let h = "[0-9A-Fa-f]{1,4}"
    let v6 = [
      "(?:\(h):){6}\(v4)", "::(?:\(h):){0,5}\(v4)", "(?:\(h):){1,5}:(?:\(h):){0,4}\(v4)", "(?:\(h):){7}\(h)",
      "\(h):(?::\(h)){1,6}", "(?:\(h):){1,2}(?::\(h)){1,5}", "(?:\(h):){1,3}(?::\(h)){1,4}",
      "(?:\(h):){1,4}(?::\(h)){1,3}", "(?:\(h):){1,5}(?::\(h)){1,2}", "(?:\(h):){1,6}:\(h)", "(?:\(h):){1,7}:",
      ":(?:(?::\(h)){1,7}|:)",
    ].joined(separator: "|")
    return [
      // Numbers and words
      "INT": "[+-]?[0-9]+", "POSINT": "\\b[1-9][0-9]*\\b", "NONNEGINT": "\\b[0-9]+\\b",
      "NUMBER": "%{BASE10NUM}", "BASE10NUM": "[+-]?(?:[0-9]+(?:\\.[0-9]+)?|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
      "BASE16NUM": "[+-]?(?:0[xX])?[0-9A-Fa-f]+",
      "BASE16FLOAT":
        "[+-]?(?:0[xX])?(?:[0-9A-Fa-f]+(?:\\.[0-9A-Fa-f]*)?|\\.[0-9A-Fa-f]+)",
      "BOOL": "(?i:true|false)", "WORD": "\\b\\w+\\b", "NOTSPACE": "\\S+", "SPACE": "\\s*", "DATA": ".*?",
      "GREEDYDATA": ".*", "QUOTEDSTRING": "\"(?:[^\"\\\\]|\\\\.)*\"|'(?:[^'\\\\]|\\\\.)*'|`(?:[^`\\\\]|\\\\.)*`",
      "QS": "%{QUOTEDSTRING}",
      "UUID": "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}",
      "URN": "(?i:urn):[0-9A-Za-z][0-9A-Za-z-]{1,31}:\\S+",
      "LOGLEVEL":
        "(?i:trace|debug|info(?:rmation)?|notice|warn(?:ing)?|err(?:or)?|crit(?:ical)?|fatal|severe|alert|emerg(?:ency)?|panic)",
      // People
      "USERNAME": "[0-9A-Za-z._-]+", "USER": "%{USERNAME}", "EMAILLOCALPART": "[0-9A-Za-z!#$%&'*+/=?^_`{|}~.-]+",
      "EMAILADDRESS": "%{EMAILLOCALPART}@%{HOSTNAME}",
      // Hosts
      "IPV4": "\\b\(v4)\\b", "IPV6": "(?:\(v6))(?:%[0-9A-Za-z]+)?", "IP": "%{IPV6}|%{IPV4}",
      "HOSTNAME": "\\b[0-9A-Za-z](?:[0-9A-Za-z-]{0,62})(?:\\.[0-9A-Za-z](?:[0-9A-Za-z-]{0,62}))*\\.?",
      "HOST": "%{HOSTNAME}", "IPORHOST": "%{IP}|%{HOSTNAME}", "HOSTPORT": "%{IPORHOST}:%{POSINT}",
      "MAC": "%{CISCOMAC}|%{WINDOWSMAC}|%{COMMONMAC}", "CISCOMAC": "(?:[0-9A-Fa-f]{4}\\.){2}[0-9A-Fa-f]{4}",
      "WINDOWSMAC": "(?:[0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2}", "COMMONMAC": "(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}",
      // Paths and URLs
      "PATH": "%{UNIXPATH}|%{WINPATH}", "UNIXPATH": "(?:/[^/\\s?*]*)+",
      "WINPATH": "(?:[A-Za-z]:|\\\\)(?:\\\\[^\\\\?*]*)+",
      "TTY": "/dev/(?:pts|tty[a-z0-9]?|[a-z]+)/?[0-9]*", "URIPROTO": "[A-Za-z][0-9A-Za-z+.-]*",
      "URIHOST": "%{IPORHOST}(?::%{POSINT})?", "URIPATH": "(?:/[0-9A-Za-z$.+!*'(){},~:;=@#%&_-]*)+",
      "URIQUERY": "[0-9A-Za-z$.+!*'|(){},~@#%&/=:;_?\\[\\]<>-]*", "URIPARAM": "\\?%{URIQUERY}",
      "URIPATHPARAM": "%{URIPATH}(?:%{URIPARAM})?",
      "URI": "%{URIPROTO}://(?:%{USER}(?::[^@\\s]*)?@)?(?:%{URIHOST})?(?:%{URIPATHPARAM})?",
      // Time
      "MONTH":
        "\\b(?:[Jj]an(?:uary)?|[Ff]eb(?:ruary)?|[Mm]ar(?:ch)?|[Aa]pr(?:il)?|[Mm]ay|[Jj]une?|[Jj]uly?|[Aa]ug(?:ust)?|[Ss]ep(?:t(?:ember)?)?|[Oo]ct(?:ober)?|[Nn]ov(?:ember)?|[Dd]ec(?:ember)?)\\b",
      "MONTHNUM": "1[0-2]|0?[1-9]", "MONTHNUM2": "0[1-9]|1[0-2]", "MONTHDAY": "3[01]|[12][0-9]|0?[1-9]",
      "DAY":
        "\\b(?:Mon(?:day)?|Tue(?:sday)?|Wed(?:nesday)?|Thu(?:rsday)?|Fri(?:day)?|Sat(?:urday)?|Sun(?:day)?)\\b",
      "YEAR": "[0-9]{4}|[0-9]{2}", "HOUR": "2[0-3]|[01]?[0-9]", "MINUTE": "[0-5][0-9]",
      "SECOND": "(?:[0-5]?[0-9]|60)(?:[:.,][0-9]+)?", "TIME": "%{HOUR}:%{MINUTE}(?::%{SECOND})?",
      "DATE_US": "%{MONTHNUM}[/-]%{MONTHDAY}[/-]%{YEAR}", "DATE_EU": "%{MONTHDAY}[./-]%{MONTHNUM}[./-]%{YEAR}",
      "DATE": "%{DATE_US}|%{DATE_EU}", "DATESTAMP": "(?:%{DATE})[- ]%{TIME}",
      "ISO8601_TIMEZONE": "Z|[+-]%{HOUR}(?::?%{MINUTE})", "ISO8601_SECOND": "%{SECOND}",
      "TIMESTAMP_ISO8601":
        "[0-9]{4}-(?:%{MONTHNUM})-(?:%{MONTHDAY})[T ]%{HOUR}:?%{MINUTE}(?::?%{SECOND})?(?:%{ISO8601_TIMEZONE})?",
      "TZ": "[A-Z]{3,4}", "DATESTAMP_RFC822": "%{DAY} %{MONTH} %{MONTHDAY} %{YEAR} %{TIME} %{TZ}",
      "DATESTAMP_RFC2822": "%{DAY}, %{MONTHDAY} %{MONTH} %{YEAR} %{TIME} (?:%{ISO8601_TIMEZONE})",
      "DATESTAMP_OTHER": "%{DAY} %{MONTH} %{MONTHDAY} %{TIME} %{TZ} %{YEAR}",
      "DATESTAMP_EVENTLOG": "[0-9]{4}(?:%{MONTHNUM2})(?:%{MONTHDAY})(?:%{HOUR})%{MINUTE}(?:%{SECOND})",
      "HTTPDATE": "(?:%{MONTHDAY})/%{MONTH}/(?:%{YEAR}):%{TIME} %{INT}",
      // Programs
      "SYSLOGTIMESTAMP": "%{MONTH} +(?:%{MONTHDAY}) %{TIME}", "PROG": "[!-Z\\\\^-~]+",
      "SYSLOGPROG": "%{PROG:program}(?:\\[%{POSINT:pid}\\])?", "SYSLOGHOST": "%{IPORHOST}",
      "SYSLOGFACILITY": "<%{NONNEGINT:facility}\\.%{NONNEGINT:priority}>",
      "SYSLOGBASE":
        "%{SYSLOGTIMESTAMP:timestamp} (?:%{SYSLOGFACILITY} )?%{SYSLOGHOST:logsource} %{SYSLOGPROG}:",
      "SYSLOGLINE": "%{SYSLOGBASE} %{GREEDYDATA:message}", "HTTPDUSER": "%{EMAILADDRESS}|%{USER}",
      "HTTPD_COMMONLOG":
        "%{IPORHOST:clientip} %{HTTPDUSER:ident} %{HTTPDUSER:auth} \\[%{HTTPDATE:timestamp}\\] \"(?:%{WORD:verb} %{NOTSPACE:request}(?: HTTP/%{NUMBER:httpversion})?|%{DATA:rawrequest})\" %{NUMBER:response} (?:%{NUMBER:bytes}|-)",
      "HTTPD_COMBINEDLOG": "%{HTTPD_COMMONLOG} %{QS:referrer} %{QS:agent}",
      "COMMONAPACHELOG": "%{HTTPD_COMMONLOG}", "COMBINEDAPACHELOG": "%{HTTPD_COMBINEDLOG}",
      "JAVACLASS": "(?:[A-Za-z$_][0-9A-Za-z$_]*\\.)*[A-Za-z$_][0-9A-Za-z$_]*",
      "JAVAMETHOD": "<(?:cl)?init>|[A-Za-z$_][0-9A-Za-z$_]*",
      "JAVAFILE": "[0-9A-Za-z$_. -]+",
    ]
  }()
}
