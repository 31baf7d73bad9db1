import PipelineCore

/// Parses the common command lines, `rxd run FILE` and `rxd check FILE` with their usual options, without the argument
/// parser, which takes five milliseconds to build the tables of all verbs: as long as the rest of a start. The argument
/// parser handles everything else, including errors and help.
enum PlainArguments {
  case run(RunSettings)
  case check(CheckSettings)

  /// Nil: the argument parser must parse the command line.
  init?(_ arguments: some Sequence<String>) {
    var rest = Array(arguments)[...]
    guard let first = rest.first else { return nil }
    let isCheck = first == "check"
    let hasVerb = isCheck || first == "run"
    if hasVerb { rest.removeFirst() }
    var run = RunSettings()
    var check = CheckSettings()
    var input = InputSettings()
    while let word = rest.popFirst() {
      guard word.hasPrefix("-"), word != "-" else {
        // The word may be another verb, or a misspelt one: without a verb, a file must contain a dot or a slash.
        if !hasVerb, input.files.isEmpty, !word.utf8.contains(where: { $0 == 0x2E || $0 == 0x2F }) { return nil }
        input.files.append(word)
        continue
      }
      var name = word
      var attached: String?
      if word.hasPrefix("--"), let equals = word.utf8.firstIndex(of: 0x3D) {
        name = String(word[..<equals])
        attached = String(word[word.index(after: equals)...])
      }
      /// The value of an option; a word that looks like an option is not a value.
      func value() -> String? {
        if let attached { return attached.isEmpty ? nil : attached }
        guard let next = rest.first, !next.hasPrefix("-") else { return nil }
        rest.removeFirst()
        return next
      }
      switch (name, isCheck) {
      case ("-c", _), ("--config", _):
        guard let value = value() else { return nil }
        input.configs.append(value)
      case ("-C", _), ("--config-dir", _):
        guard let value = value() else { return nil }
        input.directories.append(value)
      case ("--state-dir", false):
        guard let value = value() else { return nil }
        run.stateDirectory = value
      case ("--control-socket", false):
        guard let value = value() else { return nil }
        run.controlSocket = value
      case ("--log-level", false):
        guard let level = value().flatMap(Services.Level.init(rawValue:)) else { return nil }
        run.logging.level = level
      case ("--log-format", false):
        guard let form = value().flatMap(LogFormat.init(rawValue:)) else { return nil }
        run.logging.form = form
      case ("--format", true):
        guard let format = value().flatMap(Check.Format.init(rawValue:)) else { return nil }
        check.format = format
      case ("--color", _):
        guard let mode = value().flatMap(ColorMode.init(rawValue:)) else { return nil }
        run.color = mode
        check.color = mode
      default:
        guard attached == nil else { return nil }
        switch (name, isCheck) {
        case ("--daemon", false): run.daemon = true
        case ("-w", false), ("--watch-config", false): run.watchConfig = true
        case ("-d", _), ("--deny-warnings", _):
          run.denyWarnings = true
          check.denyWarnings = true
        case ("-v", _), ("--verbose", _):
          run.logging.verbose += 1
          check.verbose = true
        case ("-q", _), ("--quiet", _):
          run.logging.quiet += 1
          check.quiet = true
        default: return nil
        }
      }
    }
    run.input = input
    check.input = input
    self = isCheck ? .check(check) : .run(run)
  }

  var isRun: Bool {
    if case .run = self { true } else { false }
  }

  func perform() throws {
    switch self {
    case .run(let settings): try settings.run()
    case .check(let settings): try settings.run()
    }
  }
}
