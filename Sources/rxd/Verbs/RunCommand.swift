import ArgumentParser
import CLinux
import Glibc
import Logging
import PipelineCore
import PipelineRuntime
import PluginHost
import Transport

/// `rxd FILE...` and `rxd run FILE...`.
struct Run: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "run",
    abstract: "Runs pipelines until their sources end.",
    discussion: """
      Each file is a pipeline of its own; one that fails does not stop the others. SIGINT and SIGTERM stop the \
      sources and finish the work under way; a second one, at least a second after the first, or SIGQUIT ends at \
      once. SIGHUP reloads the files. SIGUSR1 logs how many pipelines run; SIGUSR2 does nothing.
      """)

  @OptionGroup var input: InputOptions

  @Flag(help: "Restart failed pipelines, as under systemd. (RXD_DAEMON)")
  var daemon = false

  @Option(
    help: ArgumentHelp(
      "How long stopping may take. (RXD_GRACEFUL_SHUTDOWN_LIMIT_SECS)", valueName: "seconds"))
  var gracefulShutdownLimitSecs: Int?

  @Option(
    name: .customLong("state-dir"),
    help: ArgumentHelp(
      """
      The state directory, used by this process only. It keeps what pipelines must not lose when the process ends: \
      state, positions, events to deliver, and dead letters: rejected events without a reader. Without a state \
      directory nothing is stored, and dead letters are printed to standard error. (RXD_STATE_DIR, STATE_DIRECTORY)
      """, valueName: "dir"), completion: .directory)
  var stateDirectory: String?

  @Option(
    help: ArgumentHelp(
      """
      What events that wait in queues of steps and sinks may have in memory, for all pipelines together: 256MiB by default. Beyond, inputs \
      wait, or events wait on disk. (RXD_QUEUE_MEMORY)
      """, valueName: "size"))
  var queueMemory: ByteSize?

  @Option(
    help: ArgumentHelp(
      """
      What the events that did not pass, which 'rxd why' shows, may have in memory, for all pipelines together: 8MiB by default, and at \
      most 512KiB a pipeline; 0B keeps none. (RXD_WHY_MEMORY)
      """, valueName: "size"))
  var whyMemory: ByteSize?

  @Option(
    help: ArgumentHelp(
      """
      Where the work on files and standard input runs: auto, loop, inline, threads or threads-inline; default is auto, which measures. \
      The others repeat one way, to find out which is slow. See docs/threads.md. (RXD_PLACEMENT)
      """, valueName: "where"))
  var placement: Placement?

  @Flag(
    help:
      "Print at the end, to standard error, what each step did with its events: in, out, dropped, rejected. (RXD_STATS)"
  )
  var stats = false

  @Option(
    help: ArgumentHelp("The format of --stats: text or json; default is text. (RXD_STATS_FORMAT)", valueName: "form"))
  var statsFormat: StatisticsReport.Form?

  @OptionGroup(title: "Trying out") var trial: TrialOptions

  @Flag(name: .shortAndLong, help: "Warnings of the files count as errors. (RXD_DENY_WARNINGS)")
  var denyWarnings = false

  @Flag(
    name: [.customShort("w"), .customLong("watch-config")],
    help: "Reload when the files, or files that they use, have changed. (RXD_WATCH_CONFIG)")
  var watchConfig = false

  @Option(
    help: ArgumentHelp(
      """
      How --watch-config notices changes: inotify, poll (each second), or auto: poll on network file systems and where the \
      system refuses watches; default is auto. (RXD_WATCH_CONFIG_METHOD)
      """, valueName: "method"))
  var watchConfigMethod: ConfigWatch.Method?

  @Option(
    help: ArgumentHelp(
      """
      The Unix socket for 'rxd reload' and other requests; none for no socket. By default it is control.sock in the \
      runtime directory of the service manager, otherwise in the state directory. (RXD_CONTROL_SOCKET, \
      RUNTIME_DIRECTORY)
      """, valueName: "path"), completion: .file())
  var controlSocket: String?

  @Option(
    help: ArgumentHelp(
      """
      Serve /metrics, /health and /ready over TCP, beside the control socket: HOST:PORT, or a port of 127.0.0.1. Beyond this \
      machine only with --metrics-token-file. (RXD_METRICS_LISTEN)
      """, valueName: "address"))
  var metricsListen: String?

  @Option(
    help: ArgumentHelp(
      """
      A file whose first line clients of --metrics-listen must send as 'Authorization: Bearer ...'. \
      (RXD_METRICS_TOKEN_FILE)
      """, valueName: "file"), completion: .file())
  var metricsTokenFile: String?

  @Option(
    help: ArgumentHelp(
      """
      The names under which --metrics-listen is served, separated by commas, or '*'; on a loopback address besides localhost and \
      loopback addresses. (RXD_METRICS_HOSTS)
      """, valueName: "names"))
  var metricsHosts: String?

  @Flag(help: "Serve the live page on a free port of 127.0.0.1, and print its address. (RXD_UI)")
  var ui = false

  @Option(
    help: ArgumentHelp(
      """
      Serve the live page over TCP: HOST:PORT, or a port of 127.0.0.1. 'rxd ui' prints an address that works once. Beyond this \
      machine only with --ui-token-file. (RXD_UI_LISTEN)
      """, valueName: "address"))
  var uiListen: String?

  @Option(
    help: ArgumentHelp(
      """
      A file whose first line is a token for the live page: programs send it as 'Authorization: Bearer ...', a person may enter it \
      in place of an address of 'rxd ui'. (RXD_UI_TOKEN_FILE)
      """, valueName: "file"), completion: .file())
  var uiTokenFile: String?

  @Option(
    help: ArgumentHelp(
      "The names under which the live page is served, as --metrics-hosts. (RXD_UI_HOSTS)", valueName: "names"))
  var uiHosts: String?

  @OptionGroup(title: "A second machine") var copying: ReplicationOptions
  @OptionGroup var logging: LogOptions
  @OptionGroup var color: ColorOptions

  func run() throws {
    try RunSettings(
      input: input.settings, daemon: daemon, gracefulShutdownLimitSecs: gracefulShutdownLimitSecs,
      stateDirectory: stateDirectory, queueMemory: queueMemory, whyMemory: whyMemory, placement: placement,
      stats: stats, statsFormat: statsFormat, trial: trial.settings, denyWarnings: denyWarnings,
      watchConfig: watchConfig, watchConfigMethod: watchConfigMethod, controlSocket: controlSocket,
      metricsListen: metricsListen, metricsTokenFile: metricsTokenFile, metricsHosts: metricsHosts, ui: ui,
      uiListen: uiListen, uiTokenFile: uiTokenFile, uiHosts: uiHosts,
      copying: copying.settings, logging: logging.settings, color: color.color
    ).run()
  }
}

