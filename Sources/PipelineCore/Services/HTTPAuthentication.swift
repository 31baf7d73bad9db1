extension HTTPOptions {
  /// Client credentials of OAuth 2.0 (RFC 6749, 4.4). Requests with equal credentials share a token.
  package struct OAuth2: Sendable, Hashable {
    /// The URL of the token request; http or https, without secrets.
    package var tokenURL: String
    package var clientID: Secret
    package var clientSecret: Secret
    /// Scopes, separated by spaces; empty: the server's default.
    package var scope = ""
    /// Further parameters of the token request.
    package var parameters: [Parameter] = []
    /// Whether the credentials are parameters of the token request rather than in its header Authorization.
    package var sendsCredentialsInBody = false

    /// A parameter of the token request.
    package struct Parameter: Sendable, Hashable {
      package var name: String
      package var value: String
      package init(_ name: String, _ value: String) {
        self.name = name
        self.value = value
      }
    }

    package init(tokenURL: String, clientID: Secret, clientSecret: Secret) {
      self.tokenURL = tokenURL
      self.clientID = clientID
      self.clientSecret = clientSecret
    }
  }

  /// Credentials that sign each request (AWS Signature Version 4).
  package struct AWSSigV4: Sendable, Hashable {
    package var region: String
    package var service: String
    package var accessKey: Secret
    package var secretKey: Secret
    /// The token of temporary credentials; nil for permanent ones.
    package var sessionToken: Secret?

    package init(region: String, service: String, accessKey: Secret, secretKey: Secret, sessionToken: Secret? = nil) {
      self.region = region
      self.service = service
      self.accessKey = accessKey
      self.secretKey = secretKey
      self.sessionToken = sessionToken
    }
  }
}
