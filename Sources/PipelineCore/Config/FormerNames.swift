extension Diagnostic {
  /// A key that has another name now. `on` is one: readers of YAML 1.1 take it for true.
  static func renamed(_ key: YAMLScalar, to name: String, of what: String) -> Diagnostic {
    Diagnostic(
      .formerName, "'\(key.shown)' of \(what) is called '\(name)' now", at: key.location, help: "Write '\(name)'",
      fixIts: [.init(key.location, name)])
  }
}
