/// Firewalls and network monitors.
extension GrokLibrary {
  static let firewalls = #"""
    NETSCREENSESSIONLOG %{SYSLOGTIMESTAMP:date|timestamp} %{IPORHOST:device|observer.hostname} %{NOTSPACE:|observer.name}: (?<|observer.product>NetScreen) device_id=%{WORD:device_id|netscreen.device_id}.*?(?:system-\w+-%{NONNEGINT:|event.code}\(%{WORD:|netscreen.session.type}\))?: start_time=%{_nsstart} duration=%{INT:duration|netscreen.session.duration:int} policy_id=%{INT:policy_id|netscreen.policy_id} service=%{DATA:service|netscreen.service} proto=%{INT:proto|netscreen.protocol_number:int} src zone=%{WORD:src_zone|observer.ingress.zone} dst zone=%{WORD:dst_zone|observer.egress.zone} action=%{WORD:action|event.action} sent=%{INT:sent|source.bytes:int} rcvd=%{INT:rcvd|destination.bytes:int} src=%{IPORHOST:src_ip|source.address} dst=%{IPORHOST:dst_ip|destination.address}(?: src_port=%{INT:src_port|source.port:int} dst_port=%{INT:dst_port|destination.port:int})?(?: src-xlated ip=%{IPORHOST:src_xlated_ip|source.nat.ip} port=%{INT:src_xlated_port|source.nat.port:int} dst-xlated ip=%{IPORHOST:dst_xlated_ip|destination.nat.ip} port=%{INT:dst_xlated_port|destination.nat.port:int})?(?: session_id=%{INT:session_id|netscreen.session.id} reason=%{GREEDYDATA:reason|netscreen.session.reason})?
    _nsstart %{QUOTEDSTRING:start_time|}
    _ecs__nsstart "%{DATA:|netscreen.session.start_time}"
    IPTABLES_TCP_FLAGS (?:(?:CWR|ECE|URG|ACK|PSH|RST|SYN|FIN) )*
    IPTABLES_TCP_PART (?:SEQ=%{INT:nf_seq|iptables.tcp.seq:int}\s+)?(?:ACK=%{INT:nf_ack|iptables.tcp.ack:int}\s+)?WINDOW=%{INT:nf_window|iptables.tcp.window:int}\s+RES=0x%{_hex:nf_res|iptables.tcp_reserved_bits}\s+%{IPTABLES_TCP_FLAGS:nf_tcp_flags|iptables.tcp.flags}
    _hex [0-9A-Fa-f]+
    IPTABLES4_FRAG (?:(?:CE|DF|MF)(?: (?:CE|DF|MF))*)?
    IPTABLES4_PART SRC=%{IPV4:nf_src_ip|source.ip}\s+DST=%{IPV4:nf_dst_ip|destination.ip}\s+LEN=(?:%{INT:nf_len|iptables.length:int})?\s+TOS=(?:0x%{_hex:nf_tos|iptables.tos}|0)?\s+PREC=(?:0x%{_hex:nf_prec|iptables.precedence_bits})?\s+TTL=(?:%{INT:nf_ttl|iptables.ttl:int})?\s+ID=(?:%{INT:nf_id|iptables.id})?(?:\s+%{IPTABLES4_FRAG:nf_frag|iptables.fragment_flags})?(?:\s*FRAG: %{INT:nf_frag_offset|iptables.fragment_offset:int})?
    IPTABLES6_PART SRC=%{IPV6:nf_src_ip|source.ip}\s+DST=%{IPV6:nf_dst_ip|destination.ip}\s+LEN=(?:%{INT:nf_len|iptables.length:int})?\s+TC=(?:0x%{_hex:nf_tos|iptables.tos}|%{INT:nf_tos|})?\s+HOPLIMIT=(?:%{INT:nf_ttl|iptables.ttl:int})?\s+FLOWLBL=(?:%{INT:nf_flow_label|iptables.flow_label})?
    _iptablesin IN=(?:%{NOTSPACE:nf_in_interface|observer.ingress.interface.name})?\s+OUT=(?:%{NOTSPACE:nf_out_interface|observer.egress.interface.name})?\s+(?:MAC=(?:%{COMMONMAC:nf_dst_mac|destination.mac})?(?::%{COMMONMAC:nf_src_mac|source.mac})?(?::[0-9A-Fa-f]{2}){0,2}\s+)?
    IPTABLES %{_iptablesin}(?:%{IPTABLES4_PART}|%{IPTABLES6_PART}).*?PROTO=(?:%{WORD:nf_protocol|network.transport})?(?:\s+SPT=(?:%{INT:nf_src_port|source.port:int})?\s+DPT=(?:%{INT:nf_dst_port|destination.port:int})?(?:\s+(?:%{IPTABLES_TCP_PART})?)?)?
    _swhead %{SYSLOGTIMESTAMP:timestamp} %{NOTSPACE:nf_host|observer.hostname} .*Shorewall:(?:%{WORD:nf_action1|shorewall.firewall.type})?:(?:%{WORD:nf_action2|shorewall.firewall.action})?
    _swmac OUT= *MAC=%{COMMONMAC:nf_dst_mac}:(?:%{COMMONMAC:nf_src_mac})?|OUT=%{USERNAME:nf_out_interface}
    SHOREWALL %{_swhead}.*IN=(?:%{USERNAME:nf_in_interface})?.*(?:%{_swmac}).*SRC=%{IPV4:nf_src_ip}.*DST=%{IPV4:nf_dst_ip}.*LEN=%{WORD:nf_len}.*TOS=%{WORD:nf_tos}.*PREC=%{WORD:nf_prec}.*TTL=%{INT:nf_ttl}.*ID=%{INT:nf_id}.*PROTO=%{WORD:nf_protocol}(?:.*SPT=(?:%{INT:nf_src_port})?.*DPT=(?:%{INT:nf_dst_port})?.*)?
    _ecs_SHOREWALL %{_swhead}.*%{IPTABLES}
    SFW2_LOG_PREFIX SFW2-INext-%{NOTSPACE:nf_action|suse.firewall.action}
    _sfwports .*SPT=%{INT:nf_src_port}.*DPT=%{INT:nf_dst_port}.*
    SFW2 (?:%{SYSLOGTIMESTAMP:timestamp}|%{TIMESTAMP_ISO8601:timestamp})\s*%{HOSTNAME}\s*kernel\S+\s*(?:%{NAGIOSTIME}\s*)?SFW2-INext-%{NOTSPACE:nf_action}\s*IN=%{USERNAME:nf_in_interface}.*OUT=(?:\s*%{USERNAME:nf_out_interface})?\s*MAC=(?:%{COMMONMAC:nf_dst_mac}:%{COMMONMAC:nf_src_mac}|\s*).*SRC=%{IP:nf_src_ip}\s*DST=%{IP:nf_dst_ip}.*PROTO=%{WORD:nf_protocol}(?:%{_sfwports})?
    _ecs_SFW2 (?:%{SYSLOGTIMESTAMP:timestamp}|%{TIMESTAMP_ISO8601:timestamp})\s*%{HOSTNAME:|observer.hostname}.*?%{SFW2_LOG_PREFIX:|suse.firewall.log_prefix}\s*%{IPTABLES}
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

