/// How requests authenticate: `auth: { bearer: ${secret:token} }`.
public struct HTTPAuth: RecordParameter {
  public struct Basic: RecordParameter {
    public var user = Secret("")
    public var password = Secret("")
    public init() {}
    public static var fields: [RecordField<Basic>] {
      [
        .init("user", \.user, required: true, "The user's name."),
        .init("password", \.password, required: true, "The password; use ${secret:NAME}."),
      ]
    }
  }

  public var basic: Basic?
  public var bearer: Secret?
  public init() {}

  public static var fields: [RecordField<HTTPAuth>] {
    [
      .init("basic", \.basic, "A user and a password."),
      .init("bearer", \.bearer, "A token; use ${secret:NAME}."),
    ]
  }

  /// Credentials that are missing or cannot be sent would let in everybody, or nobody.
  public func validate(_ node: YAMLNode, _ context: inout DecodingContext) {
    guard let entries = node.entries else { return }
    if entries.isEmpty {
      context.badValue(
        node, "'auth' of '\(context.component)' names no credentials", .missingParameter,
        help: "Add 'bearer: ${secret:NAME}', or 'basic: { user: NAME, password: ${secret:NAME} }'")
    }
    if let bearer = node["bearer"], let basic = node["basic"] {
      context.diagnostics.report(
        Diagnostic(
          .conflictingParameters, "'auth' of '\(context.component)' is 'bearer' or 'basic', not both",
          at: basic.location,
          notes: [.init("the other one is here", at: bearer.location)], help: "Remove one of them"))
    }
    /// Secrets are never shown, so the message names the field only.
    func check(_ name: String, _ value: Secret?, _ field: YAMLNode?, mayBeEmpty: Bool = false) {
      guard let text = value?.revealed, let field, field.scalar?.isPlaceholder == false else { return }
      if text.isEmpty, !mayBeEmpty {
        context.badValue(field, "'\(name)' of 'auth' is empty", help: "Give it a value, such as ${secret:NAME}")
      } else if text.utf8.contains(where: { $0 < 0x20 || $0 == 0x7f }) {
        context.badValue(
          field, "'\(name)' of 'auth' holds a line break or another control character",
          help: "Remove it; one line break at the end of a secret's file is ignored")
      }
    }
    check("bearer", bearer, node["bearer"])
    check("user", basic?.user, node["basic"]?["user"])
    check("password", basic?.password, node["basic"]?["password"], mayBeEmpty: true)
    if let user = basic?.user.revealed, let field = node["basic"]?["user"], user.utf8.contains(UInt8(ascii: ":")) {
      context.badValue(
        field, "'user' of 'auth' holds a ':', which ends the name of a user in a request (RFC 7617)",
        help: "Use a name without it")
    }
  }

  public var value: HTTPOptions.Auth {
    if let bearer { return .bearer(bearer) }
    if let basic { return .basic(user: basic.user.revealed, password: basic.password) }
    return .none
  }
}

/// `tls: { ca: /etc/ssl/own.pem }`.
public struct TLSParameter: RecordParameter {
  public var ca: String?
  public var certificate: String?
  public var key: String?
  public var dangerouslySkipVerification = false
  public init() {}

  public static var fields: [RecordField<TLSParameter>] {
    [
      .init("ca", \.ca, "A PEM file of certificates to trust instead of the system's."),
      .init("certificate", \.certificate, "A PEM file with the client's certificate."),
      .init("key", \.key, "A PEM file with the client's key."),
      .init(
        "dangerouslySkipVerification", \.dangerouslySkipVerification,
        "Accept any certificate; whoever sits on the way can read and change everything."),
    ]
  }

  public var value: TLSOptions {
    var options = TLSOptions()
    options.caFile = ca
    options.certificateFile = certificate
    options.keyFile = key
    options.verify = !dangerouslySkipVerification
    return options
  }
}

