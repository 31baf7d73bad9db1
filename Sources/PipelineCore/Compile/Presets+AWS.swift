/// The common part of the AWS presets: the parameters for credentials, and their use in requests.
private enum AWSSigning {
  static let parameters = lines(
    [
      #"region: { type: text, description: "The region, such as eu-central-1." }"#,
      #"accessKey: { type: text, description: "The access key, a secret." }"#,
      #"secretKey: { type: text, description: "The secret key that belongs to it, a secret." }"#,
      #"sessionToken: { type: "text?", description: "The token of temporary credentials, a secret." }"#,
    ], indent: 6)

  static func settings(service: String) -> String {
    lines(
      [
        "awsSigV4:", "  region: $(region)", "  service: \(service)", "  accessKey: $(accessKey)",
        "  secretKey: $(secretKey)", "  sessionToken: $(sessionToken)",
      ], indent: 10)
  }

  private static func lines(_ lines: [String], indent: Int) -> String {
    lines.joined(separator: "\n" + String(repeating: " ", count: indent))
  }
}

extension Preset {
  static let s3 = Preset(
    "s3", "Writes events as objects to S3 or a store of its kind, many in an object.",
    #"""
    templates:
      s3:
        description: |
          An object for each batch, named by 'prefix', the time and number of the request, its key and 'suffix'. The
          name stays the same when the request is repeated, so an object is there once. Where 'prefix' depends on the
          event, an object has only events with the same one. Up to 'bytes' of each object are in memory, and the events
          of an object are acknowledged when it is written.
        parameters:
          url: { type: text, description: "The endpoint, such as https://s3.eu-central-1.amazonaws.com." }
          bucket: { type: text, description: "The bucket; it is part of the path." }
          prefix: { type: template, default: "{{ formatTime(request.time, '%Y/%m/%d/') }}", description: "The prefix of names, such as \"{{ urlEncode(event.shop) }}/\"." }
          suffix: { type: text, default: .ndjson.gz, description: "The suffix of names." }
          \#(AWSSigning.parameters)
          encode: { type: any, default: ndjson, description: "As of the sink http." }
          compress: { type: text, default: gzip, description: "gzip, zstd or none; 'suffix' should match." }
          contentType: { type: text, default: application/x-ndjson, description: "The type of the objects." }
          count: { type: int, default: 10000, description: "The largest number of events in an object." }
          bytes: { type: size, default: 8MiB, description: "The largest size of an object, before it is compressed." }
          every: { type: duration, default: 1m, description: "How long an event may wait for others." }
          tls: { type: "mapping?", description: "As of the sink http." }
        sink:
          http:
            url: "$(url)/$(bucket)/$(prefix){{ formatTime(request.time, '%Y%m%dT%H%M%SZ') }}-{{ request.number }}-{{ request.key }}$(suffix)"
            method: PUT
            headers: { Content-Type: $(contentType) }
            encode: $(encode)
            batch: { count: $(count), bytes: $(bytes), every: $(every) }
            queue: 100000
            timeout: 2m
            compress: { format: $(compress), least: 0B }
            answer: |
              response.status == 409 || response.status == 400 && string(response.body).contains('RequestTimeout') ? 'retry'
                : response.status == 400 ? 'fail' : ''
            auth:
              \#(AWSSigning.settings(service: "s3"))
            tls: $(tls)
    """#)

  static let sqs = Preset(
    "sqs", "Sends events as messages to a queue of Amazon SQS, ten in a request.",
    #"""
    templates:
      sqs:
        description: |
          SendMessageBatch in the JSON protocol. The answer names the messages that were not taken: those that the sender
          is to blame for go to the errors output, the others are sent again. Throttling is repeated; a request that is
          too long, or has a message that cannot be stored, is halved. A FIFO queue needs 'group'.
        parameters:
          url: { type: text, description: "The endpoint, such as https://sqs.eu-central-1.amazonaws.com." }
          queue: { type: text, description: "The URL of the queue." }
          message: { type: expression, default: toJson(event), description: "The text of the message." }
          group: { type: "expression?", description: "The message group of a FIFO queue." }
          deduplication: { type: "expression?", description: "The deduplication id of a FIFO queue, such as meta.id." }
          delay: { type: "expression?", description: "How many seconds the message is hidden at first, at most 900." }
          attributes: { type: "mapping?", description: "MessageAttributes, such as { kind: { DataType: \"'String'\", StringValue: event.kind } }." }
          \#(AWSSigning.parameters)
          bytes: { type: size, default: 256KiB, description: "The largest request." }
          every: { type: duration, default: 200ms, description: "How long a message may wait for others." }
          maxConcurrent: { type: int, default: 1, description: "How many requests may be under way at the same time." }
          tls: { type: "mapping?", description: "As of the sink http." }
        sink:
          http:
            url: $(url)/
            headers: { Content-Type: application/x-amz-json-1.0, X-Amz-Target: AmazonSQS.SendMessageBatch }
            body:
              MessageBody: string($(message))
              MessageGroupId: $(group)
              MessageDeduplicationId: $(deduplication)
              DelaySeconds: $(delay)
              MessageAttributes: $(attributes)
            envelope:
              QueueUrl: "'$(queue)'"
              Entries: "events.transformList(i, e, e.merge({'Id': string(i)}))"
            batch: { count: 10, bytes: $(bytes), every: $(every) }
            maxConcurrent: $(maxConcurrent)
            answer: |
              response.status != 400 ? ''
                : response.body.__type.matches('Throttl|OverLimit') ? 'retry'
                : response.body.__type.matches('BatchRequestTooLong|InvalidMessageContents|InvalidParameterValue') ? 'refuse' : 'fail'
            partial: |
              response.body.?Failed.orValue([]).map(f, { 'index': int(f.Id), 'retry': string(f.SenderFault) != 'true',
                'reason': f.Code + ': ' + f.?Message.orValue('') })
            auth:
              \#(AWSSigning.settings(service: "sqs"))
            tls: $(tls)
    """#)

  static let kinesis = Preset(
    "kinesis", "Writes events as records to a stream of Amazon Kinesis, up to 500 in a request.",
    #"""
    templates:
      kinesis:
        description: |
          PutRecords. The answer has an entry for each record: those that a shard had no room for are sent again, so records of a
          shard may change their order. A request that Kinesis does not accept because of a record is halved until
          the record is alone, which goes to the errors output.
        parameters:
          url: { type: text, description: "The endpoint, such as https://kinesis.eu-central-1.amazonaws.com." }
          stream: { type: text, description: "The name of the stream." }
          key: { type: expression, description: "The partition key, such as event.user; records with the same one are in one shard." }
          data: { type: expression, default: toJson(event), description: "The record, a text or bytes." }
          \#(AWSSigning.parameters)
          count: { type: int, default: 500, description: "The largest number of records in a request, at most 500." }
          every: { type: duration, default: 200ms, description: "How long a record may wait for others." }
          maxConcurrent: { type: int, default: 1, description: "How many requests may be under way at the same time." }
          tls: { type: "mapping?", description: "As of the sink http." }
        sink:
          http:
            url: $(url)/
            headers: { Content-Type: application/x-amz-json-1.1, X-Amz-Target: Kinesis_20131202.PutRecords }
            body:
              Data: base64.encode(bytes($(data)))
              PartitionKey: string($(key))
            envelope:
              StreamName: "'$(stream)'"
              Records: events
            batch: { count: $(count), bytes: 5MiB, every: $(every) }
            maxConcurrent: $(maxConcurrent)
            answer: |
              response.status != 400 ? ''
                : response.body.__type.matches('Throttl|ThroughputExceeded|LimitExceeded') ? 'retry'
                : response.body.__type.matches('InvalidArgument|Validation') ? 'refuse' : 'fail'
            partial: |
              response.body.Records.map(r, !has(r.ErrorCode) || r.ErrorCode == null ? 'ok'
                : r.ErrorCode.matches('ThroughputExceeded|InternalFailure|Throttl|ServiceUnavailable') ? 'retry'
                : r.ErrorCode + ': ' + string(r.?ErrorMessage.orValue('')))
            auth:
              \#(AWSSigning.settings(service: "kinesis"))
            tls: $(tls)
    """#)
}