  static let cisco = #"""
    CISCOTIMESTAMP %{MONTH} +%{MONTHDAY}(?: %{YEAR})? %{TIME}
    CISCOTAG [0-9A-Z]+-%{INT}-[0-9A-Z_]+
    CISCO_TAGGED_SYSLOG ^<%{POSINT:syslog_pri|log.syslog.priority:int}>%{CISCOTIMESTAMP:timestamp}(?: %{SYSLOGHOST:sysloghost|host.hostname})? ?: %%{CISCOTAG:ciscotag|cisco.asa.tag}:
    CISCO_ACTION Built|Teardown|Deny|Denied|denied by ACL|denied|requested|permitted|discarded|est-allowed|Dropping|created|deleted
    CISCO_REASON Duplicate TCP SYN|Failed to locate egress interface|Invalid transport field|No matching connection|DNS Response|DNS Query|(?:%{WORD}\s*)*
    CISCO_DIRECTION [Ii]nbound|[Oo]utbound
    CISCO_INTERVAL first hit|%{INT}-second interval
    CISCO_XLATE_TYPE static|dynamic
    CISCO_HITCOUNT_INTERVAL hit-cnt %{INT:hit_count|cisco.asa.hit_count:int} (?:first hit|%{INT:interval|cisco.asa.interval:int}-second interval)
    _hits hit-cnt %{INT:hit_count|} %{CISCO_INTERVAL:interval|}
    _ecs__hits %{CISCO_HITCOUNT_INTERVAL}
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
    CISCOFW106100_2_3 access-list %{_rule} %{_did} %{_proto} for user '%{DATA:src_fwuser|user.name}' %{_sif}/%{IP:src_ip|source.ip}\(%{_sport}\) -> %{_dif}/%{IP:dst_ip|destination.ip}\(%{_dport}\) %{_hits} %{_hashes}
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

