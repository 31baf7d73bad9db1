import PipelineCore
import PipelineRuntime
import PipelineTesting
import Synchronization
import Transport

/// The request of "save as a test": a line with the step and the end of the recording, then the lines of a tap,
/// unchanged.
struct RecordedTestRequest: Sendable {
  static let mostBytes = 1 << 20
  private static let isBusy = Mutex(false)

  let body: [UInt8]
  let plan: Plan

  /// Creates and runs the test, on its own thread; one at a time.
  static func answer(_ request: ControlRequest, _ plan: Plan) {
    let isFree = isBusy.withLock { busy in
      defer { busy = true }
      return !busy
    }
    func refuse(_ status: Int, _ message: String) { request.answer(status, .object([("error", .string(message))])) }
    guard isFree else { return refuse(429, "another test is being recorded; try again") }
    let own = RecordedTestRequest(body: request.body, plan: plan)
    do throws(PosixError) {
      _ = try OwnThread("rxd test", stackBytes: 8 << 20) {
        var status = 200
        var document = JSONText.null
        do throws(RecordedTest.Refusal) {
          let outcome = try own.test().make()
          document = .object([
            ("text", .string(outcome.text)), ("passes", .bool(outcome.problem == nil)),
            ("problem", outcome.problem.map(JSONText.string) ?? .null),
          ])
        } catch {
          status = 422
          document = .object([("error", .string(error.message))])
        }
        // The client may ask again as soon as it has the answer.
        isBusy.withLock { $0 = false }
        request.answer(status, document)
      }
    } catch {
      isBusy.withLock { $0 = false }
      refuse(500, error.message)
    }
  }

  private func test() throws(RecordedTest.Refusal) -> RecordedTest {
    var lines = body.split(separator: 0x0A).map { JSONView(Array($0)) }[...]
    guard let head = lines.popFirst() ?? nil, let end = head["end"]?.int,
      let step = head["step"]?.text.flatMap(plan.step(named:))
    else {
      throw RecordedTest.Refusal(message: "the first line names a step of the pipeline, and the end of the recording")
    }
    var sightings: [RecordedTest.Sighting] = []
    for line in lines {
      // A line with `since` belongs to an event that has been shown before.
      guard let line, let nanoseconds = line["nanoseconds"]?.int, line["since"] == nil else { continue }
      guard let edge = plan.edge(from: line["from"]?.text ?? "", to: line["to"]?.text ?? "") else {
        throw RecordedTest.Refusal(message: "the pipeline has changed since: record again")
      }
      if line["cut"]?.bool == true {
        throw RecordedTest.Refusal(message: "an event was recorded in part only, so a test cannot compare it")
      }
      let moment: SignalHistory.Moment =
        switch line["end"]?.text {
        case "complete": .complete
        case .some: .error(line["message"]?.text ?? "")
        case nil: .next(line["event"]?.testValue ?? .null)
        }
      sightings.append(RecordedTest.Sighting(edge: edge, nanoseconds: Int64(nanoseconds), moment))
    }
    return try RecordedTest(plan, step: step, name: head["name"]?.text ?? "as seen", end: Int64(end), sightings)
  }
}
