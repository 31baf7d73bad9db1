#include "rx_tls.h"

#include <dlfcn.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

// The functions of libssl and libcrypto, with the types from their headers. Loaded at the first connection that needs
// them: most pipelines have none.
#define FUNCTIONS(X)                                                                                                   \
  X(TLS_server_method) X(TLS_client_method) X(SSL_CTX_new) X(SSL_CTX_free) X(SSL_CTX_ctrl) X(SSL_CTX_set_options)       \
  X(SSL_CTX_set_default_passwd_cb) X(SSL_CTX_use_certificate_chain_file) X(SSL_CTX_use_PrivateKey_file)                \
  X(SSL_CTX_check_private_key) X(SSL_CTX_load_verify_locations) X(SSL_CTX_set_default_verify_paths)                    \
  X(SSL_CTX_set_verify) X(SSL_CTX_set_client_CA_list) X(SSL_load_client_CA_file) X(SSL_new) X(SSL_free)                \
  X(SSL_set_fd) X(SSL_do_handshake) X(SSL_set_accept_state) X(SSL_set_connect_state) X(SSL_read_ex) X(SSL_write_ex) X(SSL_get_error) X(SSL_shutdown)           \
  X(SSL_set1_host) X(SSL_ctrl) X(SSL_get0_param) X(SSL_get_verify_result) X(SSL_get1_peer_certificate)                 \
  X(SSL_is_init_finished) X(X509_verify_cert_error_string) X(X509_get_subject_name) X(X509_free) X(X509_NAME_print_ex) \
  X(X509_VERIFY_PARAM_set1_ip_asc) X(BIO_new) X(BIO_s_mem) X(BIO_read) X(BIO_free) X(BIO_write) X(SSL_set_bio)         \
  X(SSL_get_rbio) X(SSL_get_wbio) X(ERR_get_error)                                                                     \
  X(ERR_reason_error_string) X(ERR_clear_error)

static struct {
#define DECLARE(name) __typeof__(&name) name;
  FUNCTIONS(DECLARE)
#undef DECLARE
  int is_loaded;
} lib;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
  void *handle = dlopen("libssl.so.3", RTLD_LAZY | RTLD_LOCAL);
  if (!handle) return;
  int found = 1;
#define LOAD(name)                                         \
  lib.name = (__typeof__(lib.name))dlsym(handle, #name);   \
  found = found && lib.name;
  FUNCTIONS(LOAD)
#undef LOAD
  lib.is_loaded = found;
}

int rx_tls_is_available(void) {
  pthread_once(&once, load);
  return lib.is_loaded;
}

/// Describes the oldest error in this thread's queue, and empties the queue.
static void explain(const char *what, char *error, int size) {
  unsigned long code = lib.ERR_get_error();
  const char *reason = code ? lib.ERR_reason_error_string(code) : NULL;
  if (code && ERR_SYSTEM_ERROR(code)) reason = strerror(ERR_GET_REASON(code));
  snprintf(error, (size_t)size, "%s%s%s", what, *what ? ": " : "", reason ? reason : "unknown error");
  lib.ERR_clear_error();
}

/// An encrypted key is refused: there is nobody to ask for its password.
static int no_password(char *out, int size, int writes, void *context) {
  (void)out, (void)size, (void)writes, (void)context;
  return 0;
}

static int use_files(SSL_CTX *shared, const char *certificate, const char *key, char *error, int size) {
  if (!*certificate) return 1;
  lib.SSL_CTX_set_default_passwd_cb(shared, no_password);
  if (lib.SSL_CTX_use_certificate_chain_file(shared, certificate) != 1) {
    explain(certificate, error, size);
    return 0;
  }
  const char *own = *key ? key : certificate;
  if (lib.SSL_CTX_use_PrivateKey_file(shared, own, SSL_FILETYPE_PEM) != 1 || lib.SSL_CTX_check_private_key(shared) != 1) {
    explain(own, error, size);
    return 0;
  }
  return 1;
}

