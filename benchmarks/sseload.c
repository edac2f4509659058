// sseload: many Server-Sent Event readers in one process.
//
// usage: sseload PORT PATH READERS RUNS EXPECTED SECONDS
//
// Opens READERS connections to 127.0.0.1:PORT; PATH holds one %d, which becomes the reader's number modulo RUNS.
// Prints `ready` once every reader has been answered. From then on an event is every "ts":<nanoseconds since 1970>
// that arrives. Ends after EXPECTED events (0: no such end), after SECONDS, or when stdin is closed, and prints one
// line of JSON.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { SAMPLES = 1 << 22, BUFFER = 1 << 18, ADDRESSES_PER_SOURCE = 20000, ANSWER_SECONDS = 20 };

typedef struct {
  int fd;
  bool answered;
  int matched;  // characters of MARKER seen
  int digits;
  uint64_t stamp, events;
} Reader;

typedef struct {
  uint64_t events, bytes, reads, dead, answered, first_stamp, first_arrival, last_arrival, seen;
  size_t samples;
  uint64_t *latencies;
} Totals;

static const char MARKER[] = "\"ts\":";
enum { MARKER_LENGTH = sizeof MARKER - 1 };

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec * UINT64_C(1000000000) + t.tv_nsec;
}

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static int ascending(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static int connect_reader(int number, int port, const char *path_format, int runs) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0) fail("socket");
  // One source address has some 28,000 ports, so a crowd comes from several.
  char source[32];
  snprintf(source, sizeof source, "127.0.0.%d", 2 + number / ADDRESSES_PER_SOURCE);
  struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET, .sin_port = htons(port)};
  inet_pton(AF_INET, source, &from.sin_addr);
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  int one = 1;
  setsockopt(fd, SOL_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
  if (bind(fd, (void *)&from, sizeof from)) fail("bind");
  if (connect(fd, (void *)&to, sizeof to)) fail("connect");
  char path[256], request[512];
  snprintf(path, sizeof path, path_format, number % runs);
  int length = snprintf(request, sizeof request,
                        "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", path);
  if (write(fd, request, length) != length) fail("write");
  fcntl(fd, F_SETFL, O_NONBLOCK);
  return fd;
}

static void count(Reader *reader, Totals *totals, uint64_t arrival) {
  totals->events++;
  reader->events++;
  if (!totals->first_stamp || reader->stamp < totals->first_stamp) totals->first_stamp = reader->stamp;
  if (!totals->first_arrival) totals->first_arrival = arrival;
  totals->last_arrival = arrival;
  // Every seventh: coprime with the readers of a run, so all of them are sampled.
  if (totals->seen++ % 7 == 0 && totals->samples < SAMPLES)
    totals->latencies[totals->samples++] = arrival > reader->stamp ? arrival - reader->stamp : 0;
}

static void scan(Reader *reader, Totals *totals, const char *bytes, ssize_t length, uint64_t arrival) {
  for (ssize_t i = 0; i < length; i++) {
    if (reader->matched == 0) {
      // A jump to the next whole marker; what the piece ends with may be the first half of one.
      const char *found = memmem(bytes + i, length - i, MARKER, MARKER_LENGTH);
      if (found)
        i = found - bytes;
      else if (i < length - (MARKER_LENGTH - 1))
        i = length - (MARKER_LENGTH - 1);
    }
    char c = bytes[i];
    if (reader->matched < MARKER_LENGTH) {
      if (c == MARKER[reader->matched]) {
        if (++reader->matched == MARKER_LENGTH) reader->stamp = reader->digits = 0;
      } else {
        reader->matched = c == MARKER[0];
      }
    } else if (c >= '0' && c <= '9') {
      reader->stamp = reader->stamp * 10 + (c - '0');
      reader->digits++;
    } else {
      if (reader->digits) count(reader, totals, arrival);
      reader->matched = 0;
    }
  }
}

