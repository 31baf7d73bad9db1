import Foundation
import PipelineCore
import PipelineHost
import PipelineRuntime
import PluginHost
import Testing

/// Each breach of the contract is found by its own check, and plugins that keep the contract pass.
@Suite(.timeLimit(.minutes(10))) struct ContractSuiteTests {
  private static let rxd = ProcessInfo.processInfo.environment["RXD"] ?? "\(PluginFixtures.root)/.build/debug/rxd"

  private static func findings(
    _ file: PluginFile, only: Set<String> = [], timeout: TimeSpan = .seconds(10), parameters: [String] = [],
    files: String? = nil
  ) -> [ContractSuite.Finding] {
    var suite = ContractSuite(file, host: (rxd, ["plugin", "host"]), catalogue: .builtIn)
    suite.only = only
    suite.timeout = timeout
    suite.files = files
    suite.given = parameters.map { ContractSuite.Given(kind: nil, yaml: $0) }
    var found: [ContractSuite.Finding] = []
    suite.run { found.append($0) }
    return found
  }

  private static func failures(_ findings: [ContractSuite.Finding]) -> [String] {
    findings.compactMap {
      guard case .failed(let breach) = $0.verdict else { return nil }
      return "\($0.check) of \($0.subject): expected \(breach.expected); came \(breach.came); \(breach.help)"
    }
  }

  // MARK: Programs that break it

  /// A small program; `code` may replace its functions.
  private static func bad(_ name: String, _ code: String) throws -> PluginFile {
    let path = PluginFixtures.scratch("bad-\(name).py")
    let text = """
      #!/usr/bin/python3 -S
      import json, os, sys, time
      COMPONENT = {"kind": "operator", "name": "bare", "summary": "A test.",
                   "examples": [{"title": "plain", "yaml": "bare: {}"}]}
      SPEC = {"plugin": "bare", "version": "1", "summary": "A test.", "components": [COMPONENT]}
      def write(frame): print(json.dumps(frame, separators=(",", ":")), flush=True)
      def hello(frame): write({"spec": SPEC})
      def opened(frame): write({"opened": frame["open"]})
      def ping(frame): write({"pong": frame["ping"]})
      def answer(frame): write({"id": frame["id"], **({"events": [frame["event"]]} if "event" in frame else {})})
      def other(frame): pass
      def end(): pass
      # A count of events with state and a timer.
      counts = {}
      def counting_opened(frame):
          counts[frame["open"]] = frame.get("state", 0)
          write({"opened": frame["open"]})
      def counting_answer(frame):
          if "save" in frame: return write({"id": frame["id"], "state": counts[frame["to"]]})
          if "event" in frame: counts[frame["to"]] += 1
          write({"id": frame["id"], "events": [counts[frame["to"]]], "timers": {"t": 10}} if "event" in frame else {"id": frame["id"]})
      \(code)
      for line in sys.stdin:
          frame = json.loads(line)
          if "hello" in frame: hello(frame)
          elif "open" in frame: opened(frame)
          elif "ping" in frame: ping(frame)
          elif "id" in frame: answer(frame)
          else: other(frame)
      end()

      """
    try Data(text.utf8).write(to: URL(fileURLWithPath: path))
    try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: path)
    return PluginFile(path: path, directory: "")
  }

  struct Lie: Sendable, CustomTestStringConvertible {
    var name: String
    /// The check that must find it.
    var check: String
    /// A part of the reported actual behaviour.
    var came: String
    var code: String
    var timeout = TimeSpan.seconds(10)
    var testDescription: String { name }
  }

  private static let counting =
    "COMPONENT.update(state={'version': 1}, timers=True); opened, answer = counting_opened, counting_answer\n"
  private static let sink = "COMPONENT['kind'] = 'sink'\ndef answer(frame): write({'id': frame['id']})\n"
  private static let source =
    "COMPONENT['kind'] = 'source'\nsent = 0\ndef answer(frame): pass\ndef other(frame):\n    global sent\n    if 'stop' in frame: write({'from': frame['to'], 'complete': True})\n    for n in range(frame.get('credit', 0)):\n        sent += 1\n        write({'from': frame['to'], 'event': sent})\n"

  /// Sends objects without members.
  private static let empty = """
    COMPONENT['output'] = {'type': 'object', 'properties': {'needed': {'type': 'string'}, 'may': {'type': 'string'}}}
    def answer(frame): write({'id': frame['id'], **({'events': [{}]} if 'event' in frame else {})})

    """

  /// Completes its output with the fifth event of an instance; later events are given to `late`.
  private static let finishing = """
    COMPONENT.update(state={'version': 1})
    seen = {}
    def opened(frame):
        seen[frame['open']] = frame.get('state', 0)
        write({'opened': frame['open']})
    def late(frame): pass
    def number(frame): return frame['to']
    def answer(frame):
        if 'save' in frame: return write({'id': frame['id'], 'state': seen[frame['to']]})
        if 'event' not in frame: return write({'id': frame['id']})
        seen[number(frame)] += 1
        count = seen[number(frame)]
        if count > 5: late(frame)
        else: write({'id': frame['id'], 'events': [count], **({'finish': True} if count == 5 else {})})

    """

  static let lies: [Lie] = [
    Lie(
      name: "sends-on", check: "finish", came: "\"events\":[\"more\"]",
      code: finishing + "def late(frame): write({'id': frame['id'], 'events': ['more']})"),
    Lie(
      name: "timer-behind-the-end", check: "finish", came: "timers",
      code: finishing + "def late(frame): write({'id': frame['id'], 'timers': {'t': 1}})"),
    Lie(
      name: "finishes-twice", check: "finish", came: "finish",
      code: finishing + "def late(frame): write({'id': frame['id'], 'finish': True})"),
    Lie(
      name: "ends-the-others", check: "finish", came: "none to",
      code: finishing + "def number(frame): return 1", timeout: .seconds(2)),
    Lie(
      name: "finish-is-one", check: "answers", came: "\"finish\":1",
      code: "def answer(frame): write({'id': frame['id'], 'finish': 1})"),
    Lie(
      name: "sink-finishes", check: "answers", came: "\"finish\":true",
      code: sink + "def answer(frame): write({'id': frame['id'], 'finish': True})"),
    Lie(name: "ended", check: "spec", came: "exited with 0", code: "sys.exit(0)"),
    Lie(name: "silent", check: "spec", came: "nothing", code: "def hello(frame): pass"),
    Lie(name: "varying", check: "spec", came: "differ", code: "COMPONENT['details'] = str(os.getpid())"),
    Lie(name: "summary", check: "spec", came: "full stop", code: "COMPONENT['summary'] = 'no stop'"),
    Lie(name: "contract", check: "spec", came: "contract 7", code: "SPEC['contract'] = 7"),
    Lie(name: "built-in", check: "spec", came: "built in", code: "COMPONENT['name'] = 'map'"),
    Lie(name: "row", check: "spec", came: "has it", code: "COMPONENT['form'] = 'row'"),
    Lie(name: "status", check: "spec", came: "exited with 3", code: "def end(): sys.exit(3)"),
    Lie(
      name: "repeats-contract", check: "versions", came: "contract 2",
      code: "def hello(frame): write({'spec': {**SPEC, 'contract': frame['hello']}})"),
    Lie(
      name: "crash-on-contract", check: "versions", came: "signal 6",
      code: "def hello(frame): os.abort() if frame['hello'] != 1 else write({'spec': SPEC})"),
    Lie(
      name: "example", check: "examples", came: "bare",
      code: "COMPONENT['examples'][0]['yaml'] = 'bare: { nothing: 1 }'"),
    Lie(name: "opened-9", check: "open", came: "9", code: "def opened(frame): write({'opened': 9})"),
    Lie(
      name: "one-instance", check: "open", came: "refuses",
      code: "def opened(frame): write({'opened': frame['open'], **({'error': 'no'} if frame['open'] > 1 else {})})"),
    Lie(
      name: "place", check: "open", came: "nowhere",
      code: "def opened(frame): write({'opened': frame['open'], 'error': 'no', 'at': 'nowhere'})"),
    Lie(name: "pong", check: "open", came: "pong", code: "def ping(frame): write({'pong': 0})"),
    Lie(
      name: "parameter", check: "parameters", came: "exited with 4",
      code:
        "COMPONENT['parameters'] = [{'name': 'to', 'type': 'integer', 'default': 3, 'minimum': 1, 'maximum': 9, 'help': 'A number.'}]\ndef opened(frame):\n    if frame['parameters'].get('to') == 9: os._exit(4)\n    write({'opened': frame['open']})"
    ),
    Lie(name: "order", check: "answers", came: "id", code: "def answer(frame): write({'id': frame['id'] + 1})"),
    Lie(
      name: "no-answer", check: "answers", came: "none to", code: "def answer(frame): pass", timeout: .milliseconds(300)
    ),
    Lie(
      name: "hang", check: "answers", came: "none to", code: "def answer(frame): time.sleep(60)",
      timeout: .milliseconds(300)),
    Lie(
      name: "events", check: "answers", came: "events",
      code: "def answer(frame): write({'id': frame['id'], 'events': 1})"),
    Lie(
      name: "error", check: "answers", came: "error",
      code: "def answer(frame): write({'id': frame['id'], 'error': ['x']})"),
    Lie(
      name: "both", check: "answers", came: "events",
      code: "def answer(frame): write({'id': frame['id'], 'error': 'x', 'events': [1]})"),
    Lie(
      name: "timer", check: "answers", came: "timers",
      code: "def answer(frame): write({'id': frame['id'], 'timers': {'a': 1}})"),
    Lie(name: "print", check: "answers", came: "hello", code: "def answer(frame): print('hello', flush=True)"),
    Lie(
      name: "nan", check: "answers", came: "NaN",
      code: "def answer(frame): print('{\"id\":%d,\"events\":[NaN]}' % frame['id'], flush=True)"),
    Lie(
      name: "utf8", check: "answers", came: "log",
      code:
        "def answer(frame): sys.stdout.buffer.write(b'{\"log\":\"info\",\"message\":\"\\xff\"}\\n'); sys.stdout.flush()"
    ),
    Lie(
      name: "level", check: "answers", came: "loud", code: "def answer(frame): write({'log': 'loud', 'message': 'x'})"),
    Lie(name: "count", check: "answers", came: "count", code: "def answer(frame): write({'count': 'a', 'by': 'x'})"),
    Lie(name: "unknown", check: "answers", came: "reply", code: "def answer(frame): write({'reply': 1})"),
    Lie(name: "long", check: "answers", came: "longer", code: "def answer(frame): print('x' * (17 << 20), flush=True)"),
    Lie(name: "crash", check: "answers", came: "signal 6", code: "def answer(frame): os.abort()"),
    Lie(name: "through", check: "answers", came: "through", code: "def answer(frame): write({'through': frame['id']})"),
    Lie(
      name: "by-chance", check: "answers", came: "",
      code: counting
        + "def answer(frame):\n    counting_answer(frame) if 'event' not in frame else write({'id': frame['id'], 'events': [os.getpid()]})"
    ),
    Lie(
      name: "required", check: "types", came: "has no member 'needed'",
      code: empty + "COMPONENT['output'].update(required=['needed'])\n"
    ),
    Lie(name: "type", check: "types", came: "not a whole number", code: "COMPONENT['output'] = {'type': 'integer'}"),
    Lie(
      name: "twice", check: "credit", came: "id",
      code: "def answer(frame): write({'id': frame['id']}); frame['id'] > 40 and write({'id': frame['id']})"),
    Lie(
      name: "pieces", check: "pieces", came: "exited with 5",
      code:
        "def answer(frame):\n    if 'later' in frame: os._exit(5)\n    write({'id': frame['id'], **({'events': [frame['event']]} if 'event' in frame else {})})"
    ),
    Lie(
      name: "shared", check: "instances", came: "",
      code: "n = 0\ndef answer(frame):\n    global n\n    n += 1\n    write({'id': frame['id'], 'events': [n]})"),
    Lie(
      name: "forgetful", check: "state", came: "",
      code: counting
        + "def answer(frame): write({'id': frame['id'], 'state': 0}) if 'save' in frame else counting_answer(frame)"),
    Lie(
      name: "no-state", check: "state", came: "id",
      code: counting + "def answer(frame): write({'id': frame['id']}) if 'save' in frame else counting_answer(frame)"),
    Lie(
      name: "file", check: "kill", came: "",
      code:
        "n = int(open('n').read()) if os.path.exists('n') else 0\ndef answer(frame):\n    global n\n    n += 1\n    open('n', 'w').write(str(n))\n    write({'id': frame['id'], 'events': [n]})"
    ),
    Lie(
      name: "runs-on", check: "stop", came: "runs on",
      code: "def end(): counts and time.sleep(60)\ndef opened(frame): counting_opened(frame)"),
    Lie(
      name: "leak", check: "memory", came: "KiB more",
      code:
        "kept = []\ndef answer(frame):\n    kept.append('x' * 2000 + str(len(kept)))\n    write({'id': frame['id']})"),
    Lie(
      name: "flood", check: "log", came: "lines within a second",
      code: "def answer(frame):\n    print('what\\n' * 50, file=sys.stderr)\n    write({'id': frame['id']})"),
    Lie(
      name: "sink-events", check: "answers", came: "events",
      code: sink + "def answer(frame): write({'id': frame['id'], 'events': [1]})"),
    Lie(
      name: "sink-through", check: "answers", came: "through", code: sink + "def answer(frame): write({'through': 99})"),
    Lie(
      name: "sink-complete", check: "answers", came: "no",
      code: sink + "def answer(frame): write({'id': frame['id'], **({'error': 'no'} if 'complete' in frame else {})})"),
    Lie(
      name: "sink-retry", check: "retry", came: "id",
      code: sink + "def answer(frame): write({'id': frame['id'], 'retry': 'later'})"),
    Lie(
      name: "source-flood", check: "credit", came: "more, with",
      code: source
        + "def opened(frame):\n    write({'opened': frame['open']})\n    write({'from': frame['open'], 'event': 1})"),
    Lie(
      name: "source-stop", check: "stop", came: "nothing", code: source + "def other(frame): pass",
      timeout: .milliseconds(300)),
    Lie(
      name: "source-behind", check: "credit", came: "complete",
      code: source
        + "def opened(frame):\n    write({'opened': frame['open']})\n    write({'from': frame['open'], 'complete': True})\n    write({'from': frame['open'], 'complete': True})"
    ),
    Lie(
      name: "source-type", check: "types", came: "not a text", code: source + "COMPONENT['output'] = {'type': 'string'}"
    ),
    Lie(name: "source-tokens", check: "tokens", came: "without one", code: source + "COMPONENT['recovery'] = 'sender'"),
    Lie(
      name: "source-early", check: "tokens", came: "complete",
      code: source
        + "COMPONENT['recovery'] = 'sender'\ndef other(frame):\n    if 'stop' in frame: write({'from': frame['to'], 'complete': True})\n    for n in range(frame.get('credit', 0)): write({'from': frame['to'], 'event': n, 'token': n + 1})"
    ),
    Lie(
      name: "source-no-position", check: "position", came: "without one",
      code: source + "COMPONENT['recovery'] = 'position'"),
    Lie(
      name: "source-position", check: "position", came: "",
      code: source
        + "COMPONENT['recovery'] = 'position'\ndef other(frame):\n    global sent\n    if 'stop' in frame: write({'from': frame['to'], 'complete': True})\n    for n in range(frame.get('credit', 0)):\n        sent += 1\n        write({'from': frame['to'], 'event': sent, 'position': sent})"
    ),
    Lie(
      name: "source-secret-position", check: "credit", came: "position",
      code: source
        + "def other(frame):\n    if 'stop' in frame: write({'from': frame['to'], 'complete': True})\n    if 'credit' in frame: write({'from': frame['to'], 'event': 1, 'position': 1})"
    ),
  ]

  @Test(arguments: lies) func aLieIsFoundByItsCheck(_ lie: Lie) throws {
    let file = try Self.bad(lie.name, lie.code)
    let found = Self.findings(file, only: [lie.check], timeout: lie.timeout)
    let failed = found.compactMap { finding -> (String, ContractBreach)? in
      if case .failed(let breach) = finding.verdict { (finding.check, breach) } else { nil }
    }
    #expect(failed.map(\.0) == [lie.check], "\(found)")
    for (_, breach) in failed {
      #expect(lie.came.isEmpty || breach.came.contains(lie.came), "\(breach)")
      #expect(!breach.expected.isEmpty && !breach.help.isEmpty)
    }
  }

  /// An optional property may be omitted.
  @Test func optionalPropertiesMayBeAbsent() throws {
    let file = try Self.bad(
      "optional",
      Self.empty)
    #expect(Self.failures(Self.findings(file, only: ["types"])) == [])
  }

  @Test func programsThatKeepItPass() throws {
    for (name, code) in [
      ("plain", ""), ("counting", Self.counting), ("sink", Self.sink), ("source", Self.source),
      ("finishing", Self.finishing),
      ("finishing-answers", Self.finishing + "def late(frame): write({'id': frame['id']})"),
      ("finished", "def opened(frame): write({'opened': frame['open'], 'finish': True})"),
    ] {
      let findings = Self.findings(try Self.bad("good-\(name)", code))
      #expect(Self.failures(findings).isEmpty, "\(name)")
      #expect(findings.contains { $0.check == "finish" && $0.isOK } == name.hasPrefix("finish"), "\(name)")
    }
  }

  @Test func aFileThatOthersMayWriteIsNotStarted() throws {
    let file = try Self.bad("open", "open('started', 'w')")
    chmod(file.path, 0o757)
    let findings = Self.findings(file)
    #expect(findings.map(\.check) == ["file"])
    #expect(Self.failures(findings).first?.contains("others may write") == true)
  }

  // MARK: Examples

  @Test(arguments: [
    ("rate.py", "rate: { key: event.a }"), ("enrich.py", "lookup: { key: event.a, table: c.csv }"),
    ("lines.py", "lines: { path: lines.txt }"), ("spool.py", "spool: { directory: . }"),
    ("table.py", "table: { database: t.sqlite, name: t, key: event.a }"),
  ]) func theExamplesInPythonPass(_ name: String, _ yaml: String) throws {
    let files = PluginFixtures.scratch("files-\(name)")
    try FileManager.default.createDirectory(atPath: files, withIntermediateDirectories: true)
    for (file, text) in [("c.csv", "code,name\ntext,France\n7,Peru\n"), ("lines.txt", "one\ntwo\n\nfour\nhalf")] {
      try Data(text.utf8).write(to: URL(fileURLWithPath: "\(files)/\(file)"))
    }
    for number in 0..<20 {
      try Data("\(number)".utf8).write(to: URL(fileURLWithPath: "\(files)/\(number).json"))
    }
    let path = "\(PluginFixtures.root)/Plugins/examples/python/\(name)"
    let file = PluginFile(
      path: "/usr/bin/python3", form: .program(arguments: [path], isInterpreter: true), directory: "")
    let findings = Self.findings(file, parameters: [yaml], files: files)
    #expect(Self.failures(findings).isEmpty)
    // Given parameters were used in the trial.
    #expect(findings.contains { $0.subject.contains("as given") && $0.check == "open" && $0.isOK }, "\(findings)")
  }

  @Test func theExamplesInShellPass() throws {
    let shell = "\(PluginFixtures.root)/Plugins/examples/shell"
    let keep = PluginFile(path: "\(shell)/keep.sh", form: .program(arguments: ["kept"]), directory: "")
    #expect(Self.failures(Self.findings(keep)).isEmpty)
    // Without a file it requests pauses.
    let failing = Self.findings(PluginFile(path: "\(shell)/keep.sh", directory: ""))
    #expect(Self.failures(failing).isEmpty)
    #expect(failing.contains { $0.check == "retry" && $0.isOK })
    guard FileManager.default.isExecutableFile(atPath: "/usr/bin/jq") else { return }
    let upper = Self.findings(PluginFile(path: "\(shell)/upper.sh", directory: ""), parameters: ["upper: name"])
    #expect(Self.failures(upper).isEmpty)
  }

  @Test func theExampleInCPassesInAProcessOfItsOwn() throws {
    let findings = Self.findings(PluginFile(path: try PluginFixtures.example.get(), directory: ""))
    #expect(Self.failures(findings).isEmpty)
    for check in ["state", "threads", "position", "lifetimes", "finish"] {
      #expect(findings.contains { $0.check == check && $0.isOK }, "\(check): \(findings)")
    }
  }

  // MARK: Shared libraries that break it

  struct NativeLie: Sendable, CustomTestStringConvertible {
    var macro: String
    var check: String
    var came: String
    var testDescription: String { macro }
  }

  static let nativeLies: [NativeLie] = [
    NativeLie(macro: "CRASH_INIT", check: "spec", came: "signal 11"),
    NativeLie(macro: "NO_MAGIC", check: "spec", came: "rxd_plugin_magic"),
    NativeLie(macro: "MAGIC_LIE", check: "spec", came: "contract 9"),
    NativeLie(macro: "NO_FUNCTION", check: "spec", came: "no function 'process'"),
    NativeLie(macro: "CRASH_CONTRACT", check: "versions", came: "signal"),
    NativeLie(macro: "CRASH", check: "answers", came: "signal 11"),
    NativeLie(macro: "EXIT", check: "answers", came: "exited with 6"),
    NativeLie(macro: "FAIL", check: "answers", came: "the plugin failed: no way"),
    NativeLie(macro: "KEEP", check: "lifetimes", came: ""),
    NativeLie(macro: "GLOBAL", check: "instances", came: ""),
    NativeLie(macro: "FORGET", check: "state", came: ""),
    NativeLie(macro: "TIMER", check: "answers", came: "timers"),
    NativeLie(macro: "LEAK", check: "memory", came: "KiB more"),
    NativeLie(macro: "RACE", check: "threads", came: ""),
  ]

  @Test(arguments: nativeLies) func aLieOfALibraryIsFoundByItsCheck(_ lie: NativeLie) throws {
    let path = PluginFixtures.scratch("lie-\(lie.macro).so")
    try PluginFixtures.run([
      "clang", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-I", "\(PluginFixtures.root)/Sources/CPlugin/include",
      "-o",
      path, "-D\(lie.macro)", "\(PluginFixtures.root)/Tests/PluginHostTests/Fixtures/liar.c",
    ])
    let findings = Self.findings(PluginFile(path: path, directory: ""), only: [lie.check])
    let failures = Self.failures(findings)
    #expect(
      failures.count == 1 && failures[0].hasPrefix("\(lie.check) of")
        && (lie.came.isEmpty || failures[0].contains(lie.came)), "\(findings)")
  }

  @Test func aLibraryThatKeepsItPasses() throws {
    let path = PluginFixtures.scratch("lie-none.so")
    try PluginFixtures.run([
      "clang", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-I", "\(PluginFixtures.root)/Sources/CPlugin/include",
      "-o",
      path, "\(PluginFixtures.root)/Tests/PluginHostTests/Fixtures/liar.c",
    ])
    #expect(Self.failures(Self.findings(PluginFile(path: path, directory: ""))).isEmpty)
  }
}

extension ContractSuite.Finding {
  fileprivate var isOK: Bool { if case .ok = verdict { true } else { false } }
}
