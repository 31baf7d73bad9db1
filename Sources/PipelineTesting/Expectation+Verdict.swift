import PipelineCore

extension PipelineTest.Expectation {
  /// The failure for `history`; nil if it matches the expectation.
  func verdict(on history: SignalHistory) -> TestResult.Failure? {
    var history = history
    if !hasMarks { history.entries.removeAll { $0.moment.isMark } }
    let actual = history.entries
    var position = 0
    // The expectation for the picture; items without a time get the actual times.
    var expected: [SignalHistory.Entry] = []
    var now = TimeSpan.zero
    for (index, item) in items.enumerated() {
      if allowsMore {
        while position < actual.count, !matches(item, actual[position]) { position += 1 }
      }
      let came = position < actual.count ? actual[position] : nil
      guard let came, matches(item, came) else {
        expected += items[index...].map { entry(of: $0, &now, actual.last?.at) }
        return failure(item, came, allowsMore ? nil : index, expected, history)
      }
      now = came.at
      expected.append(came)
      position += 1
    }
    guard !allowsMore, position < actual.count else { return nil }
    return failure(nil, actual[position], position, expected, history)
  }

  private func entry(
    of item: Item, _ now: inout TimeSpan, _ last: TimeSpan?
  ) -> SignalHistory.Entry {
    now = item.at ?? max(now, last ?? now)
    switch item.moment {
    case .next(let value): return .init(at: now, .next(value))
    case .complete: return .init(at: now, .complete)
    case .error(let message): return .init(at: now, .error(message ?? ""))
    case .subscribe: return .init(at: now, .subscribe)
    case .cancel: return .init(at: now, .cancel)
    }
  }

  // MARK: Comparing

  func matches(_ item: Item, _ entry: SignalHistory.Entry) -> Bool {
    (item.at.map { $0 == entry.at } ?? true) && matches(item.moment, entry.moment)
  }

  func matches(_ moment: Item.Moment, _ actual: SignalHistory.Moment) -> Bool {
    switch (moment, actual) {
    case (.next(let wanted), .next(let value)):
      return switch target {
      case .requests: Self.matches(request: wanted, value)
      case .replies: Self.matches(reply: wanted, value)
      case .sink, .signal, .errors: wanted == value
      }
    case (.complete, .complete), (.subscribe, .subscribe), (.cancel, .cancel): return true
    case (.error(let part), .error(let message)):
      return part.map { Glob.matches("*\($0)*", message) } ?? true
    default: return false
    }
  }

  /// Compares only the parts of a request that the test gives: a text is `METHOD URL` or the URL, in which `*` matches
  /// any text; a mapping may leave out members.
  private static func matches(request wanted: TestValue, _ value: TestValue) -> Bool {
    guard case .object(let members) = value else { return false }
    func member(_ name: String) -> TestValue? { members.first { $0.key == Array(name.utf8) }?.value }
    func text(_ value: TestValue?) -> String {
      if case .text(let bytes) = value { String(decoding: bytes, as: UTF8.self) } else { "" }
    }
    switch wanted {
    case .text(let bytes):
      let pattern = String(decoding: bytes, as: UTF8.self)
      let url = text(member("url"))
      return Glob.matches(pattern, url) || Glob.matches(pattern, "\(text(member("method"))) \(url)")
    case .object(let parts):
      return parts.allSatisfy { part in
        switch (String(decoding: part.key, as: UTF8.self), part.value) {
        case ("url", .text(let pattern)):
          return Glob.matches(String(decoding: pattern, as: UTF8.self), text(member("url")))
        case ("headers", .object(let headers)): return matches(headers, member("headers"))
        case (let name, let value): return member(name) == value
        }
      }
    default: return false
    }
  }

  /// Compares only the parts of a reply that the test gives; a number is its status.
  private static func matches(reply wanted: TestValue, _ value: TestValue) -> Bool {
    switch wanted {
    case .int: return value.member("status") == wanted
    case .object(let parts):
      return parts.allSatisfy { part in
        switch (String(decoding: part.key, as: UTF8.self), part.value) {
        case ("headers", .object(let headers)): return matches(headers, value.member("headers"))
        case (let name, let own): return value.member(name) == own
        }
      }
    default: return false
    }
  }

