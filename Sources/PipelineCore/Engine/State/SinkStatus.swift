/// The progress of a sink in a saved state.
enum SinkStatus: UInt8 {
  case open
  /// The input had ended, but not everything was written.
  case ended
  case drained
}
