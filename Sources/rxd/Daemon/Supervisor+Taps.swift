import Glibc
import PipelineCore
import PipelineRuntime
import Transport

extension Supervisor {
  /// The maximum number of taps at a time.
  private static let mostTaps = 16
  /// How long the end of the process waits for readers of taps.
  private static let lastMoment = TimeSpan.milliseconds(500)

  /// `GET /tap`: events of edges as they pass, one line of JSON each, until the client leaves.
  func answerTap(_ request: ControlRequest) {
    func refuse(_ status: Int, _ message: String, _ more: [(String, JSONText)] = []) {
      request.answer(status, .object([("error", .string(message))] + more))
    }
    if isStopping { return refuse(503, "the process is stopping") }
    guard taps.count < Self.mostTaps else { return refuse(429, "\(Self.mostTaps) taps are open; end one first") }
    var wanted = TapSession.Request()
    wanted.pipeline = request.query["pipeline"] ?? "*"
    wanted.edges = request.all("edge").map(EdgePattern.init)
    for (name, path) in [("sample", \TapSession.Request.sample), ("bytes", \.eventBytes)] {
      guard let text = request.query[name] else { continue }
      guard let number = Int(text), (1...(1 << 20)).contains(number) else {
        return refuse(400, "\(name) is a number from 1 to 1048576, not '\(text)'")
      }
      wanted[keyPath: path] = number
    }
    if let text = request.query["limit"] {
      guard let number = Int(text), number > 0 else { return refuse(400, "limit is a number from 1, not '\(text)'") }
      wanted.limit = number
    }
    if let text = request.query["where"] {
      var diagnostics = Diagnostics()
      wanted.condition = TapCondition.check(
        text, slots.map(\.plan).first(where: wanted.means)?.functions ?? .none, into: &diagnostics)
      guard wanted.condition != nil, !diagnostics.hasErrors else {
        return refuse(400, DiagnosticRenderer(colors: request.wantsColors).text(diagnostics.all))
      }
    }
    let plans = slots.map(\.plan).filter(wanted.means)
    if plans.isEmpty {
      return refuse(
        404, "there is no pipeline '\(wanted.pipeline)'",
        [("known", .array(slots.map { .string($0.name) }))])
    }
    if wanted.edges.isEmpty { return observe { request.answer(200, $0.edgeList(wanted)) } }
    let found = plans.map { wanted.edges(of: $0).count }
    if found.allSatisfy({ $0 == 0 }) {
      return refuse(
        404, "no edge has this name",
        [("known", .array(plans.prefix(20).flatMap(\.edgeNames).prefix(500).map(JSONText.string)))])
    }
    if let most = found.max(), most > TapSession.mostEdges {
      return refuse(400, "\(most) edges are too many for one tap; \(TapSession.mostEdges) are possible")
    }
    let session = TapSession(wanted)
    let post = poster()
    guard
      let stream = request.stream(
        "application/x-ndjson",
        closed: {
          session.readerLeft()
          post(.tapClosed(ObjectIdentifier(session)))
        })
    else { return }
    session.open(stream)
    taps.append(session)
    for slot in slots { slot.run?.inspect { session.attach(to: $0) } }
  }

  /// Ends a tap whose reader has left or has received everything.
  func endTap(_ identity: ObjectIdentifier) {
    guard let index = taps.firstIndex(where: { ObjectIdentifier($0) == identity }) else { return }
    let session = taps.remove(at: index)
    for slot in slots { slot.run?.inspect { session.detach(from: $0) } }
  }

  /// Ends all taps, because the process ends: every reader receives the counts, and has a moment to read them.
  func endTaps() {
    for tap in taps { tap.finish(isEnding: true) }
    let deadline = now + Self.lastMoment
    while !taps.isEmpty, now < deadline {
      var entry = pollfd(fd: mailbox.wake.descriptor, events: Int16(POLLIN), revents: 0)
      _ = poll(&entry, 1, Int32(clamping: (deadline - now).nanoseconds / 1_000_000 + 1))
      mailbox.wake.clear()
      for message in mailbox.take() { if case .tapClosed(let tap) = message { endTap(tap) } }
    }
  }

  /// Attaches the open taps before a run is launched, so that they see its first event.
  var tapAttachment: @Sendable (Execution) -> Void {
    let taps = taps
    return { execution in for tap in taps { tap.attach(to: execution) } }
  }
}

extension ProcessView {
  /// The edges that a tap can observe, with their counts.
  func edgeList(_ request: TapSession.Request) -> JSONText {
    .object([
      (
        "pipelines",
        .array(
          pipelines.filter { request.means($0.plan) }.map { pipeline in
            let plan = pipeline.plan
            return .object([
              ("name", .string(pipeline.name)),
              (
                "edges",
                .array(
                  pipeline.statistics.edges.dropFirst().compactMap { edge in
                    guard let name = EdgePattern.names(of: edge.plan, in: plan).first else { return nil }
                    return .object([
                      ("name", .string(name)), ("from", .string(plan.id(of: edge.plan.from))),
                      ("to", .string(plan.id(of: edge.plan.to))), ("events", .count(edge.events)),
                    ])
                  })
              ),
            ])
          })
      )
    ])
  }
}
