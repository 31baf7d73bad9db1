/* rxd_plugin.h: the contract between rxd and a plugin in a shared library. Contract 1, version 1.3 of this header.
 *
 * A plugin is a shared object with two exported names: the data `rxd_plugin_magic` (RXD_PLUGIN_MAGIC below) and the
 * function `rxd_plugin_init`. It provides its specs as one JSON document, the same that plugins of the line protocol
 * send, and a table of functions for each component. docs/plugins.md is the tutorial, docs/plugin-contract.md the
 * complete contract.
 *
 * Rules that hold everywhere:
 * - Tables only grow at their end, and each begins with its size in bytes. Members beyond that size
 *   do not exist: RXD_HOST_SIZE_1_0 and so on are the sizes in each version of this header.
 * - A function returns RXD_OK or another rxd_status. Before returning RXD_FAILED it gives the reason with `fail`.
 * - Values, texts and batches that rxd passes to a function are valid until that function returns.
 * - Values and texts that a plugin passes to a function of rxd are copied before that function returns. Only the texts
 *   and tables that rxd_plugin_init returns must live as long as the process.
 * - Texts are UTF-8 with a length, not zero-terminated.
 * - No C++ or Swift exception and no longjmp may leave a function of this header.
 * - Before the first `open`, a plugin may call only those host functions that make values without a scope.
 * - Functions of one instance are called one at a time, except `row`. Different instances are independent.
 */
#ifndef RXD_PLUGIN_H
#define RXD_PLUGIN_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RXD_CONTRACT 1

/* ---- Identification of a plugin and its build ---- */

typedef struct rxd_magic {
  char name[8];           /* "rxdplug" and a zero */
  uint32_t size;          /* of this struct */
  uint16_t contract;      /* RXD_CONTRACT when the plugin was compiled */
  uint8_t pointer_bytes;  /* sizeof(void *) */
  uint8_t little_endian;  /* 1: little endian */
  uint32_t batch_format;  /* layout of rxd_batch and rxd_value: 1 */
  uint32_t reserved;      /* 0 */
} rxd_magic;

#if defined(__GNUC__)
#define RXD_EXPORT __attribute__((visibility("default")))
#else
#define RXD_EXPORT
#endif

/* Put RXD_PLUGIN_MAGIC once at file scope. */
#if defined(__cplusplus)
#define RXD_C_NAME extern "C"
#else
#define RXD_C_NAME
#endif
#define RXD_PLUGIN_MAGIC                                                                                    \
  RXD_C_NAME RXD_EXPORT const rxd_magic rxd_plugin_magic = {                                                \
      {'r', 'x', 'd', 'p', 'l', 'u', 'g', 0}, sizeof(rxd_magic), RXD_CONTRACT, sizeof(void *),              \
      __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, 1, 0}

/* ---- Values ---- */

/* A value of an event. Opaque: read it with the functions of the host. */
typedef struct rxd_value {
  uint64_t word[2];
} rxd_value;

typedef struct rxd_text {
  const char *bytes;
  size_t count;
} rxd_text;

/* Kinds may be added: treat an unknown one as RXD_OTHER. */
enum rxd_kind {
  RXD_ABSENT = 0,    /* no such member or element */
  RXD_NULL = 1,
  RXD_BOOL = 2,
  RXD_INT = 3,       /* fits int64_t */
  RXD_UINT = 4,      /* above INT64_MAX */
  RXD_DOUBLE = 5,
  RXD_TEXT = 6,
  RXD_BYTES = 7,
  RXD_LIST = 8,
  RXD_OBJECT = 9,
  RXD_TIMESTAMP = 10, /* integer: nanoseconds since 1970 */
  RXD_DURATION = 11,  /* integer: nanoseconds */
  RXD_OTHER = 12,
};

typedef enum rxd_status {
  RXD_OK = 0,
  RXD_DROP = 1,   /* of `row`: the event ends here */
  RXD_FAILED = 2, /* the reason was given with `fail` */
  RXD_RETRY = 3,  /* of `write`: the rest may be delivered later; the reason was given with `fail` */
  RXD_STOP = 4,   /* of functions of the host: the pipeline is stopping, so finish */
  /* Version 1.1. */
  RXD_FINISH = 5, /* of `row`, with "finishes" in the spec: the event ends here, and the output completes; of `open` of
                     an operator: the output completes before the first input */
  RXD_LAST = 6,   /* of `row`, likewise: the event passes, and the output completes after it */
} rxd_status;

/* The memory of the values of one call. */
typedef struct rxd_scope rxd_scope;
/* Collects the events that an operator sends for a batch. */
typedef struct rxd_output rxd_output;
/* Receives a sink's verdicts on the events of a batch. */
typedef struct rxd_verdicts rxd_verdicts;
/* The sending side of a source. */
typedef struct rxd_source rxd_source;
/* One instance: its log and its counters. */
typedef struct rxd_instance rxd_instance;

