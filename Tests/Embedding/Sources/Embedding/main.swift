import PipelineRuntime

let pipeline = try Pipeline(
  """
  sources: { numbers: { values: [1, 2, 3, 4] } }
  sinks: { out: { from: numbers, chain: [ { filter: event % 2 == 0 }, { map: event * 10 } ], stdout: {} } }
  """)
guard case .completed = pipeline.run() else { fatalError("the pipeline failed") }
