// TLS on non-blocking descriptors, by libssl, which is loaded at its first use.
#ifndef RX_TLS_H
#define RX_TLS_H
#include <stdint.h>

/// Whether libssl is installed; it stays loaded.
int rx_tls_is_available(void);

/// The settings that a server's connections share; null, with the reason in `error`, if a file cannot be used. Pass an
/// empty text for what is not given. `ca`: the authorities that must have signed client certificates.
void *rx_tls_server(const char *certificate, const char *key, const char *ca, char *error, int size);
/// The settings of a client's connections. `ca`: the authorities to trust instead of the system's. `verify` 0: accept
/// any certificate.
void *rx_tls_client(const char *certificate, const char *key, const char *ca, int verify, char *error, int size);
void rx_tls_free(void *shared);

/// A session on a connected descriptor, which the caller keeps. `host`: for a client, the name or address that the
/// server's certificate must have; null: any. Returns null if memory is short.
void *rx_tls_begin(void *shared, int descriptor, int is_server, const char *host, int is_address);
/// A session without a descriptor, whose bytes the caller moves. `host` as above. Returns null if memory is short.
void *rx_tls_begin_apart(void *shared, int is_server, const char *host, int is_address);
/// Takes received bytes. 0: no memory.
int rx_tls_feed(void *session, const void *bytes, int count);
/// Gives bytes to send, at most `count`; 0: none are left. Call after each other call.
int rx_tls_drain(void *session, void *bytes, int count);
/// Sends the closing alert: nothing more is written.
void rx_tls_goodbye(void *session);
/// Frees the session; sends the closing alert if that needs no waiting.
void rx_tls_end(void *session);

enum { RX_TLS_DONE = 1, RX_TLS_CLOSED = 0, RX_TLS_WANTS_READ = -1, RX_TLS_WANTS_WRITE = -2, RX_TLS_FAILED = -3 };
int rx_tls_handshake(void *session, char *error, int size);
/// Returns the number of bytes, at least one, or one of the above.
long rx_tls_read(void *session, void *bytes, long count, char *error, int size);
long rx_tls_write(void *session, const void *bytes, long count, char *error, int size);
/// Writes the subject of the peer's certificate, such as `CN=a, O=b`; returns its length, 0 if there is none.
int rx_tls_subject(void *session, char *out, int size);

#endif
