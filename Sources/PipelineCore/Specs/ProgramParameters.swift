// The common parameters of components that run programs: `command`, `shell` and `environment`.

extension DecodingContext {
  /// Reports the errors of a program whose texts are constant.
  ///
  /// - Parameter example: A value of `command`, such as `[logger, -t, shop]`.
  package mutating func checkProgram(
    _ command: [String], shell: String?, environment: Table<Secret>, example: String
  ) {
    requireOne("command", !command.isEmpty, or: "shell", shell != nil)
    if let name = command.first, name.isEmpty {
      badValue(at: location(of: "command"), "the program has no name", help: "Write 'command: \(example)'")
    }
    checkVariables(environment)
    for (name, texts) in [("command", command), ("shell", [shell ?? ""])]
    where texts.contains(where: { $0.utf8.contains(0) }) {
      badValue(at: location(of: name), "'\(name)' contains a NUL byte, which no argument can have")
    }
  }

  /// Reports the names that no environment variable can have.
  package mutating func checkVariables<Value>(_ environment: Table<Value>) {
    for entry in environment.entries where entry.name.isEmpty || entry.name.contains("=") {
      badValue(
        at: entry.location, "'\(Printable.cut(entry.name))' cannot be the name of an environment variable",
        help: "Use letters, digits and '_'")
    }
  }
}

extension ProgramCall {
  /// The program of ``DecodingContext/checkProgram(_:shell:environment:example:)``.
  package init(
    _ command: [String], shell: String?, environment: Table<Secret>, directory: String?, maxMemory: ByteSize?
  ) {
    if let shell {
      self.init("/bin/sh", ["-c", shell])
    } else {
      self.init(command[0], Array(command.dropFirst()))
    }
    for entry in environment.entries { options.environment[entry.name] = entry.value.revealed }
    options.directory = directory
    options.memory = maxMemory?.bytes ?? 0
  }
}
