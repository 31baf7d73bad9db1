import Glibc
import PipelineCore
import PipelineRuntime
import Storage
import Transport

/// The document of `rxd state export` and `import`.
///
/// ```
/// { "rxd_state": 1, "pipeline": NAME, "identity": HEX, "last_row": N, "state": BASE64 or null,
///   "outbox": [ { "number", "sink", "events", "body": BASE64 } ],
///   "dead_letters": [ { "time": nanoseconds, "code", "step", "document": BASE64 } ] }
/// ```
struct ExportedState {
  struct Fault: Error { var message: String }

  static let format = 1
  let pipeline: String
  private(set) var contents: StoreContents

  init(pipeline: String, _ contents: StoreContents) {
    self.pipeline = pipeline
    self.contents = contents
  }

  /// Whether the name is valid for a pipeline.
  static func isName(_ name: String) -> Bool {
    !name.isEmpty && name.utf8.count <= 200 && !name.hasPrefix(".") && !name.contains("/")
      && Printable.cut(name, limit: 300) == name
  }

  // MARK: Writing

  /// Writes the document in pieces.
  func write(_ emit: ([UInt8]) -> Void) {
    let output = OutputBuffer()
    func flush(_ isLast: Bool = false) {
      guard isLast || output.count >= 1 << 20 else { return }
      emit(Array(output.bytes))
      output.clear()
    }
    func member(_ name: String, _ text: String, _ more: String = ", ") {
      output.append("\(JSONText.string(name).text): \(JSONText.string(text).text)\(more)")
    }
    func body(_ name: String, _ bytes: [UInt8]) {
      output.append("\"\(name)\": \"")
      bytes.withUnsafeBytes { JSONWriter.appendBase64($0, to: output) }
      output.append("\"")
    }
    output.append("{ \"rxd_state\": \(Self.format), ")
    member("pipeline", pipeline)
    member("identity", String(contents.identity, radix: 16))
    output.append("\"last_row\": \(contents.lastRow),\n")
    if let state = contents.state { body("state", state) } else { output.append("\"state\": null") }
    output.append(",\n\"outbox\": [")
    for (index, row) in contents.rows.enumerated() {
      output.append(index == 0 ? "\n" : ",\n")
      output.append("{ \"number\": \(row.number), ")
      member("sink", row.sink)
      output.append("\"events\": \(row.events), ")
      body("body", row.bytes)
      output.append(" }")
      flush()
    }
    output.append("],\n\"dead_letters\": [")
    for (index, letter) in contents.deadLetters.enumerated() {
      output.append(index == 0 ? "\n" : ",\n")
      output.append("{ \"time\": \(letter.time), ")
      member("code", letter.code)
      member("step", letter.step)
      body("document", letter.document)
      output.append(" }")
      flush()
    }
    output.append("] }\n")
    flush(true)
  }

  // MARK: Reading

  /// The bytes of a file, or of standard input.
  static func read(_ path: String) throws(PosixError) -> [UInt8] {
    let file: FileDescriptor
    if path == "-" {
      file = .standardInput
    } else {
      let number = open(path, O_RDONLY | O_CLOEXEC)
      guard number >= 0 else { throw PosixError("open", path) }
      file = FileDescriptor(number, name: path)
    }
    var bytes: [UInt8] = []
    var block = [UInt8](repeating: 0, count: 1 << 20)
    while true {
      let count = Glibc.read(file.number, &block, block.count)
      if count < 0, errno == EINTR { continue }
      guard count >= 0 else { throw PosixError("read", path) }
      if count == 0 { return bytes }
      bytes += block[..<count]
    }
  }

  init(_ text: [UInt8]) throws(Fault) {
    let arena = Arena()
    var fault = Fault(message: "")
    let read = text.withUnsafeBytes { bytes -> Self? in
      do throws(Fault) { return try Self(Self.parse(bytes, arena), arena) } catch {
        fault = error
        return nil
      }
    }
    guard let read else { throw fault }
    self = read
  }