enum rxd_input_kind {
  RXD_EVENT = 0,
  RXD_TIMER = 1,    /* a timer set with `timer` is due; `name` is its name */
  RXD_COMPLETE = 2, /* the input has completed; the instance's last input */
};

typedef struct rxd_input {
  uint32_t kind;               /* enum rxd_input_kind */
  uint32_t argument_count;
  rxd_value event;             /* RXD_EVENT: the event */
  const rxd_value *arguments;  /* one for each parameter of type expression or template, in the order of the spec */
  rxd_text name;               /* RXD_TIMER: the name of the timer */
} rxd_input;

typedef struct rxd_batch {
  uint32_t size;               /* of this struct */
  uint32_t count;
  const rxd_input *inputs;     /* `count` of them, `input_size` bytes apart */
  size_t input_size;
  int64_t wall_time;           /* nanoseconds since 1970; virtual in tests */
  int64_t monotonic_time;      /* nanoseconds; virtual in tests */
} rxd_batch;

/* Whether a source's event has reached all sinks. */
typedef struct rxd_ack {
  uint64_t token;              /* the one passed to `add`; never 0, which requests no ack */
  uint32_t is_failed;          /* 0: all that the event has caused is delivered, or stored on disk */
  uint32_t reserved;
} rxd_ack;

/* ---- Functions of rxd ---- */

