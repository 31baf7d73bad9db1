extension Preset {
  static let elasticsearch = Preset(
    "elasticsearch", "Indexes events in Elasticsearch or OpenSearch, many in a request.",
    #"""
    templates:
      elasticsearch:
        description: |
          Each event is a document of the index. The answer has a status for each document: those that are refused go to
          the errors output, and those that the server has no room for are sent again. With an id, a document that is
          there already counts as indexed, so what is delivered twice is indexed once. What goes to the errors output is
          the text of the request's two lines for the event.
        parameters:
          url: { type: text, description: "The server, such as http://127.0.0.1:9200." }
          index: { type: expression, description: "The index or data stream, such as 'orders' or event.kind." }
          id: { type: expression, default: "''", description: "The id of the document, such as meta.id; '': the server makes one." }
          action: { type: text, default: create, description: "create, which data streams need, or index, which replaces." }
          count: { type: int, default: 500, description: "The largest number of documents in a request." }
          every: { type: duration, default: 1s, description: "How long a document may wait for others." }
          compress: { type: text, default: gzip, description: "gzip, zstd or none." }
          auth: { type: "mapping?", description: "As of the sink http, such as { basic: { user: u, password: p } }." }
          tls: { type: "mapping?", description: "As of the sink http." }
        sink:
          chain:
            - map: |
                '{"$(action)":{"_index":' + toJson(string($(index)))
                  + (string($(id)) == '' ? '' : ',"_id":' + toJson(string($(id)))) + '}}\n' + toJson(event)
          http:
            url: $(url)/_bulk
            headers: { Content-Type: application/x-ndjson }
            encode: text
            batch: { count: $(count), every: $(every) }
            compress: $(compress)
            auth: $(auth)
            tls: $(tls)
            partial: |
              response.body.items.map(i, i['$(action)'].status < 300 || i['$(action)'].status == 409 ? 'ok'
                : i['$(action)'].status == 429 || i['$(action)'].status >= 500 ? 'retry' : toJson(i['$(action)'].error))
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
    "loki", "Sends events to Grafana Loki as lines of one stream.",
    #"""
    templates:
      loki:
        description: |
          Each event is an entry, with its time and the line that 'line' makes of it. The labels name the stream; keep
          their values few, as Loki asks for, and put what differs from event to event into the line.
        parameters:
          url: { type: text, description: "The server, such as http://127.0.0.1:3100." }
          labels: { type: mapping, description: "Expressions by the names of the labels, such as { job: \"'web'\" }." }
          line: { type: expression, default: toJson(event), description: "The text of the entry." }
          time: { type: expression, default: now, description: "The time of the entry, a timestamp." }
          tenant: { type: text?, description: "The header X-Scope-OrgID." }
          auth: { type: "mapping?", description: "As of the sink http." }
          tls: { type: "mapping?", description: "As of the sink http." }
          maxConcurrent: { type: int, default: 1, description: "How many requests may be under way at the same time." }
        sink:
          chain:
            - map:
                streams:
                  - stream: $(labels)
                    values:
                      - - string(int($(time)) * 1000 + $(time).getMilliseconds()) + '000000'
                        - $(line)
          http:
            url: $(url)/loki/api/v1/push
            headers: { Content-Type: application/json, X-Scope-OrgID: $(tenant) }
            maxConcurrent: $(maxConcurrent)
            auth: $(auth)
            tls: $(tls)
    """#)

  static let slack = Preset(
    "slack", "Posts events to a channel of Slack by an incoming webhook.",
    #"""
    templates:
      slack:
        description: A message for each event. Slack takes about one a second and says when to go on, which is obeyed.
        parameters:
          url: { type: template, description: "The address of the webhook, which is a secret: ${secret:slack}." }
          message: { type: expression, default: string(event), description: "The text of the message." }
        sink:
          chain:
            - map: { text: $(message) }
          http: { url: $(url) }
    """#)

  static let ntfy = Preset(
    "ntfy", "Sends events as notifications by ntfy.sh or a server of your own.",
    #"""
    templates:
      ntfy:
        description: A notification for each event, sent in ntfy's JSON form.
        parameters:
          url: { type: text, default: "https://ntfy.sh", description: "The server." }
          topic: { type: text, description: "The topic that devices subscribe to; who knows it can read it." }
          message: { type: expression, default: string(event), description: "The text." }
          title: { type: expression?, description: "The title." }
          priority: { type: expression?, description: "A number from 1, the least, to 5." }
          tags: { type: expression?, description: "A list of tags and names of emojis, such as ['warning']." }
          auth: { type: mapping?, description: "As of the sink http, such as { bearer: \"${secret:ntfy}\" }." }
        sink:
          chain:
            - map: { topic: "'$(topic)'", message: $(message), title: $(title), priority: $(priority), tags: $(tags) }
          http: { url: $(url), auth: $(auth) }
    """#)
}
