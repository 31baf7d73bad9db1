import CLinux

public enum Processors {
  /// The number of processors that this process may use, determined at the first call; at least 1.
  public static let available = Int(rx_processors())
}
