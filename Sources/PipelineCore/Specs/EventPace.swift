/// The rate of a source's events, as far as its parameters determine it.
public enum EventPace: Sendable, Equatable {
  /// One event in each span of this length.
  case every(TimeSpan)
  /// As fast as the events can be read: a whole file.
  case unbounded

  /// The rate at which even a slow machine reads, in events a second.
  static let leastReading = 100_000.0
}
