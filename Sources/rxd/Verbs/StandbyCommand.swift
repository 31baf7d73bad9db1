import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import Transport

/// `rxd standby`: keeps copies of the stores of a process on another machine.
struct StandbyVerb: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "standby",
    abstract: "Keeps a copy of another machine's state directory, ready to continue there.",
    discussion: """
      'rxd run --replicate URL' on the other machine sends each commit. If that machine is lost, 'rxd promote-standby' turns the copy into \
      a state directory: 'rxd run' goes on with it. The standby then tells the other process, should it come back, that it must end; so let \
      it run on. See docs/standby.md.
      """)

  @Option(
    name: .customLong("state-dir"),
    help: ArgumentHelp(
      "The directory of the copies, used by this process only. (RXD_STATE_DIR, STATE_DIRECTORY)", valueName: "dir"),
    completion: .directory)
  var stateDirectory: String?

  @Option(
    help: ArgumentHelp(
      "Where to listen: HOST:PORT, or a port of 127.0.0.1. Beyond this machine only with --tls-certificate.",
      valueName: "address"))
  var listen = "7935"

  @Option(
    help: ArgumentHelp("A file whose first line is the token that the other process sends.", valueName: "file"),
    completion: .file())
  var tokenFile: String

  @Option(help: ArgumentHelp("The certificate of this server, in PEM.", valueName: "file"), completion: .file())
  var tlsCertificate: String?

  @Option(
    help: ArgumentHelp(
      "Its key, in PEM; by default in the file of the certificate.", valueName: "file"), completion: .file())
  var tlsKey: String?

  @OptionGroup var logging: LogOptions

  func run() throws {
    guard let path = StateDirectory.named(stateDirectory) else {
      throw ValidationError("A standby needs a directory: --state-dir DIR.")
    }
    guard let address = TCPAddress(listen) else {
      throw ValidationError("--listen takes HOST:PORT or a port, such as 0.0.0.0:7935, not '\(listen)'.")
    }
    guard address.isLoopback || tlsCertificate != nil else {
      throw ValidationError(
        "--listen \(listen) can be reached from other machines, and the copies contain events: pass --tls-certificate, or listen on 127.0.0.1 behind a tunnel."
      )
    }
    let token = Secret(try TokenFile.read(tokenFile))
    let log = try logging.settings.writer()
    defer { log.flush(patience: .seconds(1)) }
    let notify = Notify()
    Signals.hold()
    var tls: TLSServing?
    if let tlsCertificate {
      do throws(SocketFailure) {
        tls = try TLSServing(.init(certificate: tlsCertificate, key: tlsKey)) { log.write(.info, "", $0) }
      } catch {
        Console.printError(error.message)
        throw ExitStatus.inputOutput
      }
    }
    let server: StandbyServer
    // Only the server holds the directory, because it releases it on promotion.
    do throws(StateDirectory.Refusal) {
      server = try StandbyServer(try StateDirectory(path, isStandby: true), log)
    } catch {
      throw error.reported()
    }
    do throws(HTTPServerFailure) {
      let port = try server.start(address, token: token, tls: tls)
      log.write(.info, "", "standby: \(path) accepts copies on \(address.host) port \(port)")
    } catch {
      Console.printError(error.message)
      throw ExitStatus.inputOutput
    }
    notify?.send("READY=1")
    Self.serve(server)
    notify?.send("STOPPING=1")
  }

  /// Waits for signals: SIGHUP announces a promotion; SIGINT and SIGTERM end the process. Acknowledged data is on the
  /// disk.
  private static func serve(_ server: StandbyServer) {
    var signals = sigset_t()
    sigemptyset(&signals)
    for signal in [SIGHUP, SIGINT, SIGTERM, SIGQUIT] { sigaddset(&signals, signal) }
    while true {
      var signal: Int32 = 0
      guard sigwait(&signals, &signal) == 0 else { continue }
      guard signal == SIGHUP else { return }
      server.promoteIfAsked()
    }
  }
}

/// `rxd promote-standby`: turns the copy of a standby into a state directory.
struct PromoteStandby: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "promote-standby",
    abstract: "Turns the copies of a standby into a state directory that 'rxd run' can use.",
    discussion: """
      The standby takes nothing any more from then on. Make sure first that the other process has ended or cannot act: only with \
      --replicate-wait, with --lease, or where it reaches the standby, does it end by itself.
      """)

  @Argument(help: ArgumentHelp("The state directory of the standby.", valueName: "dir"), completion: .directory)
  var directory: String

  @Option(
    help: ArgumentHelp(
      "The lease that the other process is run with: refuses while that holds it, and gives it to this directory.",
      valueName: "file"), completion: .file())
  var lease: String?

  func run() throws {
    let (marker, promoted) = (
      StateDirectory.standbyMarker(in: directory), StateDirectory.promotedMarker(in: directory)
    )
    let isPromoted = access(promoted, F_OK) == 0
    // The pipelines may run in it since an earlier promotion; SIGHUP would make that process reload.
    let holder = StateDirectory.process(of: directory)
    let runner = isPromoted && holder?.isStandby == false ? holder?.id : nil
    guard isPromoted || access(marker, F_OK) == 0 else {
      Console.printError("\(directory) is not the directory of a standby: there is no file \(marker)")
      throw ExitStatus.noInput
    }
    if let lease {
      do throws(Lease.Refusal) { try StateDirectory.give(lease: lease, to: directory) { Console.note($0) } } catch {
        throw error.reported(": it has not ended, and may still run the pipelines")
      }
    }
    if !isPromoted {
      guard rename(marker, promoted) == 0 else {
        Console.printError(PosixError("rename", marker).message)
        throw ExitStatus.inputOutput
      }
      do throws(StateDirectory.Refusal) { try StateDirectory.sync(directory) } catch { throw error.reported() }
    }
    if let runner {
      Console.print("\(directory) is a state directory already, and process \(runner) runs its pipelines")
      return
    }
    if let holder { kill(holder.id, SIGHUP) }
    if !StateDirectory.awaitFree(directory, within: .seconds(30)), let user = StateDirectory.user(of: directory) {
      Console.printError("\(user) still holds \(directory) after 30 s: end it, and try again")
      throw ExitStatus.temporary
    }
    let leased = lease.map { " --lease \($0)" } ?? ""
    Console.print("\(directory) is a state directory now: rxd run --state-dir \(directory)\(leased) FILE ...")
  }
}
