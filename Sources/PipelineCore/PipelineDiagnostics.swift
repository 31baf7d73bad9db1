@_exported import PipelineDiagnostics
