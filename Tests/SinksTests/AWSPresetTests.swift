import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// The AWS presets, against answers in the documented format; `AWSServerTests` run them against a server.
@Suite struct AWSPresetTests {
  private let credentials = "region: eu-central-1, accessKey: AKIA, secretKey: s"

  private func sending(
    _ preset: String, _ parameters: String, events: String = "[{ n: 1 }, { n: 2 }, { n: 3 }]", errors: Bool = true,
    _ script: @escaping (Int, ScriptedHTTP.Exchange) -> ScriptedHTTP.Answer?
  ) throws -> VirtualPipeline {
    let sending = try VirtualPipeline(
      """
      sources: { events: { values: \(events) } }
      sinks:
        shop: { from: events, use: \(preset), with: { \(parameters), \(credentials) } }
        \(errors ? "refused: { from: shop.errors, chain: [ { map: '[event.event, event.error]' } ], probe: {} }" : "")
      """, random: .max)
    sending.http.script = script
    return sending
  }

  private static func status(_ status: Int, _ body: String = "") -> ScriptedHTTP.Answer {
    ScriptedHTTP.status(status, body)
  }

  // MARK: S3

  private let bucket = "url: 'http://127.0.0.1:9000', bucket: logs"

  @Test func anObjectHasANameThatStays() throws {
    let sending = try sending("s3", "\(bucket), count: 2, compress: none, suffix: .ndjson") { number, _ in
      Self.status(number == 0 ? 503 : 200, number == 0 ? "<Error><Code>SlowDown</Code></Error>" : "")
    }
    sending.run()
    let requests = sending.http.exchanges.map(\.request)
    #expect(requests.map(\.method) == ["PUT", "PUT", "PUT"])
    #expect(sending.http.bodies == ["{\"n\":1}\n{\"n\":2}\n", "{\"n\":1}\n{\"n\":2}\n", "{\"n\":3}\n"])
    let key = try sending.http.exchanges.item(0).header("idempotency-key") ?? ""
    #expect(try requests.item(0).url == "http://127.0.0.1:9000/logs/2026/01/01/20260101T000000Z-1-\(key).ndjson")
    #expect(try requests.item(1).url == requests.item(0).url)
    #expect(try requests.item(2).url.hasPrefix("http://127.0.0.1:9000/logs/2026/01/01/20260101T"))
    #expect(try requests.item(2).url.contains("Z-2-"))
    #expect(try sending.http.exchanges.item(0).header("content-type") == "application/x-ndjson")
    guard case .awsSigV4(let signing) = try requests.item(0).options.auth else {
      Issue.record("no signature")
      return
    }
    #expect(signing.service == "s3")
    #expect(sending.counters.sent == 3)
  }

  @Test func objectsAreGroupedByWhatTheEventSays() throws {
    let sending = try sending(
      "s3", "\(bucket), prefix: 'shop={{ urlEncode(event.shop) }}/'",
      events: "[{ shop: a }, { shop: b/c }, { shop: a }]"
    ) { _, _ in Self.status(200) }
    sending.run()
    let paths = sending.http.exchanges.map { $0.request.url.dropFirst("http://127.0.0.1:9000/logs/".count) }
    #expect(paths.count == 2)
    #expect(try paths.item(0).hasPrefix("shop=a/2026"))
    #expect(try paths.item(1).hasPrefix("shop=b%2Fc/2026"))
    #expect(try paths.item(0).hasSuffix(".ndjson.gz"))
    // A small object is compressed too if its name says so.
    #expect(sending.http.exchanges.map { $0.header("content-encoding") } == ["gzip", "gzip"])
  }

  @Test func aRefusalOfS3IsNeverTheFaultOfAnEvent() throws {
    let sending = try sending("s3", bucket, errors: false) { number, _ in
      number == 0
        ? Self.status(400, "<Error><Code>RequestTimeout</Code></Error>")
        : Self.status(400, "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>")
    }
    sending.run()
    // The first batch is sent again, the second ends the pipeline; neither halves the object.
    #expect(sending.http.exchanges.count == 2)
    #expect(sending.failure?.message.contains("ExpiredToken") == true)
  }

  // MARK: SQS

  private let queue = "url: 'http://127.0.0.1:9000', queue: 'http://127.0.0.1:9000/1/q'"

