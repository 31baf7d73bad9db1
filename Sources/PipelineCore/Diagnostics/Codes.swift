// The codes of the early phases. A code keeps its meaning for ever.

extension Diagnostic.Code {
  // MARK: RX1xx text and YAML

  public static let encoding = Self("RX101", "A file must be UTF-8.")
  public static let fileTooLarge = Self("RX102", "A file may have at most 1 MiB.")
  public static let controlCharacter = Self(
    "RX103", "A control character in a value must be an escape between double quotes.")
  public static let lineSeparator = Self(
    "RX104", "Lines end with LF or CR LF; other line ends are errors.")
  public static let emptyFile = Self("RX105", "A pipeline file must hold a mapping.")
  public static let severalDocuments = Self("RX106", "A file holds one document.")
  public static let directive = Self("RX107", "YAML directives are not supported.")
  public static let bidirectionalControl = Self(
    "RX108", "Invisible characters can make a text look different from its content.",
    severity: .warning)
  public static let outOfMemory = Self("RX109", "There is not enough memory to read the file.")
  public static let tooDeep = Self("RX110", "Mappings and lists may be nested 64 levels deep.")
  public static let tooManyNodes = Self("RX111", "A file may have at most 100,000 values.")
  public static let tooManyAnchors = Self("RX112", "A file may have at most 1,000 anchors.")
  public static let aliasExpansion = Self(
    "RX113", "A file may have at most 100,000 values once its aliases are replaced.")
  public static let aliasCycle = Self("RX114", "A value cannot contain itself.")
  public static let undefinedAlias = Self("RX115", "An alias names an anchor above it.")
  public static let mergeKey = Self("RX116", "Merge keys (<<) are not supported.")
  public static let scalarTooLong = Self(
    "RX117", "A value may have at most 64 KiB, a block scalar 1 MiB.")
  public static let keyTooLong = Self("RX118", "A key may have at most 256 bytes.")
  public static let duplicateKey = Self("RX119", "A mapping may not define a key twice.")
  public static let complexKey = Self("RX120", "A key is a text, not a list or a mapping.")
  public static let tag = Self("RX121", "Only the tags of YAML's core schema are known.")
  public static let invalidKey = Self("RX122", "A key is a text without control characters.")
  public static let duplicateAnchor = Self("RX123", "An anchor is defined once.")
  public static let syntax = Self("RX130", "The text is not YAML.")
  public static let unclosedQuote = Self("RX131", "A quote must be closed.")
  public static let textAfterQuote = Self("RX132", "Nothing may follow a closing quote.")
  public static let colonInValue = Self("RX133", "An unquoted value may not contain ': '.")
  public static let indentation = Self(
    "RX134", "The keys of a mapping and the items of a list begin in the same column.")
  public static let tab = Self("RX135", "Tabs cannot indent.")
  public static let missingColon = Self("RX136", "A key is followed by ': '.")
  public static let reservedStart = Self(
    "RX137", "An unquoted value may not begin with @, ` or %.")
  public static let escape = Self("RX138", "Between double quotes a \\ begins an escape.")
  public static let unclosedBracket = Self("RX139", "A bracket must be closed.")
  public static let unquotedTemplate = Self(
    "RX140", "A value that begins with {{ must be quoted.")
  public static let blockScalar = Self("RX141", "After | or > the line must end.")
  public static let anchorSyntax = Self(
    "RX142", "An unquoted value may not begin with & or *, except an anchor or alias.")
  public static let commentCutsValue = Self(
    "RX143", "' #' begins a comment, also in the middle of an expression.", severity: .warning)
  public static let textAfterBracket = Self("RX144", "Nothing may follow a closing bracket.")
  public static let bracket = Self("RX145", "The values between brackets are separated by commas.")

  static let textCodes: [Self] = [
    encoding, fileTooLarge, controlCharacter, lineSeparator, emptyFile, severalDocuments, directive,
    bidirectionalControl, outOfMemory, tooDeep, tooManyNodes, tooManyAnchors, aliasExpansion,
    aliasCycle, undefinedAlias, mergeKey, scalarTooLong, keyTooLong, duplicateKey, complexKey, tag,
    invalidKey, duplicateAnchor, syntax, unclosedQuote, textAfterQuote, colonInValue, indentation,
    tab, missingColon, reservedStart, escape, unclosedBracket, unquotedTemplate, blockScalar,
    anchorSyntax, commentCutsValue, textAfterBracket, bracket,
  ]

