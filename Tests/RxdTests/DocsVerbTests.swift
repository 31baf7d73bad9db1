import Foundation
import PipelineHost
import PipelineTestSupport
import Testing

/// `rxd docs` serves one directory to browsers of this machine, and nothing beside it.
@Suite(.timeLimit(.minutes(5)), .enabled(if: Curl.isThere, "needs curl"))
struct DocsVerbTests {
  private let folder: Scratch
  private var pages: String { folder.path + "/html" }

  init() throws {
    folder = try Scratch()
    for (name, text) in [
      ("html/index.html", "<h1>first</h1>"), ("html/docs/index.html", "<h1>docs</h1>"),
      ("html/docs/a b.html", "<h1>a b</h1>"),
      ("html/site/site.css", "h1{}"), ("html/site/search-index.js", "x=1"), ("html/docs/p.svg", "<svg/>"),
      ("html/docs/raw.bin", "raw"), ("secret.txt", "secret"),
    ] {
      let url = URL(fileURLWithPath: folder.path + "/" + name)
      try FileManager.default.createDirectory(at: url.deletingLastPathComponent(), withIntermediateDirectories: true)
      try Data(text.utf8).write(to: url)
    }
    try FileManager.default.createSymbolicLink(
      atPath: pages + "/link.txt", withDestinationPath: folder.path + "/secret.txt")
    try FileManager.default.createSymbolicLink(atPath: pages + "/linked", withDestinationPath: folder.path)
  }

  private func start() throws -> (process: RunningRxd, base: String) {
    let process = try RunningRxd(["docs", "--dir", pages])
    let line = try #require(try process.line(), "rxd docs prints nothing")
    #expect(line.wholeMatch(of: #/http://127\.0\.0\.1:\d+//#) != nil, "\(line)")
    return (process, line)
  }

  private func get(_ arguments: String...) throws -> (head: String, body: String) {
    let text = try Curl.output(["-i", "--path-as-is"] + arguments)
    let parts = text.components(separatedBy: "\r\n\r\n")
    return (parts[0], parts.dropFirst().joined(separator: "\r\n\r\n"))
  }

  @Test func pagesHaveTheirTypes() throws {
    let (process, base) = try start()
    defer { process.send(SIGKILL) }
    for (path, type, body) in [
      ("", "text/html; charset=utf-8", "<h1>first</h1>"), ("index.html", "text/html; charset=utf-8", "<h1>first</h1>"),
      ("docs/", "text/html; charset=utf-8", "<h1>docs</h1>"),
      ("docs/a%20b.html?x=1", "text/html; charset=utf-8", "<h1>a b</h1>"),
      ("site/site.css", "text/css; charset=utf-8", "h1{}"),
      ("site/search-index.js", "text/javascript; charset=utf-8", "x=1"), ("docs/p.svg", "image/svg+xml", "<svg/>"),
      ("docs/raw.bin", "application/octet-stream", "raw"),
    ] {
      let answer = try get(base + path)
      #expect(answer.head.hasPrefix("HTTP/1.1 200"), "\(path): \(answer.head)")
      #expect(answer.head.contains("Content-Type: \(type)\r\n"), "\(path): \(answer.head)")
      #expect(answer.head.contains("X-Content-Type-Options: nosniff"), "\(path)")
      #expect(answer.body == body, "\(path)")
    }
  }

  @Test func headHasNoBody() throws {
    let (process, base) = try start()
    defer { process.send(SIGKILL) }
    let answer = try get("--head", base)
    #expect(answer.head.hasPrefix("HTTP/1.1 200"))
    #expect(answer.head.contains("Content-Length: 14"), "\(answer.head)")
    #expect(answer.body == "")
  }

  @Test func directoriesEndWithASlash() throws {
    let (process, base) = try start()
    defer { process.send(SIGKILL) }
    let answer = try get(base + "docs")
    #expect(answer.head.hasPrefix("HTTP/1.1 301"))
    #expect(answer.head.contains("Location: /docs/\r\n"), "\(answer.head)")
    // An address with two slashes at its start would name another host.
    #expect(try get(base + "/docs").head.contains("Location: /docs/\r\n"))
  }

  @Test(arguments: [
    "../secret.txt", "docs/../../secret.txt", "%2e%2e/secret.txt", "..%2fsecret.txt",
    "docs/%2e%2e%2f%2e%2e%2fsecret.txt", "./index.html",
    "docs//p.svg", "index.html%00.css", "link.txt", "linked/secret.txt", "linked/", "nothing.html", "docs/p.svg/",
    "site/",
  ])
  func nothingElseIsServed(_ path: String) throws {
    let (process, base) = try start()
    defer { process.send(SIGKILL) }
    let answer = try get(base + path)
    #expect(answer.head.hasPrefix("HTTP/1.1 404"), "\(path): \(answer.head)")
    #expect(answer.head.contains("Content-Type: text/html; charset=utf-8\r\n"), "\(answer.head)")
    #expect(answer.body.contains(#"<a href="/">"#) && !answer.body.contains("secret"), "\(answer.body)")
  }

  @Test func pagesCanOnlyBeRead() throws {
    let (process, base) = try start()
    defer { process.send(SIGKILL) }
    for method in ["POST", "PUT", "DELETE"] {
      let answer = try get("-X", method, base)
      #expect(answer.head.hasPrefix("HTTP/1.1 405"), "\(method): \(answer.head)")
      #expect(answer.head.contains("Allow: GET, HEAD\r\n"), "\(answer.head)")
    }
    // A site whose name leads to this machine.
    #expect(try !get("-H", "Host: elsewhere.example", base).head.hasPrefix("HTTP/1.1 200"))
  }

  @Test func interruptEndsIt() throws {
    let (process, base) = try start()
    #expect(try Curl.status([base]) == "200")
    // As a shell shows it, the status is that of the signal.
    #expect(try process.wait(sending: SIGINT) == 128 + SIGINT)
  }

  @Test func missingPagesAreReported() throws {
    let outcome = try Rxd.run("docs", "--dir", folder.path + "/nowhere")
    #expect(outcome.status == 66)
    #expect(outcome.output == "")
    #expect(
      outcome.errors
        == """
        rxd: there are no pages of the documentation in \(folder.path)/nowhere. Install the package rxd-doc, or give the \
        directory with --dir: 'make site' in the sources builds the pages in .build/site

        """)
    // The Markdown of the sources is not the pages.
    #expect(try Rxd.run("docs", "--dir", Rxd.root + "/docs").status == 66)
  }

  @Test func onlyThisMachineIsServed() throws {
    for address in ["0.0.0.0:0", "192.0.2.1:80", "x"] {
      let outcome = try Rxd.run("docs", "--dir", pages, "--listen", address)
      #expect(outcome.status == 64, "\(address)")
      #expect(outcome.errors.contains("--listen takes a port, or an address of this machine's loopback"))
    }
  }

  @Test func aPortInUseIsReported() throws {
    let (process, base) = try start()
    defer { process.send(SIGKILL) }
    let port = try #require(base.split(separator: ":").last.map { String($0.dropLast()) })
    let outcome = try Rxd.run("docs", "--dir", pages, "--listen", port)
    #expect(outcome.status == 75)
    #expect(outcome.errors.contains(port), "\(outcome.errors)")
  }
}
