import PipelineCore
import RxdProgram

runRxd(adding: Catalogue([CatalogueEntry(sink: RedisStream.self)]))
