// Sockets: addresses of any family, messages with what the kernel says of them, and readiness.
#ifndef RX_SOCKET_H
#define RX_SOCKET_H
#include <stdint.h>

/// An address of any family.
typedef struct {
  uint64_t words[16];
  uint32_t length;
} rx_address;

/// The addresses of a host, at most `most`: their number, or a negative code of `rx_resolving_text`. A passive one is for listening.
int rx_resolve(const char *host, int port, int datagram, int passive, rx_address *out, int most);
const char *rx_resolving_text(int code);
/// The address of a path, or of an abstract name that begins with `@`; 0: it is too long.
int rx_unix_address(const char *path, rx_address *out);
int rx_address_family(const rx_address *address);
/// The port; 0 where the family has none.
int rx_address_port(const rx_address *address);
/// `127.0.0.1:80`, `[::1]:80`, or the path of a Unix socket; the number of bytes written.
int rx_address_text(const rx_address *address, char *out, int size);
/// The address to which the socket is bound; 0: unknown.
int rx_local_address(int descriptor, rx_address *out);

/// Close-on-exec and non-blocking; -1 and errno on failure, as all that follow.
int rx_socket(int family, int datagram);
int rx_bind(int descriptor, const rx_address *address);
int rx_connect(int descriptor, const rx_address *address);
int rx_accept(int descriptor, rx_address *peer);
/// Sends without SIGPIPE.
long rx_send(int descriptor, const void *bytes, long count);
/// Bytes of a pipe that its reader has not read, seen from either end; -1: unknown.
long rx_unread(int descriptor);
/// Sends a datagram without bytes, with the descriptor of a sealed file in memory that has them. 0; -1 and errno on failure.
int rx_send_as_file(int descriptor, const void *bytes, long count);
/// The error of a connection that was under way; 0: it stands.
int rx_socket_error(int descriptor);
/// Whether the descriptor is a socket of datagrams (1), a stream (0), or no socket (-1).
int rx_socket_kind(int descriptor);
/// Whether it listens.
int rx_is_listening(int descriptor);
/// 0, or -1 and errno.
int rx_set_option(int descriptor, int level, int option, int value);
/// Sets the size of the receive buffer, beyond the system's limit where that is allowed; the size that it has now.
int rx_set_receive_buffer(int descriptor, int bytes);
int rx_set_send_buffer(int descriptor, int bytes);
/// The process at the other end of a Unix stream; 0: unknown.
int rx_peer_process(int descriptor, int *pid, int *uid);
/// Bytes that the peer's system has not acknowledged; -1: unknown.
long rx_unacknowledged(int descriptor);

/// Whether the other end of a Unix stream has been closed.
int rx_has_hung_up(int descriptor);

/// A datagram in the space that was given to `rx_receive`.
typedef struct {
  uint32_t start;
  /// Bytes in the space.
  uint32_t count;
  /// Whether the datagram was longer.
  uint32_t is_cut;
  /// Of the process that sent it, with SO_PASSCRED; 0: unknown.
  uint32_t pid, uid;
  rx_address peer;
} rx_datagram;

/// Receives what is there: at most `slots` datagrams (64 at most), each into `bytes` of the space. `*dropped`: what the kernel says of
/// datagrams that had no room, since the socket was opened (with SO_RXQ_OVFL); unchanged if it says nothing. The number, or -1 and errno.
int rx_receive(int descriptor, unsigned char *space, uint32_t bytes, int slots, rx_datagram *out, uint32_t *dropped);

typedef struct {
  uint64_t tag;
  uint32_t is_readable, is_writable, has_ended;
} rx_ready;
int rx_poller(void);
/// Watches a descriptor, in the way that it says now.
int rx_watch(int poller, int descriptor, uint64_t tag, int readable, int writable, int is_new);
void rx_unwatch(int poller, int descriptor);
/// What is ready: at most `most` (256 at most). `milliseconds`: -1 waits for ever.
int rx_wait(int poller, rx_ready *out, int most, int milliseconds);
/// Waits for one descriptor and a wake; which are ready: 1 the first, 2 the second. `milliseconds`: -1 waits for ever.
int rx_wait_two(int first, int writable, int second, int milliseconds);

#endif
