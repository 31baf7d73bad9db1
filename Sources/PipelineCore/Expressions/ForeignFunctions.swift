extension Checker {
  /// The counterparts of functions of jq, VRL, Bloblang and others.
  static let foreignFunctions: [String: String] = [
    // jq
    "ascii_downcase": "Write .lowerAscii().", "ascii_upcase": "Write .upperAscii().",
    "startswith": "Write .startsWith(...).", "endswith": "Write .endsWith(...).",
    "ltrimstr": "Write regex.replace(text, '^...', '').", "rtrimstr": "Write regex.replace(text, '...$', '').",
    "gsub": "Write regex.replace(text, r'...', '...').", "sub": "Write regex.replace(text, r'...', '...', 1).",
    "capture": "Write grok(text, r'(?<name>...)').", "scan": "Write regex.extractAll(text, r'...').",
    "tonumber": "Write int(...) or double(...).", "tostring": "Write string(...).",
    "tojson": "Write toJson(...).", "fromjson": "Write parseJson(...).", "add": "Write .sum().",
    "to_entries": "Write .transformList(k, v, {'key': k, 'value': v}).",
    "from_entries": "Write .transformMapEntry(i, e, {e.key: e.value}).",
    "with_entries": "Write .transformMapEntry(k, v, {k: v}).", "map_values": "Write .transformMap(k, v, ...).",
    "del": "Write .omit([...]).", "unique": "Write .distinct().", "sort_by": "Write .sortBy(x, ...).",
    "min_by": "Write .sortBy(x, ...).first().", "max_by": "Write .sortBy(x, ...).last().",
    "group_by": "Write .groupBy(x, ...) for a list; events are grouped by the operator groupBy.",
    "select": "Write .filter(x, ...).",
    "empty": "Events are dropped by the operator filter.", "range": "Write lists.range(n).",
    "fromdate": "Write timestamp(...).", "todate": "Write string(timestamp(...)).",
    "strptime": "Write parseTime(text, '%Y-...').", "strftime": "Write formatTime(time, '%Y-...').",
    // VRL
    "to_string": "Write string(...).", "to_int": "Write int(...).", "to_float": "Write double(...).",
    "parse_regex": "Write grok(text, r'(?<name>...)').", "parse_grok": "Write grok(text, '%{...}').",
    "parse_csv": "Write parseCsv(...).", "parse_url": "Write parseUrl(...).",
    "parse_key_value": "Write parseKv(...).", "parse_logfmt": "Write parseLogfmt(...).",
    "parse_query_string": "Write parseQuery(...).", "parse_timestamp": "Write parseTime(text, '%Y-...').",
    "format_timestamp": "Write formatTime(time, '%Y-...').", "encode_json": "Write toJson(...).",
    "starts_with": "Write .startsWith(...).", "ends_with": "Write .endsWith(...).",
    "is_nullish": "Write optional.ofNonNull(event.?field...).hasValue().", "is_null": "Write ... == null.",
    "md5": "Write hash(text, 'md5').", "sha1": "Write hash(text, 'sha1').", "sha2": "Write hash(text, 'sha256').",
    "sha256": "Write hash(text, 'sha256').", "sha512": "Write hash(text, 'sha512').",
    "crc32": "Write hash(text, 'crc32').", "ip_cidr_contains": "Write cidr('...').containsIP(...).",
    "encode_base64": "Write base64.encode(...).", "decode_base64": "Write base64.decode(...).",
    "encode_percent": "Write urlEncode(...).", "decode_percent": "Write urlDecode(...).",
    // Bloblang
    "uppercase": "Write .upperAscii().", "lowercase": "Write .lowerAscii().",
    "re_match": "Write .matches(r'...').", "re_replace_all": "Write regex.replace(text, r'...', '...').",
    "re_find_all": "Write regex.extractAll(text, r'...').", "map_each": "Write .map(x, ...).",
    "key_values": "Write .transformList(k, v, {'key': k, 'value': v}).",
    "ts_parse": "Write parseTime(text, '%Y-...').", "ts_format": "Write formatTime(time, '%Y-...').",
    "format_json": "Write toJson(...).", "trim_prefix": "Write regex.replace(text, '^...', '').",
    // Functions that depend on more than their input
    "uuid_v4": "Nothing is random here: uuid.v5(namespace, name) gives the same UUID for the same input.",
    "uuid": "Nothing is random here: uuid.v5(namespace, name) gives the same UUID for the same input.",
    "random": "Nothing is random here: hash(text) spreads events evenly, and the same ones alike.",
  ]
}
