extension Plan {
  /// The sources that run, in the order of the plan, one element for each instance. A source without a reference does
  /// not run.
  private var runningSources: [(component: any SourceDeclaration, location: SourceLocation)] {
    var found: [(component: any SourceDeclaration, location: SourceLocation)] = []
    func visit(_ signal: SignalPlan, times: Int) {
      if let source = signal.source {
        for _ in 0..<times { found.append((source, steps[signal.step.number].location)) }
      }
      for input in signal.inputs { visit(input, times: times) }
      for inner in signal.inner { visit(inner, times: 1) }
    }
    for (index, named) in named.enumerated() where named.references > 0 || rootSubscribers.contains(index) {
      visit(named.body, times: named.isCold ? max(named.references, 1) : 1)
    }
    for sink in sinks { visit(sink.input, times: 1) }
    return found
  }

  /// An address, and the location in a file that names it.
  typealias Listener = (address: ListenAddress, location: SourceLocation)

  private var listeners: [Listener] {
    runningSources.compactMap { source in
      source.component.listens.map { ($0, $0.location ?? source.location) }
    }
      + sinks.compactMap { sink in
        sink.component.listens.map { ($0, $0.location ?? steps[sink.step.number].location) }
      }
  }

  /// Whether both plans listen on one address that only one of them can have.
  package func excludesAddress(of other: Plan) -> Bool {
    let others = other.listeners
    return listeners.contains { own in others.contains { own.address.conflict($0.address) != nil } }
  }

  /// Warns of servers whose clients wait for an answer that never arrives: no sink answers, and no command's execution
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

  /// Reports sources and sinks that listen on the address of another one, unless they can share it.
  ///
  /// - Parameter seen: The listeners of earlier plans that the same process runs; this plan's are added.
  func reportSharedAddresses(beside seen: inout [Listener], into diagnostics: inout Diagnostics) {
    for listener in listeners {
      defer { seen.append(listener) }
      let found = seen.lazy.compactMap { other in
        other.address.conflict(listener.address).map { (other, $0) }
      }.first
      guard let (other, conflict) = found else { continue }
      let address = listener.address.text
      let note = Diagnostic.Note("another component listens on \(other.address.text) here", at: other.location)
      var (message, help) = (
        "only one source or sink of a process can listen on \(address)",
        "Choose another port, or refer to the first component by its name"
      )
      switch conflict {
      case _ where other.location == listener.location:
        message =
          "each reference to a 'cold' signal creates it again, and only one of them can listen on \(address)"
        help = "Remove 'cold', so that all references share one server"
      case .address: break
      case .spelling: help = "Write both addresses in the same way, so that they share the port, or choose another port"
      case .tls:
        message = "everything served on \(address) shares one certificate, but this 'tls' differs from another one"
        help = "Give both the same 'tls', or choose another port"
      case .site(let both):
        message = "only one source or sink of a process can serve \(both) on \(address)"
        help = "Give this one another 'path' or other 'methods', or choose another port"
      }
      diagnostics.report(
        Diagnostic(
          .addressInUseTwice, message, at: listener.location,
          notes: other.location == listener.location ? [] : [note], help: help))
    }
  }
}
