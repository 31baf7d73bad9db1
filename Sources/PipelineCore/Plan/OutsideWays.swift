/// An input of a source that a sink of the same process may write.
struct OutsideInlet: Sendable {
  enum Kind: Sendable {
    /// A file, or the files of a pattern; `pattern`: its absolute form.
    case files(FilePathParameter, pattern: String)
    /// The data sent to this address; `rules`: the rules, if an HTTP server listens there.
    case address(ListenAddress, ServingRules?)
    /// The feed of the server at this address.
    case feed(TargetAddress)
  }
  /// The source, signal, command or sink that contains the input.
  var owner: String
  var kind: Kind
  var location: SourceLocation?

  var note: Diagnostic.Note {
    switch kind {
    case .files(let path, _): .init("'\(owner)' reads \(path.shown) here", at: location)
    case .address(let address, _): .init("'\(owner)' listens on \(address.text) here", at: location)
    case .feed(let target): .init("'\(owner)' follows \(target.address.text) here", at: location)
    }
  }
}

/// An output of a sink that a source may read, with the sources of its events.
struct OutsideWay: Sendable {
  enum Outlet: Sendable {
    /// `resolved`: a pattern if events give the name.
    case file(FilePathParameter, resolved: String)
    case address(TargetAddress)
    /// A request of a chain, sent for each event of the chain.
    case request(TargetAddress)
    /// The feed for all clients of this address.
    case feed(ListenAddress)
  }
  /// The name of the sink; for a request, that of the signal or command that sends it.
  var sink: String
  var outlet: Outlet
  var location: SourceLocation
  /// The inlets of the sources of the output's events, which arrive directly, through signals and commands, or as
  /// errors of other sinks.
  var inlets: [OutsideInlet]

  /// Whether the target is certain: no expression gives the name, and no step decides which requests are made.
  var isSure: Bool {
    switch outlet {
    case .file(let path, _): path.fixedDirectory == nil
    case .request: false
    case .address, .feed: true
    }
  }

  var note: Diagnostic.Note {
    switch outlet {
    case .file(let path, _): .init("the sink '\(sink)' writes \(path.shown) here", at: location)
    case .address(let target): .init("the sink '\(sink)' sends to \(target.address.text) here", at: location)
    case .request(let target): .init("'\(sink)' asks \(target.address.text) here", at: location)
    case .feed(let address): .init("the sink '\(sink)' serves \(address.text) here", at: location)
    }
  }
}
