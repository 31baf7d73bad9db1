/* Databases are copied into memory: with a mapped file, overwriting or truncating it in place would crash the process
 * at the next lookup, or mix the bytes of two versions. One thread checks the files each second; lookups never wait for
 * it. */
#include "geoip.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { LOOK_MS = 1000 };

/* The attributes by which a changed file is recognized. */
typedef struct version {
  dev_t device;
  ino_t file;
  off_t size;
  struct timespec modified, changed;
} version;

/* The content of one version of a file, closed after its last lookup. */
typedef struct content {
  MMDB_s mmdb;
  int memory;
} content;

struct database {
  database *next;
  char *path;
  unsigned uses;
  pthread_rwlock_t lock;  /* protects `content` */
  content content;
  version version, refused;  /* `refused`: the version that could not be read, so that it is not read again */
  char problem[256];         /* the reason of the last refusal; protected by `lock` */
  atomic_uint problems;      /* number of refusals */
};

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; /* held while a database is opened or closed, also while the thread ends */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;   /* protects the variables below, and `uses` */
static database *first;
static pthread_t watcher;
static pthread_cond_t ending;
static bool is_ending;

static version version_of(const struct stat *status) {
  return (version){status->st_dev, status->st_ino, status->st_size, status->st_mtim, status->st_ctim};
}
static bool same_time(struct timespec a, struct timespec b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }
static bool same_version(const version *a, const version *b) {
  return a->device == b->device && a->file == b->file && a->size == b->size && same_time(a->modified, b->modified) && same_time(a->changed, b->changed);
}

/* ---- Reading ---- */

static bool copy_file(int from, int to, off_t size) {
  for (off_t done = 0; done < size;) {
    char piece[1 << 16];
    ssize_t count = pread(from, piece, sizeof piece, done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    for (ssize_t at = 0; at < count;) {
      ssize_t written = write(to, piece + at, (size_t)(count - at));
      if (written <= 0) return false;
      at += written;
    }
    done += count;
  }
  return true;
}

__attribute__((format(printf, 3, 4)))
static bool refuse(char *problem, size_t capacity, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(problem, capacity, format, arguments);
  va_end(arguments);
  return false;
}

/* False: `problem` has the reason. Sets `version` in both cases, if the file exists. */
static bool read_content(const char *path, content *content, version *version, char *problem, size_t capacity) {
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return refuse(problem, capacity, "cannot open the database: %s", strerror(errno));
  struct stat before, after;
  bool is_read = false;
  content->memory = -1;
  if (fstat(file, &before) != 0 || !S_ISREG(before.st_mode)) {
    refuse(problem, capacity, "the database is not a file");
  } else if ((content->memory = memfd_create("geoip", MFD_CLOEXEC)) < 0) {
    refuse(problem, capacity, "no memory for the database: %s", strerror(errno));
  } else {
    *version = version_of(&before);
    is_read = copy_file(file, content->memory, before.st_size) && fstat(file, &after) == 0;
    if (is_read) {
      struct version now = version_of(&after);
      is_read = same_version(version, &now);
    }
    if (!is_read) refuse(problem, capacity, "the database was changed while it was read");
  }
  close(file);
  if (is_read) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", content->memory);
    int status = MMDB_open(name, MMDB_MODE_MMAP, &content->mmdb);
    is_read = status == MMDB_SUCCESS;
    if (!is_read) refuse(problem, capacity, "the file is not a database in MaxMind's format: %s", MMDB_strerror(status));
  }
  /* The mapping keeps the memory. */
  if (content->memory >= 0) close(content->memory);
  return is_read;
}

/* ---- Replaced files ---- */

/* Reads the file again if it has changed. If it is missing or cannot be read, the old content stays, and the failure is
 * reported once. */
static void look(database *self) {
  struct stat status = {0}; /* all zero: the file is missing */
  if (stat(self->path, &status) != 0) status = (struct stat){0};
  version now = version_of(&status);
  if (same_version(&now, &self->version) || same_version(&now, &self->refused)) return;
  content content;
  char problem[256];
  version version = now;
  if (!read_content(self->path, &content, &version, problem, sizeof problem)) {
    self->refused = version;
    pthread_rwlock_wrlock(&self->lock);
    memcpy(self->problem, problem, sizeof problem);
    pthread_rwlock_unlock(&self->lock);
    atomic_fetch_add(&self->problems, 1);
    return;
  }
  pthread_rwlock_wrlock(&self->lock);
  struct content former = self->content;
  self->content = content;
  pthread_rwlock_unlock(&self->lock);
  MMDB_close(&former.mmdb);
  self->version = version;
}

