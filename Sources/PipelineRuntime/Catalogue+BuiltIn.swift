public import PipelineCore
import Sinks
import Sources_

extension Catalogue {
  /// Components that a program has linked in addition to those of this package. Set before anything reads ``builtIn``.
  nonisolated(unsafe) package static var linked = Catalogue([])

  /// Every component of the program.
  public static let builtIn = Catalogue.sources.adding(.operators).adding(.commands).adding(.sinks).adding(linked)
}