typedef struct rxd_host {
  uint32_t size;
  uint32_t contract;

  /* Reading values. */
  int (*kind)(const rxd_value *value);                         /* enum rxd_kind */
  int (*boolean)(const rxd_value *value);                      /* 0 or 1; 0 for other kinds */
  int64_t (*integer)(const rxd_value *value);                  /* INT, UINT, DOUBLE (cut), TIMESTAMP, DURATION; else 0 */
  double (*number)(const rxd_value *value);                    /* INT, UINT, DOUBLE; else 0 */
  rxd_text (*text)(rxd_scope *, const rxd_value *value);       /* TEXT and BYTES; else empty */
  size_t (*count)(rxd_scope *, const rxd_value *value);        /* members or elements; else 0 */
  rxd_value (*member)(rxd_scope *, const rxd_value *object, rxd_text name);    /* ABSENT if there is none */
  rxd_value (*element)(rxd_scope *, const rxd_value *list, size_t index);      /* ABSENT after the end */
  rxd_value (*entry)(rxd_scope *, const rxd_value *object, size_t index, rxd_text *name); /* by index; a key that is not
                                                                  a text is written as in JSON: "1", "true" */
  rxd_text (*json)(rxd_scope *, const rxd_value *value);       /* as JSON text, on one line */

  /* Making values; they live as long as the call that the scope belongs to. */
  rxd_value (*make_null)(void);
  rxd_value (*make_bool)(int value);
  rxd_value (*make_int)(int64_t value);
  rxd_value (*make_double)(double value);
  rxd_value (*make_timestamp)(int64_t nanoseconds);            /* since 1970 */
  rxd_value (*make_duration)(int64_t nanoseconds);
  rxd_value (*make_text)(rxd_scope *, rxd_text text);          /* bytes that are not UTF-8 are replaced by U+FFFD */
  rxd_value (*make_bytes)(rxd_scope *, rxd_text bytes);
  rxd_value (*make_list)(rxd_scope *, const rxd_value *elements, size_t count);
  rxd_value (*make_object)(rxd_scope *, const rxd_text *names, const rxd_value *values, size_t count);
  rxd_value (*with_member)(rxd_scope *, const rxd_value *object, rxd_text name, const rxd_value *value);
  int (*parse_json)(rxd_scope *, rxd_text json, rxd_value *value); /* RXD_FAILED: not JSON; `fail` is not called */

  /* For any call with a scope: gives the reason of its failure, one sentence without a full stop. `at`: the location in
   * the parameters, such as "server.port", or empty. */
  void (*fail)(rxd_scope *, rxd_text message, rxd_text at);

  /* For an instance, on any thread. Level: "debug", "info", "warning", "error". */
  void (*log)(rxd_instance *, rxd_text level, rxd_text message);
  void (*count_up)(rxd_instance *, rxd_text name, int64_t by); /* ignored if `by` is below 1; at most 100 names */

  /* Operators, during `process`. Events sent for an input keep the order of the calls, and follow those of earlier
   * inputs. `index`: the input's index in the batch. */
  void (*send)(rxd_output *, size_t index, const rxd_value *event);
  void (*reject)(rxd_output *, size_t index, rxd_text message);
  void (*timer)(rxd_output *, rxd_text name, int64_t nanoseconds); /* from now on; replaces one of the same name; below
                                                  0 cancels. rxd saves timers: `open` must not set them again */

  /* Sinks, during `write`. */
  void (*delivered)(rxd_verdicts *, size_t count);             /* the first `count` of the batch */
  void (*refuse)(rxd_verdicts *, size_t index, rxd_text message); /* permanently: to the errors output */

  /* Sources, on the thread of `run`. */
  rxd_scope *(*source_scope)(rxd_source *);                    /* for the values of the events; empty after `flush` */
  int (*add)(rxd_source *, const rxd_value *event, uint64_t token); /* RXD_STOP: the event is accepted, and is the last;
                                                                       the 1,025th flushes those before it first */
  int (*add_json)(rxd_source *, rxd_text json, uint64_t token);/* likewise; RXD_FAILED: not JSON, nothing was added */
  int (*flush)(rxd_source *);                                  /* sends added events; waits while there is no credit */
  void (*position)(rxd_source *, rxd_text position);           /* the position after the last event added, if any; any bytes */
  size_t (*acks)(rxd_source *, rxd_ack *acks, size_t most, int64_t wait_nanoseconds); /* below 0: waits forever; a stop ends one wait */
  int (*wake_descriptor)(rxd_source *);                        /* readable while acks wait, or when the source must stop */
  int (*is_stopping)(rxd_source *);                            /* 1: send no more, wait for acks, return from `run`;
                                                                  2: no further acks, take those of `acks`, return */

  /* A value as bytes that `decode` can read, even in another process and a later version; meant for `save`. Unlike
   * JSON, they preserve times, durations, bytes, and the text of numbers. */
  rxd_text (*encode)(rxd_scope *, const rxd_value *value);
  int (*decode)(rxd_scope *, rxd_text bytes, rxd_value *value); /* RXD_FAILED: invalid bytes; `fail` is not called */

  /* For a source: input that is not an event goes to the errors output, in order with `add`. */
  void (*reject_input)(rxd_source *, rxd_text input, rxd_text message, uint64_t token);
  /* For an instance, on any thread: 1 once its results are no longer needed, so that a running `process` or `write`
   * may end early with RXD_RETRY or RXD_FAILED. The process waits 10 s for the call before it exits. */
  int (*is_closing)(rxd_instance *);

  /* Version 1.1. Operators, during `process`: the output completes after the events sent for the input at `index` and for
   * earlier ones, and rxd closes the instance. Later inputs, in this batch too, count as not taken: events sent for
   * them are dropped. */
  void (*finish)(rxd_output *, size_t index);

  /* Version 1.2. A source with "loads" in the spec reports that every event that existed when `run` began has been added,
   * and sends the events as `flush` does. A table of the pipeline file that reads the source waits for this; events added
   * later change its rows. Further calls only flush. */
  int (*loaded)(rxd_source *);
  /* Whole numbers up to UINT64_MAX, which `integer` cuts to INT64_MAX. The second is 0 below 0 and for other kinds. */
  rxd_value (*make_uint)(uint64_t value);
  uint64_t (*unsigned_integer)(const rxd_value *value);

  /* Version 1.3. For an instance, on any thread: sets a gauge, such as a lag. `of` is its label, such as a partition,
   * and may be empty. NaN removes the gauge; `close` removes all. The gauges of a step's instances are added up. At
   * most 100 names, and 1000 gauges of an instance. */
  void (*gauge)(rxd_instance *, rxd_text name, rxd_text of, double value);
  /* For a source with "names" in the spec: names the event that was added last. A name identifies the event: it is the
   * same in each delivery to this source, and unique. It is the last part of `meta.id`. An empty text is not a name. */
  void (*name)(rxd_source *, rxd_text name);
  /* For sinks, during `write`: reports one event of the batch as delivered, in any order. */
  void (*delivered_at)(rxd_verdicts *, size_t index);
} rxd_host;

/* The size of the table by version of this header. A plugin must refuse an rxd whose table lacks functions that it
 * uses. */
#define RXD_HOST_SIZE_1_0 offsetof(rxd_host, finish)
#define RXD_HOST_SIZE_1_1 (offsetof(rxd_host, finish) + sizeof(void (*)(void)))
#define RXD_HOST_SIZE_1_2 (offsetof(rxd_host, unsigned_integer) + sizeof(uint64_t (*)(void)))
#define RXD_HOST_SIZE_1_3 (offsetof(rxd_host, delivered_at) + sizeof(void (*)(void)))

/* ---- Functions of a plugin ---- */

