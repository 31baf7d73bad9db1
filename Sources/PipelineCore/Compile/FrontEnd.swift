/// Turns the text of a pipeline file into its plan: read, interpolate, expand templates and included files, parse,
/// compile. The program, the embedding library and all tests use it.
package struct FrontEnd: Sendable {
  package var compiler: PipelineCompiler
  /// The values of `${...}`.
  package var values: Interpolation
  /// Finds the components of plugins.
  package var plugins: any PluginProvider = NoPlugins()
  /// Values that replace those in the file, each `PATH=VALUE`: see ``Override``.
  package var overrides: [String] = []
  /// Supplies the files that a pipeline file includes.
  package var included = IncludedFiles.none
  /// References to signals that are printed, each by its own sink; the file then needs no sinks.
  package var printed: [String] = []
  /// Whether a text that only has definitions for others to include is accepted. Otherwise it is an error, because
  /// nothing would run.
  package var acceptsLibraries = false
  /// The output format of the sinks of ``printed``.
  package var printedFormat = EncoderFormat.ndjson

  /// - Parameters:
  ///   - catalogue: the components that files can name.
  ///   - values: The values of `${...}`.
  ///   - environment: `env` in expressions.
  ///   - schemas: Reads schema files.
  ///   - files: Checks files that parameters name.
  package init(
    _ catalogue: Catalogue, values: Interpolation = .noEnvironment, environment: [String: String] = [:],
    schemas: SchemaFiles = .none, files: FileProbe = .none
  ) {
    compiler = PipelineCompiler(catalogue, environment: environment, schemas: schemas)
    compiler.files = files
    self.values = values
  }

  /// The result for one text. There is a plan exactly if there are no errors and the text is not a library.
  package struct Result: Sendable {
    package var source: SourceText?
    /// The text as nodes, with values inserted; nil if it is not YAML.
    package var node: YAMLNode?
    /// The file as far as it could be parsed; nil if the text is not YAML, or uses a template or file that does not
    /// exist.
    package var file: PipelineFile?
    /// Set if nothing in the text runs, because it only has definitions for others to include.
    package var library: Library?
    package var plan: Plan?
    /// In the order in which they were reported.
    package var diagnostics: [Diagnostic] = []
    /// The files of the plugins that the text may use.
    package var pluginFiles: [String] = []
    fileprivate var catalogue: Catalogue?
    /// The catalogue with the components of plugins.
    fileprivate var whole: Catalogue?
    /// One pipeline for each template that nothing uses, for checking the template.
    fileprivate var unused: [YAMLNode] = []
    /// The digests of the plugins that the plan uses.
    package fileprivate(set) var digests: [String] = []
    /// A hash that is equal for two texts with the same meaning after interpolation and the same plugins. The values of
    /// secrets do not affect it.
    package var meaning: UInt64 {
      guard let node, let catalogue else { return 0 }
      var print = Fingerprint()
      print.add(Meaning(catalogue: catalogue).of(file: node))
      for digest in digests { print.add(digest.utf8) }
      return print.value
    }

    /// The functions of the text, which need not be a complete pipeline. Reports their errors.
    package func functions(into diagnostics: inout Diagnostics) -> UserFunctions {
      let functions = checkFunctions(into: &diagnostics)
      // Functions that could not be parsed have their errors among those of the text.
      if file?.brokenFunctions.isEmpty != true { diagnostics.report(contentsOf: self.diagnostics) }
      return functions
    }

    /// Reports errors in functions and their examples.
    fileprivate func checkFunctions(into diagnostics: inout Diagnostics) -> UserFunctions {
      guard let file, let catalogue = whole ?? catalogue else { return .none }
      var part = PipelineFile(source: file.source, name: file.name)
      (part.functions, part.brokenFunctions, part.patterns) = (file.functions, file.brokenFunctions, file.patterns)
      let compilation = Compilation(catalogue, [:], .none, .none, part)
      compilation.checkExamples()
      diagnostics.report(contentsOf: compilation.diagnostics.withOrigins().all)
      return compilation.functions
    }

    package init(source: SourceText? = nil, diagnostics: [Diagnostic] = []) {
      self.source = source
      self.diagnostics = diagnostics
    }

    package var hasErrors: Bool { diagnostics.contains { $0.severity == .error } }
    package var hasWarnings: Bool { diagnostics.contains { $0.severity == .warning } }
  }

  /// Runs all phases that need no components; the result has no plan.
  package func parse(_ source: SourceText) -> Result {
    var result = Result(source: source)
    var diagnostics = Diagnostics()
    if var root = YAMLReader.read(source, into: &diagnostics) {
      for text in overrides {
        root = Override(text, into: &diagnostics)?.apply(to: root, compiler.catalogue, into: &diagnostics) ?? root
      }
      result.catalogue = compiler.catalogue
      let filled = values.apply(to: root, into: &diagnostics)
      guard let (node, unused) = Reuse.expand(filled, compiler.catalogue, values, included, into: &diagnostics) else {
        result.diagnostics = diagnostics.withOrigins().all
        return result
      }
      result.node = node
      result.unused = unused
      result.library = Library(of: filled, expanded: node)
      var file = PipelineFileParser.parse(node, isLibrary: result.library != nil, into: &diagnostics)
      if let library = result.library, !acceptsLibraries {
        diagnostics.report(
          Diagnostic(
            .missingKey, "the file is a library of \(library.contents): there is nothing to run",
            at: node.location.start, help: "Name it with 'include:' in a file that has sources and sinks"))
      }
      file.print(printed, as: printedFormat, into: &diagnostics)
      result.file = file
    }
    result.diagnostics = diagnostics.withOrigins().all
    return result
  }

  /// Reports every error and warning of the text, except those in its tests.
  package func compile(_ source: SourceText) -> Result {
    var result = compileOnce(source)
    removeFixes(from: &result, of: source)
    return result
  }

  /// The maximum number of suggested fixes that are tried.
  private static let triedFixes = 50

  /// Removes fixes that would not reduce the number of errors, such as the name of a similar component with other
  /// parameters. The correction of a misspelt name is always kept, because the other errors do not come from it.
  private func removeFixes(from result: inout Result, of source: SourceText) {
    func errors(_ diagnostics: [Diagnostic]) -> Int {
      diagnostics.count { $0.severity == .error && $0.code.name.hasPrefix("RX2") }
    }
    var tried = 0
    for index in result.diagnostics.indices {
      let diagnostic = result.diagnostics[index]
      guard diagnostic.code == .unknownComponent, diagnostic.fixIts.count == 1, let location = diagnostic.location,
        location.text.name == source.name, location.offset + location.length <= source.bytes.count
      else { continue }
      let word = String(decoding: source.bytes[location.offset..<location.offset + location.length], as: UTF8.self)
      let replacement = diagnostic.fixIts[0].replacement
      if Suggestion.otherName(word) == nil, Suggestion.isMisspelt(word, replacement) { continue }
      tried += 1
      var bytes = source.bytes
      bytes.replaceSubrange(location.offset..<location.offset + location.length, with: replacement.utf8)
      if tried > Self.triedFixes
        || errors(compileOnce(SourceText(name: source.name, bytes: bytes)).diagnostics) >= errors(result.diagnostics)
      {
        result.diagnostics[index].fixIts = []
      }
    }
  }

  private func compileOnce(_ source: SourceText) -> Result {
    var result = parse(source)
    guard let file = result.file else { return result }
    var diagnostics = Diagnostics()
    var compiler = compiler
    let offered = plugins.offers(for: file, into: &diagnostics)
    if !offered.isEmpty {
      compiler.add(offered, into: &diagnostics)
      result.whole = compiler.catalogue
    }
    if result.library != nil {
      _ = result.checkFunctions(into: &diagnostics)
      check(result.unused, compiler, into: &diagnostics)
      result.diagnostics += Self.relevant(diagnostics.withOrigins().all)
      return result
    }
    let isWhole = !diagnostics.hasErrors
    // If a plugin's components are missing, further messages would mislead.
    let plan = isWhole ? compiler.compile(file, into: &diagnostics) : nil
    if isWhole { check(result.unused, compiler, into: &diagnostics) }
    let found = diagnostics.withOrigins().all
    result.diagnostics += isWhole ? Self.relevant(found) : found
    result.pluginFiles = plugins.files(of: file)
    if let plan, !offered.isEmpty { result.digests = Self.digests(of: plan, offered) }
    if !result.hasErrors { result.plan = plan }
    return result
  }

  /// An unusable plugin in the plugin directory matters only if the file names something that is unknown.
  private static func relevant(_ found: [Diagnostic]) -> [Diagnostic] {
    let unknown: [Diagnostic.Code] = [.unknownComponent, .unknownChoice, .expressionUnknownFunction]
    if found.contains(where: { unknown.contains($0.code) }) { return found }
    return found.filter { $0.code != .unusablePlugin }
  }

  private func check(_ unused: [YAMLNode], _ compiler: PipelineCompiler, into diagnostics: inout Diagnostics) {
    for node in unused {
      var found = Diagnostics()
      let file = PipelineFileParser.parse(node, into: &found)
      _ = compiler.compile(file, into: &found)
      diagnostics.report(contentsOf: found.all.filter(\.concernsUnusedTemplate))
    }
  }

  /// The digests of the plugins that a plan uses.
  private static func digests(of plan: Plan, _ offers: PluginOffers) -> [String] {
    let used = Set(
      plan.components.values.compactMap {
        ($0 as? any PluginComponent).map { "\($0.offered.kind.rawValue) \($0.offered.name)" }
      })
    return offers.components.filter { used.contains("\($0.entry.kind.rawValue) \($0.entry.name)") }.map(\.digest)
      + Set(plan.pluginFunctions.map(\.digest)).sorted()
  }

  /// Compiles a text in memory; diagnostics call it `name`.
  package func compile(_ text: String, name: String = "pipeline.yaml") -> Result {
    compile(SourceText(name: name, text: text))
  }
}
