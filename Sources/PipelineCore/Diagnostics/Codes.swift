// Every code has its one place here; a code is never given a second meaning.

extension Diagnostic.Code {
  // MARK: RX1xx text and YAML

  public static let encoding = Self("RX101", "A file must be UTF-8.")
  public static let fileTooLarge = Self("RX102", "A file may have at most 1 MiB.")
  public static let controlCharacter = Self(
    "RX103", "Control characters may stand in a value only as an escape between double quotes.")
  public static let lineSeparator = Self(
    "RX104", "Lines end with LF or CR LF; what only some readers take for a line end is refused.")
  public static let emptyFile = Self("RX105", "A pipeline file must hold a mapping.")
  public static let severalDocuments = Self("RX106", "A file holds one document.")
  public static let directive = Self("RX107", "YAML directives are not supported.")
  public static let bidirectionalControl = Self(
    "RX108", "Invisible characters can make a text look different from what it is.",
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
  public static let blockScalar = Self("RX141", "Behind | or > the line must end.")
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
}
