import PipelineCore
import PipelineRuntime
import Transport

extension Supervisor {
  /// `GET /ui/feed`: counts as server-sent events, for the live page.
  func answerFeed(_ request: ControlRequest) {
    if isStopping { return request.answer(503, .object([("error", .string("the process is stopping"))])) }
    guard page.readers.count < PageFeed.mostReaders else {
      let message = "\(PageFeed.mostReaders) pages are open; close one first"
      return request.answer(429, .object([("error", .string(message))]))
    }
    page.identities += 1
    let identity = page.identities
    let post = poster()
    guard let stream = request.stream("text/event-stream", room: PageFeed.room, closed: { post(.pageClosed(identity)) })
    else { return }
    page.add(identity, pipeline: request.query["pipeline"], stream, at: now)
  }

  /// Reads the counts of all pipelines for the open pages.
  func pollForPage() {
    // There is no next time until the reading is done, which sets it.
    page.pollAt = nil
    let reading = PageFeed.Reading(begun: now, used: SystemClock.shared.threadTime)
    observe { [self] view in page.show(view, reading) { SystemClock.shared.threadTime } }
  }

  /// `POST /ui/link`: a new address of the page, for users of the control socket.
  func answerPageLink(_ request: ControlRequest) {
    let link = page.port.flatMap { port in options.page?.link(port: port, lasting: PageGate.lastingOfLinks) }
    request.answer(200, .object([("url", link.map(JSONText.string) ?? .null)]))
  }

  /// `GET /ui/graph`: the picture of a pipeline, its steps and its edges.
  func answerPicture(_ request: ControlRequest) {
    let name = request.query["pipeline"] ?? ""
    guard let slot = slots.first(where: { $0.name == name }) else {
      return request.answer(
        404,
        .object([
          ("error", .string("there is no pipeline '\(name)'")), ("known", .array(slots.map { .string($0.name) })),
        ]))
    }
    request.answer(200, PagePicture(slot.plan, revision: slot.revision, answersWhy: ControlRoom.answersWhy).document)
  }

  /// `POST /ui/test`: a `tests:` block from recorded events.
  func answerRecordedTest(_ request: ControlRequest) {
    let name = request.query["pipeline"] ?? ""
    guard let slot = slots.first(where: { $0.name == name }) else {
      return request.answer(404, .object([("error", .string("there is no pipeline '\(name)'"))]))
    }
    RecordedTestRequest.answer(request, slot.plan)
  }

  /// Starts to serve the page over TCP, if that was requested; false: the page cannot be served.
  func startPage() -> Bool {
    guard let gate = options.page else { return true }
    let post = poster()
    do throws(HTTPServerFailure) {
      let port = try gate.start(notify: noticeLogger("--ui-listen")) {
        post(.request(ControlRequest($0, from: .page, use: $1)))
      }
      page.port = port
      if options.showsPage { Console.note("the live page of this run: \(gate.link(port: port, lasting: nil))") }
      return true
    } catch {
      Console.printError("--ui-listen: \(error.message)")
      return false
    }
  }
}

extension PipelineSlot {
  /// Changes with the meaning of the file.
  var revision: String {
    Printable.hex(UInt32(truncatingIfNeeded: current.meaning >> 32), digits: 8)
      + Printable.hex(UInt32(truncatingIfNeeded: current.meaning), digits: 8)
  }
}