static SSL_CTX *new_shared(const SSL_METHOD *method, char *error, int size) {
  lib.ERR_clear_error();
  SSL_CTX *shared = lib.SSL_CTX_new(method);
  if (!shared) {
    explain("", error, size);
    return NULL;
  }
  lib.SSL_CTX_ctrl(shared, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, NULL);
  lib.SSL_CTX_ctrl(
    shared, SSL_CTRL_MODE, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS,
    NULL);
  // Many senders close without a closing alert; a message cut short is noticed by its framing.
  lib.SSL_CTX_set_options(shared, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  lib.SSL_CTX_ctrl(shared, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
  return shared;
}

void *rx_tls_server(const char *certificate, const char *key, const char *ca, char *error, int size) {
  if (!rx_tls_is_available()) return NULL;
  SSL_CTX *shared = new_shared(lib.TLS_server_method(), error, size);
  if (!shared) return NULL;
  // With a ticket, a client could resume without its certificate being checked again.
  lib.SSL_CTX_set_options(shared, SSL_OP_NO_TICKET);
  if (!use_files(shared, certificate, key, error, size)) goto failed;
  if (*ca) {
    STACK_OF(X509_NAME) *names = lib.SSL_load_client_CA_file(ca);
    if (!names || lib.SSL_CTX_load_verify_locations(shared, ca, NULL) != 1) {
      explain(ca, error, size);
      goto failed;
    }
    lib.SSL_CTX_set_client_CA_list(shared, names);
    lib.SSL_CTX_set_verify(shared, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
  }
  return shared;
failed:
  lib.SSL_CTX_free(shared);
  return NULL;
}

void *rx_tls_client(const char *certificate, const char *key, const char *ca, int verify, char *error, int size) {
  if (!rx_tls_is_available()) return NULL;
  SSL_CTX *shared = new_shared(lib.TLS_client_method(), error, size);
  if (!shared) return NULL;
  if (!use_files(shared, certificate, key, error, size)) goto failed;
  if (*ca ? lib.SSL_CTX_load_verify_locations(shared, ca, NULL) != 1 : lib.SSL_CTX_set_default_verify_paths(shared) != 1) {
    explain(*ca ? ca : "the system's certificates", error, size);
    goto failed;
  }
  lib.SSL_CTX_set_verify(shared, verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
  return shared;
failed:
  lib.SSL_CTX_free(shared);
  return NULL;
}

void rx_tls_free(void *shared) {
  if (shared) lib.SSL_CTX_free(shared);
}

/// Sets the side of the session and, for a client, the name to expect.
static int set_side(SSL *session, int is_server, const char *host, int is_address) {
  if (is_server) {
    lib.SSL_set_accept_state(session);
    return 1;
  }
  lib.SSL_set_connect_state(session);
  if (!host) return 1;
  if (is_address) return lib.X509_VERIFY_PARAM_set1_ip_asc(lib.SSL_get0_param(session), host);
  return lib.SSL_set1_host(session, host)
    && lib.SSL_ctrl(session, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, (void *)host);
}

void *rx_tls_begin(void *shared, int descriptor, int is_server, const char *host, int is_address) {
  SSL *session = lib.SSL_new(shared);
  if (!session) return NULL;
  if (lib.SSL_set_fd(session, descriptor) && set_side(session, is_server, host, is_address)) return session;
  lib.SSL_free(session);
  return NULL;
}

void *rx_tls_begin_apart(void *shared, int is_server, const char *host, int is_address) {
  SSL *session = lib.SSL_new(shared);
  if (!session) return NULL;
  if (!set_side(session, is_server, host, is_address)) {
    lib.SSL_free(session);
    return NULL;
  }
  BIO *in = lib.BIO_new(lib.BIO_s_mem());
  BIO *out = lib.BIO_new(lib.BIO_s_mem());
  if (!in || !out) {
    lib.BIO_free(in);
    lib.BIO_free(out);
    lib.SSL_free(session);
    return NULL;
  }
  lib.SSL_set_bio(session, in, out);
  return session;
}

int rx_tls_feed(void *session, const void *bytes, int count) {
  return lib.BIO_write(lib.SSL_get_rbio(session), bytes, count) == count;
}

int rx_tls_drain(void *session, void *bytes, int count) {
  int done = lib.BIO_read(lib.SSL_get_wbio(session), bytes, count);
  return done > 0 ? done : 0;
}

void rx_tls_goodbye(void *session) {
  lib.ERR_clear_error();
  if (lib.SSL_is_init_finished(session)) lib.SSL_shutdown(session);
  lib.ERR_clear_error();
}

void rx_tls_end(void *session) {
  if (!session) return;
  lib.ERR_clear_error();
  if (lib.SSL_is_init_finished(session)) lib.SSL_shutdown(session);
  lib.ERR_clear_error();
  lib.SSL_free(session);
}

static int outcome(SSL *session, int result, char *error, int size) {
  int code = errno;
  switch (lib.SSL_get_error(session, result)) {
  case SSL_ERROR_WANT_READ: return RX_TLS_WANTS_READ;
  case SSL_ERROR_WANT_WRITE: return RX_TLS_WANTS_WRITE;
  case SSL_ERROR_ZERO_RETURN: return RX_TLS_CLOSED;
  case SSL_ERROR_SYSCALL:
    lib.ERR_clear_error();
    if (code == 0) return RX_TLS_CLOSED;
    snprintf(error, (size_t)size, "%s", strerror(code));
    return RX_TLS_FAILED;
  default: {
    long verdict = lib.SSL_get_verify_result(session);
    if (verdict != X509_V_OK && !lib.SSL_is_init_finished(session)) {
      snprintf(error, (size_t)size, "the certificate is not accepted: %s", lib.X509_verify_cert_error_string(verdict));
      lib.ERR_clear_error();
    } else {
      explain("", error, size);
    }
    return RX_TLS_FAILED;
  }
  }
}

int rx_tls_handshake(void *session, char *error, int size) {
  lib.ERR_clear_error();
  errno = 0;
  int result = lib.SSL_do_handshake(session);
  return result == 1 ? RX_TLS_DONE : outcome(session, result, error, size);
}

long rx_tls_read(void *session, void *bytes, long count, char *error, int size) {
  lib.ERR_clear_error();
  errno = 0;
  size_t done = 0;
  int result = lib.SSL_read_ex(session, bytes, (size_t)count, &done);
  return result == 1 ? (long)done : outcome(session, result, error, size);
}

long rx_tls_write(void *session, const void *bytes, long count, char *error, int size) {
  lib.ERR_clear_error();
  errno = 0;
  size_t done = 0;
  int result = lib.SSL_write_ex(session, bytes, (size_t)count, &done);
  return result == 1 ? (long)done : outcome(session, result, error, size);
}

int rx_tls_subject(void *session, char *out, int size) {
  X509 *certificate = lib.SSL_get1_peer_certificate(session);
  if (!certificate) return 0;
  int count = 0;
  BIO *text = lib.BIO_new(lib.BIO_s_mem());
  if (text) {
    if (lib.X509_NAME_print_ex(text, lib.X509_get_subject_name(certificate), 0, XN_FLAG_ONELINE & ~ASN1_STRFLGS_ESC_MSB) > 0)
      count = lib.BIO_read(text, out, size);
    lib.BIO_free(text);
  }
  lib.X509_free(certificate);
  return count > 0 ? count : 0;
}
