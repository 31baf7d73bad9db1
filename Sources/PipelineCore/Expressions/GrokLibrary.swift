/// The well-known grok patterns. Patterns and fields have the names that Logstash made common, so that patterns written
/// for it work here; the definitions follow the documentation of the log formats.
///
/// A line is a name and its definition. In `%{NAME:common|ecs:int}` the field has one name for each
/// ``GrokPattern/Naming``; either may be empty. `~{...}` also matches a hyphen, which stands for a missing value. Names
/// that start with `_` are parts of other patterns and hidden from users.
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

  /// The names that users may use, sorted.
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
    URN urn:[0-9A-Za-z][0-9A-Za-z-]{0,31}:(?:%[0-9A-Fa-f]{2}|[0-9A-Za-z._!$'()*+,;=:@/?#-])+
    LOGLEVEL (?i:trace|debug|info(?:rmation)?|inf|notice|warn(?:ing)?|err(?:or)?|crit(?:ical)?|fatal|severe|alert|emerg(?:ency)?|panic)
    """#

  private static let places = #"""
    USERNAME [0-9A-Za-z._-]+
    USER %{USERNAME}
    _atom [0-9A-Za-z!#$%&'*+/=?^_`{|}~-]+
    _ecs_EMAILLOCALPART %{_atom}(?:\.%{_atom})*
    EMAILLOCALPART [A-Za-z][0-9A-Za-z_.+,/:;<=-]+|%{_atom}(?:\.%{_atom})*
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
    URIHOST (?:\[%{IPV6}\]|%{IPORHOST})(?::%{POSINT:port|})?
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
    DAY (?<![A-Za-z])(?:Mon(?:day)?|Tue(?:sday)?|Wed(?:nesday)?|Thu(?:rsday)?|Fri(?:day)?|Sat(?:urday)?|Sun(?:day)?)(?![A-Za-z])
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
    TZ (?<![A-Za-z])(?:UTC|GMT|[AECMP][SD]T|AK[SD]T|HST|WES?T|CES?T|EES?T|MSK|BST|IST|JST|KST|HKT|SGT|AWST|A[CE][SD]T|NZ[SD]T|BRT|ART)(?![A-Za-z])
    DATESTAMP_RFC822 %{DAY} %{MONTH} %{MONTHDAY} %{YEAR} %{TIME} %{TZ}
    DATESTAMP_RFC2822 %{DAY}, %{MONTHDAY} %{MONTH} %{YEAR} %{TIME} %{ISO8601_TIMEZONE}
    DATESTAMP_OTHER %{DAY} %{MONTH} %{MONTHDAY} %{TIME} %{TZ} %{YEAR}
    DATESTAMP_EVENTLOG %{YEAR}%{MONTHNUM2}(?:3[01]|[12][0-9]|0[1-9])(?:2[0-3]|[01][0-9])%{MINUTE}(?:60|[0-5][0-9])(?:[:.,][0-9]+)?
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
    _hapcounts %{NOTSPACE:termination_state|haproxy.termination_state} %{INT:actconn|haproxy.connections.active:int}/%{INT:feconn|haproxy.connections.frontend:int}/%{INT:beconn|haproxy.connections.backend:int}/%{INT:srvconn|haproxy.connections.server:int}/%{_hapretries} %{INT:srv_queue|haproxy.server_queue:int}/%{INT:backend_queue|haproxy.backend_queue:int}
    _hapretries %{NOTSPACE:retries|}
    _ecs__hapretries \+?%{INT:|haproxy.connections.retries:int}
    _hapbytes %{NOTSPACE:bytes_read|}
    _ecs__hapbytes \+?%{INT:|source.bytes:int}
    _hapcookies %{DATA:captured_request_cookie|} %{DATA:captured_response_cookie|}
    _ecs__hapcookies ~{DATA:|haproxy.http.request.captured_cookie} ~{DATA:|haproxy.http.response.captured_cookie}
    HAPROXYHTTPBASE %{_hapclient} %{_hapask}/%{_hapwait}/%{_haptell}/%{_hapduration} %{INT:http_status_code|http.response.status_code:int} %{_hapbytes} %{_hapcookies} %{_hapcounts}(?: \{%{HAPROXYCAPTUREDREQUESTHEADERS}\}(?: ?\{%{HAPROXYCAPTUREDRESPONSEHEADERS}\})?)?(?: "%{HAPROXYHTTPREQUESTLINE}"?)?
    _haphead (?:%{SYSLOGTIMESTAMP:syslog_timestamp|timestamp}|%{TIMESTAMP_ISO8601:timestamp8601|timestamp}) %{IPORHOST:syslog_server|host.hostname} %{SYSLOGPROG}:
    HAPROXYHTTP %{_haphead} %{HAPROXYHTTPBASE}
    HAPROXYTCP %{_haphead} %{_hapclient} %{_hapwait}/%{_hapduration} %{_hapbytes} %{_hapcounts}
    _squiduser %{NOTSPACE:user|}
    _ecs__squiduser ~{NOTSPACE:|user.name}
    _squidtail \s%{NOTSPACE:url|url.original}\s%{_squiduser}\s%{WORD:hierarchy_code|squid.hierarchy_code}/~{IPORHOST:server|destination.address}\s
    SQUID3_STATUS %{NONNEGINT:status_code|}
    _ecs_SQUID3_STATUS %{POSINT:|http.response.status_code:int}|0|000
    SQUID3 %{NUMBER:timestamp}\s+%{NUMBER:duration|squid.request.duration:int}\s%{IP:client_address|source.ip}\s%{WORD:cache_result|event.action}/%{SQUID3_STATUS}\s%{INT:bytes|http.response.bytes:int}\s%{WORD:request_method|http.request.method}%{_squidtail}%{NOTSPACE:content_type|}
    _ecs_SQUID3 %{NUMBER:timestamp}\s+%{NUMBER:|squid.request.duration:int}\s%{IP:|source.ip}\s%{WORD:|event.action}/%{SQUID3_STATUS}\s%{INT:|http.response.bytes:int}\s%{WORD:|http.request.method}%{_squidtail}~{NOTSPACE:|http.response.mime_type}
    """#

  private static let amazon = #"""
    S3_REQUEST_LINE %{WORD:verb|} %{NOTSPACE:request|}(?: HTTP/%{NUMBER:httpversion|})?|%{DATA:rawrequest|}
    _ecs_S3_REQUEST_LINE %{WORD:|http.request.method} %{NOTSPACE:|url.original}(?: HTTP/%{NUMBER:|http.version})?
    _s3ask (?:-|"%{S3_REQUEST_LINE}")
    _ecs__s3ask (?:-|"(?:%{S3_REQUEST_LINE:|aws.s3access.request_uri}|%{DATA:|aws.s3access.request_uri})")
    _s3agent (?:-|%{QS:referrer}) (?:-|"?%{QS:agent}"?)
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
    ELB_REQUEST_LINE %{WORD:verb|} %{ELB_URI:request|}(?: HTTP/%{NUMBER:httpversion|})?|%{DATA:rawrequest|}
    _ecs_ELB_REQUEST_LINE %{WORD:|http.request.method} %{ELB_URI:|url.original}(?: HTTP/%{NUMBER:|http.version})?
    _elbtimes %{NUMBER:request_processing_time:float|} %{NUMBER:backend_processing_time:float|} %{NUMBER:response_processing_time:float|}
    _ecs__elbtimes (?:-1|%{NUMBER:|aws.elb.request_processing_time.sec:float}) (?:-1|%{NUMBER:|aws.elb.backend_processing_time.sec:float}) (?:-1|%{NUMBER:|aws.elb.response_processing_time.sec:float})
    _elbagent (?: "~{DATA:user_agent|user_agent.original}" ~{NOTSPACE:ssl_cipher|tls.cipher} ~{NOTSPACE:ssl_protocol|aws.elb.ssl_protocol})?
    ELB_V1_HTTP_LOG %{TIMESTAMP_ISO8601:timestamp} %{NOTSPACE:elb|aws.elb.name} %{IP:clientip|source.ip}:%{INT:clientport:int|source.port:int} (?:-|%{IP:backendip|aws.elb.backend.ip}:%{INT:backendport:int|aws.elb.backend.port:int}) %{_elbtimes} %{INT:response:int|http.response.status_code:int} ~{INT:backend_response:int|aws.elb.backend.http.response.status_code:int} %{INT:received_bytes:int|http.request.body.bytes:int} %{INT:bytes:int|http.response.body.bytes:int} "(?:%{ELB_REQUEST_LINE}|%{DATA})"%{_elbagent}
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
    CATALINA7_LOG %{CATALINA7_DATESTAMP:timestamp} %{_class}(?: %{_method})?\s*(?:%{_level}:)? %{_text}
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
    REDISLOG \[%{POSINT:pid|}\] %{REDISTIMESTAMP:timestamp} [*.#-](?: |$)
    _ecs_REDISLOG \[%{POSINT:|process.pid:int}\] %{REDISTIMESTAMP:timestamp} [*.#-]
    REDISMONLOG %{NUMBER:timestamp} \[%{INT:database|redis.database.id} %{IP:client|client.ip}:%{POSINT:port|client.port:int}\] "%{WORD:command|redis.command.name}"\s?%{GREEDYDATA:params|redis.command.args}
    MONGO_LOG %{SYSLOGTIMESTAMP:timestamp} \[%{WORD:component|mongodb.component}\] %{GREEDYDATA:message}
    MONGO_WORDDASH \b[\w-]+\b
    MONGO_QUERY \{ .* \}
    MONGO_SLOWQUERY %{WORD:|mongodb.profile.op} %{MONGO_WORDDASH:database|mongodb.database}\.%{MONGO_WORDDASH:collection|mongodb.collection} %{WORD}: %{MONGO_QUERY:query|mongodb.query.original} ntoreturn:%{NONNEGINT:ntoreturn|mongodb.profile.ntoreturn:int} ntoskip:%{NONNEGINT:ntoskip|mongodb.profile.ntoskip:int} nscanned:%{NONNEGINT:nscanned|mongodb.profile.nscanned:int}.*? nreturned:%{NONNEGINT:nreturned|mongodb.profile.nreturned:int}.*? %{INT:duration|mongodb.profile.duration:int}ms
    MONGO3_SEVERITY \w
    MONGO3_COMPONENT %{WORD}|-
    _ecs_MONGO3_COMPONENT %{WORD}
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
    BACULA_LOG_WROTE_LABEL Wrote label to prelabeled Volume %{_volume} on device "%{BACULA_DEVICE:|bacula.volume.device}" %{_devicepath}
    BACULA_LOG_NEW_MOUNT New volume %{_volume} mounted on device %{_device} %{_devicepath} at %{BACULA_TIMESTAMP:|bacula.timestamp}\.
    BACULA_LOG_NOOPEN \s*Cannot open %{DATA}: %{_reason}
    BACULA_LOG_NOOPENDIR \s*Could not open directory "?%{DATA:|file.path}"?: %{_reason}
    BACULA_LOG_NOSTAT \s*Could not stat %{DATA:|file.path}: %{_reason}
    BACULA_LOG_NOJOBS There are no more Jobs associated with Volume %{_volume}\. Marking it purged\.
    BACULA_LOG_ALL_RECORDS_PRUNED All records pruned from Volume %{_volume}; marking it "Purged"
    _ecs_BACULA_LOG_ALL_RECORDS_PRUNED .*?All records pruned from Volume %{_volume}; marking it "Purged"
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
    BACULA_LOG_READYAPPEND Ready to append to end of Volume %{_volume} size=%{BACULA_CAPACITY:|bacula.volume.size:int}
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