  // MARK: RX2xx the grammar of the pipeline file

  public static let unknownKey = Self("RX201", "Each part of the file has a fixed set of keys.")
  public static let missingKey = Self("RX202", "A required key is missing.")
  public static let wrongType = Self("RX203", "A value has the wrong kind.")
  public static let notOneComponent = Self(
    "RX204", "A component is a mapping with exactly one component key.")
  public static let duplicateName = Self(
    "RX205", "Sources, signals, commands and sinks share one set of names.")
  public static let invalidName = Self(
    "RX206", "A name has letters, digits, _ and -, begins with a letter or _, and is not reserved.")
  public static let notOneOrigin = Self(
    "RX207", "A signal has exactly one origin: from, a combining key or an inline source.")
  public static let invalidReference = Self(
    "RX208", "A reference is the name of a source, signal or command, or NAME.output.")
  public static let misplacedKey = Self("RX209", "A key is in a part of the file where it has no meaning.")
  public static let emptyCollection = Self("RX210", "A list or mapping must not be empty.")
  public static let tooMany = Self("RX211", "A pipeline may have at most 2,500 operators.")
  public static let foreignName = Self(
    "RX212", "Each component has one name: ReactiveCocoa's, in camelCase.")
  public static let overrideForm = Self("RX215", "--set takes PATH=VALUE.")
  public static let overridePath = Self("RX216", "The path of --set must lead to a value of the file.")
  public static let endlessSource = Self("RX217", "A source that waits for others has no end, which --once needs.")
  public static let notFormatted = Self("RX218", "A file cannot be formatted without changing its meaning.")
  public static let unknownComponent = Self(
    "RX220", "The component is neither built in nor a plugin's.")
  public static let unknownParameter = Self("RX221", "The component has no such parameter.")
  public static let missingParameter = Self("RX222", "The component needs this parameter.")
  public static let outOfRange = Self("RX223", "A value is outside the range of its parameter.")
  public static let unknownChoice = Self("RX224", "A value is not one of its parameter's choices.")
  public static let conflictingParameters = Self(
    "RX225", "Two parameters exclude or require one another.")
  public static let formerName = Self(
    "RX226", "A parameter has another name now; the old one still works.", severity: .warning)
  public static let doubtfulValue = Self(
    "RX227", "A value is allowed, but probably not intended.", severity: .warning)
  public static let duration = Self(
    "RX230", "A duration is a number with a unit: ns, us, ms, s, m, h or d.")
  public static let size = Self(
    "RX231", "A size is a number with a unit: B, kB, MB, GB, KiB, MiB or GiB.")
  public static let number = Self("RX232", "A value must be a number of the kind asked for.")
  public static let yamlBoolean = Self(
    "RX233", "A boolean is written true or false; yes, no, on and off are texts.")
  public static let template = Self("RX240", "A template is a text with {{ expression }} parts.")
  public static let interpolationSyntax = Self(
    "RX250", "Environment values are written ${NAME}, ${NAME:-default} or ${NAME:?message}.")
  public static let interpolationNesting = Self("RX251", "A ${...} may not contain another.")
  public static let interpolationInKey = Self(
    "RX252", "Keys are not interpolated.", severity: .warning)
  public static let misplacedSecret = Self(
    "RX253", "A secret is allowed only where it is never printed: in an expression, a template or a password.")

  static let grammarCodes: [Self] = [
    unknownKey, missingKey, wrongType, notOneComponent, duplicateName, invalidName, notOneOrigin,
    invalidReference, misplacedKey, emptyCollection, tooMany, foreignName, overrideForm, overridePath, endlessSource,
    notFormatted, unknownComponent,
    unknownParameter, missingParameter, outOfRange, unknownChoice, conflictingParameters, formerName, doubtfulValue,
    duration, size, number, yamlBoolean, template, interpolationSyntax, interpolationNesting,
    interpolationInKey, misplacedSecret,
  ]

  // MARK: RX3xx names and wiring

