extension Plan {
  /// An error for each source that `--once` cannot run, because it waits for events that others send.
  package var sourcesWithoutEnd: [Diagnostic] {
    sources.filter { !$0.isInner && ($0.component as? any SourceComponent)?.once == nil }.map { source in
      let step = steps[source.step.number]
      return Diagnostic(
        .endlessSource,
        "'\(step.keyword)' waits for others to send, so reading it once never ends",
        at: step.location,
        help: "Leave --once out, and end the run with --limit; or put 'values' or 'file' in its place")
    }
  }
}