/// The settings of `run`, from any command line.
struct RunSettings {
  var input = InputSettings()
  var daemon = false
  var gracefulShutdownLimitSecs: Int?
  var stateDirectory: String?
  var queueMemory: ByteSize?
  var whyMemory: ByteSize?
  var placement: Placement?
  var stats = false
  var statsFormat: StatisticsReport.Form?
  var trial = TrialSettings()
  var denyWarnings = false
  var watchConfig = false
  var watchConfigMethod: ConfigWatch.Method?
  var controlSocket: String?
  var metricsListen: String?
  var metricsTokenFile: String?
  var metricsHosts: String?
  var ui = false
  var uiListen: String?
  var uiTokenFile: String?
  var uiHosts: String?
  var copying = ReplicationSettings()
  var logging = LogSettings()
  var color: ColorMode?

  func run() throws {
    Signals.endAtOnce()
    var noCore = rlimit(rlim_cur: 0, rlim_max: 0)
    setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &noCore)
    // Each followed file and each connection needs a descriptor; the usual limit of 1,024 protects programs that call
    // `select`.
    var files = rlimit()
    if getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files) == 0, files.rlim_cur < files.rlim_max {
      files.rlim_cur = files.rlim_max
      setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files)
    }

    let limit = try setting(gracefulShutdownLimitSecs, "RXD_GRACEFUL_SHUTDOWN_LIMIT_SECS") ?? 60
    guard (0...86_400).contains(limit) else {
      throw ValidationError("The limit for stopping is between 0 and 86400 seconds, not \(limit).")
    }
    let log = try logging.writer()
    defer { log.flush(patience: .seconds(1)) }
    let notify = Notify()
    var options = Supervisor.Options()
    options.isDaemon = try flag(daemon, "RXD_DAEMON") || notify != nil
    options.drainLimit = .seconds(Int64(limit))
    if let size = try setting(queueMemory, "RXD_QUEUE_MEMORY")?.bytes {
      guard size >= 1 << 20 else { throw ValidationError("The memory of queues is at least 1MiB, not \(size) bytes.") }
      options.queueMemory = size
    }
    if let size = try setting(whyMemory, "RXD_WHY_MEMORY")?.bytes { options.whyMemory = size }
    options.placement = try setting(placement, "RXD_PLACEMENT") ?? .auto
    let form = try setting(statsFormat, "RXD_STATS_FORMAT")
    if try flag(stats, "RXD_STATS") { options.statistics = form ?? .text }

    let trial = trial
    let keepsState = stateDirectoryName != nil
    options.trial = try trial.trial(isDaemon: options.isDaemon, keepsState: keepsState)
    let isDry = options.trial.isDry
    let isOnce = options.trial.isOnce
    _ = try input.environment.inputs(startsPlugins: true)
    // Patterns, directories and variables are read again at each reload.
    _ = try input.selection()
    let denied = try flag(denyWarnings, "RXD_DENY_WARNINGS")
    let input = input
    let used = UsedFiles(input)
    options.load = {
      var inputs: PipelineLoader.Inputs
      let selection: FileSelection
      do {
        inputs = try input.environment.read(startsPlugins: true)
        selection = try input.selection()
      } catch {
        let reason = (error as? PosixError)?.message ?? (error as? ValidationError)?.message
        return [.init(unreadable: "", Diagnostic(.unreadableFile, reason ?? "the files cannot be looked up", at: nil))]
      }
      if var plugins = inputs.plugins as? LocalPlugins {
        plugins.log = { log.write($0.logLevel, "", $1) }
        inputs.plugins = plugins
      }
      inputs.printed = trial.printed
      inputs.printedFormat = trial.format ?? .ndjson
      let front = PipelineLoader(inputs, checksFiles: !isDry)
      var results = selection.missing.map { PipelineLoader.Loaded(unreadable: "", $0) }
      results += front.load(selection.paths)
      used.note(results)
      // A dry run delivers nothing, so it needs no guarantee.
      if !keepsState, !isDry { results = results.map(\.withoutStateDirectory) }
      if isOnce { results = results.map(\.withEnds) }
      results = results.map(\.withOwnInput)
      return denied ? results.map(\.withoutWarnings) : results
    }
    let watch = try watch(used, log)
    watch?.willLoad()
    let loaded = options.load()
    try report(loaded, log, options)
    if log.minimum.map({ $0 <= .debug }) == true {
      for plan in loaded.compactMap(\.plan) {
        log.write(.debug, plan.name, plan.deliveryNote(hasStateDirectory: keepsState), limited: false)
      }
    }
    let signals: Signals
    do throws(PosixError) { signals = try Signals() } catch {
      Console.printError(error.message)
      throw ExitStatus.failure
    }
    if options.isDaemon { rx_forbid_dumps() }
    let lease = try copying.leaseFile(keepsState: keepsState)
    let replication = try copying.replication(keepsState: keepsState)
    let (deadLetters, stores) = try storage(
      try self.stateDirectory(log, lease), log, options.queueMemory, replication)
    options.watch = watch
    options.metrics = try metrics()
    options.page = try page()
    options.showsPage = options.page != nil && !options.isDaemon
    options.control = try control(log, isDaemon: options.isDaemon)
    let supervisor: Supervisor
    do throws(PosixError) {
      supervisor = try Supervisor(
        options, log: log, deadLetters: deadLetters, stores: stores, signals: signals, notify: notify)
    } catch {
      Console.printError(error.message)
      throw ExitStatus.failure
    }
    // Exits without teardown, because threads of libraries may still run.
    let status = supervisor.run(loaded)
    options.trial.output?.close(within: .milliseconds(500))
    let left = LocalPlugins.waitForEnds()
    if left > 0 { Console.printError("\(Printable.count(left, "instance")) of plugins did not end") }
    _exit(status)
  }

  /// The state directory; nil in a dry run, which stores nothing.
  private var stateDirectoryName: String? {
    (try? flag(trial.isDry, "RXD_DRY_RUN")) == true ? nil : StateDirectory.named(stateDirectory)
  }

  /// Watches the files for changes; nil: they are not watched.
  private func watch(_ used: UsedFiles, _ log: LogWriter) throws -> ConfigWatch? {
    let method = try setting(watchConfigMethod, "RXD_WATCH_CONFIG_METHOD")
    guard try flag(watchConfig, "RXD_WATCH_CONFIG") else { return nil }
    do throws(PosixError) {
      let polls: (String) -> Void = { log.write(.warning, "", "\($0); the files are checked each second") }
      return try ConfigWatch(method ?? .auto, polls: polls) { used.files }
    } catch {
      Console.printError("\(error.message); '--watch-config-method poll' needs no watches of the system")
      throw ExitStatus.system
    }
  }

  /// The TCP address of metrics; nil: none.
  private func metrics() throws -> MetricsListener? {
    guard let text = try setting(metricsListen, "RXD_METRICS_LISTEN") else { return nil }
    guard let address = TCPAddress(text) else {
      throw ValidationError("--metrics-listen takes HOST:PORT or a port, such as 127.0.0.1:7930, not '\(text)'.")
    }
    let hosts = try names(metricsHosts, "--metrics-hosts", "RXD_METRICS_HOSTS")
    guard let path = try setting(metricsTokenFile, "RXD_METRICS_TOKEN_FILE") else {
      guard address.isLoopback else {
        throw ValidationError(
          "--metrics-listen \(text) can be reached from other machines: pass a token file with --metrics-token-file, or listen on 127.0.0.1."
        )
      }
      return MetricsListener(address: address, token: nil, hosts: hosts)
    }
    return MetricsListener(address: address, token: try TokenFile.read(path), hosts: hosts)
  }

  /// The TCP address of the live page; nil: none.
  private func page() throws -> PageGate? {
    let given = try setting(uiListen, "RXD_UI_LISTEN")
    guard try flag(ui, "RXD_UI") || given != nil else { return nil }
    // Without a given address, the system chooses the port.
    guard let address = TCPAddress(given ?? "127.0.0.1:0") else {
      throw ValidationError("--ui-listen takes HOST:PORT or a port, such as 127.0.0.1:7931, not '\(given ?? "")'.")
    }
    let hosts = try names(uiHosts, "--ui-hosts", "RXD_UI_HOSTS")
    guard let path = try setting(uiTokenFile, "RXD_UI_TOKEN_FILE") else {
      guard address.isLoopback else {
        throw ValidationError(
          "--ui-listen \(given ?? "") can be reached from other machines: pass a token file with --ui-token-file, or listen on 127.0.0.1."
        )
      }
      return PageGate(address: address, hosts: hosts)
    }
    return PageGate(address: address, token: Secret(try TokenFile.read(path)), hosts: hosts)
  }

  /// Names of servers, separated by commas.
  private func names(_ given: String?, _ option: String, _ variable: String) throws -> [String] {
    let names = (try setting(given, variable) ?? "").split(separator: ",").map { $0.filter { $0 != " " } }
    for name in names {
      guard let fault = PageAccess.fault(ofHost: name) else { continue }
      throw ValidationError(
        "\(option): \(fault). Write names without ports, such as rxd.example.org,metrics.example.org.")
    }
    return names
  }

  /// Opens the control socket, before anything starts, because another process may have it.
  private func control(_ log: LogWriter, isDaemon: Bool) throws -> LocalSocket? {
    guard let (path, choice) = ControlSocket.path(controlSocket, state: stateDirectoryName) else {
      if ControlSocket.named(controlSocket) == nil {
        let reason = UserSockets.absence ?? "its directory in \(UserSockets.variable) can be used by others"
        log.write(
          isDaemon ? .info : .debug, "",
          "there is no control socket, so 'rxd top' and 'rxd reload' do not find this process: \(reason); --control-socket PATH makes one"
        )
      }
      return nil
    }
    do throws(LocalSocket.Refusal) { return try LocalSocket(path) } catch {
      if choice == .usual {
        log.write(
          isDaemon ? .info : .debug, "",
          "there is no control socket \(path), so 'rxd top' does not find this process")
        return nil
      }
      switch error {
      case .inUse(let path):
        Console.printError(
          "another process listens on the control socket \(path): stop it, or name another path with --control-socket")
        throw ExitStatus.temporary
      case .failed(let error) where choice == .asked:
        Console.printError(error.message)
        throw ExitStatus.inputOutput
      case .failed(let error):
        log.write(.warning, "", "\(error.message); 'rxd reload' cannot reach this process")
        return nil
      }
    }
  }

  /// Opens the state directory; nil: there is none. With a lease, it is held from now on.
  private func stateDirectory(_ log: LogWriter, _ lease: (path: String, seconds: Int)?) throws -> StateDirectory? {
    guard let path = stateDirectoryName else { return nil }
    let state: StateDirectory
    do throws(StateDirectory.Refusal) { state = try StateDirectory(path) } catch { throw error.reported() }
    if let lease {
      do throws(Lease.Refusal) { try state.take(lease: lease.path, for: lease.seconds, log) } catch {
        throw error.reported()
      }
    }
    return state
  }

  /// Opens the storage, before anything is read: nothing may start without storage for dead letters.
  private func storage(
    _ state: StateDirectory?, _ log: LogWriter, _ memory: Int, _ replication: Replication?
  ) throws -> (DeadLetters, Stores?) {
    do throws(StateDirectory.Refusal) {
      let letters = try DeadLetters(state, log: log)
      guard let state else { return (letters, nil) }
      return (letters, try Stores(state, log: log, counting: letters.counts, memory: memory, replication))
    } catch { throw error.reported() }
  }

  /// Prints the errors of the files, and throws if nothing may start.
  private func report(
    _ loaded: [PipelineLoader.Loaded], _ log: LogWriter, _ options: Supervisor.Options
  ) throws {
    let diagnostics = loaded.flatMap(\.diagnostics).filter {
      $0.severity == .error || log.minimum.map { $0 <= .warning } == true
    }
    if !diagnostics.isEmpty {
      if log.form == .terminal || logging.isPlain && !options.isDaemon {
        var renderer = DiagnosticRenderer()
        renderer.colors = Console.colors(try colorMode(color), on: 2)
        Console.note(String(renderer.text(diagnostics).dropLast()))
      } else {
        for diagnostic in diagnostics {
          log.write(
            diagnostic.severity == .error ? .error : .warning, "", diagnostic.line, limited: false)
        }
      }
    }
    let broken = loaded.filter(\.hasErrors)
    // A daemon runs the files without errors; files named on the command line run all or none.
    if broken.isEmpty || options.isDaemon && broken.count < loaded.count { return }
    throw broken.allSatisfy(\.isUnreadable) ? ExitStatus.noInput : ExitStatus.configuration
  }
}

