/// The well-known grok patterns. Patterns and fields have the names that Logstash made common, so that patterns written
/// for it can be used; the definitions follow the documentation of the formats.
///
/// A line is a name and its definition. `%{NAME:common|ecs:int}` has a name for each ``GrokPattern/Naming``, either of
/// which may be missing; `~{...}` is that or a hyphen, which stands for a missing value. Names that start with `_` are
/// parts of other patterns and not for users.
enum GrokLibrary {
  static let sets: [(title: String, text: String)] = [
    ("Numbers and words", words), ("People, hosts, paths and addresses", places), ("Time", time),
    ("Syslog and cron", syslog), ("Web servers and proxies", web), ("Amazon", amazon), ("Java", java),
    ("Databases", databases), ("DNS, mail and backup", services), ("Firewalls", firewalls + cisco), ("Nagios", nagios),
    ("Zeek", zeek), ("Others", others),
  ]

  /// The definitions by name, in the order of the sets.
  private static let meanings: [String: String] = {
    var result: [String: String] = [:]
    for set in sets {
      for (name, meaning) in lines(set.text) { result[name] = expandingOptions(meaning) }
    }
    return result
  }()

  static func meaning(_ name: String, _ naming: GrokPattern.Naming) -> String? {
    (naming == .ecs ? meanings["_ecs_\(name)"] : nil) ?? meanings[name]
  }

  /// The names for users, sorted.
  static let names: [String] = meanings.keys.filter { !$0.hasPrefix("_") }.sorted()

  /// The names of a set, in order.
  static func names(of text: String) -> [String] { lines(text).map(\.0).filter { !$0.hasPrefix("_") } }

  private static func lines(_ text: String) -> [(String, String)] {
    text.split(separator: "\n").map { line -> (String, String) in
      let parts = line.split(separator: " ", maxSplits: 1)
      return (String(parts[0]), parts.count > 1 ? String(parts[1]) : "")
    }
  }

  /// `~{X}` is `(?:-|%{X})`.
  private static func expandingOptions(_ meaning: String) -> String {
    var result = ""
    for (index, part) in meaning.split(separator: "~{", omittingEmptySubsequences: false).enumerated() {
      guard index > 0, let close = part.firstIndex(of: "}") else {
        result += part
        continue
      }
      result += "(?:-|%{\(part[...close]))"
      result += part.suffix(from: part.index(after: close))
    }
    return result
  }

  // MARK: Parts of others