  private static func parse(_ bytes: UnsafeRawBufferPointer, _ arena: Arena) throws(Fault) -> Value {
    let value = JSONParser().parse(bytes, into: arena)
    if let failure = JSONFailure(value) { throw Fault(message: "\(failure)") }
    return value
  }

  private init(_ document: Value, _ arena: Arena) throws(Fault) {
    let reader = Reader(document, "the document", arena)
    guard document.is(.map), let format = try? reader.number("rxd_state") else {
      throw Fault(message: "'rxd_state' is missing")
    }
    guard format == Self.format else {
      throw Fault(message: "its format is \(format), and this version of rxd reads \(Self.format)")
    }
    guard let identity = UInt64(try reader.text("identity"), radix: 16) else {
      throw Fault(message: "'identity' is not a number")
    }
    pipeline = try reader.text("pipeline")
    let lastRow = try reader.number("last_row")
    guard StoreContents.rowNumbers.contains(lastRow) else {
      throw Fault(message: "'last_row' is not from 0 to \(StoreContents.rowNumbers.upperBound)")
    }
    contents = StoreContents(identity: identity, lastRow: lastRow)
    if !reader.member("state").isNull {
      let bytes = try reader.bytes("state")
      contents.state = bytes
      do throws(StateFault) {
        _ = try SavedStateReport(bytes, catalogue: .installed(), clock: SystemClock.shared)
      } catch {
        throw Fault(message: "its state cannot be used: \(error.message)")
      }
    }
    var last: Int64 = 0
    for row in try reader.list("outbox") {
      let number = try row.number("number")
      let events = Int(try row.number("events"))
      guard number > last, events > 0 else { throw Fault(message: "the numbers of the outbox are out of order") }
      last = number
      contents.rows.append(
        OutboxRow(number: number, sink: try row.text("sink"), events: events, bytes: try row.bytes("body")))
    }
    guard last <= contents.lastRow else { throw Fault(message: "'last_row' is below a row of the outbox") }
    for letter in try reader.list("dead_letters") {
      contents.deadLetters.append(
        StoredDeadLetter(
          time: try letter.number("time"), code: try letter.text("code"), step: try letter.text("step"),
          document: try letter.bytes("document")))
    }
  }

  /// The members of one object.
  private struct Reader {
    private let map: Value
    private let what: String
    private let arena: Arena

    init(_ map: Value, _ what: String, _ arena: Arena) {
      self.map = map
      self.what = what
      self.arena = arena
    }

    func member(_ name: String) -> Value {
      guard map.is(.map) else { return .absent }
      return map.entries.first { $0.key.rawBytes.elementsEqual(name.utf8) }?.value ?? .absent
    }

    private func wrong(_ name: String, _ wanted: String) -> Fault {
      Fault(message: "'\(name)' of \(what) is not \(wanted)")
    }

    private func string(_ name: String) throws(Fault) -> Value {
      let value = JSONParser.unescape(member(name), into: arena)
      guard value.is(.string) else { throw wrong(name, "a text") }
      return value
    }

    func text(_ name: String) throws(Fault) -> String { String(decoding: try string(name).rawBytes, as: UTF8.self) }

    func number(_ name: String) throws(Fault) -> Int64 {
      let value = member(name)
      guard value.is(.int) else { throw wrong(name, "a whole number") }
      return value.asInt
    }

    func bytes(_ name: String) throws(Fault) -> [UInt8] {
      guard let bytes = Base64.decode(try string(name).rawBytes) else { throw wrong(name, "base64") }
      return bytes
    }

    func list(_ name: String) throws(Fault) -> [Reader] {
      let value = member(name)
      guard value.is(.list) else { throw wrong(name, "a list") }
      return value.elements.enumerated().map { Reader($1, "row \($0 + 1) of '\(name)'", arena) }
    }
  }
}
