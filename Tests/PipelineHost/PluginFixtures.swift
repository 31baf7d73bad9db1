import Foundation
import PipelineCore
import PluginHost
import Synchronization

/// Plugins built for the tests.
package enum PluginFixtures {
  package static let root = URL(fileURLWithPath: #filePath)
    .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent().path
  /// Removed at the end of the process.
  package static let scratch: Scratch = {
    atexit { try? FileManager.default.removeItem(atPath: PluginFixtures.scratch.path) }
    return Scratch()
  }()
  private static let made = Mutex<Set<String>>([])

  package struct Failed: Error, CustomStringConvertible {
    package var description: String
  }

  package static func run(_ arguments: [String]) throws {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = arguments
    let pipe = Pipe()
    process.standardError = pipe
    process.standardOutput = pipe
    try process.run()
    let output = pipe.fileHandleForReading.readDataToEndOfFile()
    process.waitUntilExit()
    if process.terminationStatus != 0 { throw Failed(description: String(decoding: output, as: UTF8.self)) }
  }

  /// A build of `probe.c` with these macros; returns its path.
  package static func probe(_ name: String = "probe", _ macros: String...) throws -> String {
    let path = scratch("probe-\(name).so")
    let problem = made.withLock { made -> (any Error)? in
      guard made.insert(path).inserted else { return nil }
      do {
        try run(
          ["clang", "-shared", "-fPIC", "-Wall", "-Werror", "-I", "\(root)/Sources/CPlugin/include", "-o", path]
            + macros.map { "-D\($0)" } + ["\(root)/Tests/PluginHostTests/Fixtures/probe.c"])
        return nil
      } catch { return error }
    }
    if let problem { throw problem }
    return path
  }

  /// A build of another fixture file, made once.
  package static func build(_ name: String, to path: String) throws {
    let problem = made.withLock { made -> (any Error)? in
      guard made.insert(path).inserted else { return nil }
      do {
        try run([
          "clang", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-I", "\(root)/Sources/CPlugin/include", "-o",
          path,
          "\(root)/Tests/PluginHostTests/Fixtures/\(name)",
        ])
        return nil
      } catch { return error }
    }
    if let problem { throw problem }
  }

  /// The components of the C example.
  package static let example: Result<String, any Error> = Result {
    let build = scratch("example")
    try run([
      "make", "-s", "-C", "\(root)/Plugins/examples/native-c", "CC=clang", "BUILD=\(build)", "\(build)/example.so",
    ])
    return "\(build)/example.so"
  }

  /// A Python program that answers with these lines; `EVENT` is the event and `f` the frame.
  package static func program(_ name: String, components: String, _ body: String) throws -> String {
    let text = """
      #!/usr/bin/python3 -S
      import sys, json, os, time
      state = None
      states = {}
      def say(frame): print(json.dumps(frame, separators=(',', ':')), flush=True)
      for line in sys.stdin:
          f = json.loads(line)
          if 'hello' in f: say({"spec": {"plugin": "\(name)", "version": "1", "summary": "For a test.", "components": json.loads(r'''\(components)''')}})
          elif 'open' in f:
              opening = f
              state = f.get('state')
              states[f['open']] = state
              say({"opened": f['open']})
          elif 'ping' in f: say({"pong": f['ping']})
      \(body.split(separator: "\n").map { "    " + $0 }.joined(separator: "\n"))

      """
    return try program(name, Data(text.utf8))
  }

  /// A program or library with this content. The cases of a test make the same file concurrently: it is made once and gets its name when it
  /// is complete, so that none of them starts a partial file.
  package static func program(_ name: String, _ content: Data) throws -> String {
    let path = scratch(name)
    let part = path + ".part"
    let isMade = made.withLock { _ in
      if FileManager.default.contents(atPath: path) == content { return true }
      return FileManager.default.createFile(atPath: part, contents: content) && chmod(part, 0o755) == 0
        && rename(part, path) == 0
    }
    if !isMade { throw Failed(description: "cannot make \(path)") }
    return path
  }

  package static let plugins = LocalPlugins(asks: true, directories: [])

  /// A pipeline on virtual time that sends values through a chain to the probe `out`.
  package static func pipeline(
    _ plugin: String, values: String, chain: String, more: String = "", restoring state: [UInt8]? = nil
  ) throws -> VirtualPipeline {
    try VirtualPipeline(
      """
      plugins: ['\(plugin)']
      sources: { in: { values: \(values) } }
      sinks:
        out:
          from: in
          chain: \(chain)
          probe: {}
      \(more)
      """, restoring: state, plugins: plugins)
  }
}

extension LocalPlugins {
  /// Loads the file; returns why it cannot be used, or an empty text.
  package func refusal(_ path: String) -> String {
    switch load(PluginFile(path: path, directory: "")) {
    case .success(let plugin): plugin.problems().joined(separator: "; ")
    case .failure(let fault): fault.message + fault.diagnostics.map { "; " + $0.message }.joined()
    }
  }
}