static void *watch(void *unused) {
  (void)unused;
  pthread_mutex_lock(&mutex);
  while (!is_ending) {
    wait_at_most(&ending, &mutex, LOOK_MS);
    /* Opening and closing wait while a file is read; lookups do not. */
    for (database *one = first; one != NULL && !is_ending; one = one->next) look(one);
  }
  pthread_mutex_unlock(&mutex);
  return NULL;
}

/* ---- Opening ---- */

static database *open_new(const char *path, char *problem, size_t capacity) {
  database *self = need(calloc(1, sizeof *self));
  if (!read_content(path, &self->content, &self->version, problem, capacity)) {
    free(self);
    return NULL;
  }
  pthread_rwlock_init(&self->lock, NULL);
  self->path = copy_text(text_of(path));
  return self;
}

static void destroy(database *self) {
  MMDB_close(&self->content.mmdb);
  pthread_rwlock_destroy(&self->lock);
  free(self->path);
  free(self);
}

database *database_open(const char *path, char *problem, size_t capacity) {
  pthread_mutex_lock(&opening);
  pthread_mutex_lock(&mutex);
  database *self = first;
  while (self != NULL && strcmp(self->path, path) != 0) self = self->next;
  if (self == NULL && (self = open_new(path, problem, capacity)) != NULL) {
    if (first == NULL) {
      init_condition(&ending);
      is_ending = false;
      if (pthread_create(&watcher, NULL, watch, NULL) != 0) {
        destroy(self);
        self = NULL;
        refuse(problem, capacity, "no thread can be started");
      }
    }
    if (self != NULL) {
      self->next = first;
      first = self;
    }
  }
  if (self != NULL) self->uses++;
  pthread_mutex_unlock(&mutex);
  pthread_mutex_unlock(&opening);
  return self;
}

void database_close(database *self) {
  pthread_mutex_lock(&opening);
  pthread_mutex_lock(&mutex);
  bool is_last = false;
  if (--self->uses == 0) {
    database **at = &first;
    while (*at != self) at = &(*at)->next;
    *at = self->next;
    destroy(self);
    is_last = first == NULL;
  }
  is_ending = is_last;
  if (is_last) pthread_cond_signal(&ending);
  pthread_mutex_unlock(&mutex);
  if (is_last) {
    pthread_join(watcher, NULL);
    pthread_cond_destroy(&ending);
  }
  pthread_mutex_unlock(&opening);
}

bool database_problem(database *self, atomic_uint *seen, char *problem, size_t capacity) {
  unsigned now = atomic_load_explicit(&self->problems, memory_order_acquire), before = atomic_load_explicit(seen, memory_order_relaxed);
  if (now == before || !atomic_compare_exchange_strong(seen, &before, now)) return false;
  pthread_rwlock_rdlock(&self->lock);
  snprintf(problem, capacity, "%s", self->problem);
  pthread_rwlock_unlock(&self->lock);
  return true;
}

const char *database_path(const database *self) { return self->path; }

/* ---- Looking up ---- */

int database_find(database *self, const struct sockaddr *address, use_entry *use, void *closure, bool *is_found, char *problem, size_t capacity) {
  int error = MMDB_SUCCESS, status = RXD_OK;
  pthread_rwlock_rdlock(&self->lock);
  MMDB_lookup_result_s result = MMDB_lookup_sockaddr(&self->content.mmdb, address, &error);
  *is_found = error == MMDB_SUCCESS && result.found_entry;
  if (*is_found) status = use(closure, &result.entry);
  pthread_rwlock_unlock(&self->lock);
  /* An IPv4 database contains no IPv6 addresses. */
  if (error != MMDB_SUCCESS && error != MMDB_IPV6_LOOKUP_IN_IPV4_DATABASE_ERROR) {
    snprintf(problem, capacity, "the database is damaged: %s", MMDB_strerror(error));
    return RXD_FAILED;
  }
  return status;
}
