import PipelineCore

extension HTTPSink {
  /// The verdict of a server on one event of a request.
  enum Verdict: Equatable {
    case accepted
    /// The event may be accepted later.
    case again
    case refused(String)
  }

  /// The result of `partial` for an answer: one verdict for each event, or the reason why there is none.
  enum Verdicts {
    case each([Verdict])
    case unclear(String)

    /// - Parameters:
    ///   - value: The value of the expression, no error.
    ///   - count: The number of events.
    init(_ value: Value, _ count: Int) {
      guard value.is(.list) else {
        self = .unclear("the value of 'partial' is not a list")
        return
      }
      // Maps name the events that were not accepted; without any, the list is of those.
      if value.elements.allSatisfy(\.isAnyMap) {
        self = Self.named(value, count)
        return
      }
      guard Int(value.length) == count else {
        self = .unclear("'partial' has \(value.length) verdicts, and the request had \(count) events")
        return
      }
      self = .each(value.elements.map(Self.verdict))
    }

    private static func verdict(_ value: Value) -> Verdict {
      if value.isNull || value.isTrue { return .accepted }
      guard let text = text(value) else { return .refused("the server refused the event") }
      switch text {
      case "ok": return .accepted
      case "retry": return .again
      default: return .refused("the server refused the event: \(Printable.cut(text, limit: 1000))")
      }
    }

    private static func text(_ value: Value) -> String? {
      guard value.is(.string) else { return nil }
      let buffer = OutputBuffer(capacity: 64)
      JSONWriter.appendUnescaped(value, to: buffer)
      return String(decoding: buffer.bytes, as: UTF8.self)
    }

    private static func named(_ list: Value, _ count: Int) -> Verdicts {
      var verdicts = [Verdict](repeating: .accepted, count: count)
      for element in list.elements {
        func member(_ name: StaticString) -> Value {
          name.withUTF8Buffer { name in
            element.entries.first { $0.key.rawBytes.elementsEqual(name) }?.value ?? .absent
          }
        }
        let index = member("index")
        guard index.is(.int), (0..<Int64(count)).contains(index.asInt) else {
          return .unclear("'partial' names no event of the request: 'index' must be from 0 to \(count - 1)")
        }
        let reason = text(member("reason")).map { ": \(Printable.cut($0, limit: 1000))" } ?? ""
        verdicts[Int(index.asInt)] =
          member("retry").isTrue ? .again : .refused("the server refused the event\(reason)")
      }
      return .each(verdicts)
    }
  }
}