  @Test func tenMessagesAreARequest() throws {
    let events = "[" + (1...11).map { "{ n: \($0) }" }.joined(separator: ", ") + "]"
    let sending = try sending("sqs", queue, events: events) { _, _ in Self.status(200, #"{"Successful":[]}"#) }
    sending.run()
    let first = try #require(sending.http.exchanges.first)
    #expect(first.request.url == "http://127.0.0.1:9000/")
    #expect(first.header("x-amz-target") == "AmazonSQS.SendMessageBatch")
    #expect(first.header("content-type") == "application/x-amz-json-1.0")
    #expect(
      first.body.hasPrefix(
        #"{"QueueUrl":"http://127.0.0.1:9000/1/q","Entries":[{"MessageBody":"{\"n\":1}","Id":"0"},{"MessageBody":"{\"n\":2}","Id":"1"}"#
      ))
    #expect(sending.http.bodies.map { $0.components(separatedBy: "MessageBody").count - 1 } == [10, 1])
    #expect(sending.counters.sent == 11)
  }

  @Test func onlyMessagesThatWereNotTakenAreSentAgainOrRefused() throws {
    let sending = try sending("sqs", "\(queue), group: \"'g'\", deduplication: string(event.n)") { number, _ in
      number > 0
        ? Self.status(200, #"{"Successful":[{"Id":"0","MessageId":"m","MD5OfMessageBody":"x"}]}"#)
        : Self.status(
          200,
          #"{"Successful":[{"Id":"1","MessageId":"m","MD5OfMessageBody":"x"}],"Failed":[{"Id":"0","SenderFault":false,"Code":"InternalError","Message":"again"},{"Id":"2","SenderFault":true,"Code":"InvalidMessageContents"}]}"#
        )
    }
    sending.run()
    #expect(sending.http.bodies.count == 2)
    #expect(
      try sending.http.bodies.item(1)
        == #"{"QueueUrl":"http://127.0.0.1:9000/1/q","Entries":[{"MessageBody":"{\"n\":1}","MessageGroupId":"g","MessageDeduplicationId":"1","Id":"0"}]}"#
        + "\n")
    #expect(
      sending.probe("refused").events == ["[{\"n\":3},\"the server refused the event: InvalidMessageContents: \"]"])
    #expect(sending.counters.sent == 2)
  }

  @Test func aWholeRequestIsRepeatedHalvedOrWrong() throws {
    let answers = [
      #"{"__type":"com.amazon.coral.availability#ThrottlingException","message":"Rate exceeded"}"#,
      #"{"__type":"com.amazonaws.sqs#BatchRequestTooLong","message":"262145 bytes"}"#,
    ]
    let sending = try sending("sqs", queue) { number, _ in
      number < 2 ? Self.status(400, answers[number]) : Self.status(200, #"{"Successful":[]}"#)
    }
    sending.run()
    #expect(sending.http.bodies.map { $0.components(separatedBy: "MessageBody").count - 1 } == [3, 3, 1, 2])
    #expect(sending.probe("refused").events.isEmpty)
    let wrong = try self.sending("sqs", queue, errors: false) { _, _ in
      Self.status(
        400, #"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"The specified queue does not exist."}"#)
    }
    wrong.run()
    #expect(wrong.http.exchanges.count == 1)
    #expect(wrong.failure?.message.contains("QueueDoesNotExist") == true)
  }

  // MARK: Kinesis

  private let stream = "url: 'http://127.0.0.1:9000', stream: clicks, key: \"'k' + string(event.n)\""

  @Test func recordsWithoutRoomAreSentAgain() throws {
    let sending = try sending("kinesis", stream) { number, _ in
      number > 0
        ? Self.status(200, #"{"FailedRecordCount":0,"Records":[{"SequenceNumber":"5","ShardId":"s"}]}"#)
        : Self.status(
          200,
          #"{"FailedRecordCount":2,"Records":[{"ErrorCode":"ProvisionedThroughputExceededException","ErrorMessage":"Rate exceeded for shard"},{"SequenceNumber":"4","ShardId":"s"},{"ErrorCode":"KMSDisabledException","ErrorMessage":"off"}]}"#
        )
    }
    sending.run()
    let first = try #require(sending.http.exchanges.first)
    #expect(first.header("x-amz-target") == "Kinesis_20131202.PutRecords")
    #expect(first.header("content-type") == "application/x-amz-json-1.1")
    // The base64 of {"n":1}.
    #expect(
      first.body.hasPrefix(#"{"StreamName":"clicks","Records":[{"Data":"eyJuIjoxfQ==","PartitionKey":"k1"},{"#))
    #expect(
      sending.http.bodies.last == #"{"StreamName":"clicks","Records":[{"Data":"eyJuIjoxfQ==","PartitionKey":"k1"}]}"#
        + "\n")
    #expect(
      sending.probe("refused").events == ["[{\"n\":3},\"the server refused the event: KMSDisabledException: off\"]"])
    #expect(sending.counters.sent == 2)
  }

  @Test func aRecordThatIsTooLargeIsFoundByHalving() throws {
    let sending = try sending("kinesis", stream) { _, exchange in
      if exchange.body.contains("k2") {
        return Self.status(400, #"{"__type":"ValidationException","message":"failed to satisfy constraint: length"}"#)
      }
      let count = exchange.body.components(separatedBy: "PartitionKey").count - 1
      let records = Array(repeating: #"{"SequenceNumber":"4","ShardId":"s"}"#, count: count).joined(separator: ",")
      return Self.status(200, "{\"FailedRecordCount\":0,\"Records\":[\(records)]}")
    }
    sending.run()
    #expect(sending.probe("refused").events.count == 1)
    #expect(sending.probe("refused").events.first?.hasPrefix("[{\"n\":2},") == true)
    #expect(sending.counters.sent == 2)
  }

  @Test func throttlingOfTheStreamIsRepeatedAndAMissingOneIsNot() throws {
    let sending = try sending("kinesis", stream, errors: false) { number, _ in
      number == 0
        ? Self.status(400, #"{"__type":"ProvisionedThroughputExceededException","message":"slow"}"#)
        : Self.status(400, #"{"__type":"ResourceNotFoundException","message":"Stream clicks not found"}"#)
    }
    sending.run()
    #expect(sending.http.exchanges.count == 2)
    #expect(sending.failure?.message.contains("Stream clicks not found") == true)
  }
}
