/// What a running pipeline may ask of the world. The daemon hands in the real ones, tests their own.
public struct Services: Sendable {
  public enum Level: String, Sendable, CaseIterable, Comparable {
    case debug, info, warning, error
    public static func < (a: Level, b: Level) -> Bool {
      allCases.firstIndex(of: a).unsafelyUnwrapped < allCases.firstIndex(of: b).unsafelyUnwrapped
    }
  }

  public var http: any HTTPClient
  /// Writes one line to the log: level, component, message.
  public var log: @Sendable (Level, String, String) -> Void
  /// Takes one dead letter: a JSON document without line end. Called on the executor's thread.
  public var deadLetter: @Sendable (UnsafeRawBufferPointer) -> Void
  /// Whether dead letters are kept: then what sinks have left when the pipeline ends becomes some, rather than a number in a
  /// warning.
  public var keepsDeadLetters = false
  /// Numbers for jitter; uniformly distributed. Tests hand in a fixed sequence.
  public var random: @Sendable () -> UInt64
  /// Makes somebody who works beside the turns; the text names what for. Without one, everything is done in the turns.
  public var worker: @Sendable (String) -> any Worker

  public init(
    http: any HTTPClient, log: @escaping @Sendable (Level, String, String) -> Void,
    deadLetter: @escaping @Sendable (UnsafeRawBufferPointer) -> Void,
    random: @escaping @Sendable () -> UInt64,
    worker: @escaping @Sendable (String) -> any Worker = { _ in ImmediateWorker() }
  ) {
    self.http = http
    self.log = log
    self.deadLetter = deadLetter
    self.random = random
    self.worker = worker
  }
}
