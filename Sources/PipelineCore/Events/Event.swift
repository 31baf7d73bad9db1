public import CJSON
import Synchronization

/// Further facts of an origin, made into a map when an expression, a state or a person first reads them: many pipelines
/// never do.
package protocol OriginFacts: AnyObject, Sendable {
  /// The map; made anew by each call. May be called on any thread.
  var fields: OwnedValue { get }
  /// The memory in bytes that the facts occupy.
  var byteCount: Int { get }
}

/// The origin of events: shared by all events of one batch.
public final class Origin: Sendable {
  /// The name of the source in the pipeline file.
  package let source: String
  /// The file, URL or peer, if any.
  package let path: String?
  /// The wall-clock time when the batch was read, in nanoseconds since 1970.
  package let receivedAt: Int64
  /// Further facts from the source, as a map; `meta.NAME` in expressions.
  package var fields: OwnedValue {
    guard let facts else { return given }
    return (made.load() ?? made.storeIfNil(Made(facts.fields))).fields
  }
  private let given: OwnedValue
  private let facts: (any OriginFacts)?
  private let made = AtomicLazyReference<Made>()

  private final class Made: Sendable {
    let fields: OwnedValue
    init(_ fields: OwnedValue) { self.fields = fields }
  }

  /// Facts larger than this many bytes are made into a map at once: events may outlive their turn by days, and the map
  /// has only what `meta` names.
  private static let mostFacts = 2048

  /// Answers the request that contained the events, if the sender waits for an answer.
  package let reply: (any ReplyTarget)?
  /// Names the events; nil if the pipeline does not use names or the events have none.
  package let identity: EventIdentity?
  /// The part of the source's input to which the event belongs, whose events have their own order; nil: the input has
  /// no parts.
  package let part: InputPart?

  package init(
    source: String, path: String? = nil, receivedAt: Int64 = 0, fields: OwnedValue = OwnedValue(),
    reply: (any ReplyTarget)? = nil, identity: EventIdentity? = nil, part: InputPart? = nil
  ) {
    self.part = part
    self.identity = identity
    self.source = source
    self.path = path
    self.receivedAt = receivedAt
    given = fields
    facts = nil
    self.reply = reply
  }

  /// An origin whose ``fields`` are made when they are first read.
  package init(
    source: String, path: String?, receivedAt: Int64, facts: any OriginFacts, reply: (any ReplyTarget)?,
    identity: EventIdentity?
  ) {
    part = nil
    self.identity = identity
    self.source = source
    self.path = path
    self.receivedAt = receivedAt
    let isLarge = facts.byteCount > Self.mostFacts
    given = isLarge ? facts.fields : OwnedValue()
    self.facts = isLarge ? nil : facts
    self.reply = reply
  }

  private init(_ other: Origin, reply: (any ReplyTarget)?, identity: EventIdentity?) {
    part = other.part
    self.identity = identity
    source = other.source
    path = other.path
    receivedAt = other.receivedAt
    given = other.given
    facts = other.facts
    self.reply = reply
  }

  /// The same origin, but without a request to answer.
  var withoutReply: Origin {
    reply == nil ? self : Origin(self, reply: nil, identity: identity)
  }

  /// The same origin for a single event with this name.
  package func with(_ identity: EventIdentity) -> Origin {
    Origin(self, reply: reply, identity: identity)
  }

  /// The origin of events without a source: values in tests, folds, combinations.
  package static let none = Origin(source: "")
}

/// A part of a source's input whose events have their own order: a file, a connection, a container.
package final class InputPart: Sendable {
  /// Unique in the source, and the same when a restarted source continues the part.
  package let name: String
  /// The name of the part, as users know it.
  package let title: String

  package init(_ name: String, title: String? = nil) { (self.name, self.title) = (name, title ?? name) }

  /// Changes of a part of the input, apart from its events.
  package enum Change {
    /// The part exists and will be read. `isBehind`: it has events that have not been read.
    case opened(isBehind: Bool)
    /// All events of the part have been sent.
    case ended
  }
}

/// Identifies the events of an origin, so that they have the same names when they are read or delivered again. Unique
/// within its pipeline.
package enum EventIdentity: Sendable, Equatable {
  /// The name of a source, a file or a request. With its position, each of its events has a unique name.
  case origin(String)
  /// The full name of the origin's single event.
  case event(String)
}

