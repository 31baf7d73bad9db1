public import PipelineCore
import Sinks
import Sources_

extension Catalogue {
  /// Every component of the program.
  public static let builtIn = Catalogue.sources.adding(.operators).adding(.commands).adding(.sinks)
}
