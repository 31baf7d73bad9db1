extension DecodingPosition: StateValue {
  package func save(to state: inout StateWriter) {
    state.write(offset)
    state.write(memory)
  }
  package init(from state: inout StateReader) throws(StateFault) {
    offset = try state.read()
    memory = try state.read()
    guard offset >= 0 else { throw StateFault("the offset of an input is negative") }
  }
}
