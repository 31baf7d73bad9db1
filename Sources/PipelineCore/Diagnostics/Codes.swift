// The codes of the early phases. A code must keep its meaning forever.

extension Diagnostic.Code {
  // MARK: RX1xx text and YAML

  package static let encoding = Self("RX101", "A file must be UTF-8.")
  package static let fileTooLarge = Self("RX102", "A file may have at most 1 MiB.")
  package static let controlCharacter = Self(
    "RX103", "A control character in a value must be an escape between double quotes.")
  package static let lineSeparator = Self(
    "RX104", "Lines end with LF or CR LF; other line ends are errors.")
  package static let emptyFile = Self("RX105", "A pipeline file must hold a mapping.")
  package static let severalDocuments = Self("RX106", "A file holds one document.")
  package static let directive = Self("RX107", "YAML directives are not supported.")
  package static let bidirectionalControl = Self(
    "RX108", "Invisible characters can make a text look different from its content.",
    severity: .warning)
  package static let outOfMemory = Self("RX109", "There is not enough memory to read the file.")
  package static let tooDeep = Self("RX110", "Mappings and lists may be nested 64 levels deep.")
  package static let tooManyNodes = Self("RX111", "A file may have at most 100,000 values.")
  package static let tooManyAnchors = Self("RX112", "A file may have at most 1,000 anchors.")
  package static let aliasExpansion = Self(
    "RX113", "A file may have at most 100,000 values once its aliases are replaced.")
  package static let aliasCycle = Self("RX114", "A value cannot contain itself.")
  package static let undefinedAlias = Self("RX115", "An alias names an anchor above it.")
  package static let mergeKey = Self("RX116", "Merge keys (<<) are not supported.")
  package static let scalarTooLong = Self(
    "RX117", "A value may have at most 64 KiB, a block scalar 1 MiB.")
  package static let keyTooLong = Self("RX118", "A key may have at most 256 bytes.")
  package static let duplicateKey = Self("RX119", "A mapping may not define a key twice.")
  package static let complexKey = Self("RX120", "A key is a text, not a list or a mapping.")
  package static let tag = Self("RX121", "Only the tags of YAML's core schema are known.")
  package static let invalidKey = Self("RX122", "A key is a text without control characters.")
  package static let duplicateAnchor = Self("RX123", "An anchor is defined once.")
  package static let syntax = Self("RX130", "The text is not YAML.")
  package static let unclosedQuote = Self("RX131", "A quote must be closed.")
  package static let textAfterQuote = Self("RX132", "Nothing may follow a closing quote.")
  package static let colonInValue = Self("RX133", "An unquoted value may not contain ': '.")
  package static let indentation = Self(
    "RX134", "The keys of a mapping and the items of a list begin in the same column.")
  package static let tab = Self("RX135", "Tabs cannot indent.")
  package static let missingColon = Self("RX136", "A key is followed by ': '.")
  package static let reservedStart = Self(
    "RX137", "An unquoted value may not begin with @, ` or %.")
  package static let escape = Self("RX138", "Between double quotes a \\ begins an escape.")
  package static let unclosedBracket = Self("RX139", "A bracket must be closed.")
  package static let unquotedTemplate = Self(
    "RX140", "A value that begins with {{ must be quoted.")
  package static let blockScalar = Self("RX141", "After | or > the line must end.")
  package static let anchorSyntax = Self(
    "RX142", "An unquoted value may not begin with & or *, except an anchor or alias.")
  package static let commentCutsValue = Self(
    "RX143", "' #' begins a comment, also in the middle of an expression.", severity: .warning)
  package static let textAfterBracket = Self("RX144", "Nothing may follow a closing bracket.")
  package static let bracket = Self("RX145", "The values between brackets are separated by commas.")

