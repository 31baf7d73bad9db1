import Foundation
import Transport

/// A program with Debian's python3-websockets as the peer. It reads commands, one per line, and writes what happens.
package final class WebSocketPeer {
  package static let isThere: Bool = {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/python3")
    process.arguments = ["-c", "import websockets"]
    process.standardError = FileHandle.nullDevice
    try? process.run()
    process.waitUntilExit()
    return process.terminationStatus == 0
  }()

  private let process = Process()
  private let input = Pipe()
  private let output = Pipe()
  private var pending: [UInt8] = []

  /// - Parameter arguments: `serve PORT [SUBPROTOCOL]` or `connect URL [ORIGIN [SUBPROTOCOL]]`.
  package init(_ arguments: String...) throws {
    process.executableURL = URL(fileURLWithPath: "/usr/bin/python3")
    process.arguments = ["-c", Self.program] + arguments
    process.standardInput = input
    process.standardOutput = output
    try process.run()
    try? output.fileHandleForWriting.close()
  }

  deinit { if process.isRunning { process.terminate() } }

  package func say(_ command: String) { try? input.fileHandleForWriting.write(contentsOf: Data((command + "\n").utf8)) }

  /// The next line that the program writes; nil: it has ended.
  package func line() -> String? {
    while true {
      if let end = pending.firstIndex(of: 0x0A) {
        let line = String(decoding: pending[..<end], as: UTF8.self)
        pending.removeFirst(end + 1)
        return line
      }
      var entry = pollfd(fd: output.fileHandleForReading.fileDescriptor, events: Int16(POLLIN), revents: 0)
      guard poll(&entry, 1, 30_000) > 0 else { return "nothing within 30 s" }
      let data = output.fileHandleForReading.availableData
      if data.isEmpty { return nil }
      pending += data
    }
  }

  /// Whether the program has written something that was not read, or has ended.
  package var isReadable: Bool {
    if pending.contains(0x0A) { return true }
    var entry = pollfd(fd: output.fileHandleForReading.fileDescriptor, events: Int16(POLLIN), revents: 0)
    return poll(&entry, 1, 0) > 0
  }

  /// Kills the program, so that no close frame is sent.
  package func kill() {
    Glibc.kill(process.processIdentifier, SIGKILL)
    process.waitUntilExit()
  }

  /// Commands: `text T`, `binary HEX`, `parts A B C` (a text in fragments, a ping between them), `ping`, `close CODE REASON`, `end`.
  private static let program = #"""
    import asyncio, sys, websockets

    def said(*words):
        print(*words, flush=True)

    async def parts(ws, words):
        async def pieces():
            for word in words:
                yield word
                await ws.ping()
        await ws.send(pieces())

    async def receive(ws):
        try:
            async for message in ws:
                said("text" if isinstance(message, str) else "binary", message if isinstance(message, str) else message.hex())
        except websockets.ConnectionClosed:
            pass
        said("closed", ws.close_code, ws.close_reason or "")

    async def obey(get):
        loop = asyncio.get_running_loop()
        while True:
            line = await loop.run_in_executor(None, sys.stdin.readline)
            if not line:
                return
            word, _, rest = line.rstrip("\n").partition(" ")
            ws = get()
            if word == "end":
                return
            if word == "text": await ws.send(rest)
            elif word == "binary": await ws.send(bytes.fromhex(rest))
            elif word == "parts": await parts(ws, rest.split(" "))
            elif word == "ping":
                await asyncio.wait_for(await ws.ping(b"sign"), 30)
                said("pong")
            elif word == "close":
                code, _, reason = rest.partition(" ")
                await ws.close(int(code), reason)

    async def serve(port, protocol):
        current = None
        async def handle(ws):
            nonlocal current
            current = ws
            said("connected", ws.path, ws.request_headers.get("X-Name", "-"), ws.request_headers.get("Authorization", "-"), ws.subprotocol or "-")
            await receive(ws)
        async with websockets.serve(handle, "127.0.0.1", port, subprotocols=[protocol] if protocol else None):
            said("listening")
            await obey(lambda: current)

    async def connect(url, origin, protocol):
        try:
            async with websockets.connect(url, origin=origin or None, subprotocols=[protocol] if protocol else None) as ws:
                said("connected", ws.subprotocol or "-")
                receiving = asyncio.ensure_future(receive(ws))
                await obey(lambda: ws)
            await receiving
        except websockets.InvalidStatusCode as e:
            said("refused", e.status_code)

    mode, where, *rest = sys.argv[1:]
    rest += [""] * 2
    asyncio.run(serve(int(where), rest[0]) if mode == "serve" else connect(where, rest[0], rest[1]))
    """#
}
