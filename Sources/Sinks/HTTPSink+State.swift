import PipelineCore

extension HTTPSink.Queue {
  /// Writes the requests to be repeated, those under way (`others`), and the events after them.
  func save(to state: inout StateWriter, beside others: [HTTPSink.Request], newKey: ([HTTPSink.Item]) -> String) {
    let all = (others + requests).sorted { $0.place < $1.place }
    let kept = all.compactMap { $0.kept(newKey) }
    state.write(each: kept) { state, request in
      state.write(request.key)
      state.write(request.attempts)
      state.write(each: request.items.map(\.event))
    }
    state.write(each: events.filter { !$0.receipt.notifiesSender }.map(\.event))
  }

  /// Reads what `save` wrote.
  ///
  /// - Parameter item: Encodes an event again; nil if that is impossible.
  mutating func restore(
    from state: inout StateReader, item: (OwnedEvent) -> HTTPSink.Item?
  ) throws(StateFault) {
    for _ in 0..<(try state.count()) {
      let key = try state.read(String.self)
      let attempts = try state.read(in: 0...Int.max)
      let items = try state.read([OwnedEvent].self).compactMap(item)
      if !items.isEmpty { insert(key: key, attempts: attempts, items) }
    }
    for event in try state.read([OwnedEvent].self) { if let item = item(event) { append(item) } }
  }
}

extension HTTPSink.Request {
  /// The request without events with an acknowledgement, whose source is notified of their failure; nil if no other is
  /// left.
  fileprivate func kept(_ newKey: ([HTTPSink.Item]) -> String) -> Self? {
    let left = items.filter { !$0.receipt.notifiesSender }
    if left.count == items.count { return self }
    return left.isEmpty ? nil : HTTPSink.Request(place: place, items: left, key: newKey(left), attempts: attempts)
  }
}
