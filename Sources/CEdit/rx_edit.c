#include "rx_edit.h"

#include <dlfcn.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The functions of the library, with the types from its header.
static struct {
  __typeof__(&el_init) init;
  __typeof__(&el_end) end;
  __typeof__(&el_gets) gets;
  __typeof__(&el_set) set;
  __typeof__(&el_get) get;
  __typeof__(&el_line) line;
  __typeof__(&el_insertstr) insert;
  __typeof__(&history_init) history_init;
  __typeof__(&history_end) history_end;
  __typeof__(&history) history;
} lib;

struct rx_edit {
  EditLine *line;
  History *history;
  HistEvent event;
  char *prompt;
  char *last;  // the last line
  rx_complete complete;
  void *context;
  bool interrupted;
};

static bool load(void) {
  if (lib.history) return true;
  void *handle = dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!handle) return false;
#define FIND(field, name) \
  if (!(lib.field = (__typeof__(lib.field))dlsym(handle, name))) return false
  FIND(init, "el_init");
  FIND(end, "el_end");
  FIND(gets, "el_gets");
  FIND(set, "el_set");
  FIND(get, "el_get");
  FIND(line, "el_line");
  FIND(insert, "el_insertstr");
  FIND(history_init, "history_init");
  FIND(history_end, "history_end");
  FIND(history, "history");
#undef FIND
  return true;
}

static rx_edit *owner(EditLine *line) {
  rx_edit *self = NULL;
  lib.get(line, EL_CLIENTDATA, &self);
  return self;
}

static char *prompt(EditLine *line) { return owner(line)->prompt; }

static unsigned char completed(EditLine *line, int key) {
  (void)key;
  rx_edit *self = owner(line);
  const LineInfo *info = lib.line(line);
  char insertion[512] = "";
  switch (self->complete(
    self->context, info->buffer, (size_t)(info->cursor - info->buffer), insertion, sizeof insertion)) {
    case 1: return lib.insert(line, insertion) == 0 ? CC_REFRESH : CC_ERROR;
    case 2: return CC_REDISPLAY;
    default: return CC_ERROR;
  }
}

static unsigned char cancelled(EditLine *line, int key) {
  (void)key;
  owner(line)->interrupted = true;
  return CC_NEWLINE;
}

static unsigned char suspended(EditLine *line, int key) {
  (void)key;
  lib.set(line, EL_PREP_TERM, 0);
  raise(SIGTSTP);
  lib.set(line, EL_PREP_TERM, 1);
  return CC_REDISPLAY;
}

rx_edit *rx_edit_create(const char *program, const char *text, rx_complete complete, void *context) {
  if (!load()) return NULL;
  // Without a locale the library accepts no letters beyond ASCII.
  setlocale(LC_CTYPE, "");
  if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
  rx_edit *self = calloc(1, sizeof *self);
  if (!self) return NULL;
  self->complete = complete;
  self->context = context;
  self->prompt = strdup(text);
  self->line = lib.init(program, stdin, stdout, stderr);
  self->history = lib.history_init();
  if (!self->line || !self->history || !self->prompt) {
    rx_edit_free(self);
    return NULL;
  }
  lib.history(self->history, &self->event, H_SETSIZE, 1000);
  lib.history(self->history, &self->event, H_SETUNIQUE, 1);
  lib.set(self->line, EL_CLIENTDATA, self);
  lib.set(self->line, EL_PROMPT, prompt);
  lib.set(self->line, EL_EDITOR, "emacs");
  lib.set(self->line, EL_HIST, lib.history, self->history);
  lib.set(self->line, EL_ADDFN, "rx-complete", "completes names", completed);
  lib.set(self->line, EL_ADDFN, "rx-cancel", "gives the line up", cancelled);
  lib.set(self->line, EL_ADDFN, "rx-suspend", "stops the program", suspended);
  // Control-C is a key, so that it ends the line and not the program.
  lib.set(self->line, EL_SETTY, "-d", "-isig", NULL);
  lib.set(self->line, EL_BIND, "^I", "rx-complete", NULL);
  lib.set(self->line, EL_BIND, "^C", "rx-cancel", NULL);
  lib.set(self->line, EL_BIND, "^Z", "rx-suspend", NULL);
  lib.set(self->line, EL_BIND, "^R", "em-inc-search-prev", NULL);
  return self;
}

void rx_edit_free(rx_edit *self) {
  if (!self) return;
  if (self->line) lib.end(self->line);
  if (self->history) lib.history_end(self->history);
  free(self->prompt);
  free(self->last);
  free(self);
}

const char *rx_edit_read(rx_edit *self, bool *interrupted) {
  int count = 0;
  self->interrupted = false;
  const char *text = lib.gets(self->line, &count);
  *interrupted = self->interrupted;
  if (!text || count <= 0) return NULL;
  free(self->last);
  self->last = strndup(text, (size_t)count);
  if (self->last) self->last[strcspn(self->last, "\r\n")] = 0;
  return self->last;
}

void rx_edit_set_prompt(rx_edit *self, const char *text) {
  char *copy = strdup(text);
  if (!copy) return;
  free(self->prompt);
  self->prompt = copy;
}

void rx_edit_remember(rx_edit *self, const char *line) {
  lib.history(self->history, &self->event, H_ENTER, line);
}

bool rx_edit_load(rx_edit *self, const char *path, int limit) {
  lib.history(self->history, &self->event, H_SETSIZE, limit);
  return lib.history(self->history, &self->event, H_LOAD, path) >= 0;
}

bool rx_edit_save(rx_edit *self, const char *path) {
  return lib.history(self->history, &self->event, H_SAVE, path) >= 0;
}
