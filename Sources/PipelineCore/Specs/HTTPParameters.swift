/// How requests authenticate: `auth: { bearer: ${secret:token} }`.
package struct HTTPAuth: RecordParameter {
  /// A user name and a password.
  package struct Basic: RecordParameter {
    package var user = Secret("")
    package var password = Secret("")
    package init() {}
    package static var fields: [RecordField<Basic>] {
      [
        .init("user", \.user, required: true, "The user's name."),
        .init("password", \.password, required: true, "The password; use ${secret:NAME}."),
      ]
    }
  }

  package var basic: Basic?
  package var bearer: Secret?
  package init() {}

  package static var fields: [RecordField<HTTPAuth>] {
    [
      .init("basic", \.basic, "A user and a password."),
      .init("bearer", \.bearer, "A token; use ${secret:NAME}."),
    ]
  }

  package func validate(_ node: YAMLNode, _ context: inout DecodingContext) {
    Self.validate(node, [("bearer", bearer), ("basic", nil)], basic, &context)
  }

  /// Checks that a mapping of credentials gives exactly one of these methods. Missing credentials, or credentials that
  /// cannot be sent, would admit every client or none.
  ///
  /// - Parameter ways: The names of the methods, each with its value if that is a single secret.
  static func validate(
    _ node: YAMLNode, _ ways: [(name: String, value: Secret?)], _ basic: Basic?, _ context: inout DecodingContext
  ) {
    guard let entries = node.entries else { return }
    if entries.isEmpty {
      context.badValue(
        node, "'auth' of '\(context.component)' names no credentials", .missingParameter,
        help: "Add 'bearer: ${secret:NAME}', or 'basic: { user: NAME, password: ${secret:NAME} }'")
    }
    let given = ways.filter { node[$0.name] != nil }
    if given.count > 1, let first = node[given[0].name], let second = node[given[1].name] {
      context.diagnostics.report(
        Diagnostic(
          .conflictingParameters,
          "'auth' of '\(context.component)' is '\(given[0].name)' or '\(given[1].name)', not both", at: second.location,
          notes: [.init("the other one is here", at: first.location)], help: "Remove one of them"))
    }
    for way in ways { validate(secret: way.name, way.value, node[way.name], &context) }
    validate(secret: "user", basic?.user, node["basic"]?["user"], &context)
    validate(secret: "password", basic?.password, node["basic"]?["password"], mayBeEmpty: true, &context)
    if let user = basic?.user.revealed, let field = node["basic"]?["user"], user.utf8.contains(UInt8(ascii: ":")) {
      context.badValue(
        field, "'user' of 'auth' contains a ':', which ends the user's name in a request (RFC 7617)",
        help: "Use a name without it")
    }
  }

  /// Checks one text of the credentials. Secrets are never shown, so the message names only the field.
  static func validate(
    secret name: String, _ value: Secret?, _ field: YAMLNode?, mayBeEmpty: Bool = false,
    _ context: inout DecodingContext
  ) {
    guard let text = value?.revealed, let field, field.scalar?.isPlaceholder == false else { return }
    if text.isEmpty, !mayBeEmpty {
      context.badValue(field, "'\(name)' of 'auth' is empty", help: "Give it a value, such as ${secret:NAME}")
    } else if text.utf8.contains(where: { $0 < 0x20 || $0 == 0x7f }) {
      context.badValue(
        field, "'\(name)' of 'auth' contains a line break or another control character",
        help: "Remove it; one line break at the end of a secret's file is ignored")
    }
  }

  package var value: HTTPOptions.Auth {
    if let bearer { return .bearer(bearer) }
    if let basic { return .basic(user: basic.user.revealed, password: basic.password) }
    return .none
  }
}

/// `tls: { ca: /etc/ssl/own.pem }`.
package struct TLSParameter: RecordParameter {
  package var ca: String?
  package var certificate: String?
  package var key: String?
  package var dangerouslySkipVerification = false
  package init() {}

  package static var fields: [RecordField<TLSParameter>] {
    [
      .init("ca", \.ca, "A PEM file of certificates to trust instead of the system's."),
      .init("certificate", \.certificate, "A PEM file with the client's certificate."),
      .init("key", \.key, "A PEM file with the client's key."),
      .init(
        "dangerouslySkipVerification", \.dangerouslySkipVerification,
        "Accept any certificate; every machine on the route can then read and change everything."),
    ]
  }

  /// Warns of files that cannot be read on this machine. `path`: the path of this parameter.
  package func validate(at path: String, _ context: inout DecodingContext) {
    for (field, file, what) in [
      ("ca", ca, "the certificates file"), ("certificate", certificate, "the certificate file"),
      ("key", key, "the key file"),
    ] {
      if let file { context.warn(ofUnreadable: file, what, at: "\(path).\(field)") }
    }
  }

  package var value: TLSOptions {
    var options = TLSOptions()
    options.caFile = ca
    options.certificateFile = certificate
    options.keyFile = key
    options.verify = !dangerouslySkipVerification
    return options
  }
}

