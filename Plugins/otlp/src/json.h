/* OTLP in JSON, with its own rules: names in lower camel case, ids in hex, enums as numbers, 64-bit numbers also as texts. */
#ifndef OTLP_JSON_H
#define OTLP_JSON_H
#include "common.h"

/* Converts a request from JSON to protobuf, without unknown members. False: the input is not a request; `problem` has
 * the location and the reason. */
bool request_of_json(rxd_scope *scope, const rxd_value &json, Signal signal, std::string &request, std::string &problem);

/* Quotes a text as JSON. Control characters and bytes beyond ASCII become question marks. */
std::string json_text(std::string_view text);

#endif
