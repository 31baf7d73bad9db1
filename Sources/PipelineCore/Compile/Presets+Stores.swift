extension Preset {
  static let elasticsearch = Preset(
    "elasticsearch", "Indexes events in Elasticsearch or OpenSearch, many in a request.",
    #"""
    templates:
      elasticsearch:
        description: |
          Each event is a document of the index. The answer has a status for each document: those that are refused go to
          the errors output. Those that the server has no room for are sent again, together with the others of their id,
          so that the last one stays the last. With an id, a document that is there already counts as indexed, so an event
          that is delivered twice is indexed once. With the action upsert, the index follows results that change: a row
          that is retracted (meta.retracts) deletes the document with its id. OpenSearch has the same interface; on AWS,
          'auth' is { awsSigV4: ... } with the service es.
        parameters:
          url: { type: text, description: "The server, such as http://127.0.0.1:9200." }
          index: { type: expression, description: "The index or data stream, such as 'orders' or event.kind." }
          id: { type: expression, default: "''", description: "The id of the document, such as meta.id; '': the server makes one." }
          action: { type: text, default: create, description: "create, which data streams need; index, which replaces; or upsert, which also deletes and needs an id." }
          count: { type: int, default: 500, description: "The largest number of documents in a request." }
          every: { type: duration, default: 1s, description: "How long a document may wait for others." }
          compress: { type: text, default: gzip, description: "gzip, zstd or none." }
          auth: { type: "mapping?", description: "As of the sink http, such as { basic: { user: u, password: p } }." }
          tls: { type: "mapping?", description: "As of the sink http." }
        sink:
          http:
            url: $(url)/_bulk
            body: |
              '{"' + ('$(action)' != 'upsert' ? '$(action)' : has(meta.retracts) && meta.retracts ? 'delete' : 'index')
                + '":{"_index":' + toJson(string($(index)))
                + (string($(id)) == '' ? '' : ',"_id":' + toJson(string($(id)))) + '}}'
                + ('$(action)' == 'upsert' && has(meta.retracts) && meta.retracts ? '' : '\n' + toJson(event))
            headers: { Content-Type: application/x-ndjson }
            encode: text
            batch: { count: $(count), every: $(every) }
            compress: $(compress)
            auth: $(auth)
            tls: $(tls)
            partial: |
              cel.bind(all, response.body.items.map(i, has(i.delete) ? i.delete : has(i.index) ? i.index : i.create),
                all.map(d,
                  response.body.errors && all.exists(o, o._id == d._id && (o.status == 429 || o.status >= 500)) ? 'retry'
                  : d.status < 300 || d.status == 409 || d.status == 404 && !has(d.error) ? 'ok' : toJson(d.error)))
    """#)

  static let clickhouse = Preset(
    "clickhouse", "Inserts events into a table of ClickHouse, many in a request.",
    #"""
    templates:
      clickhouse:
        description: |
          The fields of each event are the columns of a row. An insert that fails because of a row is halved until the
          row is alone, which goes to the errors output.
        parameters:
          url: { type: text, description: "The server, such as http://127.0.0.1:8123." }
          table: { type: text, description: "The table, such as logs or shop.orders." }
          count: { type: int, default: 10000, description: "The largest number of rows in an insert." }
          every: { type: duration, default: 1s, description: "How long a row may wait for others." }
          compress: { type: text, default: gzip, description: "gzip, zstd or none." }
          auth: { type: "mapping?", description: "As of the sink http, such as { basic: { user: u, password: p } }." }
          tls: { type: "mapping?", description: "As of the sink http." }
        sink:
          http:
            url: $(url)/?query=INSERT%20INTO%20$(table)%20FORMAT%20JSONEachRow&date_time_input_format=best_effort
            encode: ndjson
            batch: { count: $(count), bytes: 8MiB, every: $(every) }
            queue: 100000
            compress: $(compress)
            auth: $(auth)
            tls: $(tls)
    """#)

  static let loki = Preset(
    "loki", "Sends events to Grafana Loki as lines of streams, many in a request.",
    #"""
    templates:
      loki:
        description: |
          Each event is an entry, with its time and the line that 'line' makes of it. The labels name the stream; keep
          their values few, as Loki asks for, and put what differs from event to event into the line. A request has
          each stream once, its entries in the order of their times. Loki refuses a request with 400 if one of its
          entries is too old, and takes the others: the request is halved until the entry is alone, which goes to the
          errors output, and Loki takes an entry that it has already as the same one.
        parameters:
          url: { type: text, description: "The server, such as http://127.0.0.1:3100." }
          labels: { type: mapping, description: "Expressions by the names of the labels, such as { job: \"'web'\" }." }
          line: { type: expression, default: toJson(event), description: "The text of the entry." }
          time: { type: expression, default: meta.time, description: "The time of the entry, a timestamp." }
          count: { type: int, default: 500, description: "The largest number of entries in a request." }
          every: { type: duration, default: 1s, description: "How long an entry may wait for others." }
          compress: { type: text, default: none, description: "gzip or none." }
          tenant: { type: text?, description: "The header X-Scope-OrgID." }
          auth: { type: "mapping?", description: "As of the sink http." }
          tls: { type: "mapping?", description: "As of the sink http." }
          maxConcurrent: { type: int, default: 1, description: "How many requests may be under way at the same time." }
        sink:
          http:
            url: $(url)/loki/api/v1/push
            headers: { Content-Type: application/json, X-Scope-OrgID: $(tenant) }
            body: { labels: $(labels), time: "formatTime($(time), 'unixNanos')", line: $(line) }
            envelope:
              streams: |
                events.sortBy(e, int(e.time)).groupBy(e, e.labels, [e.time, e.line])
                  .map(g, {'stream': g.key, 'values': g.values})
            batch: { count: $(count), every: $(every) }
            compress: $(compress)
            maxConcurrent: $(maxConcurrent)
            auth: $(auth)
            tls: $(tls)
    """#)

  static let influxdb = Preset(
    "influxdb", "Writes events to InfluxDB as points, many in a request.",
    #"""
    templates:
      influxdb:
        description: |
          The interface of InfluxDB 2 and 3, /api/v2/write, which VictoriaMetrics and InfluxDB 1.8 have too: there the
          bucket is 'database/retention' and the token 'user:password'. Whole numbers are fields of the type integer,
          others are floats; write double(event.n) where a field is both. A null field is left out, and an event
          without a field goes to the errors output. A request that is refused because of a point is halved until the
          point is alone, which goes to the errors output; a point that is written twice is there once.
        parameters:
          url: { type: text, description: "The server, such as http://127.0.0.1:8086." }
          bucket: { type: text, description: "The bucket, as written in a URL (%20 for a space)." }
          org: { type: text, default: "", description: "The organization, as written in a URL." }
          token: { type: text, description: "A token that may write, a secret." }
          measurement: { type: expression, description: "The measurement, such as 'weather' or event.name." }
          tags: { type: any, default: {}, description: "Expressions by the names of the tags, or one for a map of all." }
          fields: { type: any, description: "Expressions by the names of the fields, or one for a map of all." }
          time: { type: expression, default: meta.time, description: "The time of the point, a timestamp." }
          precision: { type: text, default: ns, description: "The unit in which times are sent: ns, us, ms or s." }
          count: { type: int, default: 5000, description: "The largest number of points in a request." }
          every: { type: duration, default: 1s, description: "How long a point may wait for others." }
          compress: { type: text, default: gzip, description: "gzip or none." }
          tls: { type: "mapping?", description: "As of the sink http." }
        sink:
          http:
            url: $(url)/api/v2/write?org=$(org)&bucket=$(bucket)&precision=$(precision)
            headers: { Authorization: Token $(token) }
            body: { measurement: $(measurement), tags: $(tags), fields: $(fields), timestamp: $(time) }
            encode: { influx: { precision: $(precision) } }
            batch: { count: $(count), every: $(every) }
            compress: $(compress)
            tls: $(tls)
    """#)

  static let splunk = Preset(
    "splunk", "Sends events to Splunk's HTTP Event Collector, many in a request.",
    #"""
    templates:
      splunk:
        description: |
          The events of a request stand one after the other. Splunk answers 400 with the number of an event that is not
          well-formed (codes 6, 12, 13 and 15, numbers from 0): that event goes to the errors output, and the others
          are sent again, because the answer does not say that they were indexed. Where the number is missing, or means
          something else, the request is halved until the bad event is alone. 403 and the codes 10, 11 and 14 mean a
          wrong token or channel; 503, a full queue, is repeated. A 200 says that Splunk has received the events, not
          that they are on its disks: indexer acknowledgement is not asked for.
        parameters:
          url: { type: text, description: "The collector, such as https://splunk.example.com:8088." }
          token: { type: text, description: "The token, a secret." }
          event: { type: expression, default: event, description: "The indexed content, a text or a map." }
          time: { type: expression, default: meta.time, description: "The time of the event, a timestamp." }
          host: { type: "expression?", description: "Where it comes from." }
          source: { type: "expression?", description: "The file or program that it comes from." }
          sourcetype: { type: "expression?", description: "The type that Splunk parses it by." }
          index: { type: "expression?", description: "The index; by default that of the token." }
          fields: { type: "mapping?", description: "Expressions by the names of fields to be indexed." }
          channel: { type: "text?", description: "The header X-Splunk-Request-Channel, for tokens that want one." }
          count: { type: int, default: 500, description: "The largest number of events in a request." }
          every: { type: duration, default: 1s, description: "How long an event may wait for others." }
          compress: { type: text, default: gzip, description: "gzip or none." }
          tls: { type: "mapping?", description: "As of the sink http." }
        sink:
          http:
            url: $(url)/services/collector/event
            headers:
              Authorization: Splunk $(token)
              Content-Type: application/json
              X-Splunk-Request-Channel: $(channel)
            body:
              time: double(formatTime($(time), 'unixMillis')) / 1000.0
              host: $(host)
              source: $(source)
              sourcetype: $(sourcetype)
              index: $(index)
              fields: $(fields)
              event: $(event)
            batch: { count: $(count), every: $(every) }
            compress: $(compress)
            answer: |
              response.status != 400 ? '' : response.body.code in [10, 11, 14] ? 'fail'
                : response.body.code in [6, 12, 13, 15] && response.body['invalid-event-number'] < count ? 'partial' : ''
            partial: |
              response.status != 400 ? [] : lists.range(count).map(i, { 'index': i,
                'retry': i != response.body['invalid-event-number'], 'reason': response.body.text })
            tls: $(tls)
    """#)
}
