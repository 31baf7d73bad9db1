import CLinux

package enum Processors {
  /// The number of processors that this process may use, determined at the first call; at least 1.
  package static let available = Int(rx_processors())
}
