#ifndef RX_EDIT_H
#define RX_EDIT_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
/// A line editor on the process's terminal, with history and completion; the library behind it is
/// loaded when the first one is made. Not thread-safe.
typedef struct rx_edit rx_edit;
/// What completes: gets the line up to the cursor and writes to `out` (`capacity` bytes, with a final
/// NUL) what to insert; lists the choices itself on standard output where there are several. Returns
/// 0 where nothing fits, 1 where `out` is inserted, 2 where it printed and the line must be drawn anew.
typedef int (*rx_complete)(void *context, const char *line, size_t length, char *out, size_t capacity);
/// Null where the library is not installed or the terminal cannot be used.
rx_edit *rx_edit_create(const char *program, const char *prompt, rx_complete complete, void *context);
void rx_edit_free(rx_edit *edit);
/// The next line without its end, valid until the next call; null at the end of the input. `*interrupted`
/// says that the line was given up with control-C.
const char *rx_edit_read(rx_edit *edit, bool *interrupted);
void rx_edit_set_prompt(rx_edit *edit, const char *prompt);
/// Puts a line at the end of the history, unless it is the same as the last.
void rx_edit_remember(rx_edit *edit, const char *line);
/// At most `limit` lines are kept. False where the file cannot be read or written.
bool rx_edit_load(rx_edit *edit, const char *path, int limit);
bool rx_edit_save(rx_edit *edit, const char *path);
#ifdef __cplusplus
}
#endif
#endif
