/* rxd_plugin.h: the contract between rxd and a plugin in a shared library. Version 1.
 *
 * A plugin is a shared object with two exported names: the data `rxd_plugin_magic` (RXD_PLUGIN_MAGIC below) and the
 * function `rxd_plugin_init`. It hands over its specs as one JSON document, the same as plugins of the line protocol
 * send, and a table of functions for each component. docs/plugins.md teaches it; docs/plugin-contract.md has every
 * promise.
 *
 * Rules that hold everywhere:
 * - Tables only grow at their end, and each begins with its size in bytes. What lies behind the size is not there.
 * - A function returns RXD_OK or another rxd_status. Before it returns RXD_FAILED it says why with `fail`.
 * - What rxd hands over (values, texts, batches) is valid until the function that it was handed to returns.
 * - What a plugin hands over is copied before the function of rxd that takes it returns, but for texts and tables that
 *   rxd_plugin_init returns, which live as long as the process.
 * - Texts are UTF-8 with a length, and have no zero at the end.
 * - No exception of C++ or Swift, and no longjmp, passes a function of this header.
 * - Before the first `open` no function of the host is called but those without a scope that make values.
 * - Functions of one instance are called one at a time, `row` excepted. Different instances are independent.
 */
#ifndef RXD_PLUGIN_H
#define RXD_PLUGIN_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RXD_CONTRACT 1

/* ---- What says that this is a plugin, and of which build ---- */

typedef struct rxd_magic {
  char name[8];           /* "rxdplug" and a zero */
  uint32_t size;          /* of this struct */
  uint16_t contract;      /* RXD_CONTRACT when the plugin was compiled */
  uint8_t pointer_bytes;  /* sizeof(void *) */
  uint8_t little_endian;  /* 1: little endian */
  uint32_t batch_format;  /* how rxd_batch and rxd_value are laid out: 1 */
  uint32_t reserved;      /* 0 */
} rxd_magic;

#if defined(__GNUC__)
#define RXD_EXPORT __attribute__((visibility("default")))
#else
#define RXD_EXPORT
#endif

/* One of these at file scope. */
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

/* A value of an event. What is inside is rxd's own; the functions of the host read it. */
typedef struct rxd_value {
  uint64_t word[2];
} rxd_value;

typedef struct rxd_text {
  const char *bytes;
  size_t count;
} rxd_text;

/* Kinds may be added: treat one that you do not know as RXD_OTHER. */
enum rxd_kind {
  RXD_ABSENT = 0,    /* there is no such member or element */
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
  RXD_FAILED = 2, /* said with `fail` */
  RXD_RETRY = 3,  /* of `write`: the rest may be delivered later; said with `fail` */
  RXD_STOP = 4,   /* of functions of the host: the pipeline stops, come to an end */
} rxd_status;

/* Where values of one call live. */
typedef struct rxd_scope rxd_scope;
/* What an operator has made of a batch. */
typedef struct rxd_output rxd_output;
/* What has become of the events of a batch, at a sink. */
typedef struct rxd_verdicts rxd_verdicts;
/* The sending side of a source. */
typedef struct rxd_source rxd_source;
/* What belongs to one instance: its log and its counters. */
typedef struct rxd_instance rxd_instance;

enum rxd_input_kind {
  RXD_EVENT = 0,
  RXD_TIMER = 1,    /* a timer that `timer` has set is due; `name` is its name */
  RXD_COMPLETE = 2, /* the input has completed: the last one of the instance */
};