  /// Whether these headers were sent; names are compared without case.
  private static func matches(_ headers: [TestValue.Member], _ sent: TestValue?) -> Bool {
    guard case .object(let sent)? = sent else { return headers.isEmpty }
    return headers.allSatisfy { header in
      let name = Array(String(decoding: header.key, as: UTF8.self).lowercased().utf8)
      return sent.contains { $0.key == name && $0.value == header.value }
    }
  }

  // MARK: Messages

  private func failure(
    _ item: Item?, _ came: SignalHistory.Entry?, _ index: Int?, _ expected: [SignalHistory.Entry],
    _ history: SignalHistory
  ) -> TestResult.Failure {
    let words: String
    let name = subject.value
    switch (item, came) {
    case (let item?, let came?) where index != nil && matches(item.moment, came.moment):
      words = "\(shown(item.moment)) came at \(came.at), not at \(item.at ?? came.at)"
    case (let item?, let came?) where index != nil:
      let when = item.at.map { $0 == came.at ? "at \($0): " : "" } ?? ""
      let wanted = when.isEmpty ? item.at.map { " at \($0)" } ?? "" : ""
      let then = when.isEmpty ? " at \(came.at)" : ""
      words = "\(when)\(shown(item.moment)) was expected\(wanted), but \(came.moment) came\(then)"
    case (let item?, _):
      let moment = item.moment
      let elsewhere = history.entries.first { matches(moment, $0.moment) }
      let when = item.at.map { " at \($0)" } ?? ""
      let instead =
        elsewhere.map { index == nil ? ", but came only at \($0.at)" : ", but came at \($0.at)" }
        ?? ", but \(history.entries.isEmpty ? "nothing came" : "did not come")"
      words = "\(shown(moment)) was expected\(when)\(instead)"
    case (nil, let came?):
      words = "nothing\(items.isEmpty ? "" : " more") was expected, but \(came.moment) came at \(came.at)"
    case (nil, nil): words = "it differs"
    }
    let location = item?.location ?? items.last?.location ?? subject.location
    return TestResult.Failure(
      diagnostic: Diagnostic(
        .expectationFailed, "'\(name)': \(words)", at: location,
        help: item == nil && !items.isEmpty ? "Add it, or 'more: true' if it does not matter" : nil),
      picture: picture(item, came, expected, history))
  }

  private func shown(_ moment: Item.Moment) -> String {
    switch moment {
    case .next(let value): "\(SignalHistory.Moment.next(value))"
    case .complete: "the completion"
    case .error(nil): "an error"
    case .error(let part?): "an error with '\(Printable.cut(part))'"
    case .subscribe: "the subscription"
    case .cancel: "the cancellation"
    }
  }

  private static let widest = 160

  /// The part of long lines around column `column`; `…` replaces the rest.
  private static func window(_ lines: [String], around column: Int) -> [String] {
    guard lines.contains(where: { $0.count > widest }) else { return lines }
    let start = max(0, min(column - widest / 2, (lines.map(\.count).max() ?? 0) - widest))
    return lines.enumerated().map { index, line in
      let isMark = index == lines.count - 1
      let part = String(line.dropFirst(start).prefix(widest))
      let before = start == 0 ? "" : isMark ? " " : "…"
      return before + part + (line.count > start + widest ? "…" : "")
    }
  }

  private func picture(
    _ item: Item?, _ came: SignalHistory.Entry?, _ expected: [SignalHistory.Entry],
    _ history: SignalHistory
  ) -> [String] {
    let drawing = MarbleDrawing(letters: letters, tick: tick)
      .draw([SignalHistory(expected), history])
    let at = [item?.at, came?.at].compactMap { $0 }.min() ?? expected.last?.at ?? .zero
    let column = drawing.column(at: at) ?? drawing.columns.last?.column ?? 0
    let mark = String(repeating: " ", count: column) + "^"
    let shown = Self.window([drawing.lines[0], drawing.lines[1], mark], around: column)
    return [
      "expected  \(shown[0])", "actual    \(shown[1])", "          \(shown[2])",
    ] + drawing.legend.map { "          \($0)" }
  }
}
