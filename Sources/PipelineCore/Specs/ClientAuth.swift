/// How a client's requests authenticate: `auth: { oauth2: { ... } }`.
package struct ClientAuth: RecordParameter {
  /// OAuth 2.0 with client credentials.
  package struct OAuth2: RecordParameter {
    enum Placement: String, ChoiceParameter {
      case basic, body
      var help: String { self == .basic ? "in the header Authorization" : "as parameters of the request" }
    }

    var tokenURL = ""
    var clientID = Secret("")
    var clientSecret = Secret("")
    var scope = ""
    var parameters = Table<String>()
    var credentials = Placement.basic
    package init() {}

    package static var fields: [RecordField<OAuth2>] {
      [
        .init("tokenURL", \.tokenURL, required: true, "The URL that gives tokens, http or https."),
        .init("clientID", \.clientID, required: true, "The client's name."),
        .init("clientSecret", \.clientSecret, required: true, "The client's secret; use ${secret:NAME}."),
        .init("scope", \.scope, "The scopes to ask for, separated by spaces."),
        .init("parameters", \.parameters, "Further parameters of the token request, such as `audience`."),
        .init("credentials", \.credentials, "Where the token request has the client's name and secret."),
      ]
    }

    package func validate(_ node: YAMLNode, _ context: inout DecodingContext) {
      guard let url = node["tokenURL"], url.scalar?.isPlaceholder == false, !tokenURL.contains("${") else { return }
      let lower = tokenURL.lowercased()
      guard lower.hasPrefix("http://") || lower.hasPrefix("https://") else {
        context.badValue(
          url, "'tokenURL' of 'oauth2' is not an http or https URL", help: "Begin with https:// and the host")
        return
      }
      if let problem = URLSyntax.problem(Array(tokenURL.utf8)) {
        context.badValue(
          url, "'tokenURL' of 'oauth2': \(problem.message)",
          help: problem.isCredentials
            ? "Leave it out: 'clientID' and 'clientSecret' are the credentials of the token request" : problem.help)
      }
    }
  }

  /// Signatures of AWS, version 4.
  package struct AWSSigV4: RecordParameter {
    var region = ""
    var service = ""
    var accessKey = Secret("")
    var secretKey = Secret("")
    var sessionToken: Secret?
    package init() {}

    package static var fields: [RecordField<AWSSigV4>] {
      [
        .init("region", \.region, required: true, "The region, such as `eu-central-1`."),
        .init("service", \.service, required: true, "The service, such as `s3` or `es`."),
        .init("accessKey", \.accessKey, required: true, "The access key; use ${secret:NAME}."),
        .init("secretKey", \.secretKey, required: true, "The secret key; use ${secret:NAME}."),
        .init("sessionToken", \.sessionToken, "The token of temporary credentials; use ${secret:NAME}."),
      ]
    }

    package func validate(_ node: YAMLNode, _ context: inout DecodingContext) {
      for (name, value) in [("region", region), ("service", service)] {
        guard let field = node[name], field.scalar?.isPlaceholder == false else { continue }
        let isWord = value.utf8.allSatisfy { byte in
          (0x61...0x7A).contains(byte | 0x20) || (0x30...0x39).contains(byte) || byte == UInt8(ascii: "-")
        }
        if value.isEmpty || !isWord {
          context.badValue(
            field, "'\(name)' of 'awsSigV4' has letters, digits and '-' only",
            help: name == "region" ? "Write e.g. eu-central-1" : "Write e.g. s3, es or execute-api")
        }
      }
    }
  }

  package var basic: HTTPAuth.Basic?
  package var bearer: Secret?
  package var oauth2: OAuth2?
  package var awsSigV4: AWSSigV4?
  package init() {}

  package static var fields: [RecordField<ClientAuth>] {
    [
      .init("basic", \.basic, "A user and a password."),
      .init("bearer", \.bearer, "A token; use ${secret:NAME}."),
      .init(
        "oauth2", \.oauth2,
        """
        A token by OAuth 2.0's client credentials. It is fetched with the first request, shared by all with these credentials, \
        renewed before it expires, and once after a 401.
        """),
      .init("awsSigV4", \.awsSigV4, "A signature of each request, as AWS and compatible stores want it."),
    ]
  }

  package func validate(_ node: YAMLNode, _ context: inout DecodingContext) {
    HTTPAuth.validate(
      node, [("bearer", bearer), ("basic", nil), ("oauth2", nil), ("awsSigV4", nil)], basic, &context)
    let secrets = [
      ("clientID", oauth2?.clientID, node["oauth2"]), ("clientSecret", oauth2?.clientSecret, node["oauth2"]),
      ("accessKey", awsSigV4?.accessKey, node["awsSigV4"]),
      ("secretKey", awsSigV4?.secretKey, node["awsSigV4"]), ("sessionToken", awsSigV4?.sessionToken, node["awsSigV4"]),
    ]
    for (name, value, record) in secrets { HTTPAuth.validate(secret: name, value, record?[name], &context) }
  }

  package var value: HTTPOptions.Auth {
    if let bearer { return .bearer(bearer) }
    if let basic { return .basic(user: basic.user.revealed, password: basic.password) }
    if let oauth2 {
      var options = HTTPOptions.OAuth2(
        tokenURL: oauth2.tokenURL, clientID: oauth2.clientID, clientSecret: oauth2.clientSecret)
      options.scope = oauth2.scope
      options.parameters = oauth2.parameters.entries.map { .init($0.name, $0.value) }
      options.sendsCredentialsInBody = oauth2.credentials == .body
      return .oauth2(options)
    }
    if let awsSigV4 {
      return .awsSigV4(
        .init(
          region: awsSigV4.region, service: awsSigV4.service, accessKey: awsSigV4.accessKey,
          secretKey: awsSigV4.secretKey, sessionToken: awsSigV4.sessionToken))
    }
    return .none
  }
}
