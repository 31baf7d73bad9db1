import CLinux

public enum Processors {
  /// How many processors this process may run on, as far as it was said when that was first asked; at least 1.
  public static let available = Int(rx_processors())
}