  static let textCodes: [Self] = [
    encoding, fileTooLarge, controlCharacter, lineSeparator, emptyFile, severalDocuments, directive,
    bidirectionalControl, outOfMemory, tooDeep, tooManyNodes, tooManyAnchors, aliasExpansion,
    aliasCycle, undefinedAlias, mergeKey, scalarTooLong, keyTooLong, duplicateKey, complexKey, tag,
    invalidKey, duplicateAnchor, syntax, unclosedQuote, textAfterQuote, colonInValue, indentation,
    tab, missingColon, reservedStart, escape, unclosedBracket, unquotedTemplate, blockScalar,
    anchorSyntax, commentCutsValue, textAfterBracket, bracket,
  ]

  // MARK: RX2xx the grammar of the pipeline file

  package static let unknownKey = Self("RX201", "Each part of the file has a fixed set of keys.")
  package static let missingKey = Self("RX202", "A required key is missing.")
  package static let wrongType = Self("RX203", "A value has the wrong kind.")
  package static let notOneComponent = Self(
    "RX204", "A component is a mapping with exactly one component key.")
  package static let duplicateName = Self(
    "RX205", "Sources, signals, commands and sinks share one set of names.")
  package static let invalidName = Self(
    "RX206", "A name has letters, digits, _ and -, begins with a letter or _, and is not reserved.")
  package static let notOneOrigin = Self(
    "RX207", "A signal has exactly one origin: from, a combining key or an inline source.")
  package static let invalidReference = Self(
    "RX208", "A reference is the name of a source, signal or command, or NAME.output.")
  package static let misplacedKey = Self("RX209", "A key is in a part of the file where it has no meaning.")
  package static let emptyCollection = Self("RX210", "A list or mapping must not be empty.")
  package static let tooMany = Self("RX211", "A pipeline may have at most 2,500 operators.")
  // RX212 is retired and must not be reused: RX201 and RX220 suggest the name.
  package static let overrideForm = Self("RX215", "--set takes PATH=VALUE.")
  package static let overridePath = Self("RX216", "The path of --set must lead to a value of the file.")
  package static let endlessSource = Self("RX217", "--once needs sources that end; this one waits for others to send.")
  package static let notFormatted = Self("RX218", "A file cannot be formatted without changing its meaning.")
  package static let unknownComponent = Self(
    "RX220", "The component is neither built in nor a plugin's.")
  package static let unknownParameter = Self("RX221", "The component has no such parameter.")
  package static let missingParameter = Self("RX222", "The component needs this parameter.")
  /// RX223: a parameter has a value of the right type that cannot be used.
  public static let outOfRange = Self("RX223", "A value is outside the range of its parameter.")
  package static let unknownChoice = Self("RX224", "A value is not one of its parameter's choices.")
  package static let conflictingParameters = Self(
    "RX225", "Two parameters exclude or require one another.")
  package static let formerName = Self(
    "RX226", "A parameter has another name now; the old one still works.", severity: .warning)
  package static let doubtfulValue = Self(
    "RX227", "A value is allowed, but probably not intended.", severity: .warning)
  package static let duration = Self(
    "RX230", "A duration is a number with a unit: ns, us, ms, s, m, h or d.")
  package static let size = Self(
    "RX231", "A size is a number with a unit: B, kB, MB, GB, TB, KiB, MiB, GiB or TiB.")
  // RX232 is retired and must not be reused: RX203 says which kind of number is expected.
  package static let yamlBoolean = Self(
    "RX233", "A boolean is written true or false; yes, no, on and off are strings.")
  // RX240 is retired and must not be reused: RX406 says what is not closed.
  package static let interpolationSyntax = Self(
    "RX250", "Environment values are written ${NAME}, ${NAME:-default} or ${NAME:?message}.")
  package static let interpolationNesting = Self("RX251", "A ${...} may not contain another.")
  package static let interpolationInKey = Self(
    "RX252", "Keys are not interpolated.", severity: .warning)
  package static let misplacedSecret = Self(
    "RX253", "A secret is allowed only where it is never printed: in an expression, a template or a password.")

