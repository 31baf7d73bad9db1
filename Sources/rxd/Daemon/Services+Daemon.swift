import PipelineCore
import PipelineRuntime
import Transport

extension Services {
  /// The real services: libcurl, the log, the system's random numbers, threads.
  static func real(_ log: LogWriter, memory: Int) -> Services {
    var services = Services(
      http: DeferredHTTPClient(),
      log: { level, component, message in log.write(level.logLevel, component, message) },
      deadLetter: { letter in log.reject(letter) },
      random: {
        var generator = SystemRandomNumberGenerator()
        return generator.next()
      },
      worker: { WorkThread("rxd \($0)") })
    services.memory = MemoryBudget(memory)
    services.programs = LocalPrograms()
    services.databases = LocalDatabases()
    return services
  }
}
