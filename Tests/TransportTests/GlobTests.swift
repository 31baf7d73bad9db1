import Glibc
import PipelineCore
import Testing

@testable import Transport

@Suite struct GlobTests {
  let directory = ScratchDirectory()

  private func names(_ pattern: String, by list: Glob.Lister = Glob.system) -> [String] {
    let prefix = directory.path + "/"
    return Glob.expand(directory(pattern), by: list).paths.map {
      $0.hasPrefix(prefix) ? String($0.dropFirst(prefix.count)) : $0
    }
  }

  @Test func findsWhatAShellFinds() {
    for name in ["x", "x/one", "y", "z"] { mkdir(directory(name), 0o700) }
    for name in ["b.log", "a.log", ".hidden.log", "c.txt", "x/1.log", "x/one/2.log", "y/1.log", "z/other", "[q].log"] {
      directory.append("", to: name)
    }
    symlink("nowhere", directory("dangling.log"))
    #expect(names("*.log") == ["[q].log", "a.log", "b.log", "dangling.log"])
    #expect(names("?.log") == ["a.log", "b.log"])
    #expect(names("[ac].*") == ["a.log", "c.txt"])
    #expect(names("*/1.log") == ["x/1.log", "y/1.log"])
    #expect(names("*/*/2.log") == ["x/one/2.log"])
    #expect(names(".*.log") == [".hidden.log"])
    #expect(names("*/none") == [])
    #expect(names("nowhere-without-pattern") == ["nowhere-without-pattern"])
    #expect(Glob.expand(directory("*"), directoriesOnly: true).paths == ["x", "y", "z"].map { directory($0) })
    #expect(Glob.expand(directory("*.log")).failures == [])
  }

  @Test func reportsWhatCouldNotBeLookedInto() {
    #expect(
      Glob.expand(directory("none/*.log")).failures == [PosixError("list", directory("none"), code: ENOENT)])
    mkdir(directory("x"), 0o700)
    directory.append("", to: "a")
    #expect(Glob.expand(directory("*/*.log")).failures == [], "what a pattern finds may be no directory")
    let found = Glob.expand(directory("*/*.log")) { path throws(PosixError) in
      if path.hasSuffix("/x") { throw PosixError("list", path, code: EACCES) }
      return try Glob.system(path)
    }
    #expect(found.failures == [PosixError("list", directory("x"), code: EACCES)])
    #expect(found.paths == [])
  }
}
