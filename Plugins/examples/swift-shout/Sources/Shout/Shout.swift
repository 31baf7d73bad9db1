// A plugin with each kind of component, in Swift without libraries.
import Glibc
import RxdPlugin

/// Writes a text of the event in capitals: a pure function, called on any thread, several at once.
struct Shout: RowOperator {
  private let field: String
  private let marks: String

  init(_ opening: Opening) throws {
    field = opening.parameters["field"].text ?? ""
    guard !field.isEmpty else { throw Failure("must not be empty", at: "field") }
    marks = String(repeating: "!", count: Int(opening.parameters["marks"].int ?? 1))
  }

  func row(_ event: Value, _ arguments: Arguments, in call: Call) throws -> Value? {
    guard let text = event[field].text else { throw Failure("no text '\(field)'") }
    // Nothing to shout: the event ends here.
    return text.isEmpty ? nil : event.with(field, call.text(text.uppercased() + marks))
  }
}

/// Counts events by a key, and sends the counts when a period is over: state, a timer and an expression.
final class Tally: StreamOperator {
  private let period: Duration
  private let log: Log
  /// In the order in which the keys came.
  private var counts: [(key: String, count: Int64)] = []

  init(_ opening: Opening) throws {
    period = opening.parameters["every"].duration ?? .seconds(1)
    log = opening.log
    guard let (bytes, _) = opening.state, let state = opening.call.decode(bytes) else { return }
    counts = state.members.map { ($0.name, $0.value.int ?? 0) }
  }

  func process(_ input: Input, _ output: Output, in call: Call) throws {
    switch input {
    case .event(_, let arguments):
      guard let key = arguments[0].text else { throw Failure("the key is no text") }
      if counts.isEmpty { output.setTimer("period", after: period) }
      if let index = counts.firstIndex(where: { $0.key == key }) {
        counts[index].count += 1
      } else {
        counts.append((key, 1))
        log.count("keys")
      }
    case .timer, .complete:
      for (key, count) in counts { output.send(call.object(["key": call.text(key), "count": call.int(count)])) }
      counts = []
      output.cancelTimer("period")
    }
  }

  func save(in call: Call) throws -> [UInt8] {
    call.object(counts.map { (name: $0.key, value: call.int($0.count)) }).encoded
  }
}

/// Sends the letters of a text one after the other, and goes on behind the last one that was kept.
final class Letters: Source {
  private let letters: [Character]
  private var next: Int

  init(_ opening: Opening) throws {
    letters = Array(opening.parameters["of"].text ?? "")
    next = Int(opening.position.map { String(decoding: $0, as: UTF8.self) } ?? "0") ?? 0
  }

  func run(_ sender: Sender) throws {
    while next < letters.count {
      let call = sender.call
      let event = call.object(["letter": call.text(String(letters[next]))])
      next += 1
      var goesOn = sender.add(event)
      sender.position(Array(String(next).utf8))
      // The memory of the values is freed with each flush.
      if next % 100 == 0 || next == letters.count { goesOn = sender.flush() && goesOn }
      if !goesOn { return }
    }
  }
}

/// Appends a text of each event to a file, a line each.
final class Lines: Sink {
  private let field: String
  private let file: Int32

  init(_ opening: Opening) throws {
    field = opening.parameters["field"].text ?? ""
    file = open(opening.parameters["path"].text ?? "", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o644)
    guard file >= 0 else { throw Failure("cannot open the file: \(reason(errno))", at: "path") }
  }

  deinit { close(file) }

  func write(_ batch: SinkBatch, in call: Call) throws {
    var lines: [UInt8] = []
    for index in 0..<batch.count {
      guard let text = batch.event(index)[field].text else {
        batch.refuse(index, "no text '\(field)'")
        continue
      }
      lines += Array(text.utf8) + [0x0A]
    }
    let start = lseek(file, 0, SEEK_END)
    var written = 0
    while written < lines.count {
      let count = lines.withUnsafeBytes { Glibc.write(file, $0.baseAddress! + written, $0.count - written) }
      if count < 0, errno == EINTR { continue }
      guard count > 0 else { throw undone(start, "cannot write: \(reason(errno))") }
      written += count
    }
    // EINVAL: a pipe or a device, which has no disk.
    guard fdatasync(file) == 0 || errno == EINVAL else { throw undone(start, "cannot sync: \(reason(errno))") }
  }

  /// The batch comes again as a whole, so nothing of it stays.
  private func undone(_ start: off_t, _ message: String) -> Retry {
    if start >= 0 { _ = ftruncate(file, start) }
    return Retry(message)
  }
}

private func reason(_ code: Int32) -> String { String(cString: strerror(code)) }

private let spec = #"""
  {"plugin": "swift-shout", "version": "1.0.0", "contract": 1, "summary": "A component of each kind, in Swift.", "components": [
    {"kind": "operator", "name": "exampleShout", "form": "row", "summary": "Writes a text of the event in capitals.",
     "details": "An event whose text is empty is dropped.",
     "parameters": [
       {"name": "field", "type": "text", "primary": true, "required": true, "help": "The member to change."},
       {"name": "marks", "type": "integer", "default": 1, "minimum": 0, "maximum": 10, "help": "How many exclamation marks follow."}],
     "input": {"type": "object"}, "output": {"type": "object"},
     "examples": [{"title": "a headline", "yaml": "exampleShout: { field: title, marks: 3 }"}]},
    {"kind": "operator", "name": "exampleTally", "summary": "Counts events by a key and sends the counts after each period.",
     "parameters": [
       {"name": "key", "type": "expression", "result": "string", "primary": true, "required": true, "help": "What is counted by."},
       {"name": "every", "type": "duration", "default": "1s", "minimum": "1ms", "help": "How long a period is."}],
     "output": {"type": "object", "properties": {"key": {"type": "string"}, "count": {"type": "integer"}}, "required": ["key", "count"]},
     "memory": "A number for each key of the period.", "state": {"version": 1}, "timers": true,
     "examples": [{"title": "words a minute", "yaml": "exampleTally: { key: event.word, every: 1m }"}]},
    {"kind": "source", "name": "exampleLetters", "summary": "Sends the letters of a text.",
     "parameters": [{"name": "of", "type": "text", "primary": true, "required": true, "help": "The text."}],
     "output": {"type": "object", "properties": {"letter": {"type": "string"}}, "required": ["letter"]},
     "recovery": "position",
     "examples": [{"title": "five", "yaml": "exampleLetters: hello"}]},
    {"kind": "sink", "name": "exampleLines", "summary": "Appends a text of each event to a file.",
     "parameters": [
       {"name": "path", "type": "text", "primary": true, "required": true, "help": "The file; it is made if it does not exist."},
       {"name": "field", "type": "text", "default": "text", "help": "The member that is written."}],
     "input": {"type": "object"}, "confirmation": "disk",
     "examples": [{"title": "a list of names", "yaml": "exampleLines: { path: names.txt, field: name }"}]}]}
  """#

@_cdecl("rxd_swift_plugin")
public func plugin() -> UnsafeMutableRawPointer {
  Plugin(
    spec: spec,
    [
      .row("exampleShout", Shout.self), .stream("exampleTally", Tally.self), .source("exampleLetters", Letters.self),
      .sink("exampleLines", Lines.self),
    ]
  ).handle
}
