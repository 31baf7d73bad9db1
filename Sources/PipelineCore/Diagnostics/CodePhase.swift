extension Diagnostic.Code {
  /// When codes of this range are reported, as one sentence.
  package var phase: String {
    switch name.dropFirst(2).first {
    case "1": "Reported while a file is read: text and YAML."
    case "2": "Reported while the grammar and the parameters of a pipeline file are checked."
    case "3": "Reported while names and wiring are checked."
    case "4": "Reported while expressions and templates are checked."
    case "5": "Given as the reason of an event that was rejected while the pipeline runs."
    // Run-time codes that were added when the earlier ranges were full.
    case "6" where (Int(name.dropFirst(2)) ?? 0) < 640: "Reported by 'rxd test'."
    case "6" where name == "RX650": "Reported by 'rxd export'."
    case "6": "Reported while names and wiring are checked."
    default: "Reported about the environment: variables, secrets, files, plugins."
    }
  }
}
