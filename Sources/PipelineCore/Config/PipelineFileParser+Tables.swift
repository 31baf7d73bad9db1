// Tables.

extension PipelineFileParser {
  /// A table of the section `tables`: the keys of a signal, and those of ``ReservedKeys/table``.
  mutating func table(_ node: YAMLNode) -> TableNode? {
    guard let entries = mapping(node, "a table", "a source and 'key:'") else { return nil }
    var parameters: [YAMLEntry] = []
    var others: [YAMLEntry] = []
    for entry in entries {
      if ReservedKeys.table.contains(entry.name) { parameters.append(entry) } else { others.append(entry) }
    }
    others = refuseMisspelt(refuseUnsuited(others))
    let isWhole = others.count + parameters.count == entries.count
    let hasKey = parameters.contains { $0.name == "key" }
    if !hasKey, isWhole {
      report(
        .missingKey, "the table has no 'key', by which expressions find its rows", node.location.start,
        help: "Write for example 'key: event.id'")
    }
    guard !others.isEmpty else {
      if isWhole {
        report(
          .notOneOrigin, "the table has no rows: its source is missing", node.location.start,
          help: "Write a source, such as 'file: users.csv', or 'from: NAME' for rows that a signal sends")
      }
      return nil
    }
    // The errors of the source are reported even if other errors have been.
    guard var signal = innerSignal(YAMLNode(.mapping(others), at: node.location)), hasKey, isWhole else { return nil }
    giveSchema(to: &signal)
    return TableNode(
      signal: signal, arguments: YAMLNode(.mapping(parameters), at: node.location), location: node.location)
  }

  /// Reports keys of signals that a table does not have, such as those of event time.
  private mutating func refuseUnsuited(_ entries: [YAMLEntry]) -> [YAMLEntry] {
    let known = ReservedKeys.table + ["from", "chain", "schema", "description", "movedFrom"]
    return entries.filter { entry in
      guard ReservedKeys.signal.contains(entry.name), !known.contains(entry.name) else { return true }
      checkKeys([entry], known, of: "a table")
      return false
    }
  }

  /// Reports keys that resemble those of a table. A single other key is the source.
  private mutating func refuseMisspelt(_ entries: [YAMLEntry]) -> [YAMLEntry] {
    guard entries.count > 1 else { return entries }
    return entries.filter { entry in
      guard !ReservedKeys.signal.contains(entry.name), !ReservedKeys.combining.contains(entry.name),
        Suggestion.correction(for: entry.name, among: ReservedKeys.table) != nil
      else { return true }
      checkKeys([entry], ReservedKeys.table, of: "a table")
      return false
    }
  }

  /// Gives the `schema` alongside the source of a table to the source.
  private func giveSchema(to signal: inout SignalNode) {
    guard case .inline(var source) = signal.origin else { return }
    let moved = signal.options.filter { $0.key.value == "schema" }
    source.options += moved
    signal.options.removeAll { $0.key.value == "schema" }
    signal.origin = .inline(source)
  }
}
