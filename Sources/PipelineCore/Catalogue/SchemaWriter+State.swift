extension SchemaWriter {
  /// The key `state` of a file.
  static var state: JSONText {
    let memory = described(
      reference("size"),
      "The bytes of keys in memory beyond which the oldest are kept on the disk: 16MiB to 1TiB. Default: all stay in memory."
    )
    return described(
      any([closed([("memory", memory)]), reference("placeholder")]), "Where steps keep what they remember of many keys."
    )
  }
}
