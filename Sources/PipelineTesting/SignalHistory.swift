import PipelineCore

/// The events of a signal with their times since the start of the test: the form that expectations and results share.
package struct SignalHistory: Sendable, Equatable {
  /// The kind of an event.
  package enum Moment: Sendable, Equatable {
    case next(TestValue)
    case complete
    /// The error's message.
    case error(String)
    /// The signal starts.
    case subscribe
    /// The signal is cancelled.
    case cancel

    var isMark: Bool { self == .subscribe || self == .cancel }
  }

  /// An event with its time.
  package struct Entry: Sendable, Equatable {
    package var at: TimeSpan
    package var moment: Moment
    package init(at: TimeSpan, _ moment: Moment) {
      self.at = at
      self.moment = moment
    }
  }

  /// The entries in order.
  package var entries: [Entry] = []

  package init(_ entries: [Entry] = []) { self.entries = entries }

  package init(_ recording: ProbeSink.Recording) {
    entries = recording.moments.map { at, moment in
      let span = TimeSpan(nanoseconds: at.nanoseconds)
      switch moment {
      case .next(let value): return Entry(at: span, .next(TestValue(value.value)))
      case .complete: return Entry(at: span, .complete)
      case .fail(let failure): return Entry(at: span, .error(failure.message))
      case .subscribe: return Entry(at: span, .subscribe)
      case .cancel: return Entry(at: span, .cancel)
      }
    }
  }

  /// The history of a marble diagram. A letter stands for its value in `values`, or for itself if it has none; a digit
  /// stands for the number. Subscriptions and cancellations are left out.
  package init(_ marbles: Marbles, values: [String: TestValue] = [:], error: String = "error") {
    entries = marbles.entries.compactMap { entry in
      switch entry.moment {
      case .next(let name): Entry(at: entry.at, .next(Self.value(named: name, values)))
      case .complete: Entry(at: entry.at, .complete)
      case .error: Entry(at: entry.at, .error(error))
      case .subscribe, .cancel: nil
      }
    }
  }

  static func value(named name: String, _ values: [String: TestValue]) -> TestValue {
    values[name] ?? Int64(name).map { .int($0) } ?? .text(name)
  }

  /// The history as a script for ``ScriptedSource``.
  package var script: [(at: TimeSpan, moment: ScriptedSource.Moment)] { script(of: .dyn) }

  /// The script as a source of this type sends it: texts become times where the type says so.
  package func script(of type: ExpressionType) -> [(at: TimeSpan, moment: ScriptedSource.Moment)] {
    entries.compactMap { entry in
      switch entry.moment {
      case .next(let value): (entry.at, .next(TypedInput.owned(value, type)))
      case .complete: (entry.at, .complete)
      case .error(let message): (entry.at, .fail(SignalFailure(.user, message)))
      case .subscribe, .cancel: nil
      }
    }
  }

  /// The index of the first difference; nil if there is none. Error messages are not compared.
  package func firstDifference(from other: SignalHistory) -> Int? {
    let count = min(entries.count, other.entries.count)
    for index in 0..<count where !entries[index].matches(other.entries[index]) { return index }
    return entries.count == other.entries.count ? nil : count
  }
}

extension SignalHistory.Entry {
  func matches(_ other: Self) -> Bool {
    guard at == other.at else { return false }
    if case .error = moment, case .error = other.moment { return true }
    return moment == other.moment
  }
}

extension SignalHistory.Moment: CustomStringConvertible {
  package var description: String {
    switch self {
    case .next(let value): Printable.cut(value.description, limit: 400)
    case .complete: "the completion"
    case .error(let message): "the error '\(Printable.cut(message, limit: 200))'"
    case .subscribe: "its subscription"
    case .cancel: "its cancellation"
    }
  }
}
