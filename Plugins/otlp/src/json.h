/* OTLP in JSON, with its own rules: names in lower camel case, ids in hex, enums as numbers, 64-bit numbers also as texts. */
#ifndef OTLP_JSON_H
#define OTLP_JSON_H
#include "common.h"

/* The request in protobuf. Unknown members are left out. False: it is none; `problem` says where and why. */
bool request_of_json(rxd_scope *scope, const rxd_value &json, Signal signal, std::string &request, std::string &problem);

/* A text in JSON, with quotes. Bytes below a space and beyond ASCII become question marks. */
std::string json_text(std::string_view text);

#endif
