import PipelineCore

/// A component that serves HTTP, with parameters for the host names that it answers to and for the pages that may send
/// requests.
package protocol PageAccessComponent: Component {
  var hosts: [String] { get set }
  var origins: [String] { get set }
}

extension PageAccessComponent {
  package static var accessParameters: [Parameter<Self>] {
    [
      .init("hosts", \.hosts, PageAccess.helpOfHosts),
      .init(
        "origins", \.origins,
        """
        The web sites whose pages may send requests, or `*`, besides its own pages; by default on a loopback address none, on \
        another one all.
        """),
    ]
  }

  package var access: PageAccess {
    var access = PageAccess()
    access.hosts = hosts
    access.origins = origins
    return access
  }

  package func validateAccess(_ context: inout DecodingContext) {
    PageAccess.validate(hosts: hosts, &context)
    PageAccess.validate(origins: origins, &context)
  }
}

extension PageAccess {
  package static let helpOfHosts = "The \(namesHelp)"

  /// The help of `hosts` without its first word.
  package static let namesHelp = """
    names under which it is served, without ports, or `*`. On a loopback address it is always served as `localhost` and \
    under loopback addresses, and by default under no other name, as pages of other sites could use it; on another address by \
    default under all names.
    """

  /// Why a text is not a valid host name; nil: it is one.
  package static func fault(ofHost host: String) -> String? {
    if host == "*" { return nil }
    let isAddress = host.hasPrefix("[") && host.hasSuffix("]")
    let kind = HostSyntax.kind(isAddress ? String(host.dropFirst().dropLast()) : host)
    return kind == nil || isAddress != (kind == .version6) ? "'\(Printable.cut(host))' is not a host name" : nil
  }

  package static func validate(hosts: [String], _ context: inout DecodingContext) {
    for host in hosts {
      guard let fault = fault(ofHost: host) else { continue }
      context.badValue(
        at: context.location(of: "hosts"), fault,
        help: "Write the name as clients have it in the URL, without scheme and port, such as rxd.example.org, or '*'")
    }
  }

  package static func validate(origins: [String], _ context: inout DecodingContext) {
    for origin in origins
    where origin != "*" && origin != "null"
      && (!origin.contains("://") || origin.hasSuffix("/") || !origin.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F })
    {
      context.badValue(
        at: context.location(of: "origins"), "'\(Printable.cut(origin))' is not an origin",
        help: "Write scheme and host, such as https://example.org, or '*'")
    }
  }
}
