// libcurl's option setters are variadic, which Swift cannot call: one typed function per argument kind.
#ifndef RX_CURL_H
#define RX_CURL_H
#include <curl/curl.h>
static inline CURLcode rx_curl_set_long(CURL *handle, CURLoption option, long value) {
  return curl_easy_setopt(handle, option, value);
}
static inline CURLcode rx_curl_set_pointer(CURL *handle, CURLoption option, void *value) {
  return curl_easy_setopt(handle, option, value);
}
static inline CURLcode rx_curl_set_string(CURL *handle, CURLoption option, const char *value) {
  return curl_easy_setopt(handle, option, value);
}
#endif
