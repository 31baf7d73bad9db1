import PipelineCore

/// What tests have reached, as a table with a line for each file, and what they have not, a line for each place.
struct CoverageTable {
  private let files: [(name: String, places: [TestCoverage.Place])]

  init(_ files: [(name: String, places: [TestCoverage.Place])]) { self.files = files }

  var total: TestCoverage.Share { TestCoverage.Share(files.flatMap(\.places)) }

  /// `87 %`, never rounded up to all.
  static func shown(_ share: TestCoverage.Share) -> String { "\(Int(share.percent)) %" }

  var text: String {
    var rows = [["coverage"] + TestCoverage.Category.allCases.map(\.rawValue) + [""]]
    for file in files { rows.append(row(Printable.cut(file.name, limit: 300), file.places)) }
    if files.count > 1 { rows.append(row("total", files.flatMap(\.places))) }
    let widths = rows[0].indices.map { column in rows.map { $0[column].count }.max() ?? 0 }
    var text = ""
    for row in rows {
      var line = row[0] + String(repeating: " ", count: widths[0] - row[0].count)
      for column in row.indices.dropFirst() {
        line += "  " + String(repeating: " ", count: widths[column] - row[column].count) + row[column]
      }
      while line.last == " " { line.removeLast() }
      text += line + "\n"
    }
    for place in files.flatMap(\.places) where !place.isReached && !place.isImplied {
      text += "\(place.location): \(place.message)\n"
    }
    return text
  }

  private func row(_ name: String, _ places: [TestCoverage.Place]) -> [String] {
    [name]
      + TestCoverage.Category.allCases.map { category in
        TestCoverage.Share(places.filter { $0.category == category }).description
      } + [Self.shown(TestCoverage.Share(places))]
  }
}
