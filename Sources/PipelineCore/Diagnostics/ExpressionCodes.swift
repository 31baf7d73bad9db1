// The codes of expressions and templates: RX401 to RX449.

extension Diagnostic.Code {
  // MARK: Text

  package static let expressionSyntax = Self(
    "RX401", "The text is not an expression: a token is missing, misplaced or unknown.")
  package static let expressionLiteral = Self(
    "RX402", "A number, string or escape sequence in an expression cannot be read.")
  package static let expressionTooLong = Self(
    "RX403", "An expression is longer, deeper or has more parts than the limits allow.")
  package static let expressionReservedWord = Self(
    "RX404", "A reserved word is used as a name.")
  package static let expressionMacroArguments = Self(
    "RX405", "A macro such as `has` or `exists` is called with arguments it cannot take.")
  package static let templateUnclosed = Self(
    "RX406", "A template opens `{{` and never closes it.")

  // MARK: Names and types

  package static let expressionUnknownName = Self(
    "RX411", "An expression names something that does not exist here.")
  package static let expressionUnknownFunction = Self(
    "RX412", "An expression calls a function that does not exist.")
  package static let expressionNoOverload = Self(
    "RX413", "A function or operator is applied to types it does not take.")
  package static let expressionUnknownField = Self(
    "RX414", "An expression reads a field that the declared shape does not have.")
  package static let expressionWrongType = Self(
    "RX415", "An expression has another type than required.")
  package static let expressionPattern = Self(
    "RX416", "A regular expression does not compile.")
  package static let expressionMapKey = Self(
    "RX417", "A map is written with a key of a type that cannot be one, or with the same key twice.")
  package static let expressionFormat = Self(
    "RX418", "A constant argument can never be valid.")

  // MARK: Advice

  package static let expressionWholeDivision = Self(
    "RX421", "Whether a division rounds to a whole number depends on the data.",
    severity: .warning)
  package static let expressionNegatedMissing = Self(
    "RX422", "With an absent field under `!` or `!=`, the whole condition fails instead of being true.",
    severity: .warning)
  package static let expressionKnownOutcome = Self(
    "RX423", "A comparison has the same outcome whatever the event holds.", severity: .warning)
  package static let templateInLiteral = Self(
    "RX424", "`{{ }}` is used where no template is evaluated; an error in the path of a file.", severity: .warning)
  package static let quotesInLiteral = Self(
    "RX425", "A value has inner quotes although it is used literally.", severity: .warning)
}
