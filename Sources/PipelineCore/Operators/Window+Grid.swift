extension Window {
  /// Where windows of `every` begin and end by event time, in nanoseconds since 1970.
  ///
  /// A trivial type, so that asking it for each event counts no references. ``Form`` keeps `days` alive.
  struct Grid {
    let every: Int64
    let length: Int64
    /// The length of the slices that windows are composed of, if figures are kept.
    let slice: Int64
    private let days: Unmanaged<ZonedDays>?

    /// - Parameter days: Set: the windows are days of a time zone. Otherwise they begin at multiples of `every`.
    init(every: Int64, length: Int64, slice: Int64, days: ZonedDays?) {
      self.every = every
      self.length = length
      self.slice = slice
      self.days = days.map(Unmanaged.passUnretained)
    }

    /// The first end of a window after `time`.
    func end(after time: Int64) -> Int64 {
      if let days { return days._withUnsafeGuaranteedRef { $0.span(of: time).end } }
      let offset = length % every
      let (quotient, rest) = (time &- offset).quotientAndRemainder(dividingBy: every)
      return (quotient &+ (rest < 0 ? 0 : 1)) &* every &+ offset
    }

    /// The end of the last window that contains `time`; for a time between windows, that of the window before.
    func lastEnd(of time: Int64) -> Int64 {
      if let days { return days._withUnsafeGuaranteedRef { $0.span(of: time).end } }
      return end(after: time &+ length) &- every
    }

    /// The start of the window that ends at `end`.
    func start(ofWindowTo end: Int64) -> Int64 {
      if let days { return days._withUnsafeGuaranteedRef { $0.span(of: end &- 1).start } }
      return end &- length
    }

    /// The end of the window after the one that ends at `end`.
    func end(behindWindowTo end: Int64) -> Int64 {
      if let days { return days._withUnsafeGuaranteedRef { $0.span(of: end).end } }
      return end &+ every
    }

    /// The number of the slice that contains this time.
    func slice(of time: Int64) -> Int64 {
      if let days { return days._withUnsafeGuaranteedRef { $0.span(of: time).start } }
      let (quotient, rest) = time.quotientAndRemainder(dividingBy: slice)
      return rest < 0 ? quotient &- 1 : quotient
    }
  }
}
