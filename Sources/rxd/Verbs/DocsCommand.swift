import ArgumentParser
import Glibc
import Transport

/// `rxd docs`: the pages of the package rxd-doc, for a browser.
struct DocsVerb: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "docs",
    abstract: "Serves the documentation of this version to a browser.",
    discussion: """
      Prints the address of the first page, and serves the pages on a port of 127.0.0.1 until Ctrl-C. The pages are those of \
      the package rxd-doc, in share/doc/rxd/html; 'make site' builds the same in .build/site. They load nothing from elsewhere.
      """)

  @Option(
    name: .customLong("dir"),
    help: ArgumentHelp(
      "The directory of the pages. By default share/doc/rxd/html where this program is installed.",
      valueName: "directory"),
    completion: .directory)
  var directory: String?

  @Option(
    help: ArgumentHelp(
      "Serve the pages here: a port, or an address of this machine's loopback. By default a free port.",
      valueName: "address"))
  var listen: String?

  func run() throws {
    guard let address = TCPAddress(listen ?? "127.0.0.1:0"), address.isLoopback else {
      throw ValidationError("--listen takes a port, or an address of this machine's loopback such as 127.0.0.1:7940.")
    }
    let pages = try DocumentationPages(in: directory ?? Self.installed)
    do throws(HTTPServerFailure) {
      let port = try pages.start(at: address) { notice in
        if case .fault(let reason) = notice { Console.printError(reason) }
      }
      Console.print("http://\(address.authority(port: port))/")
      Console.note("The documentation in \(pages.root), until Ctrl-C ends this.")
    } catch {
      Console.printError(error.message)
      throw error.kind == .addressInUse ? ExitStatus.temporary : ExitStatus.inputOutput
    }
    // The network thread serves; SIGINT and SIGTERM end the process as they do by default.
    while true { pause() }
  }

  /// The pages alongside this program, or else those of the Debian package.
  private static var installed: String {
    let places = [InstalledProgram.prefix, "/usr"].compactMap { $0.map { $0 + "/share/doc/rxd/html" } }
    return places.first(where: DocumentationPages.are(in:)) ?? places[0]
  }
}

/// Serves the files of one directory.
struct DocumentationPages: Sendable {
  private static let first = "index.html"
  /// The maximum size of a served file, above that of any page.
  private static let mostBytes = 64 << 20
  private static let types = [
    "html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8",
    "json": "application/json", "svg": "image/svg+xml", "png": "image/png", "txt": "text/plain; charset=utf-8",
    "md": "text/markdown; charset=utf-8", "yaml": "text/plain; charset=utf-8",
  ]

  private let tree: FileTree
  var root: String { tree.root }

  static func are(in directory: String) -> Bool {
    FileDescriptor.Status(path: directory + "/" + first)?.kind == .regular
  }

  /// Throws an error if the pages do not exist.
  init(in directory: String) throws {
    guard Self.are(in: directory) else {
      Console.printError(
        """
        there are no pages of the documentation in \(directory). Install the package rxd-doc, or give the directory with \
        --dir: 'make site' in the sources builds the pages in .build/site
        """)
      throw ExitStatus.noInput
    }
    tree = FileTree(directory)
  }

  /// Starts to serve; returns the port.
  func start(
    at address: TCPAddress, notify: @escaping @Sendable (HTTPServer.Notice) -> Void
  ) throws(HTTPServerFailure) -> Int {
    var options = HTTPServer.Options()
    options.host = address.host
    options.port = address.port
    options.maxHeaderBytes = 16 << 10
    options.rules.maxConnections = 64
    options.rules.maxBodyBytes = 1 << 10
    options.rules.maxBufferedBytes = 1 << 20
    options.makesRoom = true
    // The process does nothing else, so the network thread reads the files itself.
    return try HTTPServer(options: options).start(notify: notify) { answer($0) }
  }

  private func answer(_ request: ServerRequest) {
    guard ["GET", "HEAD"].contains(request.method) else {
      return send(request, 405, [("Allow", "GET, HEAD")], title: "Not possible", "These pages can only be read.")
    }
    let path = String(decoding: FormText.unescaped(Array(request.path.utf8)[...]), as: UTF8.self)
    let isDirectory = path.hasSuffix("/")
    let file = String(path.drop { $0 == "/" }) + (isDirectory ? Self.first : "")
    do throws(PosixError) {
      if let content = try tree.read(file, limit: Self.mostBytes) {
        request.reply.reply(status: 200, headers: Self.headers(Self.type(of: file)), body: content)
        return
      }
      // Links of a page are relative to its directory. With two slashes at its start the address would name a host.
      let place = "/\(request.path.drop { $0 == "/" })/"
      send(request, 301, [("Location", place)], title: "Elsewhere", "This page is a directory.")
    } catch {
      send(request, 404, [], title: "There is no such page", "The documentation in this directory has no such page.")
    }
  }

  private func send(
    _ request: ServerRequest, _ status: Int, _ headers: [(name: String, value: String)], title: String,
    _ sentence: String
  ) {
    let page = """
      <!doctype html>
      <html lang="en"><head><meta charset="utf-8"><title>\(title)</title></head>
      <body><h1>\(title)</h1><p>\(sentence) <a href="/">The first page</a></p></body></html>

      """
    request.reply.reply(status: status, headers: Self.headers(Self.types["html"]) + headers, body: Array(page.utf8))
  }

  private static func type(of file: String) -> String? {
    file.split(separator: ".").last.flatMap { types[String($0)] }
  }

  /// Other sites cannot embed these pages. Each page declares in its own policy what it loads.
  private static func headers(_ type: String?) -> [(name: String, value: String)] {
    [
      ("Content-Type", type ?? "application/octet-stream"), ("Cache-Control", "no-cache"),
      ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"), ("X-Frame-Options", "DENY"),
      ("Cross-Origin-Resource-Policy", "same-origin"),
    ]
  }
}
