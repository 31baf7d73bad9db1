// TLS on descriptors that do not block, by libssl, which is loaded when it is first used.
#ifndef RX_TLS_H
#define RX_TLS_H
#include <stdint.h>

/// Whether libssl is there; it stays loaded.
int rx_tls_is_available(void);

/// What connections share; null, with a text, where a file cannot be used. Empty texts for what is not given.
/// `ca`: whose certificates clients must have.
void *rx_tls_server(const char *certificate, const char *key, const char *ca, char *error, int size);
/// `ca`: whom to trust instead of the system's list. `verify` 0: anybody.
void *rx_tls_client(const char *certificate, const char *key, const char *ca, int verify, char *error, int size);
void rx_tls_free(void *shared);

/// A connection on a connected descriptor, which stays the caller's. `host`: of a client, the name or address that the server's
/// certificate must have; null: any. Null: no memory.
void *rx_tls_begin(void *shared, int descriptor, int is_server, const char *host, int is_address);
/// A connection without a descriptor: the caller passes its bytes on. `host` as above. Null: no memory.
void *rx_tls_begin_apart(void *shared, int is_server, const char *host, int is_address);
/// Hands over bytes that have come. 0: no memory.
int rx_tls_feed(void *session, const void *bytes, int count);
/// Takes bytes that are to be sent, at most `count`; 0: none are left. Call it after each other call.
int rx_tls_drain(void *session, void *bytes, int count);
/// Says goodbye to the other end: nothing more is written.
void rx_tls_goodbye(void *session);
/// Frees it; says goodbye to the other end where that needs no waiting.
void rx_tls_end(void *session);

enum { RX_TLS_DONE = 1, RX_TLS_CLOSED = 0, RX_TLS_WANTS_READ = -1, RX_TLS_WANTS_WRITE = -2, RX_TLS_FAILED = -3 };
int rx_tls_handshake(void *session, char *error, int size);
/// Bytes, at least one; or one of the above.
long rx_tls_read(void *session, void *bytes, long count, char *error, int size);
long rx_tls_write(void *session, const void *bytes, long count, char *error, int size);
/// The subject of the certificate that the other end has shown, as `CN=a, O=b`; its length, 0: there is none.
int rx_tls_subject(void *session, char *out, int size);

#endif
