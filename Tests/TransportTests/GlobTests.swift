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

  @Test func twoStarsAreAllLevels() {
    for name in ["g", "g/a", "g/a/b", "g/a/b/c", "g/.hidden"] { mkdir(directory(name), 0o700) }
    for name in ["g", "g/a", "g/a/b", "g/a/b/c", "g/.hidden"] { directory.append("", to: name + "/x.log") }
    symlink("..", directory("g/a/circle"))
    let all = ["g/a/b/c/x.log", "g/a/b/x.log", "g/a/x.log", "g/x.log"]
    #expect(names("g/**/x.log") == all)
    #expect(names("g/**/**/x.log") == all)
    #expect(names("g/**").filter { $0.hasSuffix(".log") } == all)
    #expect(names("**/b/**/x.log") == ["g/a/b/c/x.log", "g/a/b/x.log"])
    #expect(names("g/a/**/c/*.log") == ["g/a/b/c/x.log"])
    #expect(
      Glob.expand(directory("g/**"), directoriesOnly: true).paths
        == ["g", "g/a", "g/a/b", "g/a/b/c"].map { directory($0) })
    for path in all {
      #expect(Glob.matches("g/**/x.log", path) && Glob.matches("**", path) && Glob.matches("g/**", path))
    }
    for path in ["x.log", "g/.hidden/x.log", "g/a/y.log", "/g/x.log"] { #expect(!Glob.matches("g/**/x.log", path)) }
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
