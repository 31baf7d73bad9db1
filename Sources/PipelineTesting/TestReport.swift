import PipelineCore

/// Reports the results of tests.
package struct TestReport: Sendable {
  /// A test and its result.
  package struct Case: Sendable {
    package var result: TestResult
    /// Wall-clock time, measured by the caller because the core has no clock.
    package var seconds: Double
    package init(_ result: TestResult, seconds: Double) {
      self.result = result
      self.seconds = seconds
    }
  }

  /// The tests of one file.
  package struct File: Sendable {
    package var name: String
    package var cases: [Case]
    package init(_ name: String, _ cases: [Case]) {
      self.name = name
      self.cases = cases
    }
  }

  package var files: [File] = []
  package var colors = false

  package init(colors: Bool = false) { self.colors = colors }

  /// Whether a test's name contains `filter` or, if `filter` contains `*`, matches it as a pattern.
  package static func matches(_ filter: String, _ name: String) -> Bool {
    Glob.matches(filter.utf8.contains(0x2A) ? filter : "*\(filter)*", name)
  }

  package var failed: Int { files.reduce(0) { $0 + $1.cases.count { !$0.result.passed } } }
  package var passed: Int { files.reduce(0) { $0 + $1.cases.count { $0.result.passed } } }

  // MARK: Text

  /// One line for each test, followed by its failures.
  package func text(_ test: Case) -> String {
    let result = test.result
    var text = result.passed ? paint("ok    ", "32") : paint("FAILED", "31")
    text += " \(Printable.cut(result.name, limit: 200))\n"
    for failure in result.failures {
      let renderer = DiagnosticRenderer(colors: colors)
      var plain = failure.diagnostic
      plain.fixIts = []
      for line in renderer.block(plain).split(separator: "\n") { text += "  \(line)\n" }
      for line in failure.picture { text += "    \(line)\n" }
    }
    return text
  }

  package var summary: String {
    let count = passed + failed
    guard count > 0 else { return "no tests" }
    let noun = count == 1 ? "test" : "tests"
    return failed == 0 ? "\(count) \(noun) passed" : "\(failed) of \(count) \(noun) failed"
  }

  private func paint(_ text: String, _ color: String) -> String {
    colors ? "\u{1B}[\(color)m\(text)\u{1B}[0m" : text
  }

  // MARK: JUnit

  /// The report as JUnit XML, for build servers.
  package var junit: String {
    var text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    let seconds = files.flatMap(\.cases).reduce(0) { $0 + $1.seconds }
    text +=
      "<testsuites tests=\"\(passed + failed)\" failures=\"\(failed)\" time=\"\(Self.fixed(seconds))\">\n"
    for file in files {
      let failures = file.cases.count { !$0.result.passed }
      let time = file.cases.reduce(0) { $0 + $1.seconds }
      text +=
        "  <testsuite name=\"\(Self.escaped(file.name))\" tests=\"\(file.cases.count)\" failures=\"\(failures)\" errors=\"0\" time=\"\(Self.fixed(time))\">\n"
      for test in file.cases {
        let result = test.result
        text +=
          "    <testcase name=\"\(Self.escaped(result.name))\" classname=\"\(Self.escaped(file.name))\" file=\"\(Self.escaped(file.name))\" line=\"\(result.location.line)\" time=\"\(Self.fixed(test.seconds))\""
        if result.passed {
          text += "/>\n"
          continue
        }
        text += ">\n"
        for failure in result.failures {
          let diagnostic = failure.diagnostic
          var body = diagnostic.location.map { "\($0)\n" } ?? ""
          for line in failure.picture { body += line + "\n" }
          for note in diagnostic.notes { body += note.message + "\n" }
          if let help = diagnostic.help { body += help + "\n" }
          text +=
            "      <failure message=\"\(Self.escaped(diagnostic.message))\" type=\"\(diagnostic.code.name)\">\(Self.escaped(body, isAttribute: false))</failure>\n"
        }
        text += "    </testcase>\n"
      }
      text += "  </testsuite>\n"
    }
    return text + "</testsuites>\n"
  }

  /// Seconds with three decimals and always a decimal point.
  private static func fixed(_ seconds: Double) -> String {
    let thousandths = Int64(exactly: (max(0, seconds) * 1000).rounded()) ?? 0
    let rest = thousandths % 1000
    return "\(thousandths / 1000)." + (rest < 10 ? "00" : rest < 100 ? "0" : "") + "\(rest)"
  }

  /// XML 1.0 cannot represent most control characters, so they are left out.
  private static func escaped(_ text: String, isAttribute: Bool = true) -> String {
    var result = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "&": result += "&amp;"
      case "<": result += "&lt;"
      case ">": result += "&gt;"
      case "\"": result += "&quot;"
      case "\n", "\t":
        if isAttribute { result += "&#\(scalar.value);" } else { result.unicodeScalars.append(scalar) }
      case _ where scalar.value < 0x20 || scalar.value == 0xFFFE || scalar.value == 0xFFFF: result += "?"
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result
  }
}
