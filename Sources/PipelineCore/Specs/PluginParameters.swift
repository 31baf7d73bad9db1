/// A plugin's component with parameters, whose spec belongs to the value and not to the type.
package protocol PluginParameters: Component {
  /// The plugin's spec of this component.
  var offered: PluginComponentSpec { get }
  var arguments: PluginArguments { get set }
}

extension PluginParameters {
  package static var spec: ComponentSpec<Self> { ComponentSpec("plugin", summary: "A component of a plugin.") }
  package var ownSpec: ComponentSpec<Self> { offered.spec { self } }

  package func validate(_ context: inout DecodingContext) {}
}

extension PluginComponentSpec {
  /// The spec in the form that the compiler, the reference and the checks use. `make`: makes a component with the
  /// defaults.
  package func spec<C: PluginParameters>(_ make: @escaping @Sendable () -> C) -> ComponentSpec<C> {
    var spec = ComponentSpec<C>(
      name, summary: summary, details: details,
      parameters: parameters.enumerated().map { index, parameter in Parameter(parameter, index, of: self) },
      examples: examples.map(\.example), edges: edges,
      memory: memory, persistence: persistence, knownAs: knownAs, useCases: useCases, seeAlso: seeAlso)
    spec.make = make
    if setsTimers { spec.lateness = .always("the plugin gets each timer that was due") }
    return spec
  }

  /// The state of an operator depends on its parameters; the queue of a sink and the position of a source do not.
  private var persistence: Persistence {
    switch kind {
    case .sink: .position(version: 2)
    case .source: mayHavePosition ? .position(version: 1) : .nothing
    default: form == .row ? .nothing : .state(version: 1 + stateVersion)
    }
  }
}

extension Parameter where C: PluginParameters {
  init(_ parameter: PluginParameter, _ index: Int, of spec: PluginComponentSpec) {
    let type = parameter.type
    info = ParameterInfo(
      name: parameter.name, help: parameter.help, isPrimary: parameter.isPrimary, isRequired: parameter.isRequired,
      isWhole: false, shape: type.shape, defaultText: parameter.fallback?.defaultText, range: type.range, variables: [],
      formerName: nil)
    decode = { node, component, context in
      context.range = type.range
      context.parameter = parameter.name
      if context.refusesSecret(in: node, type.shape) { return }
      context.enter(parameter.name, at: node) { context in
        if let value = type.decode(node, &context) {
          component.arguments.values[index] = value
          component.arguments.locations[index] = node.location
        }
      }
      context.range = nil
    }
    bind = { component, binder in
      switch component.arguments.values[index] {
      case .expression(var value):
        var expected: ExpressionType?
        if case .expression(let result) = type { expected = result }
        value.bind(&binder, ExpressionUse(variables: [], expecting: expected))
        component.arguments.values[index] = .expression(value)
      case .template(var value):
        value.bind(&binder, ExpressionUse(variables: [], expecting: nil))
        component.arguments.values[index] = .template(value)
      default: break
      }
    }
    inner = nil
  }
}
