extension HTTPOptions {
  /// Client credentials of OAuth 2.0 (RFC 6749, 4.4). Requests with equal ones share a token.
  public struct OAuth2: Sendable, Hashable {
    /// The URL of the token request; http or https, without secrets.
    public var tokenURL: String
    public var clientID: Secret
    public var clientSecret: Secret
    /// Scopes, separated by spaces; empty: the server's default.
    public var scope = ""
    /// Further parameters of the token request.
    public var parameters: [Parameter] = []
    /// Whether the credentials are parameters of the token request rather than its header Authorization.
    public var sendsCredentialsInBody = false

    /// A parameter of the token request.
    public struct Parameter: Sendable, Hashable {
      public var name: String
      public var value: String
      public init(_ name: String, _ value: String) {
        self.name = name
        self.value = value
      }
    }

    public init(tokenURL: String, clientID: Secret, clientSecret: Secret) {
      self.tokenURL = tokenURL
      self.clientID = clientID
      self.clientSecret = clientSecret
    }
  }

  /// Credentials that sign each request (AWS Signature Version 4).
  public struct AWSSigV4: Sendable, Hashable {
    public var region: String
    public var service: String
    public var accessKey: Secret
    public var secretKey: Secret
    /// The token of temporary credentials.
    public var sessionToken: Secret?

    public init(region: String, service: String, accessKey: Secret, secretKey: Secret, sessionToken: Secret? = nil) {
      self.region = region
      self.service = service
      self.accessKey = accessKey
      self.secretKey = secretKey
      self.sessionToken = sessionToken
    }
  }
}
