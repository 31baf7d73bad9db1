// Sockets: addresses of any family, datagrams with the kernel's metadata, and readiness.
#ifndef RX_SOCKET_H
#define RX_SOCKET_H
#include <stdint.h>

/// An address of any family.
typedef struct {
  uint64_t words[16];
  uint32_t length;
} rx_address;

/// Finds at most `most` addresses of a host; returns their number, or a negative code for `rx_resolving_text`.
/// `passive`: the addresses are for listening.
int rx_resolve(const char *host, int port, int datagram, int passive, rx_address *out, int most);
const char *rx_resolving_text(int code);
/// The address of a path, or of an abstract name that begins with `@`; 0: it is too long.
int rx_unix_address(const char *path, rx_address *out);
int rx_address_family(const rx_address *address);
/// The port; 0 if the family has none.
int rx_address_port(const rx_address *address);
/// `127.0.0.1:80`, `[::1]:80`, or the path of a Unix socket; the number of bytes written.
int rx_address_text(const rx_address *address, char *out, int size);
/// The address to which the socket is bound; 0: unknown.
int rx_local_address(int descriptor, rx_address *out);

/// A new socket, close-on-exec and non-blocking. This and the following calls return -1 and set errno on failure.
int rx_socket(int family, int datagram);
int rx_bind(int descriptor, const rx_address *address);
int rx_connect(int descriptor, const rx_address *address);
int rx_accept(int descriptor, rx_address *peer);
/// Sends without SIGPIPE.
long rx_send(int descriptor, const void *bytes, long count);
/// The number of unread bytes in a pipe, from either end; -1: unknown.
long rx_unread(int descriptor);
/// Sends an empty datagram with the descriptor of a sealed memory file that contains the bytes. Returns 0; -1 and errno
/// on failure.
int rx_send_as_file(int descriptor, const void *bytes, long count);
/// The error of an attempt to connect; 0: the connection is established.
int rx_socket_error(int descriptor);
/// Whether the descriptor is a datagram socket (1), a stream socket (0), or not a socket (-1).
int rx_socket_kind(int descriptor);
/// Whether the socket listens.
int rx_is_listening(int descriptor);
/// 0, or -1 and errno.
int rx_set_option(int descriptor, int level, int option, int value);
/// Sets the size of the receive buffer, above the system's limit if that is permitted; returns the actual size.
int rx_set_receive_buffer(int descriptor, int bytes);
int rx_set_send_buffer(int descriptor, int bytes);
/// The process at the other end of a Unix stream; 0: unknown.
int rx_peer_process(int descriptor, int *pid, int *uid);
/// The number of bytes that the peer's system has not acknowledged; -1: unknown.
long rx_unacknowledged(int descriptor);

/// Whether the other end of a Unix stream has been closed.
int rx_has_hung_up(int descriptor);

/// A datagram in the buffer passed to `rx_receive`.
typedef struct {
  uint32_t start;
  /// The number of bytes in the buffer.
  uint32_t count;
  /// Whether the datagram was longer than its part of the buffer.
  uint32_t is_cut;
  /// The sender's process and user, with SO_PASSCRED; 0: unknown.
  uint32_t pid, uid;
  rx_address peer;
} rx_datagram;

/// Receives waiting datagrams: at most `slots` (at most 64), each into `bytes` bytes of the buffer. `*dropped`: the
/// kernel's count of datagrams dropped since the socket was opened (with SO_RXQ_OVFL); unchanged if the kernel gives
/// none. Returns the number received, or -1 and errno.
int rx_receive(int descriptor, unsigned char *space, uint32_t bytes, int slots, rx_datagram *out, uint32_t *dropped);

typedef struct {
  uint64_t tag;
  uint32_t is_readable, is_writable, has_ended;
} rx_ready;
int rx_poller(void);
/// Watches a descriptor for the given events, replacing earlier ones.
int rx_watch(int poller, int descriptor, uint64_t tag, int readable, int writable, int is_new);
void rx_unwatch(int poller, int descriptor);
/// Waits for ready descriptors and returns at most `most` of them (at most 256). `milliseconds`: -1 waits forever.
int rx_wait(int poller, rx_ready *out, int most, int milliseconds);
/// Waits for one descriptor and a wake; returns which are ready as bits: 1 for the first, 2 for the second.
/// `milliseconds`: -1 waits forever.
int rx_wait_two(int first, int writable, int second, int milliseconds);

#endif
