public import PipelineCore
import Sinks
import Sources_

extension Catalogue {
  /// Every component that the program has.
  public static let builtIn = Catalogue.sources.adding(.operators).adding(.commands).adding(.sinks)
}