  private static let words = #"""
    INT [+-]?[0-9]+
    BASE10NUM (?<![0-9.+-])[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?
    NUMBER %{BASE10NUM}
    POSINT \b[1-9][0-9]*\b
    NONNEGINT \b[0-9]+\b
    BASE16NUM (?<![0-9A-Fa-f])[+-]?(?:0[xX])?[0-9A-Fa-f]+
    BASE16FLOAT \b(?<![0-9A-Fa-f.])[+-]?(?:0[xX])?(?:[0-9A-Fa-f]+(?:\.[0-9A-Fa-f]*)?|\.[0-9A-Fa-f]+)\b
    BOOL (?i:true|false)
    WORD \b\w+\b
    NOTSPACE \S+
    SPACE \s*
    DATA .*?
    GREEDYDATA .*
    QUOTEDSTRING (?<!\\)(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`)
    QS %{QUOTEDSTRING}
    UUID [0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}
    URN (?i:urn):[0-9A-Za-z][0-9A-Za-z-]{0,31}:(?:[0-9A-Za-z._~!$&'()*+,;=:@/?#-]|%[0-9A-Fa-f]{2})+
    LOGLEVEL (?i:trace|debug|info(?:rmation)?|inf|notice|warn(?:ing)?|err(?:or)?|crit(?:ical)?|fatal|severe|alert|emerg(?:ency)?|panic)
    """#

  private static let places = #"""
    USERNAME [0-9A-Za-z._-]+
    USER %{USERNAME}
    _atom [0-9A-Za-z!#$%&'*+/=?^_`{|}~-]+
    EMAILLOCALPART %{_atom}(?:\.%{_atom})*
    EMAILADDRESS %{EMAILLOCALPART}@%{HOSTNAME}
    _octet (?:25[0-5]|2[0-4][0-9]|[01]?[0-9]{1,2})
    _v4 %{_octet}(?:\.%{_octet}){3}
    _h [0-9A-Fa-f]{1,4}
    _v6a (?:%{_h}:){6}%{_v4}|::(?:%{_h}:){0,5}%{_v4}|(?:%{_h}:){1,5}:(?:%{_h}:){0,4}%{_v4}|(?:%{_h}:){7}%{_h}
    _v6b %{_h}:(?::%{_h}){1,6}|(?:%{_h}:){1,2}(?::%{_h}){1,5}|(?:%{_h}:){1,3}(?::%{_h}){1,4}|(?:%{_h}:){1,4}(?::%{_h}){1,3}
    _v6c (?:%{_h}:){1,5}(?::%{_h}){1,2}|(?:%{_h}:){1,6}:%{_h}|(?:%{_h}:){1,7}:|:(?:(?::%{_h}){1,7}|:)
    IPV6 (?:%{_v6a}|%{_v6b}|%{_v6c})(?:%[0-9A-Za-z._~-]+)?
    IPV4 (?<![0-9])%{_v4}(?![0-9])
    IP %{IPV6}|%{IPV4}
    _label [0-9A-Za-z][0-9A-Za-z-]*
    HOSTNAME \b%{_label}(?:\.%{_label})*\.?
    HOST %{HOSTNAME}
    IPORHOST %{IP}|%{HOSTNAME}
    HOSTPORT %{IPORHOST}:%{POSINT}
    CISCOMAC (?:[0-9A-Fa-f]{4}\.){2}[0-9A-Fa-f]{4}
    WINDOWSMAC (?:[0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2}
    COMMONMAC (?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}
    MAC %{CISCOMAC}|%{WINDOWSMAC}|%{COMMONMAC}
    UNIXPATH (?:/[\w%!$@:.,+~-]*)+
    WINPATH (?:[A-Za-z]+:|\\)(?:\\[^\\/:*?"<>|\r\n]*)+(?<![\s.,;])
    PATH %{UNIXPATH}|%{WINPATH}
    TTY /dev/(?:pts/[0-9]+|tty[0-9A-Za-z]*|console)
    URIPROTO [A-Za-z][0-9A-Za-z+.-]+
    URIHOST (?:\[%{IPV6}\]|%{IPORHOST})(?::%{POSINT})?
    URIPATH (?:/[0-9A-Za-z$.+!*'(){},~:;=@#%&_-]*)+
    URIQUERY [0-9A-Za-z$.+!*'|(){},~@#%&/=:;_?\[\]<>-]*
    URIPARAM \?%{URIQUERY}
    URIPATHPARAM %{URIPATH}(?:%{URIPARAM})?
    URI %{URIPROTO}://(?:%{USER}(?::[^@]*)?@)?(?:%{URIHOST})?(?:%{URIPATHPARAM})?
    """#

  private static let time = #"""
    MONTH \b(?:[Jj]an(?:uar)?y?|[Ff]eb(?:ruar)?y?|[Mm]ar(?:ch)?|[Mm]ärz?|[Mm]rz|[Aa]pr(?:il)?|[Mm]a[iy]|[Jj]un[ei]?|[Jj]ul[iy]?|[Aa]ug(?:ust)?|[Ss]ep(?:t(?:ember)?)?|[Oo][ck]t(?:ober)?|[Nn]ov(?:ember)?|[Dd]e[cz](?:ember)?)\b
    MONTHNUM 1[0-2]|0?[1-9]
    MONTHNUM2 0[1-9]|1[0-2]
    MONTHDAY 3[01]|[12][0-9]|0?[1-9]
    DAY \b(?:Mon(?:day)?|Tue(?:sday)?|Wed(?:nesday)?|Thu(?:rsday)?|Fri(?:day)?|Sat(?:urday)?|Sun(?:day)?)\b
    YEAR [0-9]{4}|[0-9]{2}
    HOUR 2[0-3]|[01]?[0-9]
    MINUTE [0-5][0-9]
    SECOND (?:60|[0-5]?[0-9])(?:[:.,][0-9]+)?
    TIME (?<![0-9])%{HOUR}:%{MINUTE}:%{SECOND}(?![0-9])
    DATE_US %{MONTHNUM}[/-]%{MONTHDAY}[/-]%{YEAR}
    DATE_EU %{MONTHDAY}[./-]%{MONTHNUM}[./-]%{YEAR}
    DATE %{DATE_US}|%{DATE_EU}
    DATESTAMP %{DATE}[- ]%{TIME}
    ISO8601_TIMEZONE Z|[+-]%{HOUR}:?%{MINUTE}
    ISO8601_SECOND %{SECOND}
    TIMESTAMP_ISO8601 %{YEAR}-%{MONTHNUM}-%{MONTHDAY}[T ]%{HOUR}:?%{MINUTE}(?::?%{SECOND})?(?:%{ISO8601_TIMEZONE})?
    TZ \b(?:UTC|GMT|[AECMP][SD]T|AK[SD]T|HST|WES?T|CES?T|EES?T|MSK|BST|IST|JST|KST|HKT|SGT|AWST|A[CE][SD]T|NZ[SD]T|BRT|ART)\b
    DATESTAMP_RFC822 %{DAY} %{MONTH} %{MONTHDAY} %{YEAR} %{TIME} %{TZ}
    DATESTAMP_RFC2822 %{DAY}, %{MONTHDAY} %{MONTH} %{YEAR} %{TIME} %{ISO8601_TIMEZONE}
    DATESTAMP_OTHER %{DAY} %{MONTH} %{MONTHDAY} %{TIME} %{TZ} %{YEAR}
    DATESTAMP_EVENTLOG %{YEAR}%{MONTHNUM2}(?:3[01]|[12][0-9]|0[1-9])(?:2[0-3]|[01][0-9])%{MINUTE}[0-5][0-9]
    HTTPDATE %{MONTHDAY}/%{MONTH}/%{YEAR}:%{TIME} %{INT}
    """#

  // MARK: Formats

  private static let syslog = #"""
    SYSLOGTIMESTAMP %{MONTH} +%{MONTHDAY} %{TIME}
    PROG [!-Z\\^-~]+
    SYSLOGPROG %{PROG:program|process.name}(?:\[%{POSINT:pid|process.pid:int}\])?
    SYSLOGHOST %{IPORHOST}
    SYSLOGFACILITY <%{NONNEGINT:facility|log.syslog.facility.code:int}\.%{NONNEGINT:priority|log.syslog.priority:int}>
    _host %{SYSLOGHOST:logsource|host.hostname}
    SYSLOGBASE %{SYSLOGTIMESTAMP:timestamp} (?:%{SYSLOGFACILITY} )?%{_host} %{SYSLOGPROG}:
    SYSLOGBASE2 (?:%{SYSLOGTIMESTAMP:timestamp}|%{TIMESTAMP_ISO8601:timestamp8601|timestamp})(?: %{SYSLOGFACILITY})?(?: %{_host})?(?: %{SYSLOGPROG}:)?
    SYSLOGLINE %{SYSLOGBASE2} %{GREEDYDATA:message}
    SYSLOGPAMSESSION %{SYSLOGBASE} (?<message>%{WORD:pam_module|system.auth.pam.module}\(%{DATA:pam_caller|system.auth.pam.origin}\): session %{WORD:pam_session_state|system.auth.pam.session_state} for user %{USERNAME:username|user.name}(?:\([^)]*\))?(?: by %{GREEDYDATA:pam_by|})?)
    CRON_ACTION [A-Z ]+
    CRONLOG %{SYSLOGBASE} \(%{USER:user|user.name}\) %{CRON_ACTION:action|system.cron.action} \(%{DATA:message}\)
    SYSLOG5424PRINTASCII [!-~]+
    SYSLOG5424PRI <%{NONNEGINT:syslog5424_pri|log.syslog.priority:int}>
    SYSLOG5424SD (?:\[[!-~](?:[^"\]\\]|"(?:[^"\\]|\\.)*")*\])+
    SYSLOG5424BASE %{SYSLOG5424PRI}%{NONNEGINT:syslog5424_ver|system.syslog.version} +~{TIMESTAMP_ISO8601:syslog5424_ts|timestamp} +~{IPORHOST:syslog5424_host|host.hostname} +~{SYSLOG5424PRINTASCII:syslog5424_app|process.name} +~{SYSLOG5424PRINTASCII:syslog5424_proc|} +~{SYSLOG5424PRINTASCII:syslog5424_msgid|event.code} +(?:-|%{SYSLOG5424SD:syslog5424_sd|system.syslog.structured_data})?
    _ecs_SYSLOG5424BASE %{SYSLOG5424PRI}%{NONNEGINT:|system.syslog.version} +~{TIMESTAMP_ISO8601:|timestamp} +~{IPORHOST:|host.hostname} +~{SYSLOG5424PRINTASCII:|process.name} +~{POSINT:|process.pid:int} +~{SYSLOG5424PRINTASCII:|event.code} +(?:-|%{SYSLOG5424SD:|system.syslog.structured_data})?
    SYSLOG5424LINE %{SYSLOG5424BASE} +%{GREEDYDATA:syslog5424_msg|message}
    """#

  private static let web = #"""
    HTTPDUSER %{EMAILADDRESS}|%{USER}
    HTTPDERROR_DATE %{DAY} %{MONTH} %{MONTHDAY} %{TIME} %{YEAR}
    _request (?:%{WORD:verb|http.request.method} %{NOTSPACE:request|url.original}(?: HTTP/%{NUMBER:httpversion|http.version})?|%{DATA:rawrequest|})
    _answer ~{NUMBER:response|} ~{NUMBER:bytes|}
    _ecs__answer ~{INT:|http.response.status_code:int} ~{INT:|http.response.body.bytes:int}
    _who %{HTTPDUSER:ident|} %{HTTPDUSER:auth|}
    _ecs__who ~{HTTPDUSER:|apache.access.user.identity} ~{HTTPDUSER:|user.name}
    HTTPD_COMMONLOG %{IPORHOST:clientip|source.address} %{_who} \[%{HTTPDATE:timestamp}\] "%{_request}" %{_answer}
    HTTPD_COMBINEDLOG %{HTTPD_COMMONLOG} %{QS:referrer} %{QS:agent}
    _ecs_HTTPD_COMBINEDLOG %{HTTPD_COMMONLOG} "~{DATA:|http.request.referrer}" "~{DATA:|user_agent.original}"
    COMMONAPACHELOG %{HTTPD_COMMONLOG}
    COMBINEDAPACHELOG %{HTTPD_COMBINEDLOG}
    HTTPD20_ERRORLOG \[%{HTTPDERROR_DATE:timestamp}\] \[%{LOGLEVEL:loglevel|log.level}\] (?:\[client %{IPORHOST:clientip|source.address}\] )?%{GREEDYDATA:message}
    HTTPD24_ERRORLOG \[%{HTTPDERROR_DATE:timestamp}\] \[(?:%{WORD:module|apache.error.module})?:%{LOGLEVEL:loglevel|log.level}\] \[pid %{POSINT:pid|process.pid:int}(?::tid %{INT:tid|process.thread.id:int})?\](?: \(%{POSINT:proxy_errorcode|apache.error.proxy.error.code}\)%{DATA:proxy_message|apache.error.proxy.error.message}:)?(?: \[client %{IPORHOST:clientip|source.address}(?::%{POSINT:clientport|source.port:int})?\])?(?: %{DATA:errorcode|error.code}:)? %{GREEDYDATA:message}
    HTTPD_ERRORLOG %{HTTPD20_ERRORLOG}|%{HTTPD24_ERRORLOG}
    HAPROXYTIME (?<![0-9])%{HOUR:haproxy_hour|}:%{MINUTE:haproxy_minute|}:%{SECOND:haproxy_second|}(?![0-9])
    HAPROXYDATE %{MONTHDAY:haproxy_monthday|}/%{MONTH:haproxy_month|}/%{YEAR:haproxy_year|}:(?<haproxy_time|>%{HOUR:haproxy_hour|}:%{MINUTE:haproxy_minute|}:(?<haproxy_second|>60|[0-5][0-9]))\.%{INT:haproxy_milliseconds|}
    HAPROXYCAPTUREDREQUESTHEADERS %{DATA:captured_request_headers|haproxy.http.request.captured_headers}
    HAPROXYCAPTUREDRESPONSEHEADERS %{DATA:captured_response_headers|haproxy.http.response.captured_headers}
    HAPROXYURI (?:%{URIPROTO:http_proto|url.scheme}://)?(?:%{USER:http_user|url.username}(?::[^@]*)?@)?(?:%{IPORHOST:|url.domain}(?::%{POSINT:|url.port:int})?)?(?:%{URIPATH:|url.path}(?:\?%{URIQUERY:|url.query})?)?
    HAPROXYHTTPREQUESTLINE (?:<BADREQ>|%{WORD:http_verb|http.request.method} (?:%{URIPROTO:http_proto|}://)?(?:%{USER:http_user|}(?::[^@]*)?@)?(?:%{URIHOST:http_host|})?(?:%{URIPATHPARAM:http_request|})?(?: HTTP/%{NUMBER:http_version|})?)
    _ecs_HAPROXYHTTPREQUESTLINE (?:<BADREQ>|%{WORD:|http.request.method} %{HAPROXYURI:|url.original}(?: HTTP/%{NUMBER:|http.version})?)
    _hapclient %{IP:client_ip|source.address}:%{INT:client_port|source.port:int} \[%{HAPROXYDATE:accept_date|haproxy.request_date}\] %{NOTSPACE:frontend_name|haproxy.frontend_name} %{NOTSPACE:backend_name|haproxy.backend_name}/%{_hapserver}
    _hapserver %{NOTSPACE:server_name|}
    _ecs__hapserver (?:<NOSRV>|%{NOTSPACE:|haproxy.server_name})
    _hapwait %{INT:time_queue|}/%{INT:time_backend_connect|}
    _ecs__hapwait (?:-1|%{INT:|haproxy.total_waiting_time_ms:int})/(?:-1|%{INT:|haproxy.connection_wait_time_ms:int})
    _hapask %{INT:time_request|}
    _ecs__hapask (?:-1|%{INT:|haproxy.http.request.time_wait_ms:int})
    _haptell %{INT:time_backend_response|}
    _ecs__haptell (?:-1|%{INT:|haproxy.http.request.time_wait_without_data_ms:int})
    _hapduration %{NOTSPACE:time_duration|haproxy.total_time_ms}
    _hapcounts %{NOTSPACE:termination_state|haproxy.termination_state} %{INT:actconn|haproxy.connections.active:int}/%{INT:feconn|haproxy.connections.frontend:int}/%{INT:beconn|haproxy.connections.backend:int}/%{INT:srvconn|haproxy.connections.server:int}/\+?%{INT:retries|haproxy.connections.retries:int} %{INT:srv_queue|haproxy.server_queue:int}/%{INT:backend_queue|haproxy.backend_queue:int}
    _hapcookies %{DATA:captured_request_cookie|} %{DATA:captured_response_cookie|}
    _ecs__hapcookies ~{DATA:|haproxy.http.request.captured_cookie} ~{DATA:|haproxy.http.response.captured_cookie}
    HAPROXYHTTPBASE %{_hapclient} %{_hapask}/%{_hapwait}/%{_haptell}/%{_hapduration} %{INT:http_status_code|http.response.status_code:int} \+?%{INT:bytes_read|source.bytes:int} %{_hapcookies} %{_hapcounts}(?: \{%{HAPROXYCAPTUREDREQUESTHEADERS}\}(?: ?\{%{HAPROXYCAPTUREDRESPONSEHEADERS}\})?)?(?: "%{HAPROXYHTTPREQUESTLINE}"?)?
    _haphead (?:%{SYSLOGTIMESTAMP:syslog_timestamp|timestamp}|%{TIMESTAMP_ISO8601:timestamp8601|timestamp}) %{IPORHOST:syslog_server|host.hostname} %{SYSLOGPROG}:
    HAPROXYHTTP %{_haphead} %{HAPROXYHTTPBASE}
    HAPROXYTCP %{_haphead} %{_hapclient} %{_hapwait}/%{_hapduration} \+?%{INT:bytes_read|source.bytes:int} %{_hapcounts}
    _squidtail \s%{NOTSPACE:url|url.original}\s~{NOTSPACE:user|user.name}\s%{WORD:hierarchy_code|squid.hierarchy_code}/~{IPORHOST:server|destination.address}\s
    SQUID3_STATUS %{NONNEGINT:status_code|}
    _ecs_SQUID3_STATUS %{POSINT:|http.response.status_code:int}|0+
    SQUID3 %{NUMBER:timestamp}\s+%{NUMBER:duration|squid.request.duration:int}\s%{IP:client_address|source.ip}\s%{WORD:cache_result|event.action}/%{SQUID3_STATUS}\s%{INT:bytes|http.response.bytes:int}\s%{WORD:request_method|http.request.method}%{_squidtail}%{NOTSPACE:content_type|}
    _ecs_SQUID3 %{NUMBER:timestamp}\s+%{NUMBER:|squid.request.duration:int}\s%{IP:|source.ip}\s%{WORD:|event.action}/%{SQUID3_STATUS}\s%{INT:|http.response.bytes:int}\s%{WORD:|http.request.method}%{_squidtail}~{NOTSPACE:|http.response.mime_type}
    """#

  private static let amazon = #"""
    S3_REQUEST_LINE %{WORD:verb|http.request.method} %{NOTSPACE:request|url.original}(?: HTTP/%{NUMBER:httpversion|http.version})?|%{DATA:rawrequest|}
    _s3ask (?:-|"%{S3_REQUEST_LINE:|aws.s3access.request_uri}")
    _s3agent (?:-|%{QS:referrer}) (?:-|%{QS:agent})
    _ecs__s3agent (?:-|"~{DATA:|http.request.referrer}") (?:-|"~{DATA:|user_agent.original}")
    _s3more ~{NOTSPACE:host_id|aws.s3access.host_id} ~{NOTSPACE:signature_version|aws.s3access.signature_version} ~{NOTSPACE:cipher_suite|tls.cipher} ~{NOTSPACE:authentication_type|aws.s3access.authentication_type} ~{NOTSPACE:host_header|aws.s3access.host_header} ~{NOTSPACE:tls_version|aws.s3access.tls_version}
    _s3requester %{IP:clientip|} %{NOTSPACE:requester|}
    _ecs__s3requester ~{IP:|client.ip} ~{NOTSPACE:|client.user.id}
    _s3key %{NOTSPACE:key|}
    _ecs__s3key ~{NOTSPACE:|aws.s3access.key}
    S3_ACCESS_LOG %{WORD:owner|aws.s3access.bucket_owner} %{NOTSPACE:bucket|aws.s3access.bucket} \[%{HTTPDATE:timestamp}\] %{_s3requester} %{NOTSPACE:request_id|aws.s3access.request_id} %{NOTSPACE:operation|aws.s3access.operation} %{_s3key} %{_s3ask} ~{INT:response:int|http.response.status_code:int} ~{NOTSPACE:error_code|aws.s3access.error_code} ~{INT:bytes:int|aws.s3access.bytes_sent:int} ~{INT:object_size:int|aws.s3access.object_size:int} ~{INT:request_time_ms:int|aws.s3access.total_time:int} ~{INT:turnaround_time_ms:int|aws.s3access.turn_around_time:int} %{_s3agent} ~{NOTSPACE:version_id|aws.s3access.version_id}(?: %{_s3more})?
    ELB_URIHOST %{IPORHOST:|url.domain}(?::%{POSINT:port|url.port:int})?
    ELB_URIPATHQUERY %{URIPATH:path|url.path}(?:\?%{URIQUERY:|url.query})?
    ELB_URIPATHPARAM %{URIPATH:path|}(?:%{URIPARAM:params|})?
    _ecs_ELB_URIPATHPARAM %{ELB_URIPATHQUERY}
    ELB_URI %{URIPROTO:proto|url.scheme}://(?:%{USER:|url.username}(?::[^@]*)?@)?(?:%{_elbhost})?(?:%{ELB_URIPATHPARAM})?
    _elbhost (?<urihost|>%{ELB_URIHOST})
    ELB_REQUEST_LINE %{WORD:verb|http.request.method} %{ELB_URI:request|url.original}(?: HTTP/%{NUMBER:httpversion|http.version})?|%{DATA:rawrequest|}
    _elbtimes %{NUMBER:request_processing_time:float|} %{NUMBER:backend_processing_time:float|} %{NUMBER:response_processing_time:float|}
    _ecs__elbtimes (?:-1|%{NUMBER:|aws.elb.request_processing_time.sec:float}) (?:-1|%{NUMBER:|aws.elb.backend_processing_time.sec:float}) (?:-1|%{NUMBER:|aws.elb.response_processing_time.sec:float})
    _elbagent (?: "~{DATA:user_agent|user_agent.original}" ~{NOTSPACE:ssl_cipher|tls.cipher} ~{NOTSPACE:ssl_protocol|aws.elb.ssl_protocol})?
    ELB_V1_HTTP_LOG %{TIMESTAMP_ISO8601:timestamp} %{NOTSPACE:elb|aws.elb.name} %{IP:clientip|source.ip}:%{INT:clientport:int|source.port:int} (?:-|%{IP:backendip|aws.elb.backend.ip}:%{INT:backendport:int|aws.elb.backend.port:int}) %{_elbtimes} %{INT:response:int|http.response.status_code:int} ~{INT:backend_response:int|aws.elb.backend.http.response.status_code:int} %{INT:received_bytes:int|http.request.body.bytes:int} %{INT:bytes:int|http.response.body.bytes:int} "(?:%{ELB_REQUEST_LINE})"%{_elbagent}
    ELB_ACCESS_LOG %{ELB_V1_HTTP_LOG}
    _cfdate (?<timestamp>%{YEAR}-%{MONTHNUM}-%{MONTHDAY}\t%{TIME})
    _cell [^\t]*
    _cfmore (?:\t(?:-|HTTP/%{NUMBER:cs_protocol_version|http.version})\t~{_cell:fle_status|aws.cloudfront.fle_status}\t~{_cell:fle_encrypted_fields|aws.cloudfront.fle_encrypted_fields}\t%{INT:c_port:int|source.port:int}\t%{NUMBER:time_to_first_byte:float|aws.cloudfront.time_to_first_byte:float}\t~{_cell:x_edge_detailed_result_type|aws.cloudfront.x_edge_detailed_result_type}\t~{NOTSPACE:sc_content_type|http.request.mime_type}\t~{INT:sc_content_len:int|aws.cloudfront.http.request.size:int}\t~{INT:sc_range_start:int|aws.cloudfront.http.request.range.start:int}\t~{INT:sc_range_end:int|aws.cloudfront.http.request.range.end:int})?
    CLOUDFRONT_ACCESS_LOG %{_cfdate}\t%{NOTSPACE:x_edge_location|}\t~{INT:sc_bytes:int|}\t%{IPORHOST:clientip|}\t%{WORD:cs_method|}\t%{HOSTNAME:cs_host|}\t%{NOTSPACE:cs_uri_stem|}\t%{NUMBER:sc_status:int|}\t%{_cell:referrer|}\t%{_cell:agent|}\t%{_cell:cs_uri_query|}\t%{_cell:cookies|}\t%{WORD:x_edge_result_type|}\t%{NOTSPACE:x_edge_request_id|}\t%{HOSTNAME:x_host_header|}\t%{URIPROTO:cs_protocol|}\t~{INT:cs_bytes:int|}\t%{NUMBER:time_taken:float|}\t%{_cell:x_forwarded_for|}\t%{_cell:ssl_protocol|}\t%{_cell:ssl_cipher|}\t%{WORD:x_edge_response_result_type|}%{_cfmore}
    _ecs_CLOUDFRONT_ACCESS_LOG %{_cfdate}\t%{NOTSPACE:|aws.cloudfront.x_edge_location}\t~{INT:|destination.bytes:int}\t%{IPORHOST:|source.ip}\t%{WORD:|http.request.method}\t%{HOSTNAME:|url.domain}\t%{NOTSPACE:|url.path}\t(?:000|%{INT:|http.response.status_code:int})\t~{_cell:|http.request.referrer}\t%{_cell:|user_agent.original}\t~{_cell:|url.query}\t~{_cell:|aws.cloudfront.http.request.cookie}\t%{WORD:|aws.cloudfront.x_edge_result_type}\t%{NOTSPACE:|aws.cloudfront.x_edge_request_id}\t%{HOSTNAME:|aws.cloudfront.http.request.host}\t%{URIPROTO:|network.protocol}\t~{INT:|source.bytes:int}\t%{NUMBER:|aws.cloudfront.time_taken:float}\t~{IP:|network.forwarded_ip}\t~{_cell:|aws.cloudfront.ssl_protocol}\t~{NOTSPACE:|tls.cipher}\t%{WORD:|aws.cloudfront.x_edge_response_result_type}%{_cfmore}
    """#

  private static let java = #"""
    JAVACLASS (?:[A-Za-z$_][0-9A-Za-z$_]*\.)*[A-Za-z$_][0-9A-Za-z$_]*
    JAVAFILE [0-9A-Za-z$_. -]+
    JAVAMETHOD <(?:cl)?init>|[A-Za-z$_][0-9A-Za-z$_]*
    JAVATHREAD [A-Z]{2}-Processor[0-9]+
    JAVALOGMESSAGE .*
    _class %{JAVACLASS:class|java.log.origin.class.name}
    _method %{JAVAMETHOD:method|log.origin.function}
    JAVASTACKTRACEPART %{SPACE}at %{_class}\.%{_method}\(%{JAVAFILE:file|log.origin.file.name}(?::%{INT:line|log.origin.file.line:int})?\)
    CATALINA7_DATESTAMP %{MONTH} %{MONTHDAY}, %{YEAR} %{HOUR}:%{MINUTE}:%{SECOND} (?:AM|PM)
    CATALINA8_DATESTAMP %{MONTHDAY}-%{MONTH}-%{YEAR} %{HOUR}:%{MINUTE}:%{SECOND}
    CATALINA_DATESTAMP %{CATALINA8_DATESTAMP}|%{CATALINA7_DATESTAMP}
    _level %{LOGLEVEL:level|log.level}
    _text %{JAVALOGMESSAGE:logmessage|message}
    CATALINA7_LOG %{CATALINA7_DATESTAMP:timestamp} %{_class}(?: %{_method})?\s*(?:%{_level}:)? ?%{_text}
    CATALINA8_LOG %{CATALINA8_DATESTAMP:timestamp} %{_level} \[%{DATA:thread|java.log.origin.thread.name}\] %{_class}\.(?:%{_method})? %{_text}
    CATALINALOG %{CATALINA8_LOG}|%{CATALINA7_LOG}
    TOMCATLEGACY_DATESTAMP %{YEAR}-%{MONTHNUM}-%{MONTHDAY} %{HOUR}:%{MINUTE}:%{SECOND}(?: %{ISO8601_TIMEZONE})?
    TOMCATLEGACY_LOG %{TOMCATLEGACY_DATESTAMP:timestamp} \| %{_level} \| %{_class} - %{_text}
    TOMCAT_DATESTAMP %{CATALINA_DATESTAMP}|%{TOMCATLEGACY_DATESTAMP}
    TOMCAT7_LOG %{CATALINA7_LOG}
    TOMCAT8_LOG %{CATALINA8_LOG}
    TOMCATLOG %{TOMCAT8_LOG}|%{TOMCAT7_LOG}|%{TOMCATLEGACY_LOG}
    """#

  private static let databases = #"""
    POSTGRESQL (?:%{DATESTAMP:timestamp}|%{TIMESTAMP_ISO8601:timestamp}) %{TZ:|event.timezone} %{DATA:user_id|user.name} %{GREEDYDATA:connection_id|postgresql.log.connection_id} %{POSINT:pid|process.pid:int}
    REDISTIMESTAMP %{MONTHDAY} %{MONTH}(?: %{YEAR})? %{TIME}
    REDISLOG \[%{POSINT:pid|process.pid:int}\] %{REDISTIMESTAMP:timestamp} [*.#-](?: |$)
    REDISMONLOG %{NUMBER:timestamp} \[%{INT:database|redis.database.id} %{IP:client|client.ip}:%{POSINT:port|client.port:int}\] "%{WORD:command|redis.command.name}"\s?%{GREEDYDATA:params|redis.command.args}
    MONGO_LOG %{SYSLOGTIMESTAMP:timestamp} \[%{WORD:component|mongodb.component}\] %{GREEDYDATA:message}
    MONGO_WORDDASH \b[\w-]+\b
    MONGO_QUERY \{ .* \}
    MONGO_SLOWQUERY %{WORD:|mongodb.profile.op} %{MONGO_WORDDASH:database|mongodb.database}\.%{MONGO_WORDDASH:collection|mongodb.collection} %{WORD}: %{MONGO_QUERY:query|mongodb.query.original} ntoreturn:%{NONNEGINT:ntoreturn|mongodb.profile.ntoreturn:int} ntoskip:%{NONNEGINT:ntoskip|mongodb.profile.ntoskip:int} nscanned:%{NONNEGINT:nscanned|mongodb.profile.nscanned:int}.*? nreturned:%{NONNEGINT:nreturned|mongodb.profile.nreturned:int}.*? %{INT:duration|mongodb.profile.duration:int}ms
    MONGO3_SEVERITY \w
    MONGO3_COMPONENT %{WORD}|-
    MONGO3_LOG %{TIMESTAMP_ISO8601:timestamp} %{MONGO3_SEVERITY:severity|log.level} %{_mongocomponent}%{SPACE}(?:\[%{DATA:context|mongodb.context}\])? %{GREEDYDATA:message}
    _mongocomponent %{MONGO3_COMPONENT:component|}
    _ecs__mongocomponent ~{WORD:|mongodb.component}
    """#

  private static let services = #"""
    BIND9_TIMESTAMP %{MONTHDAY}-%{MONTH}-%{YEAR} %{TIME}
    BIND9_DNSTYPE A|AAAA|CAA|CDNSKEY|CDS|CERT|CNAME|CSYNC|DLV|DNAME|DNSKEY|DS|HINFO|HTTPS|LOC|MX|NAPTR|NS|NSEC|NSEC3|OPENPGPKEY|PTR|RRSIG|RP|SIG|SMIMEA|SOA|SRV|SVCB|TSIG|TXT|URI
    BIND9_CATEGORY queries
    BIND9_QUERYLOGBASE client(?: @0x[0-9A-Fa-f]+)? %{IP:clientip|client.ip}#%{POSINT:clientport|client.port:int} \(%{DATA:query|bind.log.question.name}\): query: %{DATA:query|dns.question.name} (?<|dns.question.class>IN) (?<querytype|>%{BIND9_DNSTYPE:|dns.question.type}(?: %{DATA:|bind.log.question.flags})?) \(%{IP:dns|server.ip}\)
    BIND9_QUERYLOG %{BIND9_TIMESTAMP:timestamp} %{BIND9_CATEGORY:|bind.log.category}: %{LOGLEVEL:loglevel|log.level}: %{BIND9_QUERYLOGBASE}
    BIND9 %{BIND9_QUERYLOG}
    EXIM_MSGID [0-9A-Za-z]{6}-[0-9A-Za-z]{6}-[0-9A-Za-z]{2}
    EXIM_FLAGS <=|=>|->|\*>|\*\*|==|<>|>>
    EXIM_DATE %{YEAR:exim_year|}-%{MONTHNUM:exim_month|}-%{MONTHDAY:exim_day|} %{TIME:exim_time|}
    EXIM_PID \[%{POSINT:pid|process.pid:int}\]
    EXIM_QT (?:[0-9]+y)?(?:[0-9]+w)?(?:[0-9]+d)?(?:[0-9]+h)?(?:[0-9]+m)?(?:[0-9]+s)?
    EXIM_EXCLUDE_TERMS Message is frozen|(?:Start|End) queue run| Warning: | retry time not reached | no (?:IP address|host name) found for (?:IP address|host) | unexpected disconnection while reading SMTP command | no immediate delivery: |another process is handling this message
    EXIM_REMOTE_HOST H=(?:%{NOTSPACE:remote_hostname|source.address} )?(?:\(%{NOTSPACE:remote_heloname|exim.log.remote_address}\) )?\[%{IP:remote_host|source.ip}\](?::%{POSINT:remote_port|source.port:int})?
    EXIM_INTERFACE I=\[%{IP:exim_interface|destination.ip}\](?::%{NUMBER:exim_interface_port|destination.port:int})
    EXIM_PROTOCOL P=%{NOTSPACE:protocol|network.protocol}
    EXIM_MSG_SIZE S=%{NUMBER:exim_msg_size|exim.log.message.size:int}
    EXIM_HEADER_ID id=%{NOTSPACE:exim_header_id|exim.log.header_id}
    EXIM_QUOTED_CONTENT (?:[^\\"]|\\.)*
    EXIM_SUBJECT T=%{QS:exim_subject|}
    _ecs_EXIM_SUBJECT T="%{EXIM_QUOTED_CONTENT:|exim.log.message.subject}"
    EXIM_UNKNOWN_FIELD [0-9A-Za-z]{1,4}=(?:%{QUOTEDSTRING}|%{NOTSPACE})
    EXIM_NAMED_FIELDS (?: (?:%{EXIM_REMOTE_HOST}|%{EXIM_INTERFACE}|%{EXIM_PROTOCOL}|%{EXIM_MSG_SIZE}|%{EXIM_HEADER_ID}|%{EXIM_SUBJECT}|%{EXIM_UNKNOWN_FIELD}))*
    EXIM_MESSAGE_ARRIVAL %{EXIM_DATE:timestamp} (?:%{EXIM_PID} )?%{EXIM_MSGID:exim_msgid|exim.log.message.id} (?<exim_flags|exim.log.flags><=) (?<exim_status|exim.log.status>[a-z:] )?%{EMAILADDRESS:exim_sender_email|exim.log.sender.email}%{EXIM_NAMED_FIELDS}(?:(?: from <?%{DATA:|exim.log.sender.original}>?)? for %{EMAILADDRESS:exim_recipient_email|exim.log.recipient.email})?
    EXIM %{EXIM_MESSAGE_ARRIVAL}
    BACULA_TIMESTAMP %{MONTHDAY}-%{MONTH}(?:-%{YEAR})? %{HOUR}:%{MINUTE}
    BACULA_HOST %{HOSTNAME}
    BACULA_VOLUME %{USER}
    BACULA_DEVICE %{USER}
    BACULA_DEVICEPATH %{UNIXPATH}
    BACULA_CAPACITY %{INT}(?:,[0-9]{3})*
    BACULA_VERSION %{USER}
    BACULA_JOB %{USER}
    _volume "?%{BACULA_VOLUME:volume|bacula.volume.name}"?
    _device "%{BACULA_DEVICE:device|bacula.volume.device}"
    _devicepath \(%{BACULA_DEVICEPATH:|bacula.volume.path}\)
    _reason ERR=%{GREEDYDATA:berror|error.message}
    _baculajob %{BACULA_JOB:job|bacula.job.name}
    _baculaclient (?:Client: %{BACULA_HOST:client|bacula.client.name}|Storage daemon) on %{IPORHOST:|client.address}:%{POSINT:|client.port:int}\. %{_reason}
    BACULA_LOG_MAX_CAPACITY User defined maximum volume capacity %{BACULA_CAPACITY:|bacula.volume.max_capacity} exceeded on device %{_device} %{_devicepath}\.?
    BACULA_LOG_END_VOLUME End of medium on Volume %{_volume} Bytes=%{BACULA_CAPACITY:|bacula.volume.bytes} Blocks=%{BACULA_CAPACITY:|bacula.volume.blocks} at %{BACULA_TIMESTAMP:|bacula.timestamp}\.
    BACULA_LOG_NEW_VOLUME Created new Volume %{_volume} in catalog\.
    BACULA_LOG_NEW_LABEL Labeled new Volume %{_volume} on (?:file )?device %{_device} %{_devicepath}\.
    BACULA_LOG_WROTE_LABEL Wrote label to prelabeled Volume %{_volume} on device %{_device} %{_devicepath}
    BACULA_LOG_NEW_MOUNT New volume %{_volume} mounted on device %{_device} %{_devicepath} at %{BACULA_TIMESTAMP:|bacula.timestamp}\.
    BACULA_LOG_NOOPEN \s*Cannot open %{DATA}: %{_reason}
    BACULA_LOG_NOOPENDIR \s*Could not open directory "?%{DATA:|file.path}"?: %{_reason}
    BACULA_LOG_NOSTAT \s*Could not stat %{DATA:|file.path}: %{_reason}
    BACULA_LOG_NOJOBS There are no more Jobs associated with Volume %{_volume}\. Marking it purged\.
    BACULA_LOG_ALL_RECORDS_PRUNED .*?All records pruned from Volume %{_volume}; marking it "Purged"
    BACULA_LOG_BEGIN_PRUNE_JOBS Begin pruning Jobs older than %{INT} month %{INT} days \.
    BACULA_LOG_BEGIN_PRUNE_FILES Begin pruning Files\.
    BACULA_LOG_PRUNED_JOBS Pruned %{INT} Jobs* for client %{BACULA_HOST:client|bacula.client.name} from catalog\.
    BACULA_LOG_PRUNED_FILES Pruned Files from %{INT} Jobs* for client %{BACULA_HOST:client|bacula.client.name} from catalog\.
    BACULA_LOG_ENDPRUNE End auto prune\.
    BACULA_LOG_STARTJOB Start Backup JobId %{INT}, Job=%{_baculajob}
    BACULA_LOG_STARTRESTORE Start Restore Job %{_baculajob}
    BACULA_LOG_USEDEVICE Using Device %{_device}
    BACULA_LOG_DIFF_FS \s*%{UNIXPATH} is a different filesystem\. Will not descend from %{UNIXPATH} into it\.
    BACULA_LOG_JOBEND Job write elapsed time = %{DATA:elapsed|bacula.job.elapsed_time}, Transfer rate = %{NUMBER} [KMG]? ?Bytes/second
    BACULA_LOG_NOPRUNE_JOBS No Jobs found to prune\.
    BACULA_LOG_NOPRUNE_FILES No Files found to prune\.
    BACULA_LOG_VOLUME_PREVWRITTEN Volume %{_volume} previously written, moving to end of data\.
    BACULA_LOG_READYAPPEND Ready to append to end of Volume %{_volume} size=%{BACULA_CAPACITY:|bacula.volume.size}
    BACULA_LOG_CANCELLING Cancelling duplicate JobId=%{INT:|bacula.job.other_id}\.
    BACULA_LOG_MARKCANCEL JobId %{INT:|bacula.job.id}, Job %{_baculajob} marked to be canceled\.
    BACULA_LOG_CLIENT_RBJ shell command: run ClientRunBeforeJob "%{GREEDYDATA:runjob|bacula.job.client_run_before_command}"
    BACULA_LOG_VSS (?:Generate )?VSS (?:Writer)?
    BACULA_LOG_MAXSTART Fatal [Ee]rror: Job canceled because max start delay time exceeded\.
    BACULA_LOG_DUPLICATE Fatal [Ee]rror: JobId %{INT:duplicate|bacula.job.other_id} already running\. Duplicate job not allowed\.
    BACULA_LOG_NOJOBSTAT Fatal [Ee]rror: No Job status returned from FD\.
    BACULA_LOG_FATAL_CONN Fatal [Ee]rror: bsock\.c:[0-9]+ Unable to connect to %{_baculaclient}
    BACULA_LOG_NO_CONNECT Warning: bsock\.c:[0-9]+ Could not connect to %{_baculaclient}
    BACULA_LOG_NO_AUTH Fatal [Ee]rror: Unable to authenticate with File daemon at "?%{IPORHOST:|client.address}(?::%{POSINT:|client.port:int})?"?\. Possible causes:
    BACULA_LOG_NOSUIT No prior or suitable Full backup found in catalog\. Doing FULL backup\.
    BACULA_LOG_NOPRIOR No prior Full backup Job record found\.
    BACULA_LOG_JOB (?:Error: )?Bacula %{BACULA_HOST} %{BACULA_VERSION} \(%{BACULA_VERSION}\):
    _bacula1 %{BACULA_LOG_MAX_CAPACITY}|%{BACULA_LOG_END_VOLUME}|%{BACULA_LOG_NEW_VOLUME}|%{BACULA_LOG_NEW_LABEL}|%{BACULA_LOG_WROTE_LABEL}|%{BACULA_LOG_NEW_MOUNT}|%{BACULA_LOG_NOOPEN}|%{BACULA_LOG_NOOPENDIR}|%{BACULA_LOG_NOSTAT}|%{BACULA_LOG_NOJOBS}|%{BACULA_LOG_ALL_RECORDS_PRUNED}
    _bacula2 %{BACULA_LOG_BEGIN_PRUNE_JOBS}|%{BACULA_LOG_BEGIN_PRUNE_FILES}|%{BACULA_LOG_PRUNED_JOBS}|%{BACULA_LOG_PRUNED_FILES}|%{BACULA_LOG_ENDPRUNE}|%{BACULA_LOG_STARTJOB}|%{BACULA_LOG_STARTRESTORE}|%{BACULA_LOG_USEDEVICE}|%{BACULA_LOG_DIFF_FS}|%{BACULA_LOG_JOBEND}|%{BACULA_LOG_NOPRUNE_JOBS}|%{BACULA_LOG_NOPRUNE_FILES}
    _bacula3 %{BACULA_LOG_VOLUME_PREVWRITTEN}|%{BACULA_LOG_READYAPPEND}|%{BACULA_LOG_CANCELLING}|%{BACULA_LOG_MARKCANCEL}|%{BACULA_LOG_CLIENT_RBJ}|%{BACULA_LOG_VSS}|%{BACULA_LOG_MAXSTART}|%{BACULA_LOG_DUPLICATE}|%{BACULA_LOG_NOJOBSTAT}|%{BACULA_LOG_FATAL_CONN}|%{BACULA_LOG_NO_CONNECT}|%{BACULA_LOG_NO_AUTH}|%{BACULA_LOG_NOSUIT}|%{BACULA_LOG_JOB}|%{BACULA_LOG_NOPRIOR}
    BACULA_LOG %{BACULA_TIMESTAMP:bts|timestamp} %{BACULA_HOST:hostname|host.hostname}(?: JobId %{INT:jobid|bacula.job.id})?:? +(?:%{_bacula1}|%{_bacula2}|%{_bacula3})
    BACULA_LOGLINE %{BACULA_LOG}
    """#

  private static let firewalls = #"""
    NETSCREENSESSIONLOG %{SYSLOGTIMESTAMP:date|timestamp} %{IPORHOST:device|observer.hostname} %{NOTSPACE:|observer.name}: (?<|observer.product>NetScreen) device_id=%{WORD:device_id|netscreen.device_id} .*?(?:system-\w+-%{NONNEGINT:|event.code}\(%{WORD:|netscreen.session.type}\))?: start_time=%{_nsstart} duration=%{INT:duration|netscreen.session.duration:int} policy_id=%{INT:policy_id|netscreen.policy_id} service=%{DATA:service|netscreen.service} proto=%{INT:proto|netscreen.protocol_number:int} src zone=%{WORD:src_zone|observer.ingress.zone} dst zone=%{WORD:dst_zone|observer.egress.zone} action=%{WORD:action|event.action} sent=%{INT:sent|source.bytes:int} rcvd=%{INT:rcvd|destination.bytes:int} src=%{IPORHOST:src_ip|source.address} dst=%{IPORHOST:dst_ip|destination.address}(?: src_port=%{INT:src_port|source.port:int} dst_port=%{INT:dst_port|destination.port:int})?(?: src-xlated ip=%{IP:src_xlated_ip|source.nat.ip} port=%{INT:src_xlated_port|source.nat.port:int} dst-xlated ip=%{IP:dst_xlated_ip|destination.nat.ip} port=%{INT:dst_xlated_port|destination.nat.port:int})?(?: session_id=%{INT:session_id|netscreen.session.id} reason=%{GREEDYDATA:reason|netscreen.session.reason})?
    _nsstart %{QUOTEDSTRING:start_time|}
    _ecs__nsstart "%{DATA:|netscreen.session.start_time}"
    IPTABLES_TCP_FLAGS (?:(?:CWR|ECE|URG|ACK|PSH|RST|SYN|FIN) ?)*
    IPTABLES_TCP_PART (?:SEQ=%{INT:nf_seq|iptables.tcp.seq:int}\s+)?(?:ACK=%{INT:nf_ack|iptables.tcp.ack:int}\s+)?WINDOW=%{INT:nf_window|iptables.tcp.window:int}\s+RES=0x%{_hex:nf_res|iptables.tcp_reserved_bits}\s+%{IPTABLES_TCP_FLAGS:nf_tcp_flags|iptables.tcp.flags}
    _hex [0-9A-Fa-f]+
    IPTABLES4_FRAG (?:CE|DF|MF)(?: (?:CE|DF|MF))*
    IPTABLES4_PART SRC=%{IPV4:nf_src_ip|source.ip}\s+DST=%{IPV4:nf_dst_ip|destination.ip}\s+LEN=(?:%{INT:nf_len|iptables.length:int})?\s+TOS=(?:0x%{_hex:nf_tos|iptables.tos}|0)?\s+PREC=(?:0x%{_hex:nf_prec|iptables.precedence_bits})?\s+TTL=(?:%{INT:nf_ttl|iptables.ttl:int})?\s+ID=(?:%{INT:nf_id|iptables.id})?(?:\s+%{IPTABLES4_FRAG:nf_frag|iptables.fragment_flags})?(?:\s+FRAG: %{INT:nf_frag_offset|iptables.fragment_offset:int})?
    IPTABLES6_PART SRC=%{IPV6:nf_src_ip|source.ip}\s+DST=%{IPV6:nf_dst_ip|destination.ip}\s+LEN=(?:%{INT:nf_len|iptables.length:int})?\s+TC=(?:%{INT:nf_tos|iptables.tos})?\s+HOPLIMIT=(?:%{INT:nf_ttl|iptables.ttl:int})?\s+FLOWLBL=(?:%{INT:nf_flow_label|iptables.flow_label})?
    _iptablesin IN=(?:%{NOTSPACE:nf_in_interface|observer.ingress.interface.name})?\s+OUT=(?:%{NOTSPACE:nf_out_interface|observer.egress.interface.name})?\s+(?:MAC=(?:%{COMMONMAC:nf_dst_mac|destination.mac})?(?::%{COMMONMAC:nf_src_mac|source.mac})?(?::[0-9A-Fa-f]{2}){0,2}\s+)?
    IPTABLES %{_iptablesin}(?:%{IPTABLES4_PART}|%{IPTABLES6_PART}).*?PROTO=(?:%{WORD:nf_protocol|network.transport})?(?:\s+SPT=(?:%{INT:nf_src_port|source.port:int})?\s+DPT=(?:%{INT:nf_dst_port|destination.port:int})?)?(?:\s+%{IPTABLES_TCP_PART})?
    SHOREWALL %{SYSLOGTIMESTAMP:timestamp} %{NOTSPACE:nf_host|observer.hostname} .*Shorewall:(?:%{WORD:nf_action1|shorewall.firewall.type})?:(?:%{WORD:nf_action2|shorewall.firewall.action})?.*?%{IPTABLES}
    SFW2_LOG_PREFIX SFW2-INext-%{NOTSPACE:nf_action|suse.firewall.action}
    SFW2 (?:%{SYSLOGTIMESTAMP:timestamp}|%{TIMESTAMP_ISO8601:timestamp})\s*%{HOSTNAME:|observer.hostname}.*?%{SFW2_LOG_PREFIX:|suse.firewall.log_prefix}\s*%{IPTABLES}
    RT_FLOW_TAG RT_FLOW_SESSION_(?:CREATE|CLOSE|DENY)
    RT_FLOW_EVENT %{RT_FLOW_TAG}
    _rtevent %{RT_FLOW_TAG:event|juniper.srx.tag}:
    _rtends %{IP:src-ip|source.ip}/%{INT:src-port|source.port:int}->%{IP:dst-ip|destination.ip}/%{INT:dst-port|destination.port:int} %{DATA:service|juniper.srx.service_name}
    _rtnat %{IP:nat-src-ip|source.nat.ip}/%{INT:nat-src-port|source.nat.port:int}->%{IP:nat-dst-ip|destination.nat.ip}/%{INT:nat-dst-port|destination.nat.port:int} %{_rtrules} %{INT:protocol-id|network.iana_number}
    _rtrules %{DATA:src-nat-rule-name|} %{DATA:dst-nat-rule-name|}
    _ecs__rtrules (?:None|%{DATA:|juniper.srx.src_nat_rule_name}) (?:None|%{DATA:|juniper.srx.dst_nat_rule_name})
    _rtpolicy %{DATA:policy-name|rule.name} %{DATA:from-zone|observer.ingress.zone} %{DATA:to-zone|observer.egress.zone}
    RT_FLOW1 %{_rtevent} %{GREEDYDATA:close-reason|juniper.srx.reason}: %{_rtends} %{_rtnat} %{_rtpolicy} %{INT:session-id|juniper.srx.session_id} [0-9]+\(%{INT:sent|source.bytes:int}\) [0-9]+\(%{INT:received|destination.bytes:int}\) %{INT:elapsed-time|juniper.srx.elapsed_time:int} .*
    RT_FLOW2 %{_rtevent} session created %{_rtends} %{_rtnat} %{_rtpolicy} %{INT:session-id|juniper.srx.session_id} .*
    RT_FLOW3 %{_rtevent} session denied %{_rtends} %{INT:protocol-id|network.iana_number}\([0-9]\) %{_rtpolicy} .*

    """#

  private static let cisco = #"""
    CISCOTIMESTAMP %{MONTH} +%{MONTHDAY}(?: %{YEAR})? %{TIME}
    CISCOTAG [0-9A-Z]+-%{INT}-[0-9A-Z_]+
    CISCO_TAGGED_SYSLOG ^<%{POSINT:syslog_pri|log.syslog.priority:int}>%{CISCOTIMESTAMP:timestamp}(?: %{SYSLOGHOST:sysloghost|host.hostname})? ?: %%{CISCOTAG:ciscotag|cisco.asa.tag}:
    CISCO_ACTION Built|Teardown|Deny|Denied|denied by ACL|denied|requested|permitted|discarded|est-allowed|Dropping|created|deleted
    CISCO_REASON Duplicate TCP SYN|Failed to locate egress interface|Invalid transport field|No matching connection|DNS Response|DNS Query|(?:%{WORD}\s*)*
    CISCO_DIRECTION [Ii]nbound|[Oo]utbound
    CISCO_INTERVAL first hit|%{INT}-second interval
    CISCO_XLATE_TYPE static|dynamic
    CISCO_HITCOUNT_INTERVAL hit-cnt %{INT:hit_count|cisco.asa.hit_count:int} (?:first hit|%{INT:interval|cisco.asa.interval:int}-second interval)
    _did %{CISCO_ACTION:action|cisco.asa.outcome}
    _way %{CISCO_DIRECTION:direction|cisco.asa.network.direction}
    _proto %{WORD:protocol|cisco.asa.network.transport}
    _why %{CISCO_REASON:reason|event.reason}
    _sport %{INT:src_port|source.port:int}
    _dport %{INT:dst_port|destination.port:int}
    _from %{IP:src_ip|source.ip}/%{_sport}
    _to %{IP:dst_ip|destination.ip}/%{_dport}
    _sif %{DATA:src_interface|observer.ingress.interface.name}
    _dif %{DATA:dst_interface|observer.egress.interface.name}
    _suser (?:\(%{DATA:src_fwuser|source.user.name}\))?
    _duser (?:\(%{DATA:dst_fwuser|destination.user.name}\))?
    _if %{NOTSPACE:interface|observer.egress.interface.name}
    _icmp type %{INT:icmp_type|cisco.asa.icmp_type:int}, code %{INT:icmp_code|cisco.asa.icmp_code:int}
    _hashes \[%{DATA:hashcode1|@metadata.cisco.asa.hashcode1}, %{DATA:hashcode2|@metadata.cisco.asa.hashcode2}\]
    _rule %{NOTSPACE:policy_id|cisco.asa.rule_name}
    _kind %{WORD:protocol|cisco.asa.network.type}
    _spi SPI=\s?%{DATA:spi|cisco.asa.ipsec.spi}
    CISCO_SRC_IP_USER %{NOTSPACE:src_interface|observer.ingress.interface.name}:%{IP:src_ip|source.ip}%{_suser}
    CISCO_DST_IP_USER %{NOTSPACE:dst_interface|observer.egress.interface.name}:%{IP:dst_ip|destination.ip}%{_duser}
    CISCO_SRC_HOST_PORT_USER %{NOTSPACE:src_interface|observer.ingress.interface.name}:(?:%{IP:src_ip|source.ip}|%{HOSTNAME:src_ip|source.address})(?:/%{_sport})?%{_suser}
    CISCO_DST_HOST_PORT_USER %{NOTSPACE:dst_interface|observer.egress.interface.name}:(?:%{IP:dst_ip|destination.ip}|%{HOSTNAME:dst_ip|destination.address})(?:/%{_dport})?%{_duser}
    _mate \((?:Primary|Secondary)\)
    _card [Ii]nterface %{NOTSPACE:interface_name|network.interface.name}
    CISCOFW104001 %{_mate} Switching to ACTIVE - %{GREEDYDATA:switch_reason|event.reason}
    CISCOFW104002 %{_mate} Switching to STANDBY - %{GREEDYDATA:switch_reason|event.reason}
    CISCOFW104003 %{_mate} Switching to FAILED\.
    CISCOFW104004 %{_mate} Switching to OK\.
    CISCOFW105003 %{_mate} Monitoring on %{_card} waiting
    CISCOFW105004 %{_mate} Monitoring on %{_card} normal
    CISCOFW105005 %{_mate} Lost Failover communications with mate on %{_card}
    CISCOFW105008 %{_mate} Testing %{_card}
    CISCOFW105009 %{_mate} Testing on %{_card} (?:Passed|Failed)
    CISCOFW106001 %{_way} %{_proto} connection %{_did} from %{_from} to %{_to} flags %{DATA:tcp_flags|cisco.asa.tcp_flags} on interface %{_if}
    CISCOFW106006_106007_106010 %{_did} %{_way} %{_proto} (?:from|src) %{_from}%{_suser} (?:to|dst) %{_to}%{_duser} (?:on interface %{_if}|due to %{_why})
    CISCOFW106014 %{_did} %{_way} %{_proto} src %{CISCO_SRC_IP_USER} dst %{CISCO_DST_IP_USER}\s?\(%{_icmp}\)
    CISCOFW106015 %{_did} %{_proto} \(%{DATA:policy_id|cisco.asa.rule_name}\) from %{_from} to %{_to} flags %{DATA:tcp_flags|cisco.asa.tcp_flags} on interface %{_if}
    CISCOFW106021 %{_did} %{_proto} reverse path check from %{IP:src_ip|source.ip} to %{IP:dst_ip|destination.ip} on interface %{_if}
    CISCOFW106023 %{_did}(?: protocol)? %{_proto} src %{CISCO_SRC_HOST_PORT_USER} dst %{CISCO_DST_HOST_PORT_USER}(?: \(%{_icmp}\))? by access-group "?%{DATA:policy_id|cisco.asa.rule_name}"? %{_hashes}
    CISCOFW106100_2_3 access-list %{_rule} %{_did} %{_proto} for user '%{DATA:src_fwuser|user.name}' %{_sif}/%{IP:src_ip|source.ip}\(%{_sport}\) -> %{_dif}/%{IP:dst_ip|destination.ip}\(%{_dport}\) %{CISCO_HITCOUNT_INTERVAL} %{_hashes}
    CISCOFW106100 access-list %{_rule} %{_did} %{_proto} %{_sif}/%{IP:src_ip|source.ip}\(%{_sport}\)%{_suser} -> %{_dif}/%{IP:dst_ip|destination.ip}\(%{_dport}\)%{_duser} hit-cnt %{INT:hit_count|cisco.asa.hit_count:int} %{CISCO_INTERVAL:interval|} %{_hashes}
    CISCOFW304001 %{IP:src_ip|source.ip}%{_suser} Accessed URL %{IP:dst_ip|destination.ip}:%{GREEDYDATA:dst_url|url.original}
    CISCOFW110002 %{_why} for %{_proto} from %{_sif}:%{_from} to %{_to}
    CISCOFW302010 %{INT:connection_count|cisco.asa.connections.in_use:int} in use, %{INT:connection_count_max|cisco.asa.connections.most_used:int} most used
    CISCOFW302013_302014_302015_302016 %{_did}(?: %{_way})? %{_proto} connection %{INT:connection_id|cisco.asa.connection_id} for %{NOTSPACE:src_interface|observer.ingress.interface.name}:%{_from}(?: \(%{IP:src_mapped_ip|source.nat.ip}/%{INT:src_mapped_port|source.nat.port:int}\))?%{_suser} to %{NOTSPACE:dst_interface|observer.egress.interface.name}:%{_to}(?: \(%{IP:dst_mapped_ip|destination.nat.ip}/%{INT:dst_mapped_port|destination.nat.port:int}\))?%{_duser}(?: duration (?<duration|cisco.asa.duration>[0-9]+:%{MINUTE}:[0-5][0-9]) bytes %{INT:bytes|network.bytes:int})?(?: %{_why})?(?: \(%{DATA:user|user.name}\))?
    CISCOFW302020_302021 %{_did}(?: %{_way})? %{_proto} connection for faddr %{IP:dst_ip|destination.ip}/%{INT:icmp_seq_num|cisco.asa.icmp_seq:int}(?:\(%{DATA:fwuser|destination.user.name}\))? gaddr %{IP:src_xlated_ip|source.nat.ip}/%{INT:icmp_code_xlated|cisco.asa.icmp_type:int} laddr %{IP:src_ip|source.ip}/%{INT:icmp_code|}(?: \(%{DATA:user|source.user.name}\))?
    CISCOFW305011 %{_did} %{CISCO_XLATE_TYPE:xlate_type|} %{_proto} translation from %{_sif}:%{IP:src_ip|source.ip}(?:/%{_sport})?%{_suser} to %{DATA:src_xlated_interface|observer.egress.interface.name}:%{IP:src_xlated_ip|destination.ip}/%{INT:src_xlated_port|destination.port:int}
    CISCOFW313001_313004_313008 %{_did} %{_proto} type=%{INT:icmp_type|cisco.asa.icmp_type:int}, code=%{INT:icmp_code|cisco.asa.icmp_code:int} from %{IP:src_ip|source.ip} on interface %{_if}(?: to %{IP:dst_ip|destination.ip})?
    CISCOFW313005 %{_why} for %{_proto} error message: %{WORD:err_protocol|} src %{NOTSPACE:err_src_interface|observer.ingress.interface.name}:%{IP:err_src_ip|source.ip}(?:\(%{DATA:err_src_fwuser|source.user.name}\))? dst %{NOTSPACE:err_dst_interface|observer.egress.interface.name}:%{IP:err_dst_ip|destination.ip}(?:\(%{DATA:err_dst_fwuser|destination.user.name}\))? \(type %{INT:err_icmp_type|cisco.asa.icmp_type:int}, code %{INT:err_icmp_code|cisco.asa.icmp_code:int}\) on %{NOTSPACE:interface|} interface\.\s+Original IP payload: %{WORD:orig_protocol|cisco.asa.original_ip_payload.network.transport} src %{IP:orig_src_ip|cisco.asa.original_ip_payload.source.ip}/%{INT:orig_src_port|cisco.asa.original_ip_payload.source.port:int}(?:\(%{DATA:orig_src_fwuser|cisco.asa.original_ip_payload.source.user.name}\))? dst %{IP:orig_dst_ip|cisco.asa.original_ip_payload.destination.ip}/%{INT:orig_dst_port|cisco.asa.original_ip_payload.destination.port:int}(?:\(%{DATA:orig_dst_fwuser|cisco.asa.original_ip_payload.destination.user.name}\))?
    CISCOFW321001 Resource '%{DATA:resource_name|cisco.asa.resource.name}' limit of %{POSINT:resource_limit|cisco.asa.resource.limit:int} reached for system
    CISCOFW402117 %{_kind}: Received a non-IPSec packet \(protocol=\s?%{WORD:orig_protocol|cisco.asa.network.transport}\) from %{IP:src_ip|source.ip} to %{IP:dst_ip|destination.ip}\.?
    CISCOFW402119 %{_kind}: Received an %{WORD:orig_protocol|cisco.asa.ipsec.protocol} packet \(%{_spi}, sequence number=\s?%{DATA:seq_num|cisco.asa.ipsec.seq_num}\) from %{IP:src_ip|source.ip} \(user=\s?%{DATA:user|source.user.name}\) to %{IP:dst_ip|destination.ip} that failed anti-replay checking\.?
    CISCOFW419001 %{_did} %{_proto} packet from %{NOTSPACE:src_interface|observer.ingress.interface.name}:%{_from} to %{NOTSPACE:dst_interface|observer.egress.interface.name}:%{_to}, reason: %{GREEDYDATA:reason|event.reason}
    CISCOFW419002 %{_why} from %{_sif}:%{_from} to %{_dif}:%{_to} with different initial sequence number
    CISCOFW500004 %{_why} for protocol=%{_proto}, from %{_from} to %{_to}
    CISCOFW602303_602304 %{_kind}: An %{_way} %{DATA:tunnel_type|cisco.asa.ipsec.tunnel_type} SA \(%{_spi}\) between %{IP:src_ip|source.ip} and %{IP:dst_ip|destination.ip} \(user=\s?%{DATA:user|source.user.name}\) has been %{_did}
    CISCOFW710001_710002_710003_710005_710006 %{_proto} (?:request|access) %{_did} from %{_from} to %{_dif}:%{_to}
    CISCOFW713172 Group = %{DATA:group|cisco.asa.source.group}, IP = %{IP:src_ip|source.ip}, Automatic NAT Detection Status:\s+Remote end\s*%{DATA:is_remote_natted|@metadata.cisco.asa.remote_nat}\s*behind a NAT device\s+This\s+end\s*%{DATA:is_local_natted|@metadata.cisco.asa.local_nat}\s*behind a NAT device
    _most max configured rate is
    CISCOFW733100 \[\s*%{DATA:drop_type|cisco.asa.burst.object}\s*\] drop %{DATA:drop_rate_id|cisco.asa.burst.id} exceeded\. Current burst rate is %{INT:drop_rate_current_burst|cisco.asa.burst.current_rate:int} per second, %{_most} %{INT:drop_rate_max_burst|cisco.asa.burst.configured_rate:int}; Current average rate is %{INT:drop_rate_current_avg|cisco.asa.burst.avg_rate:int} per second, %{_most} %{INT:drop_rate_max_avg|cisco.asa.burst.configured_avg_rate:int}; Cumulative total count is %{INT:drop_total_count|cisco.asa.burst.cumulative_count:int}
    """#

  /// Lines of Nagios: `type: field;field;...`, one pattern for each type and one for all.
  private static let nagios: String = {
    let host = "%{DATA:nagios_hostname|host.hostname}"
    let service = "%{DATA:nagios_service|service.name}"
    let state = "%{DATA:nagios_state|service.state}"
    let level = "%{DATA:nagios_statelevel|nagios.log.state_type}"
    let kind = "%{DATA:nagios_statetype|nagios.log.state_type}"
    let code = "%{INT:nagios_statecode|nagios.log.attempt:int}"
    let attempt = "%{INT:nagios_attempt|nagios.log.attempt:int}"
    let message = "%{GREEDYDATA:nagios_message|message}"
    let comment = "%{GREEDYDATA:nagios_comment|nagios.log.comment}"
    let notified = "%{DATA:nagios_notifyname|user.name}"
    let contact = "%{DATA:nagios_contact|nagios.log.notification_command}"
    let handler = "%{DATA:nagios_event_handler_name|nagios.log.event_handler_name}"
    let lines: [(String, [String])] = [
      ("CURRENT_SERVICE_STATE", [host, service, state, kind, code, message]),
      ("CURRENT_HOST_STATE", [host, state, kind, code, message]),
      ("SERVICE_NOTIFICATION", [notified, host, service, state, contact, message]),
      ("HOST_NOTIFICATION", [notified, host, state, contact, message]),
      ("SERVICE_ALERT", [host, service, state, level, attempt, message]),
      ("HOST_ALERT", [host, state, level, attempt, message]),
      ("SERVICE_FLAPPING_ALERT", [host, service, state, message]), ("HOST_FLAPPING_ALERT", [host, state, message]),
      ("SERVICE_DOWNTIME_ALERT", [host, service, state, comment]), ("HOST_DOWNTIME_ALERT", [host, state, comment]),
      ("PASSIVE_SERVICE_CHECK", [host, service, state, comment]), ("PASSIVE_HOST_CHECK", [host, state, comment]),
      ("SERVICE_EVENT_HANDLER", [host, service, state, level, handler]),
      ("HOST_EVENT_HANDLER", [host, state, level, handler]),
      (
        "TIMEPERIOD_TRANSITION",
        [
          "%{DATA:nagios_service|service.name}", "%{NUMBER:nagios_unknown1|nagios.log.period_from:int}",
          "%{NUMBER:nagios_unknown2|nagios.log.period_to:int}",
        ]
      ),
    ]
    let lastHost = "%{GREEDYDATA:nagios_hostname|host.hostname}"
    let lastService = "%{GREEDYDATA:nagios_service|service.name}"
    let result = "%{GREEDYDATA:nagios_check_result|nagios.log.check_result}"
    let downtime = [
      "%{NUMBER:nagios_start_time|nagios.log.start_time}", "%{NUMBER:nagios_end_time|nagios.log.end_time}",
      "%{NUMBER:nagios_fixed|nagios.log.fixed}", "%{NUMBER:nagios_trigger_id|nagios.log.trigger_id}",
      "%{NUMBER:nagios_duration|nagios.log.duration:int}", "%{DATA:author|user.name}",
      "%{DATA:comment|nagios.log.comment}",
    ]
    let commands: [(String, [String]?)] = [
      ("DISABLE_SVC_CHECK", [host, service]), ("ENABLE_SVC_CHECK", [host, service]), ("DISABLE_HOST_CHECK", [host]),
      ("ENABLE_HOST_CHECK", [host]), ("PROCESS_SERVICE_CHECK_RESULT", [host, service, state, result]),
      ("PROCESS_HOST_CHECK_RESULT", [host, state, result]), ("SCHEDULE_HOST_DOWNTIME", [host] + downtime),
      ("SCHEDULE_SERVICE_DOWNTIME", nil), ("DISABLE_HOST_SVC_NOTIFICATIONS", [lastHost]),
      ("ENABLE_HOST_SVC_NOTIFICATIONS", [lastHost]), ("DISABLE_HOST_NOTIFICATIONS", [lastHost]),
      ("ENABLE_HOST_NOTIFICATIONS", [lastHost]), ("DISABLE_SVC_NOTIFICATIONS", [host, lastService]),
      ("ENABLE_SVC_NOTIFICATIONS", [host, lastService]),
    ]
    var text = "NAGIOSTIME \\[%{NUMBER:nagios_epoch|timestamp}\\]\nNAGIOS_WARNING Warning:%{SPACE}\(message)\n"
    text += "NAGIOS_TYPE_EXTERNAL_COMMAND EXTERNAL COMMAND\n"
    var all = ["%{NAGIOS_WARNING}"]
    for (name, fields) in lines {
      text += "NAGIOS_TYPE_\(name) \(name.replacing("_", with: " "))\n"
      text += "NAGIOS_\(name) %{NAGIOS_TYPE_\(name):nagios_type|nagios.log.type}: \(fields.joined(separator: ";"))\n"
      all.append("%{NAGIOS_\(name)}")
    }
    for (name, fields) in commands {
      text += "NAGIOS_EC_\(name) \(name)\n"
      guard let fields else { continue }
      text += "NAGIOS_EC_LINE_\(name) %{NAGIOS_TYPE_EXTERNAL_COMMAND:nagios_type|nagios.log.type}: "
      text += "%{NAGIOS_EC_\(name):nagios_command|nagios.log.command};\(fields.joined(separator: ";"))\n"
      all.append("%{NAGIOS_EC_LINE_\(name)}")
    }
    return text + "NAGIOSLOGLINE %{NAGIOSTIME} (?:\(all.joined(separator: "|")))\n"
  }()

  /// Logs of Zeek, formerly Bro: columns separated by tabs; `-` is a missing value, `(empty)` an empty list.
  private static let zeek: String = {
    let ends = [
      "%{NOTSPACE:uid|zeek.session_id}", "%{IP:orig_h|source.ip}", "%{INT:orig_p|source.port:int}",
      "%{IP:resp_h|destination.ip}", "%{INT:resp_p|destination.port:int}",
    ]
    func cell(_ common: String, _ ecs: String) -> String { "(?:-|\\(empty\\)|%{ZEEK_DATA:\(common)|\(ecs)})" }
    func whole(_ common: String, _ ecs: String) -> String { "~{INT:\(common)|\(ecs):int}" }
    func number(_ common: String, _ ecs: String) -> String { "~{NUMBER:\(common)|\(ecs):float}" }
    func truth(_ common: String, _ ecs: String) -> String { "~{ZEEK_BOOL:\(common)|\(ecs)}" }
    func http(isZeek: Bool) -> [String] {
      var columns =
        ["%{NUMBER:ts|timestamp}"] + ends + [
          whole("trans_depth", "zeek.http.trans_depth"), cell("method", "http.request.method"),
          cell("domain", "url.domain"), cell("uri", "url.original"), cell("referrer", "http.request.referrer"),
        ]
      if isZeek { columns.append("~{NUMBER:version|http.version}") }
      columns.append(cell("user_agent", "user_agent.original"))
      if isZeek { columns.append(cell("origin", "zeek.http.origin")) }
      columns += [
        whole("request_body_len", "http.request.body.bytes"), whole("response_body_len", "http.response.body.bytes"),
        whole("status_code", "http.response.status_code"), cell("status_msg", "zeek.http.status_msg"),
        whole("info_code", "zeek.http.info_code"), cell("info_msg", "zeek.http.info_msg"),
      ]
      if !isZeek { columns.append(cell("filename", "zeek.http.filename")) }
      columns += [
        cell(isZeek ? "tags" : "bro_tags", "zeek.http.tags"), cell("username", "url.username"),
        cell("password", "url.password"), cell("proxied", "zeek.http.proxied"),
        cell("orig_fuids", "zeek.http.orig_fuids"),
      ]
      if isZeek { columns.append(cell("orig_filenames", "zeek.http.orig_filenames")) }
      columns += [cell("orig_mime_types", "http.request.mime_type"), cell("resp_fuids", "zeek.http.resp_fuids")]
      if isZeek { columns.append(cell("resp_filenames", "zeek.http.resp_filenames")) }
      return columns + [cell("resp_mime_types", "http.response.mime_type")]
    }
    func dns(isZeek: Bool) -> [String] {
      var columns =
        ["%{NUMBER:ts|timestamp}"] + ends + ["%{WORD:proto|network.transport}", whole("trans_id", "dns.id")]
      if isZeek {
        columns.append(number("rtt", "zeek.dns.rtt"))
      } else {
        columns[columns.count - 1] += "(?:\\t\(number("rtt", "zeek.dns.rtt")))?"
      }
      return columns + [
        cell("query", "dns.question.name"), whole("qclass", "zeek.dns.qclass"),
        cell("qclass_name", "zeek.dns.qclass_name"), whole("qtype", "zeek.dns.qtype"),
        cell("qtype_name", "dns.question.type"), whole("rcode", "zeek.dns.rcode"),
        cell("rcode_name", "dns.response_code"), truth("AA", "zeek.dns.AA"), truth("TC", "zeek.dns.TC"),
        truth("RD", "zeek.dns.RD"), truth("RA", "zeek.dns.RA"), whole("Z", "zeek.dns.Z"),
        cell("answers", "zeek.dns.answers"), cell("TTLs", "zeek.dns.TTLs"), truth("rejected", "zeek.dns.rejected"),
      ]
    }
    func connection(isZeek: Bool) -> String {
      let first =
        ["%{NUMBER:ts|timestamp}"] + ends + [
          "%{WORD:proto|network.transport}", cell("service", "network.protocol"),
          number("duration", "zeek.connection.duration"), whole("orig_bytes", "zeek.connection.orig_bytes"),
          whole("resp_bytes", "zeek.connection.resp_bytes"), cell("conn_state", "zeek.connection.state"),
          truth("local_orig", "zeek.connection.local_orig"),
        ]
      let local = truth("local_resp", "zeek.connection.local_resp") + "\\t"
      let last = [
        whole("missed_bytes", "zeek.connection.missed_bytes"), cell("history", "zeek.connection.history"),
        whole("orig_pkts", "source.packets"), whole("orig_ip_bytes", "source.bytes"),
        whole("resp_pkts", "destination.packets"), whole("resp_ip_bytes", "destination.bytes"),
        cell("tunnel_parents", "zeek.connection.tunnel_parents"),
      ]
      return columns(first) + "\\t" + (isZeek ? local : "(?:\(local))?") + columns(last)
        + (isZeek ? "(?:\\t~{COMMONMAC:orig_l2_addr|source.mac}\\t~{COMMONMAC:resp_l2_addr|destination.mac})?" : "")
    }
    let files = [
      "%{NUMBER:ts|timestamp}", "%{NOTSPACE:fuid|zeek.files.fuid}", "%{ZEEK_FILES_TX_HOSTS}", "%{ZEEK_FILES_RX_HOSTS}",
      cell("conn_uids", "zeek.files.session_ids"), cell("source", "zeek.files.source"),
      whole("depth", "zeek.files.depth"),
      cell("analyzers", "zeek.files.analyzers"), cell("mime_type", "file.mime_type"), cell("filename", "file.name"),
      number("duration", "zeek.files.duration"), cell("local_orig", "zeek.files.local_orig"),
      truth("is_orig", "zeek.files.is_orig"), whole("seen_bytes", "zeek.files.seen_bytes"),
      whole("total_bytes", "file.size"), whole("missing_bytes", "zeek.files.missing_bytes"),
      whole("overflow_bytes", "zeek.files.overflow_bytes"), truth("timedout", "zeek.files.timedout"),
      cell("parent_fuid", "zeek.files.parent_fuid"), cell("md5", "file.hash.md5"), cell("sha1", "file.hash.sha1"),
      cell("sha256", "file.hash.sha256"), cell("extracted", "zeek.files.extracted"),
    ]
    let more =
      "(?:\\t~{ZEEK_BOOL:extracted_cutoff|zeek.files.extracted_cutoff}\\t~{INT:extracted_size|zeek.files.extracted_size:int})?"
    func columns(_ all: [String]) -> String { all.joined(separator: "\\t") }
    return """
      ZEEK_BOOL [TF]
      ZEEK_DATA [^\\t]+
      ZEEK_HTTP \(columns(http(isZeek: true)))
      ZEEK_DNS \(columns(dns(isZeek: true)))
      ZEEK_CONN \(connection(isZeek: true))
      ZEEK_FILES_TX_HOSTS -|(?<|zeek.files.tx_hosts>%{IP:tx_hosts|server.ip}(?:[\\s,]%{IP})+)|%{IP:tx_hosts|server.ip}
      ZEEK_FILES_RX_HOSTS -|(?<|zeek.files.rx_hosts>%{IP:rx_hosts|client.ip}(?:[\\s,]%{IP})+)|%{IP:rx_hosts|client.ip}
      ZEEK_FILES \(columns(files))\(more)
      BRO_BOOL %{ZEEK_BOOL}
      BRO_DATA %{ZEEK_DATA}
      BRO_HTTP \(columns(http(isZeek: false)))
      BRO_DNS \(columns(dns(isZeek: false)))
      BRO_CONN \(connection(isZeek: false))
      BRO_FILES \(columns(files))
      """
  }()

  private static let others = #"""
    MAVEN_VERSION (?:[0-9]+\.)?(?:[0-9]+\.)?(?:\*|[0-9]+)(?:[.-](?:RELEASE|SNAPSHOT))?
    MCOLLECTIVE ., \[%{TIMESTAMP_ISO8601:timestamp} #%{POSINT:pid|process.pid:int}\]%{SPACE}%{LOGLEVEL:event_level|log.level}
    MCOLLECTIVEAUDIT %{TIMESTAMP_ISO8601:timestamp}:
    RUBY_LOGLEVEL DEBUG|FATAL|ERROR|WARN|INFO
    RUBY_LOGGER [DFEWI], \[%{TIMESTAMP_ISO8601:timestamp} #%{POSINT:pid|process.pid:int}\] *%{RUBY_LOGLEVEL:loglevel|log.level} -- +%{DATA:progname|process.name}: %{GREEDYDATA:message}
    RUUID [0-9A-Fa-f]{32}
    RCONTROLLER (?<controller|rails.controller.class>[^#]+)#(?<action|rails.controller.action>\w+)
    RAILS3HEAD Started %{WORD:verb|http.request.method} "%{URIPATHPARAM:request|url.original}" for %{IPORHOST:clientip|source.address} at (?<timestamp>%{YEAR}-%{MONTHNUM}-%{MONTHDAY} %{HOUR}:%{MINUTE}:%{SECOND} %{ISO8601_TIMEZONE})
    RPROCESSING \W*Processing by %{RCONTROLLER} as (?<format|rails.request.format>\S+)(?:\W*Parameters: \{%{DATA:params|rails.request.params}\}\W*)?
    _railsrecord ActiveRecord: %{NUMBER:activerecordms|rails.request.duration.active_record:float}ms
    RAILS3PROFILE (?:\((?:Views: %{NUMBER:viewms|rails.request.duration.view:float}ms \| )?%{_railsrecord})?
    RAILS3FOOT Completed %{NUMBER:response|http.response.status_code:int}%{DATA} in %{NUMBER:totalms|rails.request.duration.total:float}ms %{RAILS3PROFILE}%{GREEDYDATA}
    RAILS3 %{RAILS3HEAD}(?:%{RPROCESSING})?(?<context|rails.request.explain.original>(?:%{DATA}\n)*)(?:%{RAILS3FOOT})?
    """#
}