/// Sends the answer to an event, such as an HTTP request that `httpServer` received.
package protocol ReplyTarget: AnyObject, Sendable {
  /// Sends an answer. Only the first one counts; returns whether this was it. May be called on any thread.
  @discardableResult
  func reply(status: Int, headers: [(name: String, value: String)], body: [UInt8]) -> Bool
  /// Leaves the answer to the next execution of the pipeline, so that this one can end without waiting for it. May be
  /// called on any thread.
  func handOver()
}

extension ReplyTarget {
  package func handOver() {}
}

/// One event on its path through the graph, valid until the end of the turn.
public struct Event {
  /// The contents: a JSON value.
  public var value: Value
  /// The group's key inside `groupBy`, otherwise absent; `meta.key` in expressions.
  package var key: Value
  /// The origin. The turn keeps it alive.
  package var origin: Unmanaged<Origin>
  /// The position in the origin: byte offset of a line, number of a tick; -1 if there is none.
  package var position: Int64

  @inline(__always)
  package init(_ value: Value, key: Value = .absent, origin: Origin, position: Int64 = -1) {
    self.value = value
    self.key = key
    self.origin = .passUnretained(origin)
    self.position = position
  }

  @inline(__always)
  init(_ value: Value, key: Value = .absent, from origin: Unmanaged<Origin>, position: Int64) {
    self.value = value
    self.key = key
    self.origin = origin
    self.position = position
  }

  /// An event without a source.
  @inline(__always)
  package init(_ value: Value, key: Value = .absent, position: Int64 = -1) {
    self.value = value
    self.key = key
    origin = Self.none
    self.position = position
  }

  static let none = Unmanaged.passUnretained(Origin.none)

  /// The name of the event, which is the same when the event is read or delivered again; nil if it has none or the
  /// pipeline does not use names (``Execution/namesEvents``).
  package var id: String? {
    origin._withUnsafeGuaranteedRef { origin in
      switch origin.identity {
      case nil: nil
      case .event(let name): name
      case .origin(let name): position >= 0 ? "\(name):\(position)" : nil
      }
    }
  }

  /// Adds the parts of ``id``; false if the event has no name.
  func addID(to print: inout Fingerprint) -> Bool {
    origin._withUnsafeGuaranteedRef { origin in
      switch origin.identity {
      case nil: return false
      case .event(let name):
        print.add(name.utf8)
        // A value that no position has: it keeps names of the two kinds apart, and ends each name with eight bytes.
        print.add(UInt64.max)
      case .origin(let name):
        guard position >= 0 else { return false }
        print.add(name.utf8)
        print.add(UInt64(position))
      }
      return true
    }
  }

  /// The same event with another value.
  @inline(__always)
  public func with(_ value: Value) -> Event { Event(value, key: key, from: origin, position: position) }

  /// The same event with another origin.
  func with(_ origin: Origin) -> Event { Event(value, key: key, origin: origin, position: position) }

  /// The same event, with a value that was written just before: see `rx_value_by_words`.
  @inline(__always)
  var copied: Event { Event(rx_value_by_words(value), key: key, from: origin, position: position) }
}

/// An event that outlives its turn: state of an operator.
public struct OwnedEvent: @unchecked Sendable {
  private var value: OwnedValue
  private var key: OwnedValue
  private var origin: Origin
  private var position: Int64

  /// A copy of `event` and of all memory that it points to.
  public init(_ event: Event) {
    value = OwnedValue(event.value)
    key = OwnedValue(event.key)
    origin = event.origin.takeUnretainedValue()
    position = event.position
  }

  /// Replaces the content, reusing memory.
  public mutating func assign(_ event: Event) {
    value.assign(event.value)
    key.assign(event.key)
    let new = event.origin.takeUnretainedValue()
    if new !== origin { origin = new }
    position = event.position
  }

  /// Replaces the content; values returned earlier stay valid until the end of the turn.
  package mutating func assign(_ event: Event, retiring arena: Arena) {
    value.assign(event.value, retiring: arena)
    key.assign(event.key, retiring: arena)
    if event.origin.toOpaque() != Unmanaged.passUnretained(origin).toOpaque() {
      arena.keep(origin)
      origin = event.origin.takeUnretainedValue()
    }
    position = event.position
  }

  /// Only the value; valid as long as `event` is.
  var heldValue: Value { value.value }

  /// Keeps everything that this event points to alive until the end of the turn.
  public func keep(in arena: Arena) {
    value.keep(in: arena)
    key.keep(in: arena)
    arena.keep(origin)
  }

  /// The event; valid until this `OwnedEvent` is freed or assigned to.
  public var event: Event {
    Event(value.value, key: key.value, origin: origin, position: position)
  }

  package var byteCount: Int { value.byteCount + key.byteCount + 64 }
}
