#include "rx_curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define FUNCTIONS(each) \
  each(global_init) each(easy_init) each(easy_cleanup) each(easy_pause) each(easy_reset) each(easy_strerror) each(easy_setopt) \
  each(easy_getinfo) each(free) each(getdate) each(slist_append) each(slist_free_all) each(url) \
  each(url_cleanup) each(url_get) each(url_set) each(url_strerror) each(multi_init) each(multi_cleanup) \
  each(multi_add_handle) each(multi_remove_handle) each(multi_perform) each(multi_poll) each(multi_wakeup) \
  each(multi_info_read) each(multi_setopt)

// The functions of the library, with the types from its header.
#define FIELD(name) __typeof__(&curl_##name) name;
struct functions { FUNCTIONS(FIELD) };
#undef FIELD
static struct functions lib;

// `loaded` is set once, after all of `lib`; the lock is held while loading.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool loaded;
static bool initialized;
static const char missing[] = "libcurl.so.4 cannot be loaded";

bool rx_curl_may_pass(const char *why) {
  static const char *const passing[] = {
    "Too many open files", "Cannot allocate memory", "cannot allocate memory", "out of memory", "failed to map segment",
    "Resource temporarily unavailable", "Interrupted system call", "Input/output error", "cannot create shared object descriptor",
  };
  for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
    if (strstr(why, passing[i])) return true;
  return false;
}

