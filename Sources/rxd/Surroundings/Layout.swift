import Glibc

/// Text in columns.
enum Layout {
  /// The width to fill: the terminal's, at most 100.
  static let width: Int = {
    var size = winsize()
    if ioctl(1, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 { return min(100, max(40, Int(size.ws_col))) }
    return 100
  }()

  static func wrap(_ text: String, indent: Int) -> String {
    lines(text, width - indent).map { String(repeating: " ", count: indent) + $0 + "\n" }.joined()
  }

  static func lines(_ text: String, _ width: Int) -> [String] {
    var lines: [String] = []
    var line = ""
    for word in text.split(whereSeparator: { $0 == " " || $0 == "\n" }) {
      if !line.isEmpty, line.unicodeScalars.count + 1 + word.unicodeScalars.count > width {
        lines.append(line)
        line = ""
      }
      line += (line.isEmpty ? "" : " ") + word
    }
    return line.isEmpty ? lines : lines + [line]
  }

  /// Aligned rows; the last column is wrapped.
  static func table(_ rows: [[String]]) -> String {
    guard let columns = rows.first?.count, columns > 1 else { return "" }
    let widths = (0..<columns - 1).map { column in
      min(28, rows.map { $0[column].unicodeScalars.count }.max() ?? 0)
    }
    let indent = 2 + widths.reduce(0) { $0 + $1 + 2 }
    var text = ""
    for row in rows {
      var line = "  "
      for (column, width) in widths.enumerated() {
        let cell = row[column]
        line += cell + String(repeating: " ", count: max(0, width - cell.unicodeScalars.count)) + "  "
      }
      let room = max(30, width - indent)
      // After a cell that is too wide, the last column starts on a new line.
      if line.unicodeScalars.count > indent {
        text += line + "\n"
        line = String(repeating: " ", count: indent)
      }
      for (number, part) in lines(row[columns - 1], room).enumerated() {
        text += (number == 0 ? line : String(repeating: " ", count: indent)) + part + "\n"
      }
      if row[columns - 1].isEmpty { text += line + "\n" }
    }
    return text
  }
}