/// The confinement of templates in URLs: what an event puts in can change neither the scheme nor the
/// host nor the port, nor climb out of the path that the file gives.
public enum URLConfinement {
  /// Checks a template of a URL where it is written.
  public static func validate(_ url: TemplateParameter, _ context: inout DecodingContext) {
    guard let template = url.template, let location = url.location else { return }
    let prefix = template.literalPrefix
    let lower = prefix.lowercased()
    if let secret = template.text.secrets.first, secret.lowerBound < authorityEnd(template.text.text) {
      context.badValue(
        at: location, "the host of a URL cannot hold a secret", .misplacedSecret,
        help: "Messages name the host; read it from the environment: http://${NAME}/")
      return
    }
    if prefix.contains("${") { return }
    guard lower.hasPrefix("http://") || lower.hasPrefix("https://") else {
      context.badValue(
        at: location,
        template.isConstant || prefix.contains("://")
          ? "'\(context.component)' speaks http and https, and '\(Printable.cut(template.shownPrefix))' is neither"
          : "the scheme and host of a URL must be written out, not come from an event",
        help: "Begin with http:// or https:// and the host")
      return
    }
    let rest = prefix.utf8.drop { $0 != UInt8(ascii: ":") }.dropFirst(3)
    let hostEnds = rest.contains { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: "?") }
    if !template.isConstant, !hostEnds {
      context.badValue(
        at: location, "the host of a URL must be written out, not come from an event",
        help: "Put a / between the host and the first {{ }}")
    } else if rest.isEmpty || rest.first == UInt8(ascii: "/") {
      context.badValue(at: location, "the URL has no host", help: "Write http://HOST/PATH")
    }
  }

  /// Where the path of a URL begins: behind the scheme, the host and the port.
  private static func authorityEnd(_ url: [UInt8]) -> Int {
    let start = url.firstRange(of: Array("://".utf8))?.upperBound ?? 0
    return url[start...].firstIndex { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: "?") || $0 == UInt8(ascii: "#") }
      ?? url.count
  }

  /// Why a rendered URL cannot be used; nil if it can.
  public static func problem(_ url: UnsafeRawBufferPointer, dynamic: Bool) -> String? {
    var segment: [UInt8] = []
    var inPath = false
    var slashes = 0
    for byte in url {
      if byte <= 0x20 || byte == 0x7F {
        return "the URL holds a space or control character: use urlEncode(...) around what events put in"
      }
      if byte == UInt8(ascii: "?") || byte == UInt8(ascii: "#") { break }
      if byte == UInt8(ascii: "/") {
        slashes += 1
        if inPath, isDots(segment) { return "the path of the URL climbs up with '..'" }
        inPath = slashes >= 3
        segment = []
      } else {
        segment.append(byte)
      }
    }
    return dynamic && inPath && isDots(segment) ? "the path of the URL climbs up with '..'" : nil
  }

  private static func isDots(_ segment: [UInt8]) -> Bool {
    let text = String(decoding: segment, as: UTF8.self).lowercased()
    return text == ".." || text == "%2e%2e" || text == ".%2e" || text == "%2e."
  }
}

/// Renders the parts of a request that events may fill.
public struct RequestTemplate: Sendable {
  public var method: String
  public var url: TemplateParameter
  public var headers: Table<TemplateParameter>
  public var body: TemplateParameter

  public init(
    method: String, url: TemplateParameter, headers: Table<TemplateParameter>, body: TemplateParameter
  ) {
    self.method = method
    self.url = url
    self.headers = headers
    self.body = body
  }

  /// The request for what `frame` was loaded with, or why there is none, one sentence.
  public func render(_ frame: EventFrame) -> Result<HTTPRequest, SignalFailure> {
    let buffer = OutputBuffer()
    func text(_ template: TemplateParameter, shown: Bool = false) -> Result<[UInt8], SignalFailure> {
      buffer.clear()
      if let error = shown ? template.renderShown(frame, into: buffer) : template.render(frame, into: buffer) {
        return .failure(
          SignalFailure(
            .expression, template.program?.failureMessage(error, frame.frame) ?? "a template failed",
            at: template.location))
      }
      return .success(Array(buffer.bytes))
    }
    do throws(SignalFailure) {
      let address = try text(url).get()
      let problem = address.withUnsafeBytes { URLConfinement.problem($0, dynamic: !url.isConstant) }
      if let problem { throw SignalFailure(.source, problem, at: url.location) }
      var request = HTTPRequest(method: method, url: String(decoding: address, as: UTF8.self))
      for header in headers.entries {
        let value = try text(header.value).get()
        if value.contains(where: { $0 < 0x20 && $0 != 0x09 || $0 == 0x7F }) {
          throw SignalFailure(
            .source, "the header '\(header.name)' would hold a line break or control character",
            at: header.value.location)
        }
        request.headers.append(
          HTTPHeader(header.name, String(decoding: value, as: UTF8.self), isSecret: header.value.containsSecret))
      }
      if body.isGiven { request.body = try text(body).get() }
      if url.containsSecret { request.maskedURL = String(decoding: try text(url, shown: true).get(), as: UTF8.self) }
      if body.containsSecret { request.maskedBody = try text(body, shown: true).get() }
      return .success(request)
    } catch {
      return .failure(error)
    }
  }
}
