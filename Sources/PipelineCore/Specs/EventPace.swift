/// The rate of a source's events, as far as its parameters determine it.
public enum EventPace: Sendable, Equatable {
  /// One event in each span of this length.
  case every(TimeSpan)
  /// As fast as events can be read, such as from a file.
  case unbounded

  /// The rate at which even a slow machine reads, in events a second.
  static let leastReading = 100_000.0
}
