/// A step that executes a command: the interface through which the command notifies it.
class CommandCaller: MultiInletNode {
  /// The number that identifies the caller to the command.
  final var serial: UInt64 = 0
  /// The number of the caller's executions that wait or run.
  final var pending = 0
  /// Whether the caller's events have ended.
  final private(set) var inputEnded = false

  // MARK: From the command

  final func began() { pending += 1 }

  final func pass(_ event: Event) { emit(event) }

  /// Called when a newer event has replaced `event`, whose execution waited or was running.
  final func superseded(_ event: OwnedEvent) {
    event.keep(in: arena)
    countSuperseded(event.event)
    ended()
  }

  final func ended() {
    pending -= 1
    finishIfOver()
  }

  final override func complete() {
    inputEnded = true
    finishIfOver()
  }

  final func finishIfOver() {
    if inputEnded, pending == 0 { finish() }
  }

  final override func save(_ state: inout StateWriter) {
    state.write(serial)
    state.write(inputEnded)
  }

  final override func restore(_ state: inout StateReader) throws(StateFault) {
    serial = try state.read()
    inputEnded = try state.read()
  }
}
