// libcurl's option setters are variadic, which Swift cannot call: one typed function per argument kind.
#ifndef RX_CURL_H
#define RX_CURL_H
#include <curl/curl.h>
static inline CURLcode rx_curl_set_long(CURL *handle, CURLoption option, long value) {
  return curl_easy_setopt(handle, option, value);
}
static inline CURLcode rx_curl_set_offset(CURL *handle, CURLoption option, curl_off_t value) {
  return curl_easy_setopt(handle, option, value);
}
static inline CURLcode rx_curl_set_pointer(CURL *handle, CURLoption option, void *value) {
  return curl_easy_setopt(handle, option, value);
}
static inline CURLcode rx_curl_set_string(CURL *handle, CURLoption option, const char *value) {
  return curl_easy_setopt(handle, option, value);
}
static inline CURLcode rx_curl_set_list(CURL *handle, CURLoption option, struct curl_slist *value) {
  return curl_easy_setopt(handle, option, value);
}
static inline CURLcode rx_curl_set_url(CURL *handle, CURLU *value) {
  return curl_easy_setopt(handle, CURLOPT_CURLU, value);
}

// The two data callbacks share this type: bytes, 1, how many bytes, the option's pointer.
typedef size_t (*rx_curl_data)(char *bytes, size_t one, size_t count, void *context);
static inline CURLcode rx_curl_set_data(CURL *handle, CURLoption option, rx_curl_data call) {
  return curl_easy_setopt(handle, option, call);
}
typedef curl_socket_t (*rx_curl_open)(void *context, curlsocktype purpose, struct curl_sockaddr *address);
static inline CURLcode rx_curl_set_open(CURL *handle, rx_curl_open call) {
  return curl_easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, call);
}
typedef int (*rx_curl_ready)(
    void *context, char *remote, char *local, int remote_port, int local_port);
static inline CURLcode rx_curl_set_ready(CURL *handle, rx_curl_ready call) {
  return curl_easy_setopt(handle, CURLOPT_PREREQFUNCTION, call);
}

static inline CURLcode rx_curl_get_long(CURL *handle, CURLINFO info, long *value) {
  return curl_easy_getinfo(handle, info, value);
}
static inline CURLcode rx_curl_get_offset(CURL *handle, CURLINFO info, curl_off_t *value) {
  return curl_easy_getinfo(handle, info, value);
}
static inline CURLcode rx_curl_get_string(CURL *handle, CURLINFO info, char **value) {
  return curl_easy_getinfo(handle, info, value);
}
static inline CURLMcode rx_curl_multi_set_long(CURLM *handle, CURLMoption option, long value) {
  return curl_multi_setopt(handle, option, value);
}
// The message's result, out of its union.
static inline CURLcode rx_curl_result(const CURLMsg *message) { return message->data.result; }
#endif
