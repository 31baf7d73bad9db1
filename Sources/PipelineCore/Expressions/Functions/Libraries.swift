extension FunctionRegistry {
  /// Every function and macro, in the order of the reference.
  package static let families: [Family] = [
    Family(title: "Basics", summary: "What every expression needs.", functions: standard),
    Family(
      title: "Loops and macros",
      summary: "They take a name and an expression, and the name stands for each element in turn.",
      functions: macros),
    Family(title: "Conversions", summary: "From one type to another.", functions: conversions),
    Family(
      title: "Texts", summary: "Positions count code points, from 0.", functions: strings),
    Family(
      title: "Patterns",
      summary:
        "Regular expressions in RE2's syntax, and grok patterns. A constant pattern is compiled once, by `rxd check`, too.",
      functions: regex + grok),
    Family(title: "Numbers", summary: "Whole numbers and doubles.", functions: math),
    Family(
      title: "Lists and sets", summary: "Lists stay as they are; results are new lists.", functions: lists + aggregates),
    Family(title: "Maps", summary: "Maps stay as they are; results are new maps.", functions: maps),
    Family(
      title: "Optionals", summary: "Values that may be absent: `event.?field` is one.", functions: optionals),
    Family(
      title: "Time",
      summary:
        "Points in time and lengths of time. A zone is an IANA name such as `Europe/Berlin` or an offset such as `+02:00`.",
      functions: time + timeFormats),
    Family(
      title: "Parsing", summary: "Texts that hold fields.", functions: parsing),
    Family(title: "Encodings", summary: "Values encoded as text and decoded.", functions: encodings),
    Family(
      title: "Hashes and names", summary: "Fixed-length values that depend only on the input.", functions: hashes),
    Family(title: "Addresses", summary: "IP addresses and ranges of them.", functions: network),
  ]
}