  /// Nagios logs, `type: field;field;...`: one pattern for each type, and one that matches all of them.
  static let nagios: String = {
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

  /// Logs of Zeek, formerly Bro: columns separated by tabs; `-` is a missing value, `(empty)` an empty set.
  ///
  /// `BRO_*` patterns with common names keep `-` and `(empty)` as texts; all others omit the field of a missing value.
  static let zeek: String = {
    let ends = [
      "%{NOTSPACE:uid|zeek.session_id}", "%{IP:orig_h|source.ip}", "%{INT:orig_p|source.port:int}",
      "%{IP:resp_h|destination.ip}", "%{INT:resp_p|destination.port:int}",
    ]
    /// The columns of one pattern.
    struct Columns {
      /// Whether this is one of the `BRO_*` patterns, which have fewer columns.
      var isBro: Bool
      /// Whether missing values are kept as texts.
      var keepsMissing: Bool

      private func column(_ pattern: String, _ names: String, _ missing: String) -> String {
        keepsMissing ? "%{BRO_DATA:\(names)}" : "(?:\(missing)|%{\(pattern):\(names)})"
      }
      func cell(_ common: String, _ ecs: String) -> String { column("ZEEK_DATA", "\(common)|\(ecs)", "-") }
      /// A set of texts.
      func set(_ common: String, _ ecs: String) -> String { column("ZEEK_DATA", "\(common)|\(ecs)", "\\(empty\\)") }
      func whole(_ common: String, _ ecs: String) -> String { column("INT", "\(common)|\(ecs):int", "-") }
      func number(_ common: String, _ ecs: String) -> String { column("NUMBER", "\(common)|\(ecs):float", "-") }
      func truth(_ common: String, _ ecs: String) -> String { column("ZEEK_BOOL", "\(common)|\(ecs)", "-") }
    }
    func http(_ of: Columns) -> String {
      var columns =
        ["%{NUMBER:ts|timestamp}"] + ends + [
          of.whole("trans_depth", "zeek.http.trans_depth"), of.cell("method", "http.request.method"),
          of.cell("domain", "url.domain"), of.cell("uri", "url.original"),
          of.cell("referrer", "http.request.referrer"),
        ]
      if !of.isBro { columns.append("~{NUMBER:version|http.version}") }
      columns.append(of.cell("user_agent", "user_agent.original"))
      if !of.isBro { columns.append(of.cell("origin", "zeek.http.origin")) }
      columns += [
        of.whole("request_body_len", "http.request.body.bytes"),
        of.whole("response_body_len", "http.response.body.bytes"),
        of.whole("status_code", "http.response.status_code"), of.cell("status_msg", "zeek.http.status_msg"),
        of.whole("info_code", "zeek.http.info_code"), of.cell("info_msg", "zeek.http.info_msg"),
      ]
      if of.isBro { columns.append(of.cell("filename", "zeek.http.filename")) }
      columns += [
        of.set(of.isBro ? "bro_tags" : "tags", "zeek.http.tags"), of.cell("username", "url.username"),
        of.cell("password", "url.password"), of.cell("proxied", "zeek.http.proxied"),
        of.cell("orig_fuids", "zeek.http.orig_fuids"),
      ]
      if !of.isBro { columns.append(of.cell("orig_filenames", "zeek.http.orig_filenames")) }
      columns += [of.cell("orig_mime_types", "http.request.mime_type"), of.cell("resp_fuids", "zeek.http.resp_fuids")]
      if !of.isBro { columns.append(of.cell("resp_filenames", "zeek.http.resp_filenames")) }
      return joined(columns + [of.cell("resp_mime_types", "http.response.mime_type")])
    }
    func dns(_ of: Columns) -> String {
      var columns =
        ["%{NUMBER:ts|timestamp}"] + ends + ["%{WORD:proto|network.transport}", of.whole("trans_id", "dns.id")]
      if of.isBro {
        columns[columns.count - 1] += "(?:\\t~{NUMBER:rtt|zeek.dns.rtt:float})?"
      } else {
        columns.append(of.number("rtt", "zeek.dns.rtt"))
      }
      return joined(
        columns + [
          of.cell("query", "dns.question.name"), of.whole("qclass", "zeek.dns.qclass"),
          of.cell("qclass_name", "zeek.dns.qclass_name"), of.whole("qtype", "zeek.dns.qtype"),
          of.cell("qtype_name", "dns.question.type"), of.whole("rcode", "zeek.dns.rcode"),
          of.cell("rcode_name", "dns.response_code"), of.truth("AA", "zeek.dns.AA"), of.truth("TC", "zeek.dns.TC"),
          of.truth("RD", "zeek.dns.RD"), of.truth("RA", "zeek.dns.RA"), of.whole("Z", "zeek.dns.Z"),
          of.cell("answers", "zeek.dns.answers"), of.cell("TTLs", "zeek.dns.TTLs"),
          of.truth("rejected", "zeek.dns.rejected"),
        ])
    }
    func connection(_ of: Columns) -> String {
      let first =
        ["%{NUMBER:ts|timestamp}"] + ends + [
          "%{WORD:proto|network.transport}", of.cell("service", "network.protocol"),
          of.number("duration", "zeek.connection.duration"), of.whole("orig_bytes", "zeek.connection.orig_bytes"),
          of.whole("resp_bytes", "zeek.connection.resp_bytes"), of.cell("conn_state", "zeek.connection.state"),
          of.truth("local_orig", "zeek.connection.local_orig"),
        ]
      let local = of.truth("local_resp", "zeek.connection.local_resp") + "\\t"
      let last = [
        of.whole("missed_bytes", "zeek.connection.missed_bytes"), of.cell("history", "zeek.connection.history"),
        of.whole("orig_pkts", "source.packets"), of.whole("orig_ip_bytes", "source.bytes"),
        of.whole("resp_pkts", "destination.packets"), of.whole("resp_ip_bytes", "destination.bytes"),
        of.isBro
          ? of.set("tunnel_parents", "zeek.connection.tunnel_parents")
          : of.cell("tunnel_parents", "zeek.connection.tunnel_parents"),
      ]
      return joined(first) + "\\t" + (of.isBro ? "(?:\(local))?" : local) + joined(last)
        + (of.isBro ? "" : "(?:\\t~{COMMONMAC:orig_l2_addr|source.mac}\\t~{COMMONMAC:resp_l2_addr|destination.mac})?")
    }
    func files(_ of: Columns) -> String {
      let columns = [
        "%{NUMBER:ts|timestamp}", "%{NOTSPACE:fuid|zeek.files.fuid}", "%{ZEEK_FILES_TX_HOSTS}",
        "%{ZEEK_FILES_RX_HOSTS}", of.cell("conn_uids", "zeek.files.session_ids"),
        of.cell("source", "zeek.files.source"), of.whole("depth", "zeek.files.depth"),
        of.cell("analyzers", "zeek.files.analyzers"), of.cell("mime_type", "file.mime_type"),
        of.cell("filename", "file.name"), of.number("duration", "zeek.files.duration"),
        of.cell("local_orig", "zeek.files.local_orig"), of.truth("is_orig", "zeek.files.is_orig"),
        of.whole("seen_bytes", "zeek.files.seen_bytes"), of.whole("total_bytes", "file.size"),
        of.whole("missing_bytes", "zeek.files.missing_bytes"), of.whole("overflow_bytes", "zeek.files.overflow_bytes"),
        of.truth("timedout", "zeek.files.timedout"), of.cell("parent_fuid", "zeek.files.parent_fuid"),
        of.cell("md5", "file.hash.md5"), of.cell("sha1", "file.hash.sha1"), of.cell("sha256", "file.hash.sha256"),
        of.cell("extracted", "zeek.files.extracted"),
      ]
      return joined(columns)
    }
    let more =
      "(?:\\t~{ZEEK_BOOL:extracted_cutoff|zeek.files.extracted_cutoff}\\t~{INT:extracted_size|zeek.files.extracted_size:int})?"
    func joined(_ all: [String]) -> String { all.joined(separator: "\\t") }
    let zeek = Columns(isBro: false, keepsMissing: false)
    let bro = Columns(isBro: true, keepsMissing: true)
    let ecsBro = Columns(isBro: true, keepsMissing: false)
    return """
      ZEEK_BOOL [TF]
      ZEEK_DATA [^\\t]+
      ZEEK_HTTP \(http(zeek))
      ZEEK_DNS \(dns(zeek))
      ZEEK_CONN \(connection(zeek))
      ZEEK_FILES_TX_HOSTS -|%{IP:tx_hosts|server.ip}|(?<|zeek.files.tx_hosts>%{IP:tx_hosts|server.ip}(?:[\\s,]%{IP})+)
      ZEEK_FILES_RX_HOSTS -|%{IP:rx_hosts|client.ip}|(?<|zeek.files.rx_hosts>%{IP:rx_hosts|client.ip}(?:[\\s,]%{IP})+)
      ZEEK_FILES \(files(zeek))\(more)
      BRO_BOOL %{ZEEK_BOOL}
      BRO_DATA %{ZEEK_DATA}
      BRO_HTTP \(http(bro))
      _ecs_BRO_HTTP \(http(ecsBro))
      BRO_DNS \(dns(bro))
      _ecs_BRO_DNS \(dns(ecsBro))
      BRO_CONN \(connection(bro))
      _ecs_BRO_CONN \(connection(ecsBro))
      BRO_FILES \(files(bro))
      _ecs_BRO_FILES \(files(ecsBro))
      """
  }()
}
