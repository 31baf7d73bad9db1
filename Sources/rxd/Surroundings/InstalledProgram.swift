import Glibc

/// The installation of this program.
enum InstalledProgram {
  /// The directory that has the program as `bin/rxd`, such as /usr or /usr/local; nil: the program has not been installed.
  static let prefix: String? = {
    var buffer = [CChar](repeating: 0, count: Int(PATH_MAX) + 1)
    let count = readlink("/proc/self/exe", &buffer, Int(PATH_MAX))
    guard count > 0 else { return nil }
    let program = String(decoding: buffer[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    return program.hasSuffix("/bin/rxd") ? String(program.dropLast("/bin/rxd".count)) : nil
  }()
}
