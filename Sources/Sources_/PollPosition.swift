import PipelineCore

/// The position of a source that polls: the values that determine its next call. It is part of the source's state.
struct PollPosition: Sendable, Equatable {
  /// The page after the one that was read last.
  enum Page: Sendable, Equatable {
    case url(String)
    case cursor(String)
    case number(Int)
  }

  /// The validators by which the server recognizes the version of a response that the source already has.
  struct Validators: Sendable, Equatable {
    /// A hash of the requested URL: validators apply to no other URL.
    var address: UInt64
    var etag: String?
    var lastModified: String?
  }

  /// A page that the server can report as unchanged.
  struct KnownPage: Sendable, Equatable {
    var validators: Validators
    /// The next page; nil if this was the last one.
    var next: Page?
  }

  /// The maximum number of pages that are known; further ones are always requested in full.
  private static let mostKnown = 1000

  /// The cursor that requests contain; nil if there is none yet.
  var cursor: String?
  /// The cursor after the last page that was read; it is used once all pages have been received.
  var newCursor: String?
  /// Nil: the next request is for the first page.
  var page: Page?
  /// The number of pages received, including the first one.
  var pages = 0
  /// The validators of the last complete response.
  var validators: Validators?
  /// The validators of the first page, while further pages are being read.
  var newValidators: Validators?
  /// The pages of the last complete response. `newPages`: those received so far of the current one.
  var knownPages: [KnownPage] = []
  var newPages: [KnownPage] = []

  /// The known validators of this URL, from its last complete response.
  func knownPage(at url: String) -> KnownPage? {
    let address = Fingerprint.of(url.utf8)
    return knownPages.first { $0.validators.address == address }
  }

  mutating func add(_ page: KnownPage) { if newPages.count < Self.mostKnown { newPages.append(page) } }

  /// Called when all pages have been received.
  mutating func finishPages() {
    cursor = newCursor ?? cursor
    validators = newValidators
    knownPages = newPages
    restartPages()
  }

  /// Starts reading again at the first page.
  mutating func restartPages() {
    newCursor = nil
    newValidators = nil
    newPages = []
    page = nil
    pages = 0
  }
}

extension PollPosition: StateValue {
  func save(to state: inout StateWriter) {
    state.write(cursor)
    state.write(newCursor)
    Self.save(page, to: &state)
    state.write(pages)
    state.write(validators)
    state.write(newValidators)
  }

  init(from state: inout StateReader) throws(StateFault) {
    cursor = try state.read()
    newCursor = try state.read()
    page = try Self.page(from: &state)
    pages = try state.read(in: 0...Int.max)
    validators = try state.read()
    newValidators = try state.read()
  }

  private static func save(_ page: Page?, to state: inout StateWriter) {
    switch page {
    case nil: state.write(0)
    case .url(let url):
      state.write(1)
      state.write(url)
    case .cursor(let text):
      state.write(2)
      state.write(text)
    case .number(let number):
      state.write(3)
      state.write(number)
    }
  }

  private static func page(from state: inout StateReader) throws(StateFault) -> Page? {
    switch try state.read(in: 0...3) {
    case 1: .url(try state.read())
    case 2: .cursor(try state.read())
    case 3: .number(try state.read())
    default: nil
    }
  }

  /// Saves the known pages, separately, because only one kind of source has them.
  func savePages(to state: inout StateWriter) {
    for pages in [knownPages, newPages] {
      state.write(each: pages) { state, page in
        state.write(page.validators)
        Self.save(page.next, to: &state)
      }
    }
  }

  mutating func restorePages(from state: inout StateReader) throws(StateFault) {
    for isNew in [false, true] {
      var pages: [KnownPage] = []
      for _ in 0..<(try state.count()) {
        pages.append(KnownPage(validators: try state.read(), next: try Self.page(from: &state)))
      }
      if isNew { newPages = pages } else { knownPages = pages }
    }
  }
}

extension PollPosition.Validators: StateValue {
  func save(to state: inout StateWriter) {
    state.write(address)
    state.write(etag)
    state.write(lastModified)
  }

  init(from state: inout StateReader) throws(StateFault) {
    address = try state.read()
    etag = try state.read()
    lastModified = try state.read()
  }

  private static let longest = 1024

  /// The validators of a response; nil if it has none that can be sent back.
  init?(_ response: HTTPResponse, of url: String) {
    func value(_ name: String) -> String? {
      response.header(name).flatMap { text in
        text.isEmpty || text.utf8.count > Self.longest || text.utf8.contains(where: { $0 < 0x20 || $0 == 0x7F })
          ? nil : text
      }
    }
    address = Fingerprint.of(url.utf8)
    etag = value("etag")
    lastModified = value("last-modified")
    if etag == nil, lastModified == nil { return nil }
  }

  /// Adds the conditions to a request that has none of its own.
  func add(to request: inout HTTPRequest) {
    guard address == Fingerprint.of(request.url.utf8),
      !request.headers.contains(where: { $0.name.lowercased().hasPrefix("if-") })
    else { return }
    if let etag { request.headers.append(HTTPHeader("If-None-Match", etag)) }
    if let lastModified { request.headers.append(HTTPHeader("If-Modified-Since", lastModified)) }
  }
}
