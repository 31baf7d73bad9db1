/// The progress of a sink in a saved state.
enum SinkStatus: UInt8 {
  case open
  /// Its input had ended; some of it was not written.
  case ended
  case drained
}
