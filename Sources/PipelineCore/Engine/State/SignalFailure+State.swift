/// Omits the location in the file, which may change before the state is restored.
extension SignalFailure: StateValue {
  public func save(to state: inout StateWriter) {
    state.write(kind.rawValue)
    state.write(message)
    state.write(each: details) {
      $0.write($1.name)
      $0.write($1.value)
    }
  }

  public init(from state: inout StateReader) throws(StateFault) {
    guard let kind = Kind(rawValue: try state.read()) else { throw StateFault("an error is of no known kind") }
    self.init(kind, try state.read())
    for _ in 0..<(try state.count()) { details.append(Detail(try state.read(), try state.read())) }
  }
}
