import Glibc

/// Starts a program that neither blocks nor ignores any signal and has only the three standard streams, whatever the tests'
/// process does.
///
/// - Parameters:
///   - words: its name and arguments.
///   - variables: its whole environment.
///   - flags: further attributes, `POSIX_SPAWN_...`.
/// - Returns: its process.
func spawn(
  _ program: String, _ words: [String], _ variables: [String: String], _ actions: inout posix_spawn_file_actions_t,
  flags: Int16 = 0
) throws -> pid_t {
  var attributes = posix_spawnattr_t()
  posix_spawnattr_init(&attributes)
  defer { posix_spawnattr_destroy(&attributes) }
  var none = sigset_t()
  sigemptyset(&none)
  posix_spawnattr_setsigmask(&attributes, &none)
  var all = sigset_t()
  sigfillset(&all)
  posix_spawnattr_setsigdefault(&attributes, &all)
  // Descriptors of other tests must not be inherited:
  // the program would keep their connections open, and both would wait forever.
  if let descriptors = opendir("/proc/self/fd") {
    while let entry = readdir(descriptors) {
      let name = withUnsafeBytes(of: entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
      if let number = Int32(name), number > 2 { _ = fcntl(number, F_SETFD, FD_CLOEXEC) }
    }
    closedir(descriptors)
  }
  posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF) | flags)
  var arguments = words.map { strdup($0) } + [nil]
  var settings = variables.map { strdup("\($0.key)=\($0.value)") } + [nil]
  defer {
    for text in arguments + settings { free(text) }
  }
  var child = pid_t()
  let code = posix_spawn(&child, program, &actions, &attributes, &arguments, &settings)
  guard code == 0 else { throw TimedOut(description: "cannot start \(program): \(code)") }
  return child
}
