import PipelineCore

// The sinks whose output can be a table, for exports of a plan.

extension FileSink: RelationalSink {
  package var relationalOutput: RelationalOutput { path.template == nil ? .file(path.literal) : .files }
}

extension SQLiteSink: RelationalSink {
  package var relationalOutput: RelationalOutput {
    .table(table, columns: columns.entries.map { ($0.name, $0.value) }, key: key, replaces: mode == .upsert)
  }
}

extension Stdout: RelationalSink {
  package var relationalOutput: RelationalOutput { .file(nil) }
}
