import PipelineCore
import PipelineTesting

/// Test coverage: a table with one line for each file, followed by one line for each uncovered point.
struct CoverageTable {
  private let files: [(name: String, points: [TestCoverage.Point])]

  init(_ files: [(name: String, points: [TestCoverage.Point])]) { self.files = files }

  var total: TestCoverage.Share { TestCoverage.Share(files.flatMap(\.points)) }

  /// `87 %`, never rounded up to 100.
  static func shown(_ share: TestCoverage.Share) -> String { "\(Int(share.percent)) %" }

  var text: String {
    var rows = [["coverage"] + TestCoverage.Category.allCases.map(\.rawValue) + [""]]
    for file in files { rows.append(row(Printable.cut(file.name, limit: 300), file.points)) }
    if files.count > 1 { rows.append(row("total", files.flatMap(\.points))) }
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
    for point in files.flatMap(\.points) where !point.isReached && !point.isImplied {
      text += "\(point.location): \(point.message)\n"
    }
    return text
  }

  private func row(_ name: String, _ points: [TestCoverage.Point]) -> [String] {
    [name]
      + TestCoverage.Category.allCases.map { category in
        TestCoverage.Share(points.filter { $0.category == category }).description
      } + [Self.shown(TestCoverage.Share(points))]
  }
}