  public static let unknownName = Self(
    "RX301", "A reference names no source, signal or command of the file.")
  public static let unknownOutput = Self("RX302", "The node has no output of this name.")
  public static let cycle = Self(
    "RX303",
    """
    A signal must not feed itself; a sink must not receive its own rejected events or the file that it writes.
    """)
  public static let functionForm = Self(
    "RX366", "A function has a name of its own, parameters with types, and a value.")
  public static let unusedName = Self(
    "RX304", "A source or signal feeds no sink.", severity: .warning)
  public static let weakGuarantee = Self(
    "RX305", "The path does not give the required guarantee.")
  public static let unsuitableReduce = Self(
    "RX306", "'reduce' needs the named parts of a combineLatest or zip.")
  public static let noSinks = Self(
    "RX307", "A pipeline without sinks does nothing.", severity: .warning)
  public static let unboundedOperator = Self(
    "RX308", "An operator's memory has no limit.", severity: .warning)

  static let wiringCodes: [Self] = [
    unknownName, unknownOutput, cycle, functionForm, unusedName, weakGuarantee, unsuitableReduce, noSinks,
    unboundedOperator,
  ]

  // MARK: RX4xx expressions: ExpressionCodes.swift

  static let expressionCodes: [Self] = [
    expressionSyntax, expressionLiteral, expressionTooLong, expressionReservedWord,
    expressionMacroArguments, templateUnclosed, expressionUnknownName, expressionUnknownFunction,
    expressionNoOverload, expressionUnknownField, expressionWrongType, expressionPattern,
    expressionMapKey, expressionFormat, expressionWholeDivision, expressionNegatedMissing,
    expressionKnownOutcome, templateInLiteral, quotesInLiteral,
  ]

  // MARK: RX6xx tests

  public static let marbleSyntax = Self("RX601", "A marble string is malformed.")
  public static let unknownSubject = Self(
    "RX602", "A test names an input or output that the pipeline does not have.")
  public static let expectationFailed = Self("RX603", "The result differs from the expectation.")
  public static let testStep = Self("RX604", "A step of a test is malformed.")

  public static let requestWithoutStub = Self("RX605", "A request of a test has no stub that answers it.")
  public static let testNeverQuiet = Self("RX606", "A test does not end by itself.")
  public static let expectationNotRewritten = Self(
    "RX607", "An expectation cannot be rewritten without changing other parts of the test.")

  static let testCodes: [Self] = [
    marbleSyntax, unknownSubject, expectationFailed, testStep, requestWithoutStub, testNeverQuiet,
    expectationNotRewritten,
  ]

  // MARK: RX7xx the environment

  public static let undefinedVariable = Self(
    "RX701", "An environment variable is not defined and has no default.")
  public static let requiredVariable = Self(
    "RX702", "An environment variable that the file requires is not defined or empty.")
  public static let undefinedSecret = Self("RX703", "There is no secret of this name.")
  public static let unusableVariable = Self(
    "RX704", "The value of an environment variable or secret is not UTF-8, or too long.")
  public static let unreadableFile = Self("RX710", "A file cannot be read.")
  public static let pluginFailed = Self("RX711", "A plugin cannot be loaded.")
  public static let pluginSpec = Self("RX713", "A plugin's description of itself does not follow the contract.")
  public static let unusablePlugin = Self(
    "RX714", "A plugin of the plugin directory cannot be used.", severity: .warning)
  public static let unreadableParameterFile = Self(
    "RX712", "A file that a parameter names cannot be read on this machine.", severity: .warning)

  static let environmentCodes: [Self] = [
    undefinedVariable, requiredVariable, undefinedSecret, unusableVariable, unreadableFile,
    pluginFailed, unreadableParameterFile, pluginSpec, unusablePlugin,
  ]

  // MARK: RX9xx rxd itself

  public static let internalError = Self("RX901", "A bug in rxd; please report it.")

  static let internalCodes: [Self] = [internalError]

  /// Every code, in order. A new table is added here; a test compares with the sources.
  public static let all: [Self] = [
    textCodes, grammarCodes, wiringCodes, compile, files, expressionCodes, runtime, testCodes,
    environmentCodes, internalCodes,
  ].flatMap { $0 }

  /// The code of this name, `RX203`.
  public static func named(_ name: String) -> Self? { all.first { $0.name == name } }
}
