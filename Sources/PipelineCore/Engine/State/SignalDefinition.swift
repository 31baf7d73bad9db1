/// Hashes of the definition in the file of a signal and of everything upstream of it.
///
/// A saved state has one hash for each named signal. A signal that had ended starts again if its hash differs later:
/// the values of a completed source that was rewritten are new values.
struct SignalDefinitions {
  private let plan: Plan
  private var known: [Int: UInt64] = [:]
  /// The signals being hashed: signals can refer to each other in cycles, through commands and errors outputs.
  private var open: Set<Int> = []

  /// The names of signals in the hashes to compare with, by their present names.
  private let formerNames: [String: String]

  init(_ plan: Plan, formerNames: [String: String] = [:]) { (self.plan, self.formerNames) = (plan, formerNames) }

  /// The hashes of the named signals, in the order of the plan.
  static func all(_ plan: Plan, formerNames: [String: String] = [:]) -> [UInt64] {
    var definitions = SignalDefinitions(plan, formerNames: formerNames)
    return plan.named.indices.map { definitions.ofNamed($0) }
  }

  mutating func ofNamed(_ index: Int) -> UInt64 {
    if let known = known[index] { return known }
    var print = Fingerprint()
    let name = plan.named[index].name
    print.add((formerNames[name] ?? name).utf8)
    guard open.insert(index).inserted else { return print.value }
    print.add(of(plan.named[index].body))
    open.remove(index)
    // Inside a cycle the hash depends on the entry point, so it is not stored.
    if open.isEmpty { known[index] = print.value }
    return print.value
  }

  private mutating func of(_ signal: SignalPlan) -> UInt64 {
    var print = Fingerprint()
    switch signal.origin {
    case .named(let index): print.add(ofNamed(index))
    case .errors(let owner):
      print.add(UInt8(1))
      let name = plan.name(of: owner).text
      print.add((formerNames[name] ?? name).utf8)
    case .input: print.add(UInt8(2))
    case nil:
      for step in signal.steps { print.add(plan.steps[step.id.number].fingerprint) }
      for input in signal.inputs + signal.inner { print.add(of(input)) }
    }
    return print.value
  }
}
