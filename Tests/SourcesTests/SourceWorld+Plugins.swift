import Foundation
import PipelineHost
import Testing

/// The sources of plugins in the laws of all sources: those of the examples and one made for the laws run here; those that need a server
/// are held by the tests of their plugin.
extension SourceWorld {
  /// Sources whose laws are tested beside their plugin, with the file of those tests.
  static let besideTheirPlugin: [String: String] = [
    "amqp": "Plugins/amqp/tests/test_amqp.py", "kafka": "Plugins/kafka/tests/test_kafka.py",
    "mqtt": "Plugins/mqtt/tests/test_mqtt.py", "nats": "Plugins/nats/tests/test_nats.py",
    "natsKV": "Plugins/nats/tests/test_nats.py", "natsStream": "Plugins/nats/tests/test_nats.py",
    "otlp": "Plugins/otlp/tests/test_otlp.py", "postgresNotify": "Plugins/postgres/tests/test_postgres.py",
    "postgresQuery": "Plugins/postgres/tests/test_postgres.py", "redisList": "Plugins/redis/tests/test_redis.py",
    "redisStream": "Plugins/redis/tests/test_redis.py", "redisSubscribe": "Plugins/redis/tests/test_redis.py",
    "s3": "Plugins/s3/tests/test_s3.py", "exampleLetters": "Plugins/examples/swift-shout/test_shout.py",
  ]

  /// Every source that a plugin of this repository declares: in a spec, or in the program or library that makes the spec.
  static let declaredByPlugins: Set<String> = {
    let root = PluginFixtures.root + "/Plugins"
    var names: Set<String> = []
    for path in FileManager.default.enumerator(atPath: root)?.compactMap({ $0 as? String }) ?? [] {
      guard !path.contains("/.build/"), !path.contains("/build/"), !path.contains("/tests/"),
        [".json", ".py", ".swift"].contains(where: path.hasSuffix),
        let text = try? String(contentsOfFile: root + "/" + path, encoding: .utf8)
      else { continue }
      if path.hasSuffix("spec.json") {
        names.formUnion(text.matches(of: /"kind":\s*"source",\s*"name":\s*"(\w+)"/).map { String($0.1) })
      } else if path.hasSuffix(".py") {
        // A decorated class has the name of the class; a decorated function its own.
        for match in text.matches(of: /\n@plugin\.source\((?:.|\n)*?\n(?:class|def) (\w+)/) {
          names.insert(match.1.prefix(1).lowercased() + match.1.dropFirst())
        }
      } else {
        for type in text.matches(of: /CatalogueEntry\(source: (\w+)\.self\)/).map({ String($0.1) }) {
          for found in text.matches(of: /ComponentSpec<(\w+)>\(\s*"(\w+)"/) where found.1 == type {
            names.insert(String(found.2))
          }
        }
      }
    }
    return names
  }()

  /// The sources of plugins that run here; one that nobody knows is among them, and so fails.
  static let pluginNames = (declaredByPlugins.subtracting(besideTheirPlugin.keys).union(["feed"])).sorted()

  /// An example in Python as a program: a copy that may be executed, with the module that it imports.
  static func python(_ name: String) throws -> String {
    func copy(_ path: String, _ name: String) throws -> String {
      try PluginFixtures.program(
        name, try Data(contentsOf: URL(fileURLWithPath: "\(PluginFixtures.root)/Plugins/\(path)/\(name)")))
    }
    _ = try copy("python", "rxd_plugin.py")
    return try copy("examples/python", name)
  }

  /// A library whose source sends the lines of a file.
  static func feed() throws -> String {
    let path = PluginFixtures.scratch("feed.so")
    try PluginFixtures.build("feed.c", to: path)
    return path
  }

  /// Lines that are much larger together than the memory limit of the process.
  private func flood(_ source: (String) -> String, plugin: String, most: Int) -> SourceFlood {
    let name = Self.fresh("flood")
    scratch.append(String(repeating: "1 \(SourceFlood.line.dropLast(3))\n", count: 8000), to: name)
    return SourceFlood(source(scratch(name)), plugin: plugin, most: most)
  }

  private func lines(_ source: @escaping (String) -> String, number: String, plugin: String) -> SourceInput {
    let (scratch, name) = (scratch, Self.fresh("plugin"))
    scratch.append("", to: name)
    return SourceInput(source(scratch(name)), number: number, plugin: plugin) { numbers, _ in
      scratch.append(Self.lines(numbers), to: name)
    }
  }

  func pluginEntry(_ name: String) -> Entry? {
    switch name {
    case "exampleCounter":
      guard let plugin = try? PluginFixtures.example.get() else { return nil }
      return Entry(
        plain: "exampleCounter: 1", recovery: .position, held: .asInput,
        inputs: [
          {
            SourceInput(
              "exampleCounter: { to: 12, every: 1ms }", number: "event.n - 1", made: 12, plugin: plugin)
          }
        ], keepsNothing: "its numbers are small", plugin: plugin)
    case "feed":
      guard let plugin = try? Self.feed() else { return nil }
      return Entry(
        plain: "feed: a", recovery: .position, held: .asInput,
        inputs: [{ [self] in lines({ "feed: '\($0)'" }, number: "int(event)", plugin: plugin) }],
        keepsNothing: "its thread waits with each event until a turn has taken it", plugin: plugin)
    case "lines":
      guard let plugin = try? Self.python("lines.py") else { return nil }
      return Entry(
        plain: "lines: a", recovery: .position, held: .asInput,
        inputs: [{ [self] in lines({ "lines: '\($0)'" }, number: "int(event.line)", plugin: plugin) }],
        floods: { [self] in
          // As many events as it has credit for, and what its pipe holds.
          [flood({ "lines: '\($0)'" }, plugin: plugin, most: 2 * SourceFlood.limit)]
        }, plugin: plugin)
    case "spool":
      guard let plugin = try? Self.python("spool.py") else { return nil }
      return Entry(
        plain: "spool: .", recovery: .sender, held: .asInput,
        hasNoRecords: "its sender repeats them after a stop, too: PluginSourceLawTests",
        keepsNothing: "it sends as many events as it has credit for, like 'lines'", plugin: plugin)
    default: return nil
    }
  }
}
