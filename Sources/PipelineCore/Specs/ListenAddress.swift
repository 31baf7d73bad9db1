/// The address where a source listens for connections.
public struct ListenAddress: Sendable, Equatable {
  /// An IP address without brackets, or a name.
  public var host: String
  /// 0: the system chooses a free port.
  public var port: Int
  /// The location in the file, if it is given there.
  public var location: SourceLocation?
  /// Datagrams have ports of their own.
  public var isDatagram = false

  public init(host: String, port: Int, location: SourceLocation? = nil, isDatagram: Bool = false) {
    self.isDatagram = isDatagram
    self.host = host
    self.port = port
    self.location = location
  }

  /// `HOST:PORT`.
  var text: String { host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]:\(port)" : "\(host):\(port)" }

  /// Whether only one of the two can listen at a time: the ports are equal, and the hosts are, or one host stands for
  /// all addresses. Names are not resolved, so two names for one address go unnoticed.
  func excludes(_ other: ListenAddress) -> Bool {
    guard port == other.port, port != 0, isDatagram == other.isDatagram else { return false }
    if host == other.host || host == "::" || other.host == "::" { return true }
    func isVersion6(_ host: String) -> Bool { host.utf8.contains(UInt8(ascii: ":")) }
    if host == "0.0.0.0" || other.host == "0.0.0.0" { return !isVersion6(host) && !isVersion6(other.host) }
    // The system decides which of these `localhost` is.
    func isLocal(_ host: String) -> Bool { host == "127.0.0.1" || host == "::1" }
    return host == "localhost" && isLocal(other.host) || other.host == "localhost" && isLocal(host)
  }
}

extension ListenAddress {
  /// One spelling of each host: addresses as the system writes them, names in small letters.
  static func canonical(_ host: String) -> String {
    guard let bytes = AddressPolicy.bytes(ofHost: host) else { return host.lowercased() }
    if bytes.count == 4 { return bytes.map { String($0) }.joined(separator: ".") }
    if bytes.allSatisfy({ $0 == 0 }) { return "::" }
    if bytes.dropLast().allSatisfy({ $0 == 0 }), bytes.last == 1 { return "::1" }
    return stride(from: 0, to: 16, by: 2).map { String(UInt16(bytes[$0]) << 8 | UInt16(bytes[$0 + 1]), radix: 16) }
      .joined(separator: ":")
  }
}

extension Plan {
  /// The sources that run, in the order of the plan, one element for each instance. A source without a reference does
  /// not run.
  private var runningSources: [(component: any SourceComponent, location: SourceLocation)] {
    var found: [(component: any SourceComponent, location: SourceLocation)] = []
    func visit(_ signal: SignalPlan, times: Int) {
      switch signal.kind {
      case .named, .errors, .input: break
      case .source(let component, _):
        for _ in 0..<times { found.append((component, steps[signal.step.number].location)) }
        for inner in component.innerPlans { visit(inner, times: 1) }
      case .run(_, let input): visit(input, times: times)
      case .node(let component, _, let inputs):
        for input in inputs { visit(input, times: times) }
        for inner in component.innerPlans { visit(inner, times: 1) }
      }
    }
    for (index, named) in named.enumerated() where named.references > 0 || rootSubscribers.contains(index) {
      visit(named.body, times: named.isCold ? max(named.references, 1) : 1)
    }
    for sink in sinks { visit(sink.input, times: 1) }
    return found
  }

  private var listeners: [(address: ListenAddress, location: SourceLocation)] {
    runningSources.compactMap { source in
      source.component.listens.map { ($0, $0.location ?? source.location) }
    }
  }

  /// Warns of servers whose clients wait for an answer that nothing gives: no sink answers, and no command's execution
  /// does.
  func reportUnansweredRequests(into diagnostics: inout Diagnostics) {
    guard !sinks.contains(where: { $0.component.answersEvents }), !named.contains(where: { $0.kind == .command })
    else { return }
    for source in runningSources where source.component.serving?.answer == .reply {
      diagnostics.report(
        Diagnostic(
          .unansweredRequests, "nothing answers these requests, so every client gets 503 or 504", at: source.location,
          help: "Add a sink such as 'answers: { from: NAME, reply: {} }', or 'decode' and let the server answer"))
    }
  }

  /// Reports sources that listen where another one does: in this plan, or in `earlier` ones that the same process runs.
  public func reportSharedAddresses(beside earlier: [Plan] = [], into diagnostics: inout Diagnostics) {
    var seen = earlier.flatMap(\.listeners)
    for listener in listeners {
      defer { seen.append(listener) }
      guard let other = seen.first(where: { $0.address.excludes(listener.address) }) else { continue }
      let isItself = other.location == listener.location
      diagnostics.report(
        Diagnostic(
          .addressInUseTwice,
          isItself
            ? "each reference to a 'cold' signal makes it anew, and only one of them can listen on \(listener.address.text)"
            : "only one source of a process can listen on \(listener.address.text)",
          at: listener.location,
          notes: isItself ? [] : [.init("another one listens on \(other.address.text) here", at: other.location)],
          help: isItself
            ? "Remove 'cold', so that all references share one server"
            : "Choose another port, or read the first one by its name"))
    }
  }
}
