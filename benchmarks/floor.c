// floor: what the system calls alone cost, a bare send() of a frame to every reader of a run.
//
// usage: floor PORT READERS RUNS EVENTS RATE
//
// Accepts READERS connections on 127.0.0.1:PORT and answers each. Event e goes to the readers i with
// i % RUNS == e % RUNS, RATE events a second. Prints `listening`, then one line of JSON with the CPU seconds used
// while sending and the frames sent.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static double seconds(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static void sleep_until(double due) {
  for (;;) {
    double left = due - seconds(CLOCK_MONOTONIC);
    if (left <= 0) return;
    struct timespec pause = {(time_t)left, (long)((left - (time_t)left) * 1e9)};
    nanosleep(&pause, NULL);
  }
}

// About the size of a progress event: position, type, envelope with its call.
static int frame(char *into, size_t size, int event) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return snprintf(into, size,
                  "id: 1700000000000-%d\nevent: tool_progress\ndata: {\"type\":\"tool_progress\",\"run\":\"run\","
                  "\"time\":\"2026-01-01T00:00:00.000Z\",\"call\":{\"key\":\"call_1\",\"name\":\"web_search\","
                  "\"title\":\"Searching the web\",\"attempt\":1},\"data\":{\"message\":\"%020d\",\"ts\":%ld%09ld}}\n\n",
                  event, event, (long)t.tv_sec, t.tv_nsec);
}

int main(int argc, char **argv) {
  if (argc != 6) {
    fprintf(stderr, "usage: floor PORT READERS RUNS EVENTS RATE\n");
    return 2;
  }
  int readers = atoi(argv[2]), runs = atoi(argv[3]), events = atoi(argv[4]);
  double rate = atof(argv[5]);

  int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  if (bind(listener, (void *)&address, sizeof address) || listen(listener, 8192)) {
    perror("listen");
    return 1;
  }
  printf("listening\n");
  fflush(stdout);

  int *sockets = malloc(readers * sizeof *sockets);
  char buffer[4096];
  static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
  for (int i = 0; i < readers; i++) {
    sockets[i] = accept(listener, NULL, NULL);
    if (sockets[i] < 0 || read(sockets[i], buffer, sizeof buffer) <= 0 ||
        send(sockets[i], answer, strlen(answer), MSG_NOSIGNAL) < 0) {
      perror("accept");
      return 1;
    }
  }
  sleep(1);  // until the readers have taken the answers

  double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), start = seconds(CLOCK_MONOTONIC);
  long sent = 0;
  for (int event = 0; event < events; event++) {
    sleep_until(start + event / rate);
    int length = frame(buffer, sizeof buffer, event);
    for (int i = event % runs; i < readers; i += runs) sent += send(sockets[i], buffer, length, MSG_NOSIGNAL) == length;
  }
  printf("{\"cpu_s\":%.6f,\"deliveries\":%ld}\n", seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu, sent);
  fflush(stdout);
  getchar();  // hold the connections until stdin is closed
  return 0;
}
