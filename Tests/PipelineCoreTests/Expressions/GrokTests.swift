import Testing

@testable import PipelineCore

/// Grok patterns from other tools: the syntax, the names, and lines of many formats.
@Suite struct GrokTests {
  /// Former silent errors: fields lost or confused, parts of texts taken for the whole.
  @Test(arguments: [
    // A user's own group may have any name.
    ("grok('a 1', '%{WORD:w} (?<rx0>[0-9])')", #"{"w":"a","rx0":"1"}"#),
    ("grok('a 1', '(?<rx0>[a-z]) %{INT:n}')", #"{"rx0":"a","n":"1"}"#),
    // A repeated name: no match is lost.
    ("grok('a b', '%{WORD:w} %{WORD:w}')", #"{"w":["a","b"]}"#),
    (
      #"grok('[a@1 k="x]y"][b] z', '%{SYSLOG5424SD:sd} (?<rest>.*)')"#, #"{"sd":"[a@1 k=\"x]y\"][b]","rest":"z"}"#
    ),
    ("grok('1 b 2', '%{INT:n:int} b %{INT:n:int}')", #"{"n":[1,2]}"#),
    ("grok('b', '(?:%{INT:x}|%{WORD:x})')", #"{"x":"b"}"#),
    // Texts of several lines.
    ("grok('a\\nb\\nc', r'(?m)^%{WORD:w}%{GREEDYDATA:rest}')", #"{"w":"a","rest":"\nb\nc"}"#),
    ("grok('E: x\\n at y', 'E: %{GREEDYDATA:all}').all", #""x\n at y""#),
    ("grok('a\\nb', r'(?-m)a(?<r>.*)')", "{}"),
    // Times.
    ("grok('at 23:59:60.', '%{TIME:t}').t", #""23:59:60""#),
    ("optional.try(grok('10.0.0.1:080', '%{TIME:t}')).hasValue()", "false"),
    ("optional.try(grok('123:45:678', '%{TIME:t}')).hasValue()", "false"),
    ("grok('2026-01-31T23:59:60.5+01:00', '^%{TIMESTAMP_ISO8601:t}$').t", #""2026-01-31T23:59:60.5+01:00""#),
    ("optional.try(grok('GET', '%{TZ:z}')).hasValue()", "false"), ("grok('12:00 CEST', '%{TZ:z}').z", #""CEST""#),
    ("grok('in 2026', 'in %{YEAR:y}$').y", #""2026""#),
    // Paths and names.
    ("grok('(/var/log/x).', '%{PATH:p}').p", #""/var/log/x""#),
    ("grok('\"/a/b\",', '%{PATH:p}').p", #""/a/b""#), ("grok('/dev/ttyS0 x', '%{TTY:t}').t", #""/dev/ttyS0""#),
    ("grok('/dev/pts/3', '%{TTY:t}').t", #""/dev/pts/3""#),
    ("grok(r'\"C:\\Program Files\\x.exe\",', '%{WINPATH:p}').p", #""C:\\Program Files\\x.exe""#),
    ("grok('x10.0.0.1y', '%{IPV4:a}').a", #""10.0.0.1""#),
    ("optional.try(grok('1110.0.0.1', '%{IPV4:a}')).hasValue()", "false"),
    ("optional.try(grok('ERR', '%{BASE16FLOAT:f}')).hasValue()", "false"),
    ("grok('0x1A.8', '%{BASE16FLOAT:f}').f", #""0x1A.8""#),
    ("grok('<urn:isbn:0451450523>', '%{URN:u}').u", #""urn:isbn:0451450523""#),
    ("grok('to <ann.b+c@example.org>', '%{EMAILADDRESS:m}').m", #""ann.b+c@example.org""#),
    ("optional.try(grok('.@x', '^%{EMAILADDRESS:m}')).hasValue()", "false"),
    // Letters of all languages match.
    ("grok('état größer 日本', '%{WORD:a} %{WORD:b} %{WORD:c}')", #"{"a":"état","b":"größer","c":"日本"}"#),
    ("grok('“hello”', '%{WORD:w}').w", #""hello""#), ("grok('ÄRGER', '(?i)^(?<w>ärger)$').w", #""ÄRGER""#),
  ])
  func isNeverSilentlyWrong(_ expression: String, _ expected: String) {
    // `evaluate` shows results without spaces.
    #expect(evaluate(expression) == expected.replacing(" ", with: ""), "\(expression)")
  }

  @Test(arguments: [
    ("grok('order A-17', '%{ORDER:order}', {'ORDER': '[A-Z]-%{INT}'})", #"{"order":"A-17"}"#),
    ("grok('x', ['%{A:a}', '%{B:b}'], {'A': 'y', 'B': 'x'})", #"{"b":"x"}"#),
    // User-defined patterns take precedence over built-in ones, even within built-in ones.
    ("grok('host=[a]', 'host=%{IPORHOST:h}', {'HOSTNAME': r'\\[a\\]'})", #"{"h":"[a]"}"#),
    // Maps of fields.
    (
      "grok('ann 10.0.0.1 80', '%{WORD:user.name} %{IP:[source][ip]} %{INT:[source][port]:int}')",
      #"{"user":{"name":"ann"},"source":{"ip":"10.0.0.1","port":80}}"#
    ), ("grok('a', '%{WORD:x.y}(?: %{WORD:x.z})?')", #"{"x":{"y":"a"}}"#), ("grok('a', 'a(?<m.n>b)?')", "{}"),
    (
      "grok('1 2.5 true 7', '%{INT:a:long} %{NUMBER:b:double} %{WORD:c:boolean} %{INT:d:string}')",
      #"{"a":1,"b":2.5,"c":true,"d":"7"}"#
    ), ("grok('2000', '(?<y>(?>[0-9][0-9]){1,2})')", #"{"y":"2000"}"#),
    // Features that Oniguruma has and RE2 lacks.
    ("grok('ff-', r'(?<x>\\h+)-')", #"{"x":"ff"}"#), ("grok('a1', '(?<![0-9])(?<n>[0-9])(?![0-9])')", #"{"n":"1"}"#),
    ("grok('\"a\\\\\"b\"', r'(?<q>(?>\"(?>\\\\.|[^\\\\\"]+)+\"))').q", #""\"a\\\"b\"""#),
    ("grok('aaab', '(?<a>a++)b')", #"{"a":"aaa"}"#), ("grok('aa', '(?<a>a{,2})').a", #""aa""#),
    ("grok('x', '(?#a word)(?<w>x)')", #"{"w":"x"}"#), ("grok('é', r'(?<l>\\p{L})').l", #""é""#),
    ("grok('a_b', '(?<w>[[[:alpha:]]_]+)').w", #""a_b""#), ("grok('{a}', '{(?<x>a)}').x", #""a""#),
  ])
  func takesWhatPeopleBring(_ expression: String, _ expected: String) {
    // `evaluate` shows results without spaces.
    #expect(evaluate(expression) == expected.replacing(" ", with: ""), "\(expression)")
  }

  /// What cannot be done is an error that names it.
  @Test(arguments: [
    (#"grok(event, r'(a)\1')"#, "a reference to a group, is not supported"),
    ("grok(event, '(?=abc)')", "'(?=...)' can look at one character only"),
    ("grok(event, '(?<=id=)x')", "'(?<=...)' can look at one character only"),
    ("grok(event, '(?>a|ab)c')", "this '(?>' would match something else as a plain group"),
    ("grok(event, '(?>[a-z]+)a')", "this '(?>' would match something else as a plain group"),
    ("grok(event, '(?(1)a|b)')", "a condition, is not supported"),
    (#"grok(event, r'a\Z')"#, "'\\Z' is not possible"),
    (#"grok(event, r'\p{Greek}')"#, "no class of characters 'Greek'"),
    ("grok(event, '[a[bc]]')", "'[' inside a class is ambiguous"), ("grok(event, '[a-z&&[^b]]')", "'&&'"),
    ("grok(event, '%{WORD:a} %{WORD:a.b}')", "the field 'a.b' is part of another field"),
    ("grok(event, '%{WORD:[a]b}')", "'[a]b' cannot be the name of a field"),
    ("grok(event, '%{A}', {'A': '%{B}', 'B': '%{A}'})", "is part of itself: A, B, A"),
    ("grok(event, '%{A}', {'A': '('})", "in the grok pattern 'A': missing )"),
    ("grok(event, '%{A:x}', {'A b': 'y'})", "'A b' cannot be the name of a grok pattern"),
    ("grok(event, '%{WORD:a:integer}')", "a grok field cannot be of type 'integer'"),
    ("grok(event, '%{WORD')", "'%{' is not closed"), ("grok(event, 'a{2,1}')", "in the wrong order"),
  ])
  func namesWhatIsNotPossible(_ expression: String, _ expected: String) {
    let got = diagnose(expression)
    #expect(got.count == 1 && got[0].contains(expected), "\(expression): \(got)")
  }

  /// Lines as the formats' documentation describes them, and fields of each.
  private static let lines: [(pattern: String, text: String, common: String, ecs: String)] = [
    (
      "SYSLOGLINE", "2026-01-31T08:00:01.123+01:00 web1 sshd[812]: Accepted key",
      #"timestamp8601="2026-01-31T08:00:01.123+01:00" logsource="web1" program="sshd" pid="812" message="Accepted key""#,
      #"timestamp="2026-01-31T08:00:01.123+01:00" host.hostname="web1" process.pid=812"#
    ),
    (
      "CRONLOG", "Jan  3 04:17:01 db CRON[77]: (root) CMD (run-parts /etc/cron.hourly)",
      #"user="root" action="CMD" message="run-parts /etc/cron.hourly""#, #"system.cron.action="CMD" user.name="root""#
    ),
    (
      "SYSLOG5424LINE", #"<165>1 2026-01-31T22:14:15.003Z app.example.org billing 91 ID47 [ex@1 a="x]y"] paid"#,
      #"syslog5424_pri="165" syslog5424_app="billing" syslog5424_proc="91" syslog5424_msg="paid""#,
      #"log.syslog.priority=165 process.pid=91 event.code="ID47" message="paid""#
    ),
    (
      "COMMONAPACHELOG", #"10.0.0.1 - - [31/Jan/2026:08:00:01 +0100] "GET /x HTTP/1.1" - -"#,
      #"clientip="10.0.0.1" ident="-" auth="-" verb="GET" !response !bytes"#,
      #"source.address="10.0.0.1" http.request.method="GET" !user !apache"#
    ),
    (
      "COMBINEDAPACHELOG", #"10.0.0.1 - ann [31/Jan/2026:08:00:01 +0100] "GET /x?y=1 HTTP/1.1" 200 12 "-" "curl/8""#,
      #"auth="ann" request="/x?y=1" response="200" bytes="12" referrer="\"-\"" agent="\"curl/8\"""#,
      #"user.name="ann" http.response.status_code=200 http.response.body.bytes=12 user_agent.original="curl/8" !http.request.referrer"#
    ),
    (
      "HTTPD_ERRORLOG",
      "[Sat Jan 31 08:00:01.123456 2026] [core:error] [pid 35:tid 4411] [client 10.0.0.1:5612] AH00037: Symbolic link",
      #"module="core" loglevel="error" pid="35" tid="4411" clientip="10.0.0.1" errorcode="AH00037" message="Symbolic link""#,
      #"apache.error.module="core" process.pid=35 process.thread.id=4411 source.port=5612 error.code="AH00037""#
    ),
    (
      "JAVASTACKTRACEPART", "\tat org.example.Shop.buy(Shop.java:42)",
      #"class="org.example.Shop" method="buy" file="Shop.java" line="42""#,
      #"log.origin.function="buy" log.origin.file.line=42"#
    ),
    (
      "CATALINALOG", "31-Jan-2026 08:00:01.123 WARNING [main] org.apache.Server.await Port busy",
      #"level="WARNING" thread="main" class="org.apache.Server" method="await" logmessage="Port busy""#,
      #"log.level="WARNING" java.log.origin.thread.name="main" message="Port busy""#
    ),
    (
      "TOMCATLOG", "2026-01-31 08:00:01,123 +0100 | ERROR | org.example.Api - failed",
      #"level="ERROR" class="org.example.Api" logmessage="failed""#, #"log.level="ERROR" message="failed""#
    ),
    (
      "HAPROXYHTTP",
      #"Jan 31 08:00:01 lb haproxy[9]: 10.0.0.7:3317 [31/Jan/2026:08:00:00.655] front back/s1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {x} {} "GET /index.html HTTP/1.1""#,
      #"client_ip="10.0.0.7" frontend_name="front" server_name="s1" time_duration="109" http_status_code="200" bytes_read="2750" http_verb="GET" http_request="/index.html" haproxy_milliseconds="655""#,
      #"source.port=3317 haproxy.server_name="s1" http.response.status_code=200 url.path="/index.html" haproxy.http.request.captured_headers="x" !haproxy.http.request.captured_cookie"#
    ),
    (
      "HAPROXYTCP",
      "Jan 31 08:00:01 lb haproxy[9]: 10.0.0.7:3317 [31/Jan/2026:08:00:00.655] front back/s1 0/0/5007 212 -- 0/0/0/0/3 0/0",
      #"time_duration="5007" bytes_read="212" termination_state="--" retries="3""#,
      #"source.bytes=212 haproxy.connections.retries=3"#
    ),
    (
      "SQUID3",
      "1769842801.123    57 10.0.0.9 TCP_MISS/200 1934 GET http://example.org/ - HIER_DIRECT/192.0.2.1 text/html",
      #"duration="57" cache_result="TCP_MISS" status_code="200" url="http://example.org/" user="-" server="192.0.2.1""#,
      #"squid.request.duration=57 http.response.status_code=200 http.response.mime_type="text/html""#
    ),
    (
      "POSTGRESQL", "2026-01-31 08:00:01.123 CET shop 5f1c.2a 7321", #"user_id="shop" pid="7321""#,
      #"event.timezone="CET" user.name="shop" process.pid=7321"#
    ),
    (
      "REDISLOG", "[4018] 31 Jan 08:00:01.123 * Background saving started",
      #"pid="4018" timestamp="31 Jan 08:00:01.123""#,
      "process.pid=4018"
    ),
    (
      "REDISMONLOG", #"1769842801.123456 [0 127.0.0.1:60866] "get" "user:7""#,
      #"database="0" client="127.0.0.1" command="get" params="\"user:7\"""#,
      #"client.port=60866 redis.command.name="get""#
    ),
    (
      "MONGO3_LOG", "2026-01-31T08:00:01.123+0100 I NETWORK  [conn7] end connection 127.0.0.1:40112",
      #"severity="I" component="NETWORK" context="conn7" message="end connection 127.0.0.1:40112""#,
      #"log.level="I" mongodb.component="NETWORK" mongodb.context="conn7""#
    ),
    (
      "ELB_ACCESS_LOG",
      #"2026-01-31T08:00:01.123456Z lb 192.0.2.7:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 "GET http://example.org:80/x?y=1 HTTP/1.1""#,
      #"elb="lb" clientport=2817 response=200 bytes=29 verb="GET" path="/x" params="?y=1" urihost="example.org:80""#,
      #"aws.elb.name="lb" source.port=2817 url.path="/x" url.query="y=1" url.port=80"#
    ),
    (
      "S3_ACCESS_LOG",
      #"79a59df9 photos [31/Jan/2026:08:00:01 +0000] 192.0.2.3 79a59df9 3E57427F REST.GET.VERSIONING - "GET /photos?versioning HTTP/1.1" 200 - 113 - 7 - "-" "S3Console/0.4" -"#,
      #"owner="79a59df9" bucket="photos" operation="REST.GET.VERSIONING" response=200 bytes=113 request_time_ms=7 !error_code agent="\"S3Console/0.4\"""#,
      #"aws.s3access.bucket="photos" http.response.status_code=200 user_agent.original="S3Console/0.4" !http.request.referrer"#
    ),
    (
      "CLOUDFRONT_ACCESS_LOG",
      "2026-01-31\t08:00:01\tLHR3\t2390\t192.0.2.3\tGET\td1.cloudfront.net\t/a.png\t200\t-\tMozilla/5.0\t-\t-\tHit\tabc==\td1.cloudfront.net\thttps\t121\t0.002\t-\tTLSv1.3\tTLS_AES_128\tHit",
      #"x_edge_location="LHR3" sc_bytes=2390 cs_uri_stem="/a.png" sc_status=200 time_taken=0.002 x_edge_response_result_type="Hit""#,
      #"destination.bytes=2390 url.path="/a.png" http.response.status_code=200 aws.cloudfront.time_taken=0.002 !url.query"#
    ),
    (
      "BIND9",
      "31-Jan-2026 08:00:01.123 queries: info: client @0x7f 192.0.2.5#4912 (a.example.org): query: a.example.org IN AAAA + (192.0.2.53)",
      #"loglevel="info" clientip="192.0.2.5" clientport="4912" dns="192.0.2.53""#,
      #"client.port=4912 dns.question.name="a.example.org" dns.question.type="AAAA" server.ip="192.0.2.53""#
    ),
    (
      "CISCO_TAGGED_SYSLOG", "<166>Jan 31 2026 08:00:01: %ASA-6-302013: ", #"syslog_pri="166" ciscotag="ASA-6-302013""#,
      #"log.syslog.priority=166 cisco.asa.tag="ASA-6-302013""#
    ),
    (
      "CISCOFW302013_302014_302015_302016",
      "Teardown TCP connection 77 for outside:192.0.2.9/443 to inside:10.0.0.4/51022 duration 0:00:30 bytes 4212 TCP FINs",
      #"action="Teardown" protocol="TCP" connection_id="77" src_interface="outside" dst_port="51022" bytes="4212" reason="TCP FINs""#,
      #"cisco.asa.outcome="Teardown" source.port=443 network.bytes=4212 event.reason="TCP FINs""#
    ),
    (
      "CISCOFW106023", #"Deny tcp src outside:192.0.2.9/33 dst inside:10.0.0.4/22 by access-group "acl" [0x0, 0x0]"#,
      #"action="Deny" src_ip="192.0.2.9" dst_port="22" policy_id="acl""#,
      #"cisco.asa.rule_name="acl" source.ip="192.0.2.9" destination.port=22"#
    ),
    (
      "IPTABLES",
      "IN=eth0 OUT= MAC=00:00:5e:00:53:01:00:00:5e:00:53:02:08:00 SRC=192.0.2.9 DST=10.0.0.4 LEN=60 TOS=0x00 PREC=0x00 TTL=51 ID=61442 DF PROTO=TCP SPT=58440 DPT=22 WINDOW=64240 RES=0x00 SYN URGP=0",
      #"nf_in_interface="eth0" nf_src_ip="192.0.2.9" nf_ttl="51" nf_protocol="TCP" nf_dst_port="22""#,
      #"observer.ingress.interface.name="eth0" source.mac="00:00:5e:00:53:02" destination.port=22 iptables.fragment_flags="DF""#
    ),
    (
      "NAGIOSLOGLINE", "[1769842801] SERVICE ALERT: web;HTTP;CRITICAL;SOFT;1;Connection refused",
      #"nagios_epoch="1769842801" nagios_hostname="web" nagios_state="CRITICAL" nagios_attempt="1""#,
      #"service.name="HTTP" nagios.log.attempt=1 message="Connection refused""#
    ),
    (
      "ZEEK_CONN",
      "1769842801.5\tCx1\t10.0.0.4\t51022\t192.0.2.53\t53\tudp\tdns\t0.02\t45\t89\tSF\tT\tF\t0\tDd\t1\t73\t1\t117\t-",
      #"uid="Cx1" service="dns" orig_bytes="45" !tunnel_parents"#,
      #"zeek.session_id="Cx1" source.port=51022 zeek.connection.duration=0.02 destination.bytes=117"#
    ),
    (
      "BACULA_LOGLINE", "31-Jan 08:00 backup-dir JobId 12: Start Backup JobId 12, Job=nightly.2026",
      #"hostname="backup-dir" jobid="12" job="nightly.2026""#,
      #"host.hostname="backup-dir" bacula.job.name="nightly.2026""#
    ),
    (
      "EXIM", "2026-01-31 08:00:01 1rVxAB-0001Ab-2C <= ann@example.org H=mx.example.org [192.0.2.8] P=esmtps S=2811",
      #"exim_msgid="1rVxAB-0001Ab-2C" exim_sender_email="ann@example.org" remote_host="192.0.2.8" exim_msg_size="2811""#,
      #"exim.log.message.size=2811 source.ip="192.0.2.8""#
    ),
    (
      "RAILS3",
      "Started GET \"/a?b=1\" for 10.0.0.1 at 2026-01-31 08:00:01 +0100\nProcessing by ShopController#show as HTML\nRendered x\nCompleted 200 OK in 52.1ms (Views: 40.0ms | ActiveRecord: 3.2ms)",
      #"verb="GET" controller="ShopController" action="show" response="200" totalms="52.1" activerecordms="3.2""#,
      #"http.response.status_code=200 rails.request.duration.total=52.1"#
    ),
  ]

  /// `a.b="x"`: the field must have this value; `!a`: the field must not exist.
  @Test(arguments: lines.indices) func readsLinesOfManyFormats(_ index: Int) throws {
    let line = Self.lines[index]
    for (function, wanted) in [("grok", line.common), ("grok.ecs", line.ecs)] {
      let quoted = line.text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"")
        .replacing("\n", with: "\\n").replacing("\t", with: "\\t")
      let call = "\(function)(event.t, '^%{\(line.pattern)}')"
      for expected in wanted.split(separator: " ", omittingEmptySubsequences: true).reduce(
        into: [String](), Self.joining)
      {
        if expected.hasPrefix("!") {
          #expect(
            evaluate("has(\(call).\(expected.dropFirst()))", "{\"t\":\"\(quoted)\"}") == "false",
            "\(line.pattern) \(expected)")
          continue
        }
        let parts = expected.split(separator: "=", maxSplits: 1).map(String.init)
        let got = evaluate("\(call).\(parts[0])", "{\"t\":\"\(quoted)\"}")
        #expect(got == parts[1].replacing(" ", with: ""), "\(line.pattern) \(expected)")
      }
    }
  }

  /// Joins texts with spaces again.
  private static func joining(_ all: inout [String], _ next: Substring) {
    if let last = all.last, last.replacing("\\\"", with: "").count(where: { $0 == "\"" }) % 2 == 1 {
      all[all.count - 1] += " " + next
    } else {
      all.append(String(next))
    }
  }

  /// The page lists the differences from Logstash's patterns, and they are as described.
  @Test(arguments: [
    ("`CATALINALOG`", "grok('31-Jan-2026 08:00:01.123 WARNING [main] a.B.c x', '%{CATALINALOG}').level", #""WARNING""#),
    (
      "Zeek",
      "has(grok(['1.5', 'C', '10.0.0.4', '5', '192.0.2.5', '53', 'udp', '-', '0.02', '45', '89', 'SF', 'T', 'F', '0', 'Dd',"
        + #" '1', '73', '1', '117', '-'].join('\t'), '^%{ZEEK_CONN}$').service)"#, "false"
    ),
    ("`NUMBER`", "grok('1e3', '^%{NUMBER:n}$').n", #""1e3""#),
  ])
  func differencesStandOnThePage(_ name: String, _ call: String, _ expected: String) throws {
    let page = try #require(FunctionRegistry.described("grok")).details
    let differences = try #require(page.split(separator: "\n\n").first { $0.contains("differ") })
    #expect(differences.contains(name))
    #expect(evaluate(call) == expected)
  }

  /// Every pattern compiles with both namings, within the limits, and its fields have one shape.
  @Test func allPatternsCompile() throws {
    #expect(GrokLibrary.names.count > 330)
    for name in GrokLibrary.names {
      for naming in [GrokPattern.Naming.common, .ecs] {
        do throws(GrokPattern.Fault) {
          _ = try GrokPattern(Array("%{\(name)}".utf8), [], naming)
        } catch {
          Issue.record("\(name) \(naming): \(error.message)")
        }
      }
    }
  }

  /// Patterns that the pipeline file defines.
  @Test func definitionsInTheFile() throws {
    func check(_ patterns: String, _ expression: String) -> [String] {
      let text = """
        patterns:
        \(patterns)
        sources: { s: { values: ['order A-17'] } }
        sinks: { out: { from: s, chain: [{ map: \(expression) }], discard: {} } }
        """
      return CheckingTests.check(Array(text.utf8)).diagnostics.map { "\($0.message) \($0.help ?? "")" }
    }
    #expect(check("  ORDER: '[A-Z]-%{INT}'", "\"grok(event, '%{ORDER:order}')\"") == [])
    #expect(
      check("  ORDER: '[A-Z]-%{INT}'", "\"grok(event, '%{ORDR:order}')\"").contains {
        $0.contains("Did you mean 'ORDER'")
      })
    #expect(check("  ORDER: '[A-Z'", "event").contains { $0.contains("in the grok pattern 'ORDER': missing ]") })
    #expect(check("  'A B': 'x'", "event").contains { $0.contains("'A B' cannot be the name of a grok pattern") })
    #expect(check("  A: '%{A}'", "event").contains { $0.contains("is part of itself") })
  }
}
