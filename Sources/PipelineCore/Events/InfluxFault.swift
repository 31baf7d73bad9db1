/// The reason why an event is not a valid InfluxDB point.
package enum InfluxFault: UInt8, Sendable {
  case noMap, noMeasurement, comment, noField, emptyKey, tagKind, fieldKind, notFinite, backslash, lineBreak, time,
    tooLarge
}

extension InfluxFault: CustomStringConvertible {
  package var description: String {
    switch self {
    case .noMap: "it is not a point, which is a map of 'measurement', 'tags', 'fields' and 'timestamp'"
    case .noMeasurement: "its 'measurement' is missing or not a string"
    case .comment: "its measurement begins with '#', which begins a comment in line protocol"
    case .noField: "it has no field; a point needs one in 'fields' that is not null"
    case .emptyKey: "the name of a tag or field is empty"
    case .tagKind: "'tags' must be a map of texts, numbers and bools"
    case .fieldKind: "'fields' must be a map of numbers, bools and texts; toJson(...) makes a text of a list or map"
    case .notFinite: "a field is NaN or infinite, which InfluxDB does not store"
    case .backslash: "the measurement, or a name or tag, ends with a backslash, which line protocol cannot write"
    case .lineBreak: "the measurement, or a name or tag, has a line break, which line protocol cannot write"
    case .time: "its 'timestamp' is neither a timestamp nor a whole number in the unit of 'precision'"
    case .tooLarge: "its 'timestamp' is too far from 1970 for the unit of 'precision'"
    }
  }
}