typedef struct rxd_input {
  uint32_t kind;               /* enum rxd_input_kind */
  uint32_t argument_count;
  rxd_value event;             /* RXD_EVENT: the event */
  const rxd_value *arguments;  /* of each parameter of type expression or template, in the order of the spec */
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

/* An event of a source that has reached all sinks, or has not. */
typedef struct rxd_ack {
  uint64_t token;              /* that `add` was called with; never 0, which asks for nothing */
  uint32_t is_failed;          /* 0: everything that it has caused is delivered, or kept on the disk */
  uint32_t reserved;
} rxd_ack;

/* ---- What rxd offers ---- */

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
  rxd_value (*element)(rxd_scope *, const rxd_value *list, size_t index);      /* ABSENT behind the end */
  rxd_value (*entry)(rxd_scope *, const rxd_value *object, size_t index, rxd_text *name); /* by place */
  rxd_text (*json)(rxd_scope *, const rxd_value *value);       /* as JSON text, on one line */

  /* Making values; they live as long as the call whose scope it is. */
  rxd_value (*make_null)(void);
  rxd_value (*make_bool)(int value);
  rxd_value (*make_int)(int64_t value);
  rxd_value (*make_double)(double value);
  rxd_value (*make_timestamp)(int64_t nanoseconds);            /* since 1970 */
  rxd_value (*make_duration)(int64_t nanoseconds);
  rxd_value (*make_text)(rxd_scope *, rxd_text text);          /* bytes that are no UTF-8 are replaced by U+FFFD */
  rxd_value (*make_bytes)(rxd_scope *, rxd_text bytes);
  rxd_value (*make_list)(rxd_scope *, const rxd_value *elements, size_t count);
  rxd_value (*make_object)(rxd_scope *, const rxd_text *names, const rxd_value *values, size_t count);
  rxd_value (*with_member)(rxd_scope *, const rxd_value *object, rxd_text name, const rxd_value *value);
  int (*parse_json)(rxd_scope *, rxd_text json, rxd_value *value); /* RXD_FAILED: it is none, and nothing was said */

  /* Of any call with a scope: why it fails, one sentence without a full stop. `at`: the place in the parameters, such
   * as "server.port", or empty. */
  void (*fail)(rxd_scope *, rxd_text message, rxd_text at);

  /* Of an instance; from any thread. Level: "debug", "info", "warning", "error". */
  void (*log)(rxd_instance *, rxd_text level, rxd_text message);
  void (*count_up)(rxd_instance *, rxd_text name, int64_t by); /* nothing, if `by` is below 1; at most 100 names */

  /* Operators, during `process`. What is sent for an input comes in the order of the calls, behind what was sent for
   * earlier inputs. `index`: of the input. */
  void (*send)(rxd_output *, size_t index, const rxd_value *event);
  void (*reject)(rxd_output *, size_t index, rxd_text message);
  void (*timer)(rxd_output *, rxd_text name, int64_t nanoseconds); /* from now on; below 0 cancels; one of a name. rxd
                                                  keeps it with the state: `open` sets none again */

  /* Sinks, during `write`. */
  void (*delivered)(rxd_verdicts *, size_t count);             /* the first `count` of the batch */
  void (*refuse)(rxd_verdicts *, size_t index, rxd_text message); /* for good: to the errors output */

  /* Sources, on the thread of `run`. */
  rxd_scope *(*source_scope)(rxd_source *);                    /* for the values of the events; empty after `flush` */
  int (*add)(rxd_source *, const rxd_value *event, uint64_t token); /* RXD_STOP: the event is taken, and is the last; the
                                                                       1,025th flushes what is there first */
  int (*add_json)(rxd_source *, rxd_text json, uint64_t token);/* the same; RXD_FAILED: no JSON, nothing was added */
  int (*flush)(rxd_source *);                                  /* hands them over; waits while there is no credit */
  void (*position)(rxd_source *, rxd_text position);           /* behind the last event added, of which there may be none; any bytes */
  size_t (*acks)(rxd_source *, rxd_ack *acks, size_t most, int64_t wait_nanoseconds); /* below 0: for ever; a stop ends one wait */
  int (*wake_descriptor)(rxd_source *);                        /* readable while acks wait, or the source is to stop */
  int (*is_stopping)(rxd_source *);                            /* 1: send nothing more, settle, and return from `run`; 2: nothing
                                                                  more becomes known: take what `acks` has, and return */

  /* A value as bytes that `decode` reads again, also in another process and a later version: for `save`. Unlike JSON they keep times,
   * durations, bytes, and numbers as they were written. */
  rxd_text (*encode)(rxd_scope *, const rxd_value *value);
  int (*decode)(rxd_scope *, rxd_text bytes, rxd_value *value); /* RXD_FAILED: they are no such bytes, and nothing was said */

  /* Of a source: input that is no event, for the errors output. In the order of `add`. */
  void (*reject_input)(rxd_source *, rxd_text input, rxd_text message, uint64_t token);
  /* Of an instance, from any thread: 1 when nobody waits for what it does any more, so that a `process` or `write` under way
   * may end early with RXD_RETRY or RXD_FAILED. The process waits 10 s for it before it exits. */
  int (*is_closing)(rxd_instance *);
} rxd_host;

