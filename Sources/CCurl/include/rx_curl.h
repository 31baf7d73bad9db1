// libcurl, loaded at its first use: it depends on thirty libraries, which a process without requests should neither map
// nor relocate. Its option setters are variadic, which Swift cannot call, so there is one typed function for each kind
// of argument. Until the library is loaded, every function but the three below fails: it returns null, or an error that
// `rx_curl_easy_strerror` names.
#ifndef RX_CURL_H
#define RX_CURL_H
#include <curl/curl.h>
#include <stdbool.h>

typedef enum {
  RX_CURL_READY,
  /// The library is not installed or cannot be used: trying again is useless.
  RX_CURL_MISSING,
  /// Descriptors, memory or the like are short at the moment.
  RX_CURL_BUSY,
} rx_curl_state;

/// Loads the library if it is not loaded. False: it cannot be loaded now. Thread-safe.
bool rx_curl_load(void);

/// Loads and initialises the library if that has not been done. On failure, writes the reason to `why`, at most `size`
/// bytes with the final 0. Thread-safe; after a failure, each call tries again.
rx_curl_state rx_curl_prepare(char *why, size_t size);

/// For tests: the state that loading a library with another name would give. That library is not used.
rx_curl_state rx_curl_try(const char *name, char *why, size_t size);

/// Whether the dynamic loader's error is possibly temporary.
bool rx_curl_may_pass(const char *why);

CURL *rx_curl_easy_init(void);
void rx_curl_easy_cleanup(CURL *handle);
void rx_curl_easy_reset(CURL *handle);
/// Resumes receiving after a data callback has returned CURL_WRITEFUNC_PAUSE; may call the callback at once.
CURLcode rx_curl_easy_resume(CURL *handle);
const char *rx_curl_easy_strerror(CURLcode code);
void rx_curl_free(void *memory);
time_t rx_curl_getdate(const char *text);
struct curl_slist *rx_curl_slist_append(struct curl_slist *list, const char *text);
void rx_curl_slist_free_all(struct curl_slist *list);

CURLU *rx_curl_url(void);
void rx_curl_url_cleanup(CURLU *url);
CURLUcode rx_curl_url_get(CURLU *url, CURLUPart part, char **text, unsigned int flags);
CURLUcode rx_curl_url_set(CURLU *url, CURLUPart part, const char *text, unsigned int flags);
const char *rx_curl_url_strerror(CURLUcode code);

CURLM *rx_curl_multi_init(void);
void rx_curl_multi_cleanup(CURLM *multi);
CURLMcode rx_curl_multi_add_handle(CURLM *multi, CURL *handle);
CURLMcode rx_curl_multi_remove_handle(CURLM *multi, CURL *handle);
CURLMcode rx_curl_multi_perform(CURLM *multi, int *running);
CURLMcode rx_curl_multi_poll(CURLM *multi, struct curl_waitfd *more, unsigned int count, int milliseconds, int *ready);
CURLMcode rx_curl_multi_wakeup(CURLM *multi);
CURLMsg *rx_curl_multi_info_read(CURLM *multi, int *remaining);
CURLMcode rx_curl_multi_set_long(CURLM *multi, CURLMoption option, long value);

CURLcode rx_curl_set_long(CURL *handle, CURLoption option, long value);
CURLcode rx_curl_set_offset(CURL *handle, CURLoption option, curl_off_t value);
CURLcode rx_curl_set_pointer(CURL *handle, CURLoption option, void *value);
CURLcode rx_curl_set_string(CURL *handle, CURLoption option, const char *value);
CURLcode rx_curl_set_list(CURL *handle, CURLoption option, struct curl_slist *value);
CURLcode rx_curl_set_url(CURL *handle, CURLU *value);

// The type of both data callbacks: bytes, 1, number of bytes, the option's pointer.
typedef size_t (*rx_curl_data)(char *bytes, size_t one, size_t count, void *context);
CURLcode rx_curl_set_data(CURL *handle, CURLoption option, rx_curl_data call);
typedef curl_socket_t (*rx_curl_open)(void *context, curlsocktype purpose, struct curl_sockaddr *address);
CURLcode rx_curl_set_open(CURL *handle, rx_curl_open call);
typedef int (*rx_curl_close)(void *context, curl_socket_t socket);
CURLcode rx_curl_set_close(CURL *handle, rx_curl_close call);
typedef int (*rx_curl_ready)(void *context, char *remote, char *local, int remote_port, int local_port);
CURLcode rx_curl_set_ready(CURL *handle, rx_curl_ready call);

CURLcode rx_curl_get_long(CURL *handle, CURLINFO info, long *value);
CURLcode rx_curl_get_offset(CURL *handle, CURLINFO info, curl_off_t *value);
CURLcode rx_curl_get_string(CURL *handle, CURLINFO info, char **value);
// The result of the message, which Swift cannot read from the union.
static inline CURLcode rx_curl_result(const CURLMsg *message) { return message->data.result; }
#endif