static rx_curl_state find(const char *name, struct functions *functions, char *why, size_t size) {
  void *handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (!handle) {
    const char *said = dlerror();
    snprintf(why, size, "%s", said ? said : "the reason is not known");
    return rx_curl_may_pass(why) ? RX_CURL_BUSY : RX_CURL_MISSING;
  }
#define FIND(function) \
  if (!(functions->function = (__typeof__(functions->function))dlsym(handle, "curl_" #function))) { \
    snprintf(why, size, "%s: it has no function curl_%s", name, #function); \
    dlclose(handle); \
    return RX_CURL_MISSING; \
  }
  FUNCTIONS(FIND)
#undef FIND
  return RX_CURL_READY;
}

rx_curl_state rx_curl_try(const char *name, char *why, size_t size) {
  struct functions functions;
  return find(name, &functions, why, size);
}

static rx_curl_state load(char *why, size_t size) {
  if (atomic_load_explicit(&loaded, memory_order_acquire)) return RX_CURL_READY;
  rx_curl_state state = find("libcurl.so.4", &lib, why, size);
  if (state == RX_CURL_READY) atomic_store_explicit(&loaded, true, memory_order_release);
  return state;
}

bool rx_curl_load(void) {
  if (atomic_load_explicit(&loaded, memory_order_acquire)) return true;
  char why[256];
  pthread_mutex_lock(&lock);
  rx_curl_state state = load(why, sizeof why);
  pthread_mutex_unlock(&lock);
  return state == RX_CURL_READY;
}

rx_curl_state rx_curl_prepare(char *why, size_t size) {
  pthread_mutex_lock(&lock);
  rx_curl_state state = load(why, size);
  if (state == RX_CURL_READY && !initialized) {
    CURLcode code = lib.global_init(CURL_GLOBAL_DEFAULT);
    initialized = code == CURLE_OK;
    if (!initialized) {
      snprintf(why, size, "%s", lib.easy_strerror(code));
      state = RX_CURL_BUSY;
    }
  }
  pthread_mutex_unlock(&lock);
  return state;
}

CURL *rx_curl_easy_init(void) { return rx_curl_load() ? lib.easy_init() : NULL; }

void rx_curl_easy_cleanup(CURL *handle) {
  if (handle) lib.easy_cleanup(handle);
}

CURLcode rx_curl_easy_resume(CURL *handle) { return lib.easy_pause(handle, CURLPAUSE_CONT); }

void rx_curl_easy_reset(CURL *handle) {
  if (handle) lib.easy_reset(handle);
}

const char *rx_curl_easy_strerror(CURLcode code) { return rx_curl_load() ? lib.easy_strerror(code) : missing; }

void rx_curl_free(void *memory) {
  if (memory) lib.free(memory);
}

time_t rx_curl_getdate(const char *text) { return rx_curl_load() ? lib.getdate(text, NULL) : -1; }

struct curl_slist *rx_curl_slist_append(struct curl_slist *list, const char *text) {
  return rx_curl_load() ? lib.slist_append(list, text) : NULL;
}

void rx_curl_slist_free_all(struct curl_slist *list) {
  if (list) lib.slist_free_all(list);
}

CURLU *rx_curl_url(void) { return rx_curl_load() ? lib.url() : NULL; }

void rx_curl_url_cleanup(CURLU *url) {
  if (url) lib.url_cleanup(url);
}

CURLUcode rx_curl_url_get(CURLU *url, CURLUPart part, char **text, unsigned int flags) {
  return url ? lib.url_get(url, part, text, flags) : CURLUE_BAD_HANDLE;
}

CURLUcode rx_curl_url_set(CURLU *url, CURLUPart part, const char *text, unsigned int flags) {
  return url ? lib.url_set(url, part, text, flags) : CURLUE_BAD_HANDLE;
}

const char *rx_curl_url_strerror(CURLUcode code) { return rx_curl_load() ? lib.url_strerror(code) : missing; }

CURLM *rx_curl_multi_init(void) { return rx_curl_load() ? lib.multi_init() : NULL; }

void rx_curl_multi_cleanup(CURLM *multi) {
  if (multi) lib.multi_cleanup(multi);
}

CURLMcode rx_curl_multi_add_handle(CURLM *multi, CURL *handle) { return multi ? lib.multi_add_handle(multi, handle) : CURLM_BAD_HANDLE; }

CURLMcode rx_curl_multi_remove_handle(CURLM *multi, CURL *handle) { return multi ? lib.multi_remove_handle(multi, handle) : CURLM_BAD_HANDLE; }

CURLMcode rx_curl_multi_perform(CURLM *multi, int *running) { return multi ? lib.multi_perform(multi, running) : CURLM_BAD_HANDLE; }

CURLMcode rx_curl_multi_poll(CURLM *multi, struct curl_waitfd *more, unsigned int count, int milliseconds, int *ready) {
  return multi ? lib.multi_poll(multi, more, count, milliseconds, ready) : CURLM_BAD_HANDLE;
}

CURLMcode rx_curl_multi_wakeup(CURLM *multi) { return multi ? lib.multi_wakeup(multi) : CURLM_BAD_HANDLE; }

CURLMsg *rx_curl_multi_info_read(CURLM *multi, int *remaining) { return multi ? lib.multi_info_read(multi, remaining) : NULL; }

CURLMcode rx_curl_multi_set_long(CURLM *multi, CURLMoption option, long value) {
  return multi ? lib.multi_setopt(multi, option, value) : CURLM_BAD_HANDLE;
}

// A handle exists only if the library is loaded.

CURLcode rx_curl_set_long(CURL *handle, CURLoption option, long value) {
  return lib.easy_setopt(handle, option, value);
}

CURLcode rx_curl_set_offset(CURL *handle, CURLoption option, curl_off_t value) {
  return lib.easy_setopt(handle, option, value);
}

CURLcode rx_curl_set_pointer(CURL *handle, CURLoption option, void *value) {
  return lib.easy_setopt(handle, option, value);
}

CURLcode rx_curl_set_string(CURL *handle, CURLoption option, const char *value) {
  return lib.easy_setopt(handle, option, value);
}

CURLcode rx_curl_set_list(CURL *handle, CURLoption option, struct curl_slist *value) {
  return lib.easy_setopt(handle, option, value);
}

CURLcode rx_curl_set_url(CURL *handle, CURLU *value) { return lib.easy_setopt(handle, CURLOPT_CURLU, value); }

CURLcode rx_curl_set_data(CURL *handle, CURLoption option, rx_curl_data call) {
  return lib.easy_setopt(handle, option, call);
}

CURLcode rx_curl_set_open(CURL *handle, rx_curl_open call) {
  return lib.easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, call);
}

CURLcode rx_curl_set_close(CURL *handle, rx_curl_close call) {
  return lib.easy_setopt(handle, CURLOPT_CLOSESOCKETFUNCTION, call);
}

CURLcode rx_curl_set_ready(CURL *handle, rx_curl_ready call) {
  return lib.easy_setopt(handle, CURLOPT_PREREQFUNCTION, call);
}

CURLcode rx_curl_get_long(CURL *handle, CURLINFO info, long *value) { return lib.easy_getinfo(handle, info, value); }

CURLcode rx_curl_get_offset(CURL *handle, CURLINFO info, curl_off_t *value) {
  return lib.easy_getinfo(handle, info, value);
}

CURLcode rx_curl_get_string(CURL *handle, CURLINFO info, char **value) {
  return lib.easy_getinfo(handle, info, value);
}
