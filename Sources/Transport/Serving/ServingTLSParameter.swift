import PipelineCore

/// TLS of a source or sink that listens: `tls: { certificate: server.pem, key: server.key }`.
package struct ServingTLSParameter: RecordParameter {
  package var certificate = ""
  package var key: String?
  package var clientCA: String?

  package init() {}

  package static var fields: [RecordField<ServingTLSParameter>] {
    [
      .init(
        "certificate", \.certificate, primary: true, required: true,
        "A PEM file with the certificate, and those that lead to its authority."),
      .init("key", \.key, "A PEM file with its key, without a password; by default it is in the same file."),
      .init(
        "clientCA", \.clientCA,
        "A PEM file of certificates: only clients with a certificate of theirs may connect."),
    ]
  }

  package func validate(at path: String, _ context: inout DecodingContext) {
    for (field, file, what) in [
      ("certificate", certificate, "the certificate file"), ("key", key, "the key file"),
      ("clientCA", clientCA, "the certificates file"),
    ] {
      if let file, !file.isEmpty { context.warn(ofUnreadable: file, what, at: "\(path).\(field)") }
    }
  }

  package var files: TLSServing.Files { TLSServing.Files(certificate: certificate, key: key, clientCA: clientCA) }
}

extension HTTPServer.Options {
  /// The options with the memory budget of the process and, if the component has one, a certificate. Connection errors
  /// are logged at most once a second.
  package func encrypted(
    by parameter: ServingTLSParameter?, _ services: Services, _ label: String
  ) throws(SocketFailure) -> HTTPServer.Options {
    var options = self
    options.memory = services.memory
    guard let files = parameter?.files else { return options }
    let log = OncePerSecond { services.log(.warning, label, $0) }
    options.tlsFailed = { reason in log.write("a connection is over: \(reason)") }
    options.tls = try TLSServing(files) { services.log(.info, label, $0) }
    return options
  }
}
