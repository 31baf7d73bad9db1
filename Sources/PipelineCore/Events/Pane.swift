/// The kind of result that a row of a window, an aggregate or a key is, in Beam's terms: `meta.pane`.
package enum Pane: Int, CaseIterable {
  /// More results may follow: the window is open.
  case early
  /// The result of a window that has closed, or of a signal that has ended.
  case onTime
  /// A correction: the window had closed before.
  case late

  fileprivate var word: Value {
    switch self {
    case .early: .literal("early")
    case .onTime: .literal("on-time")
    case .late: .literal("late")
    }
  }
}

/// How a row changes the rows that were sent before it.
package enum RowChange: Int, CaseIterable {
  /// The row is added to the earlier rows.
  case adds
  /// The row replaces the one with the same key: `meta.replaces`.
  case replaces
  /// The row retracts an earlier row, which it repeats: `meta.retracts` is true.
  case retracts
}

extension Origin {
  /// The origin of rows with these metadata. One for each combination, so that an event needs no field for it.
  static func row(_ pane: Pane, _ change: RowChange) -> Unmanaged<Origin> {
    .passUnretained(rows[pane.rawValue * RowChange.allCases.count + change.rawValue])
  }

  private static let rows = Pane.allCases.flatMap { pane in
    RowChange.allCases.map { change in
      let members: [Entry] = [
        Entry(key: .literal("pane"), value: pane.word),
        Entry(key: .literal("replaces"), value: .bool(change == .replaces)),
        Entry(key: .literal("retracts"), value: .bool(change == .retracts)),
      ]
      return members.withUnsafeBufferPointer { members in
        Origin(
          source: "",
          fields: OwnedValue(Value(kind: .map, pointer: members.baseAddress, length: members.count)))
      }
    }
  }

  /// Whether the origin's events are rows that retract earlier ones.
  package var retracts: Bool {
    let fields = fields.value
    guard fields.is(.map) else { return false }
    for entry in fields.entries where entry.key.is(.string) && entry.key.length == 8 {
      if entry.key.rawBytes.elementsEqual("retracts".utf8) { return entry.value.is(.bool) && entry.value.asBool }
    }
    return false
  }
}

extension Event {
  /// Whether the row retracts an earlier row: `meta.retracts`.
  package var retracts: Bool { origin._withUnsafeGuaranteedRef { $0.retracts } }
}
