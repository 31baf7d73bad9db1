import PipelineCore
import PipelineRuntime
import Transport

extension Services {
  /// The real services: libcurl, the log, the system's random numbers, threads.
  static func real(_ log: LogWriter, memory: Int) -> Services {
    let memory = MemoryBudget(memory)
    var services = Services(
      http: DeferredHTTPClient(memory: memory),
      log: { level, component, message in log.write(level.logLevel, "", message, component: component) },
      deadLetter: { letter in log.reject(letter, of: "") },
      random: {
        var generator = SystemRandomNumberGenerator()
        return generator.next()
      },
      worker: { WorkThread("rxd \($0)") })
    services.memory = memory
    services.programs = LocalPrograms(memory: memory)
    services.databases = LocalDatabases()
    return services
  }

  /// Adds the pipeline and the component, by their names in metrics, to each log record.
  mutating func writeLog(of index: PlanIndex, to log: LogWriter) {
    let pipeline = index.plan.name
    self.log = { level, component, message in
      log.write(
        level.logLevel, pipeline, message,
        component: component == pipeline ? "" : component)
    }
  }
}