/// Confines templates in URLs: event data can change neither the scheme nor the host nor the port, nor leave the path
/// that the file gives.
package enum URLConfinement {
  /// Checks the template of a URL in the file.
  /// - Parameter scheme: The scheme without encryption; the encrypted scheme adds an `s`.
  package static func validate(_ url: TemplateParameter, scheme: String = "http", _ context: inout DecodingContext) {
    guard let template = url.template, let location = url.location else { return }
    let prefix = template.literalPrefix
    let lower = prefix.lowercased()
    if let secret = template.text.secrets.first, secret.lowerBound < authorityEnd(template.text.text) {
      context.badValue(
        at: location, "the host of a URL must not contain a secret", .misplacedSecret,
        help: "Messages name the host; read it from the environment: \(scheme)://${NAME}/")
      return
    }
    for location in template.encodedTwice {
      context.badValue(
        at: location, "what 'urlEncode' has encoded is encoded again, with the rest of the expression", .doubtfulValue,
        help:
          "Leave 'urlEncode' out: what an expression inserts into a URL is encoded; raw(...) inserts a text as it is")
    }
    if prefix.contains("${") { return }
    guard lower.hasPrefix("\(scheme)://") || lower.hasPrefix("\(scheme)s://") else {
      context.badValue(
        at: location,
        template.isConstant || prefix.contains("://")
          ? "'\(context.component)' speaks \(scheme) and \(scheme)s, and '\(Printable.cut(template.shownPrefix))' is neither"
          : "the scheme and host of a URL must be written out, not come from an event",
        help: "Begin with \(scheme):// or \(scheme)s:// and the host")
      return
    }
    let rest = prefix.utf8.drop { $0 != UInt8(ascii: ":") }.dropFirst(3)
    let hostEnds = rest.contains { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: "?") }
    if !template.isConstant, !hostEnds {
      context.badValue(
        at: location, "the host of a URL must be written out, not come from an event",
        help: "Put a / between the host and the first {{ }}")
    } else if let problem = URLSyntax.problem(Array(prefix.utf8)) {
      let help = problem.isCredentials ? accountHelp(location) : problem.help
      context.badValue(at: location, problem.message, help: help)
    }
  }

  /// Advice on how to give the user name and password that a URL contains. The user of a preset cannot set the
  /// parameters of `http`.
  private static func accountHelp(_ location: SourceLocation) -> String {
    guard let preset = location.text.preset else {
      return "Give it as 'auth: { basic: { user: NAME, password: \"${secret:NAME}\" } }'"
    }
    return "Leave it out of the URL; 'rxd describe preset \(preset)' lists the parameters for credentials"
  }

  /// Checks the address of a proxy in the file.
  package static func validate(proxy: String?, _ context: inout DecodingContext) {
    guard let proxy, !proxy.contains("${") else { return }
    let location = context.location(of: "proxy")
    guard proxy.lowercased().hasPrefix("http://") else {
      context.badValue(
        at: location, "a proxy is contacted over HTTP, so its address begins with http://",
        help: "Write http://HOST:PORT")
      return
    }
    if let problem = URLSyntax.problem(Array(proxy.utf8)) {
      context.badValue(
        at: location, "'proxy' of '\(context.component)': \(problem.message)",
        help: "Write http://HOST:PORT; a proxy with a password is not supported")
    }
  }

  /// The start of the path of a URL: after the scheme, the host and the port.
  private static func authorityEnd(_ url: [UInt8]) -> Int {
    let start = url.firstRange(of: Array("://".utf8))?.upperBound ?? 0
    return url[start...].firstIndex { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: "?") || $0 == UInt8(ascii: "#") }
      ?? url.count
  }

  /// Why a rendered URL cannot be used, one sentence; nil: it can be.
  ///
  /// Event data in the path stays in the path, below the part that the file writes before it; event data in the query
  /// stays in the query. This holds for every server: one that takes `%2f` or `\` for a slash, one that ignores `;x`,
  /// and one that decodes twice.
  ///
  /// - Parameter inserted: The ranges of `url` that expressions have filled, in order.
  package static func problem(_ url: [UInt8], inserted: [Range<Int>]) -> String? {
    if url.contains(where: { $0 <= 0x20 || $0 == 0x7F }) {
      return "the URL contains a space or control character, which 'raw' does not encode"
    }
    // The start of the path, after the host, which the file itself gives.
    let path = authorityEnd(url)
    var component = Part.path
    var next = 0
    var pathEnd = url.count
    for index in path..<url.count {
      while next < inserted.count, inserted[next].upperBound <= index { next += 1 }
      let isInserted = next < inserted.count && inserted[next].contains(index)
      let byte = url[index]
      guard byte == UInt8(ascii: "?") && component == .path || byte == UInt8(ascii: "#") && component != .fragment
      else {
        continue
      }
      if isInserted {
        return
          """
          '\(byte == UInt8(ascii: "?") ? "?" : "#")' would end the \(component) of the URL: leave 'raw' out, so that \
          event data is encoded
          """
      }
      if component == .path { pathEnd = index }
      component = byte == UInt8(ascii: "?") ? .query : .fragment
    }
    // From the first segment with event data on, the path must not lead to a parent directory.
    guard let first = inserted.first(where: { !$0.isEmpty && $0.lowerBound < pathEnd && $0.lowerBound >= path }),
      let begin = url[..<first.lowerBound].lastIndex(of: UInt8(ascii: "/"))
    else { return nil }
    let last = inserted.last { !$0.isEmpty && $0.lowerBound < pathEnd }?.upperBound ?? pathEnd
    let end = url[min(last, pathEnd)..<pathEnd].firstIndex(of: UInt8(ascii: "/")) ?? pathEnd
    return escapesBase(Array(url[(begin + 1)..<max(begin + 1, end)]))
      ? """
      the path of the URL leaves its directory with '..'
      """ : nil
  }

  /// The URL with the texts that expressions have inserted, each encoded for its position.
  ///
  /// - Parameter inserted: The ranges of `url` that expressions have filled, in order; on return, the ranges in the
  ///   result.
  package static func encoded(_ url: [UInt8], _ inserted: inout [Range<Int>], _ insertions: [URLInsertion]) -> [UInt8] {
    precondition(inserted.count == insertions.count, "an insertion into a URL without its encoding")
    guard insertions.contains(where: { $0 != .asIs }) else { return url }
    var result: [UInt8] = []
    result.reserveCapacity(url.count + 32)
    var at = 0
    var isPath = true
    for index in inserted.indices {
      let range = inserted[index]
      let literal = url[at..<range.lowerBound]
      if literal.contains(UInt8(ascii: "?")) || literal.contains(UInt8(ascii: "#")) { isPath = false }
      result += literal
      let start = result.count
      insertions[index].append(url[range], isPath: isPath, to: &result)
      inserted[index] = start..<result.count
      at = range.upperBound
    }
    result += url[at...]
    return result
  }

  private enum Part { case path, query, fragment }

  /// Whether a server may take one of the path's segments for the parent directory.
  private static func escapesBase(_ path: [UInt8]) -> Bool {
    var path = path
    while true {
      let segments = path.split(omittingEmptySubsequences: false) {
        $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: "\\")
      }
      if segments.contains(where: { $0.prefix { $0 != UInt8(ascii: ";") }.elementsEqual("..".utf8) }) { return true }
      let decoded = percentDecoded(path)
      if decoded.count == path.count { return false }
      path = decoded
    }
  }

  private static func percentDecoded(_ text: [UInt8]) -> [UInt8] {
    var result: [UInt8] = []
    result.reserveCapacity(text.count)
    var at = 0
    while at < text.count {
      if text[at] == UInt8(ascii: "%"), at + 2 < text.count, let high = digit(text[at + 1]),
        let low = digit(text[at + 2])
      {
        result.append(high << 4 | low)
        at += 3
      } else {
        result.append(text[at])
        at += 1
      }
    }
    return result
  }

  private static func digit(_ byte: UInt8) -> UInt8? {
    switch byte {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"), UInt8(ascii: "A")...UInt8(ascii: "F"):
      (byte | 0x20) - UInt8(ascii: "a") + 10
    default: nil
    }
  }
}

/// Renders the parts of a request that may contain event data.
package struct RequestTemplate: Sendable {
  package var method: String
  package var url: TemplateParameter
  package var headers: Table<TemplateParameter>
  package var body: TemplateParameter

  package init(
    method: String, url: TemplateParameter, headers: Table<TemplateParameter>, body: TemplateParameter
  ) {
    self.method = method
    self.url = url
    self.headers = headers
    self.body = body
  }
}