  static let grammarCodes: [Self] = [
    unknownKey, missingKey, wrongType, notOneComponent, duplicateName, invalidName, notOneOrigin,
    invalidReference, misplacedKey, emptyCollection, tooMany, overrideForm, overridePath, endlessSource,
    notFormatted, unknownComponent,
    unknownParameter, missingParameter, outOfRange, unknownChoice, conflictingParameters, formerName, doubtfulValue,
    duration, size, yamlBoolean, interpolationSyntax, interpolationNesting,
    interpolationInKey, misplacedSecret,
  ]

  // MARK: RX3xx names and wiring

  package static let unknownName = Self(
    "RX301", "A reference names no source, signal or command of the file.")
  package static let unknownOutput = Self("RX302", "The node has no output of this name.")
  package static let cycle = Self(
    "RX303",
    """
    A signal must not feed itself; a sink must not receive its own rejected events or the file that it writes.
    """)
  package static let functionForm = Self(
    "RX366", "A function has a name of its own, parameters with types, and a value.")
  package static let unusedName = Self(
    "RX304", "A source or signal feeds no sink.", severity: .warning)
  package static let weakGuarantee = Self(
    "RX305", "A path from a source to a sink does not give the required guarantee.")
  package static let unsuitableReduce = Self(
    "RX306", "'reduce' needs the named parts of a combineLatest or zip.")
  package static let noSinks = Self(
    "RX307", "A pipeline without sinks does nothing.", severity: .warning)
  // RX308 is retired and must not be reused: the memory of every operator has a limit.

  static let wiringCodes: [Self] = [
    unknownName, unknownOutput, cycle, functionForm, unusedName, weakGuarantee, unsuitableReduce, noSinks,
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

  package static let marbleSyntax = Self("RX601", "A marble string is malformed.")
  package static let unknownSubject = Self(
    "RX602", "A test names an input or output that the pipeline does not have.")
  package static let expectationFailed = Self("RX603", "The result differs from the expectation.")
  package static let testStep = Self("RX604", "A step of a test is malformed.")

  package static let requestWithoutStub = Self("RX605", "A request of a test has no stub that answers it.")
  package static let testNeverQuiet = Self("RX606", "A test does not end by itself.")
  package static let expectationNotRewritten = Self(
    "RX607", "An expectation cannot be rewritten without changing other parts of the test.")

  static let testCodes: [Self] = [
    marbleSyntax, unknownSubject, expectationFailed, testStep, requestWithoutStub, testNeverQuiet,
    expectationNotRewritten,
  ]

  // MARK: RX7xx the environment

  package static let undefinedVariable = Self(
    "RX701", "An environment variable is not defined and has no default.")
  package static let requiredVariable = Self(
    "RX702", "An environment variable that the file requires is not defined or empty.")
  package static let undefinedSecret = Self("RX703", "There is no secret of this name.")
  package static let unusableVariable = Self(
    "RX704", "The value of an environment variable or secret is not UTF-8, or too long.")
  package static let unreadableFile = Self("RX710", "A file cannot be read.")
  package static let pluginFailed = Self("RX711", "A plugin cannot be loaded.")
  package static let pluginSpec = Self("RX713", "A plugin's description of itself does not follow the contract.")
  package static let unusablePlugin = Self(
    "RX714", "A plugin of the plugin directory cannot be used.", severity: .warning)
  package static let unreadableParameterFile = Self(
    "RX712", "A file that a parameter names cannot be read on this machine.", severity: .warning)

  static let environmentCodes: [Self] = [
    undefinedVariable, requiredVariable, undefinedSecret, unusableVariable, unreadableFile,
    pluginFailed, unreadableParameterFile, pluginSpec, unusablePlugin,
  ]

  // RX901 is retired and must not be reused: an internal error of rxd ends the process.

  /// Every code, in order. A new table must be added here; a test compares this list with the sources.
  package static let all: [Self] = [
    textCodes, grammarCodes, wiringCodes, compile, files, expressionCodes, runtime, testCodes,
    environmentCodes,
  ].flatMap { $0 }

  /// The code of this name, `RX203`.
  package static func named(_ name: String) -> Self? { all.first { $0.name == name } }
}
