import Foundation
import Glibc
import PipelineCore
import Synchronization

@testable import Transport

/// A directory that is removed with the test.
final class ScratchDirectory: Sendable {
  let path: String

  init() {
    path = NSTemporaryDirectory() + "rxd-test-\(getpid())-\(UInt64.random(in: 0 ... .max))"
    mkdir(path, 0o700)
  }

  deinit { try? FileManager.default.removeItem(atPath: path) }

  func callAsFunction(_ name: String) -> String { path + "/" + name }

  /// Appends to a file, which is created if necessary, in one write.
  func append(_ text: String, to name: String) {
    let file = open(self(name), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o600)
    defer { close(file) }
    let bytes = Array(text.utf8)
    precondition(write(file, bytes, bytes.count) == bytes.count)
  }

  func read(_ name: String) -> String {
    String(decoding: FileManager.default.contents(atPath: self(name)) ?? Data(), as: UTF8.self)
  }
}

/// Collects blocks and lets a test wait for expected data.
final class Collector: Sendable {
  struct State {
    var bytes: [UInt8] = []
    var blocks: [LineBlock] = []
    var files: [FileBlock] = []
    var notices: [FileFollower.Notice] = []
    var end: BlockReader.End?
    var positions: [FilePosition]?
  }
  let state = Guarded(State())

  func take(_ block: LineBlock) {
    state.withLock {
      $0.bytes += block.slab.bytes
      $0.blocks.append(block)
    }
    state.notify()
  }

  func take(_ block: FileBlock) {
    state.withLock {
      $0.bytes += block.lines.slab.bytes
      $0.files.append(block)
    }
    state.notify()
  }

  func end(_ end: BlockReader.End) {
    state.withLock { $0.end = end }
    state.notify()
  }

  func note(_ notice: FileFollower.Notice) {
    state.withLock { $0.notices.append(notice) }
    state.notify()
  }

  func end(_ positions: [FilePosition]) {
    state.withLock { $0.positions = positions }
    state.notify()
  }

  var text: String { state.withLock { String(decoding: $0.bytes, as: UTF8.self) } }

  /// Waits at most 60 s until the condition holds.
  func wait(_ condition: (State) -> Bool) -> Bool {
    state.wait(until: monotonicNow() + 60_000_000_000) { condition($0) ? true : nil } ?? false
  }

  func wait(for text: String) -> Bool {
    let bytes = Array(text.utf8)
    return wait { $0.bytes == bytes }
  }

  func waitForEnd() -> BlockReader.End? {
    _ = wait { $0.end != nil }
    return state.withLock { $0.end }
  }
}

/// Follows files until the test ends.
final class Following {
  let follower: FileFollower
  let seen = Collector()

  init(
    _ paths: [String], resuming positions: [FilePosition] = [],
    change: (inout FileFollower.Options) -> Void = { _ in }, deliver: (@Sendable (FileBlock) -> Void)? = nil
  ) throws {
    var options = FileFollower.Options(paths: paths)
    options.start = .beginning
    options.resume = positions
    options.rotateWait = .milliseconds(150)
    change(&options)
    follower = try FileFollower(options)
    try follower.start(
      deliver: { [seen] in
        deliver?($0)
        seen.take($0)
      }, notice: { [seen] in seen.note($0) }, end: { [seen] in seen.end($0) })
  }

  func stop() -> [FilePosition] {
    follower.stop()
    follower.join()
    return seen.state.withLock { $0.positions ?? [] }
  }

  var notices: [FileFollower.Notice] { seen.state.withLock { $0.notices } }

  func isFinished(_ name: String) -> Bool {
    seen.wait { $0.notices.contains { if case .finished(let path, _) = $0 { path.hasSuffix(name) } else { false } } }
  }

  deinit { _ = stop() }
}

/// Both ends of a pipe.
struct Pipe {
  let input: FileDescriptor
  /// Closed explicitly.
  let output: Int32

  init() {
    var ends: [Int32] = [0, 0]
    precondition(pipe(&ends) == 0)
    input = FileDescriptor(ends[0], name: "a pipe")
    output = ends[1]
  }

  func send(_ text: String) {
    let bytes = Array(text.utf8)
    precondition(write(output, bytes, bytes.count) == bytes.count)
  }
}