/* Bytes that the plugin owns until `release`, which may be NULL. */
typedef struct rxd_bytes {
  const void *bytes;
  size_t count;
  void (*release)(struct rxd_bytes *);
  void *owner;
} rxd_bytes;

typedef struct rxd_opening {
  uint32_t size;
  uint32_t is_test;            /* 1: in `rxd test`, time is virtual */
  rxd_instance *instance;
  rxd_scope *scope;            /* for `text`, `fail` ... during `open` */
  rxd_value parameters;        /* an object of all parameters that are given or have a default; durations as
                                  RXD_DURATION, sizes in bytes as RXD_INT; none of type expression or template */
  rxd_text step;               /* the name of the step: "out/geoip" */
  rxd_text state;              /* made by `save`; `bytes` is NULL: none */
  uint32_t state_version;      /* the version in the spec when it was saved */
  rxd_text position;           /* the position after which a source continues; `bytes` is NULL: none */
  rxd_text pipeline;           /* the pipeline's name */
  rxd_text component;          /* the name of the component to open */
  const uint8_t *given;        /* for each parameter of type expression or template, in the order of the spec: 1 if
                                  the file sets it; NULL: this rxd does not report it */
  size_t given_count;
} rxd_opening;

typedef struct rxd_component {
  uint32_t size;
  rxd_text name;               /* as in the spec */
  rxd_text kind;               /* "source", "operator", "sink"; since 1.2 also "function", "decoder", "encoder" */

  /* Creates an instance, one for each use in a running graph. Must not block for long. */
  int (*open)(const rxd_opening *, void **instance);
  void (*close)(void *instance);

  /* A pure function of an event, its arguments and the parameters: called on any thread, concurrently, in the turn of
   * the event; must not block. `arguments`: one for each parameter of type expression or template, ABSENT if it is not
   * given. Returns RXD_OK if `*event`, perhaps replaced, passes, otherwise RXD_DROP or RXD_FAILED. With "finishes" in
   * the spec also RXD_FINISH and RXD_LAST; the calls for one use in a graph then follow the order of the events, and
   * no call follows these two.
   *
   * Version 1.2: the only function, besides `open` and `close`, of these kinds. They are opened once for all uses with
   * the same parameters, and called as above; without `open`, `instance` is NULL.
   * - A function of expressions: `arguments` are those of the call, ABSENT if they are left out. `*event` is null and
   *   receives the result. RXD_FAILED: the expression fails; RXD_DROP: likewise, without a reason.
   * - A decoder: `*event` is a line or the whole input, as RXD_BYTES; it receives the event or, with "list" in the spec,
   *   the list of events. RXD_DROP: there is none. RXD_FAILED: the input goes to the errors output.
   * - An encoder: `*event` receives the text or bytes to write. RXD_DROP: nothing is written. */
  int (*row)(void *instance, rxd_scope *, rxd_value *event, const rxd_value *arguments);

  /* An operator with state, timers or blocking calls; called on its own thread. Inputs arrive in order, each once. */
  int (*process)(void *instance, rxd_scope *, const rxd_batch *, rxd_output *);

  /* The state after all inputs that `process` was given; called between two calls of `process`. */
  int (*save)(void *instance, rxd_scope *, rxd_bytes *state);

  /* A source: runs on its own thread until it has completed (RXD_OK), fails, or is told to stop (RXD_OK, which then does
   * not complete the signal). */
  int (*run)(void *instance, rxd_scope *, rxd_source *);

  /* A sink; called on its own thread. RXD_OK: all events that were not refused are delivered. RXD_RETRY: events that were
   * neither reported as delivered nor refused are passed again later. RXD_FAILED: none of them can ever be delivered with
   * these parameters. */
  int (*write)(void *instance, rxd_scope *, const rxd_batch *, rxd_verdicts *);
} rxd_component;

typedef struct rxd_plugin {
  uint32_t size;
  uint32_t component_count;
  const rxd_component *components; /* `component_size` bytes apart */
  size_t component_size;
  rxd_text spec;               /* the JSON document with the specs of all components */
} rxd_plugin;

/* Called once in a process, before any other function. `contract`: the newest that this rxd supports. Returns RXD_OK
 * and the plugin, or RXD_FAILED and the reason why the plugin cannot use this rxd. `host` lives as long as the process. */
typedef int rxd_plugin_init_function(
  uint32_t contract, const rxd_host *host, const rxd_plugin **plugin, rxd_text *problem);
RXD_C_NAME RXD_EXPORT rxd_plugin_init_function rxd_plugin_init;

/* ---- Small helpers ---- */

/* A literal: RXD_TEXT_OF("name"). */
#define RXD_TEXT_OF(literal) ((rxd_text){(literal), sizeof(literal) - 1})

#ifdef __cplusplus
}
#endif
#endif
