/// What a source reads that a sink of the same process may have written.
struct OutsideInlet: Sendable {
  enum Kind: Sendable {
    /// A file, or the files of a pattern; `pattern`: its absolute form.
    case files(FilePathParameter, pattern: String)
    /// What is sent to this address; `rules`: those of an HTTP server.
    case address(ListenAddress, ServingRules?)
    /// What the server at this address sends to its clients.
    case feed(TargetAddress)
  }
  /// The source, signal, command or sink that contains it.
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

/// What a sink writes where a source may read it, and the sources that its events come from.
struct OutsideWay: Sendable {
  enum Outlet: Sendable {
    /// `resolved`: a pattern where events give the name.
    case file(FilePathParameter, resolved: String)
    case address(TargetAddress)
    /// A request of a chain, for each of its events.
    case request(TargetAddress)
    /// What is sent to all clients of this address.
    case feed(ListenAddress)
  }
  /// Its name; of a request, that of the signal or command that makes it.
  var sink: String
  var outlet: Outlet
  var location: SourceLocation
  /// The inlets of the sources that its events come from: directly, through signals and commands, or as errors of other sinks.
  var inlets: [OutsideInlet]

  /// Whether it is known what it writes: no expression gives the name, and no step decides which events are asked for.
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