static void drain(Reader *reader, Totals *totals, int epoll) {
  static char buffer[BUFFER];
  for (;;) {
    ssize_t length = read(reader->fd, buffer, sizeof buffer);
    if (length <= 0) {
      if (length == 0 || errno != EAGAIN) {
        totals->dead++;
        epoll_ctl(epoll, EPOLL_CTL_DEL, reader->fd, NULL);
      }
      return;
    }
    if (!reader->answered) {
      reader->answered = true;
      totals->answered++;
    }
    totals->bytes += length;
    totals->reads++;
    scan(reader, totals, buffer, length, now());
    if (length < (ssize_t)sizeof buffer) return;
  }
}

static void report(const Reader *readers, int n, Totals *totals) {
  uint64_t least = UINT64_MAX, most = 0;
  for (int i = 0; i < n; i++) {
    if (readers[i].events < least) least = readers[i].events;
    if (readers[i].events > most) most = readers[i].events;
  }
  qsort(totals->latencies, totals->samples, sizeof *totals->latencies, ascending);
  double latency[3] = {0};
  if (totals->samples) {
    latency[0] = totals->latencies[totals->samples / 2] / 1e6;
    latency[1] = totals->latencies[totals->samples * 99 / 100] / 1e6;
    latency[2] = totals->latencies[totals->samples - 1] / 1e6;
  }
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  double cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
  printf("{\"deliveries\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"reads\":%" PRIu64 ",\"dead\":%" PRIu64
         ",\"least\":%" PRIu64 ",\"most\":%" PRIu64 ",\"span_s\":%.6f,\"whole_s\":%.6f,\"p50_ms\":%.3f,\"p99_ms\":%.3f"
         ",\"max_ms\":%.3f,\"cpu_s\":%.3f}\n",
         totals->events, totals->bytes, totals->reads, totals->dead, least, most,
         (totals->last_arrival - totals->first_arrival) / 1e9, (totals->last_arrival - totals->first_stamp) / 1e9,
         latency[0], latency[1], latency[2], cpu);
}

int main(int argc, char **argv) {
  if (argc != 7) {
    fprintf(stderr, "usage: sseload PORT PATH READERS RUNS EXPECTED SECONDS\n");
    return 2;
  }
  int port = atoi(argv[1]), n = atoi(argv[3]), runs = atoi(argv[4]);
  const char *path_format = argv[2];
  uint64_t expected = strtoull(argv[5], NULL, 10);
  double seconds = atof(argv[6]);

  Reader *readers = calloc(n, sizeof *readers);
  Totals totals = {.latencies = malloc(SAMPLES * sizeof(uint64_t))};
  int epoll = epoll_create1(0);
  for (int i = 0; i < n; i++) {
    readers[i].fd = connect_reader(i, port, path_format, runs);
    struct epoll_event interest = {.events = EPOLLIN, .data.u32 = i};
    epoll_ctl(epoll, EPOLL_CTL_ADD, readers[i].fd, &interest);
  }

  struct epoll_event interest = {.events = EPOLLIN, .data.u32 = n};
  epoll_ctl(epoll, EPOLL_CTL_ADD, STDIN_FILENO, &interest);

  bool ready = false, stop = false;
  uint64_t end = now() + UINT64_C(1000000000) * ANSWER_SECONDS;
  static struct epoll_event events[1024];
  while (!stop && now() < end && !(expected && totals.events >= expected)) {
    int found = epoll_wait(epoll, events, 1024, 100);
    for (int i = 0; i < found; i++) {
      if (events[i].data.u32 == (uint32_t)n)
        stop = true;
      else
        drain(&readers[events[i].data.u32], &totals, epoll);
    }
    if (!ready && totals.answered == (uint64_t)n) {
      ready = true;
      end = now() + (uint64_t)(seconds * 1e9);
      printf("ready\n");
      fflush(stdout);
    }
  }
  if (!ready) {
    fprintf(stderr, "only %" PRIu64 " of %d readers were answered\n", totals.answered, n);
    return 1;
  }
  report(readers, n, &totals);
  return 0;
}
