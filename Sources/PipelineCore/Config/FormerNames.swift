extension Diagnostic {
  /// A warning about a renamed key, such as `on`, which YAML 1.1 readers read as true.
  static func renamed(_ key: YAMLScalar, to name: String, of what: String) -> Diagnostic {
    Diagnostic(
      .formerName, "'\(key.shown)' of \(what) is called '\(name)' now", at: key.location, help: "Write '\(name)'",
      fixIts: [.init(key.location, name)])
  }
}