/// The files of a process that are watched for changes.
private final class UsedFiles {
  private let input: InputSettings
  /// The schemas, secrets and plugins that the texts refer to.
  private var further: Set<String> = []

  init(_ input: InputSettings) { self.input = input }

  func note(_ results: [PipelineLoader.Loaded]) {
    let found = Set(results.flatMap(\.uses))
    // A text with errors may not have been compiled far enough to find all references.
    further = results.contains(where: \.hasErrors) ? further.union(found) : found
  }

  var files: ConfigWatch.Files {
    var files = ConfigWatch.Files(paths: further.union(input.environment.files))
    // A named file that is missing is watched by its name until it appears.
    files.paths.formUnion(input.names)
    if let selection = try? input.selection() {
      files.paths.formUnion(selection.paths.filter { $0 != "-" })
      files.directories = selection.directories
    }
    return files
  }
}

/// The log level and format.
struct LogOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      "The log's format: text or json; text on a terminal by default. (RXD_LOG_FORMAT)",
      valueName: "form"))
  var logFormat: LogFormat?

  @Option(
    help: ArgumentHelp("debug, info, warning or error. (RXD_LOG_LEVEL)", valueName: "level"))
  var logLevel: Services.Level?

  @Flag(name: .shortAndLong, help: "Log more: counts at the end, every start.")
  var verbose: Int

  @Flag(name: .shortAndLong, help: "Log errors only; `-qq` logs nothing.")
  var quiet: Int

  var settings: LogSettings {
    LogSettings(form: logFormat, level: logLevel, verbose: verbose, quiet: quiet)
  }
}

/// The log level and format, from any command line.
struct LogSettings {
  var form: LogFormat?
  var level: Services.Level?
  var verbose = 0
  var quiet = 0

  /// Whether no JSON was requested, so that reports for people may be printed unchanged.
  var isPlain: Bool { form != .json && ProcessEnvironment["RXD_LOG_FORMAT"] != "json" }

  func writer() throws -> LogWriter {
    let level = try setting(self.level, "RXD_LOG_LEVEL")?.logLevel
    let minimum: Logger.Level? =
      quiet > 1 ? nil : quiet == 1 ? .error : verbose > 0 ? .debug : level ?? .info
    return LogWriter(form: LogWriter.form(try setting(form, "RXD_LOG_FORMAT")), minimum: minimum)
  }
}

extension Placement: ExpressibleByArgument {}
