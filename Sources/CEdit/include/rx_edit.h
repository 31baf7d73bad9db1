#ifndef RX_EDIT_H
#define RX_EDIT_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
/// A line editor on the process's terminal, with history and completion. Its library is loaded when the first editor is
/// created. Not thread-safe.
typedef struct rx_edit rx_edit;
/// Completes a line: gets the line up to the cursor and writes the text to insert to `out` (`capacity` bytes, with a
/// final NUL); if there are several choices, lists them on standard output itself. Returns 0 if nothing fits, 1 to
/// insert `out`, 2 if it printed and the line must be redrawn.
typedef int (*rx_complete)(void *context, const char *line, size_t length, char *out, size_t capacity);
/// Null if the library is not installed or the terminal cannot be used.
rx_edit *rx_edit_create(const char *program, const char *prompt, rx_complete complete, void *context);
void rx_edit_free(rx_edit *edit);
/// The next line without its end, valid until the next call; null at the end of the input. `*interrupted`: whether the
/// line was cancelled with control-C.
const char *rx_edit_read(rx_edit *edit, bool *interrupted);
void rx_edit_set_prompt(rx_edit *edit, const char *prompt);
/// Appends a line to the history, unless it equals the last one.
void rx_edit_remember(rx_edit *edit, const char *line);
/// At most `limit` lines are kept. False if the file cannot be read or written.
bool rx_edit_load(rx_edit *edit, const char *path, int limit);
bool rx_edit_save(rx_edit *edit, const char *path);
#ifdef __cplusplus
}
#endif
#endif
