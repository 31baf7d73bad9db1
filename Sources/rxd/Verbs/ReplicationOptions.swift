import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import Transport

/// The options of `run` for replication to a second machine.
struct ReplicationOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      """
      Copy what pipelines store to an 'rxd standby', commit by commit: https://HOST:PORT, or http:// to a loopback address. See \
      docs/standby.md. (RXD_REPLICATE)
      """, valueName: "url"))
  var replicate: String?

  @Flag(
    help:
      "Acknowledge, and count as stored, only what the standby has on its disk too; without it everything waits. (RXD_REPLICATE_WAIT)"
  )
  var replicateWait = false

  @Option(
    help: ArgumentHelp(
      "A file whose first line is the token of the standby. (RXD_REPLICATE_TOKEN_FILE)", valueName: "file"),
    completion: .file())
  var replicateTokenFile: String?

  @Option(
    help: ArgumentHelp(
      "The certificates, in PEM, that may sign that of the standby; by default those of the system. (RXD_REPLICATE_CA)",
      valueName: "file"), completion: .file())
  var replicateCa: String?

  @Option(
    help: ArgumentHelp(
      """
      Run only while this process holds the lease, a file on storage that both machines share; 'rxd promote-standby --lease' gives it \
      to the other. (RXD_LEASE)
      """, valueName: "file"), completion: .file())
  var lease: String?

  @Option(
    help: ArgumentHelp(
      "A lease that is not renewed for this time may be taken, 3 to 3600; 15 by default. (RXD_LEASE_SECS)",
      valueName: "seconds"))
  var leaseSecs: Int?

  var settings: ReplicationSettings {
    ReplicationSettings(
      replicate: replicate, waits: replicateWait, tokenFile: replicateTokenFile, caFile: replicateCa, lease: lease,
      leaseSecs: leaseSecs)
  }
}

/// The replication settings of any command line.
struct ReplicationSettings {
  var replicate: String?
  var waits = false
  var tokenFile: String?
  var caFile: String?
  var lease: String?
  var leaseSecs: Int?

  /// The path of the lease, and the seconds for which it lasts; nil: there is none.
  ///
  /// - Parameter keepsState: Whether there is a state directory.
  func leaseFile(keepsState: Bool) throws -> (path: String, seconds: Int)? {
    let seconds = try setting(leaseSecs, "RXD_LEASE_SECS")
    guard let path = try setting(lease, "RXD_LEASE") else {
      if seconds != nil { throw ValidationError("--lease-secs needs --lease FILE.") }
      return nil
    }
    guard keepsState else {
      throw ValidationError("--lease says which state directory may be run, but without --state-dir there is none.")
    }
    guard (3...3600).contains(seconds ?? 15) else {
      throw ValidationError("--lease-secs is between 3 and 3600, not \(seconds ?? 15).")
    }
    return (path, seconds ?? 15)
  }

  /// Returns nil if nothing is replicated.
  ///
  /// - Parameter keepsState: Whether there is a state directory.
  /// - Throws: Settings that contradict each other; or the standby has been promoted.
  func replication(keepsState: Bool) throws -> Replication? {
    let waits = try flag(waits, "RXD_REPLICATE_WAIT")
    guard let url = try setting(replicate, "RXD_REPLICATE") else {
      if waits { throw ValidationError("--replicate-wait needs --replicate URL.") }
      return nil
    }
    guard keepsState else {
      throw ValidationError("--replicate copies what is stored, but without --state-dir nothing is.")
    }
    guard let host = Self.host(of: url) else {
      throw ValidationError("--replicate takes https://HOST:PORT, not '\(url)'.")
    }
    guard url.hasPrefix("https:") || HostSyntax.isLoopback(host) else {
      throw ValidationError(
        "--replicate \(url) would send events over the network without encryption: use https, or a tunnel that begins at 127.0.0.1."
      )
    }
    guard let path = try setting(tokenFile, "RXD_REPLICATE_TOKEN_FILE") else {
      throw ValidationError("--replicate needs the token of the standby: --replicate-token-file FILE.")
    }
    let made = Replication(
      url: url, token: Secret(try TokenFile.read(path)), caFile: try setting(caFile, "RXD_REPLICATE_CA"),
      isAwaited: waits)
    if made.isPromoted() {
      Console.printError(
        "the standby \(url) has been promoted and runs the pipelines, so they must not run here, too: see docs/standby.md"
      )
      throw ExitStatus.configuration
    }
    return made
  }

  /// The host of `http://HOST:PORT` or `https://HOST:PORT`; nil: the text is no such URL.
  private static func host(of url: String) -> String? {
    for scheme in ["https://", "http://"] where url.hasPrefix(scheme) {
      let rest = url.dropFirst(scheme.count).prefix { $0 != "/" }
      guard rest.count == url.dropFirst(scheme.count).reversed().drop(while: { $0 == "/" }).count, !rest.isEmpty,
        !rest.contains("@")
      else { return nil }
      if rest.hasPrefix("["), let end = rest.firstIndex(of: "]") {
        return String(rest[rest.index(after: rest.startIndex)..<end])
      }
      return String(rest.prefix { $0 != ":" })
    }
    return nil
  }
}

/// A file whose first line is a token.
enum TokenFile {
  /// - Throws: After printing the reason.
  static func read(_ path: String) throws -> String {
    do throws(PosixError) {
      guard let token = try MetricsListener.token(from: path) else {
        throw PosixError("use", path, code: EINVAL, detail: "its first line is empty")
      }
      return token
    } catch {
      Console.printError(error.message)
      throw ExitStatus.noInput
    }
  }
}