/* ---- What a plugin offers ---- */

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
  rxd_value parameters;        /* an object of all that are given or have a default; durations as RXD_DURATION, sizes
                                  as RXD_INT bytes; none of type expression or template */
  rxd_text step;               /* where it stands in the file: "out/2 geoip" */
  rxd_text state;              /* that `save` made; `bytes` is NULL: none */
  uint32_t state_version;      /* of the spec that it was saved under */
  rxd_text position;           /* of a source: behind which it goes on; `bytes` is NULL: none */
  rxd_text pipeline;           /* the pipeline's name */
  rxd_text component;          /* the name of the component that is opened */
  const uint8_t *given;        /* of each parameter of type expression or template, in the order of the spec: 1 if the file gives
                                  it; NULL: this rxd does not say */
  size_t given_count;
} rxd_opening;

typedef struct rxd_component {
  uint32_t size;
  rxd_text name;               /* as in the spec */
  rxd_text kind;               /* "source", "operator", "sink" */

  /* Makes an instance: one for each place in a running graph. Must not block for long. */
  int (*open)(const rxd_opening *, void **instance);
  void (*close)(void *instance);

  /* A pure function of an event, its arguments and the parameters: called on any thread, several at once, in the turn
   * of the event; must not block. `arguments`: of each parameter of type expression or template, ABSENT for one that is not
   * given. RXD_OK: `*event` goes on, perhaps replaced. RXD_DROP, RXD_FAILED. */
  int (*row)(void *instance, rxd_scope *, rxd_value *event, const rxd_value *arguments);

  /* An operator with state, time or calls: on a thread of its own. The inputs come in order, each once. */
  int (*process)(void *instance, rxd_scope *, const rxd_batch *, rxd_output *);

  /* The state behind everything that `process` was given; called between two calls of it. */
  int (*save)(void *instance, rxd_scope *, rxd_bytes *state);

  /* A source: on a thread of its own, until it has completed (RXD_OK), fails, or is to stop (RXD_OK, which then does not
   * complete the signal). */
  int (*run)(void *instance, rxd_scope *, rxd_source *);

  /* A sink: on a thread of its own. RXD_OK: all that was not refused is delivered. RXD_RETRY: what was not said to be
   * delivered or refused comes again later. RXD_FAILED: nothing of it can ever be delivered with these parameters. */
  int (*write)(void *instance, rxd_scope *, const rxd_batch *, rxd_verdicts *);
} rxd_component;

typedef struct rxd_plugin {
  uint32_t size;
  uint32_t component_count;
  const rxd_component *components; /* `component_size` bytes apart */
  size_t component_size;
  rxd_text spec;               /* the JSON document with the specs of all components */
} rxd_plugin;

/* Called once in a process, before everything else. `contract`: the newest that this rxd knows. Returns RXD_OK and the
 * plugin, or RXD_FAILED and a text why this rxd will not do. `host` lives as long as the process. */
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
