/// An errors output, or a command, for whose end something upstream of it waits. The wait ends when nothing upstream
/// can act any more, even while other parts continue.
struct CircularWait: Sendable {
  enum Waited: Hashable, Sendable {
    /// The errors output of a named source or signal, by its index in the plan.
    case errors(Int)
    /// A command, by its index in the plan.
    case command(Int)
  }

  var waited: Waited
  /// Whether each step of the plan is upstream, by the number of the step.
  var isUpstream: [Bool]
  /// The sinks upstream, which may reject events.
  var sinks: [Int]
}

extension Plan {
  /// The circular waits of the plan.
  var circularWaits: [CircularWait] {
    let causes = Causes(self)
    var found: [CircularWait] = []
    func add(_ waited: CircularWait.Waited, behind part: Int) {
      let upstream = causes.closure(of: part)
      var isUpstream = [Bool](repeating: false, count: steps.count)
      for part in upstream { for step in causes.steps[part] { isUpstream[step.number] = true } }
      found.append(
        CircularWait(
          waited: waited, isUpstream: isUpstream,
          sinks: upstream.filter { $0 >= named.count }.map { $0 - named.count }.sorted()))
    }
    for (owner, readers) in causes.readersOfErrors.sorted(by: { $0.key < $1.key }) {
      let upstream = causes.closure(of: owner)
      if readers.contains(where: upstream.contains) { add(.errors(owner), behind: owner) }
    }
    for (command, outputs) in causes.outputs.sorted(by: { $0.key < $1.key }) {
      let upstream = causes.closure(of: command)
      if outputs.contains(where: upstream.contains) { add(.command(command), behind: command) }
    }
    return found
  }

  /// The named parts and sinks that can cause events in other parts. A part is an index in `named`, or `named.count`
  /// plus the index of a sink.
  private struct Causes {
    /// For each part, the parts that can cause events in it directly.
    private var direct: [Set<Int>]
    private(set) var steps: [[StepID]]
    /// The parts that read the errors output of a named part.
    private(set) var readersOfErrors: [Int: [Int]] = [:]
    /// The outputs of each command that are parts of the plan.
    private(set) var outputs: [Int: [Int]] = [:]

    init(_ plan: Plan) {
      let count = plan.named.count + plan.sinks.count
      direct = Array(repeating: [], count: count)
      steps = Array(repeating: [], count: count)
      for (index, named) in plan.named.enumerated() { visit(named.body, of: index, plan, isLate: false) }
      for (index, sink) in plan.sinks.enumerated() {
        steps[plan.named.count + index].append(sink.step)
        visit(sink.input, of: plan.named.count + index, plan, isLate: false)
      }
    }

    private mutating func visit(_ signal: SignalPlan, of part: Int, _ plan: Plan, isLate: Bool) {
      switch signal.origin {
      case .named(let other):
        direct[part].insert(other)
        if plan.named[other].kind == .command {
          // The command's outputs only listen; all other references execute it.
          if plan.named.indices.contains(part), plan.named[part].kind == .part {
            outputs[other, default: []].append(part)
          } else {
            direct[other].insert(part)
          }
        } else if isLate {
          // The other part may run again whenever this part subscribes to it.
          direct[other].insert(part)
        }
      case .errors(.named(let owner)):
        direct[part].insert(owner)
        readersOfErrors[owner, default: []].append(part)
      case .errors(.sink(let index)): direct[part].insert(plan.named.count + index)
      case .input: break
      case nil:
        steps[part] += signal.steps.map(\.id)
        let isLater = isLate || signal.subscribesAgain
        for input in signal.inputs { visit(input, of: part, plan, isLate: isLater) }
        for inner in signal.inner { visit(inner, of: part, plan, isLate: true) }
      }
    }

    /// The part, and all parts that can cause events in it.
    func closure(of part: Int) -> Set<Int> {
      var found: Set<Int> = [part]
      var waiting = [part]
      while let next = waiting.popLast() {
        for cause in direct[next] where found.insert(cause).inserted { waiting.append(cause) }
      }
      return found
    }
  }
}
