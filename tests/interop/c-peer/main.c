// SPDX-License-Identifier: MIT
//
// c-peer is ikcp, the C library, on the other end of a real socket. It takes the
// flags of go-peer that it needs, ignores the others, and reports like it:
//
//	c-peer serve
//	c-peer drive --addr 127.0.0.1:PORT --bytes N
//
// serve echoes every session until a signal ends it, and says first what --greet
// names. drive compares every byte
// that comes back. The library's files are not here; the build names their folder:
//
//	cc -O2 -I IKCP -o c-peer main.c IKCP/ikcp.c

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ikcp.h"

enum { WINDOW = 512, HEADER = 24, PACKET = 65536, PIECE = 16384 };

struct session {
	ikcpcb *kcp;
	struct sockaddr_in peer;
	struct session *next;
};

static int sock;
static struct session *sessions;
static volatile sig_atomic_t stopped;
static unsigned long accepted, refused, moved, failed;
static const char *greeting = "";
static char piece[PIECE], packet[PACKET];

static void fail(const char *what) {
	fprintf(stderr, "c-peer: %s: %s\n", what, strerror(errno));
	exit(1);
}

static IUINT32 now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (IUINT32)(t.tv_sec * 1000 + t.tv_nsec / 1000000);
}

static int output(const char *bytes, int len, ikcpcb *kcp, void *user) {
	struct session *s = user;
	(void)kcp;
	return sendto(sock, bytes, len, 0, (struct sockaddr *)&s->peer, sizeof s->peer);
}

static struct session *begin(IUINT32 conv, struct sockaddr_in peer) {
	struct session *s = calloc(1, sizeof *s);
	if (!s || !(s->kcp = ikcp_create(conv, s)))
		fail("no memory");
	s->peer = peer;
	s->kcp->output = output;
	s->kcp->stream = 1;
	ikcp_nodelay(s->kcp, 0, 10, 2, 1);
	ikcp_wndsize(s->kcp, WINDOW, WINDOW);
	ikcp_update(s->kcp, now());
	s->next = sessions;
	return sessions = s;
}

static struct session *find(IUINT32 conv, const struct sockaddr_in *peer) {
	struct session *s = sessions;
	while (s && (s->kcp->conv != conv || s->peer.sin_port != peer->sin_port ||
		     s->peer.sin_addr.s_addr != peer->sin_addr.s_addr))
		s = s->next;
	return s;
}

// The byte at `at` of what drive writes.
static char byte_at(unsigned long at) {
	return (char)((at * 0x9e3779b97f4a7c15UL) >> 56);
}

// Takes in all packets that are there. Only serve begins sessions.
static void receive(int serves) {
	struct sockaddr_in from;
	socklen_t size = sizeof from;
	ssize_t len;
	while ((len = recvfrom(sock, packet, sizeof packet, MSG_DONTWAIT, (struct sockaddr *)&from, &size)) >= 0) {
		if (len < HEADER)
			continue;
		IUINT32 conv = ikcp_getconv(packet);
		struct session *s = find(conv, &from);
		if (!s && serves) {
			s = begin(conv, from);
			accepted++;
			if (*greeting)
				ikcp_send(s->kcp, greeting, strlen(greeting));
		}
		if (s && ikcp_input(s->kcp, packet, len) < 0)
			refused++;
		size = sizeof from;
	}
}

// Waits for packets until some session wants to be updated.
static void rest(void) {
	IUINT32 t = now();
	int wait = 100;
	for (struct session *s = sessions; s; s = s->next) {
		int due = (int)(ikcp_check(s->kcp, t) - t);
		wait = due < wait ? due : wait;
	}
	struct pollfd ready = {.fd = sock, .events = POLLIN};
	poll(&ready, 1, wait < 0 ? 0 : wait);
}

static void update(void) {
	for (struct session *s = sessions; s; s = s->next)
		ikcp_update(s->kcp, now());
}

static int has_room(ikcpcb *kcp) { return ikcp_waitsnd(kcp) < WINDOW; }

static void report(IUINT32 begun) {
	unsigned long resent = 0;
	for (struct session *s = sessions; s; s = s->next)
		resent += s->kcp->xmit;
	printf("{\"peer\":\"ikcp\",\"mode\":\"echo\",\"conns\":%lu,\"bytes\":%lu,\"secs\":%.3f,\"failed\":%lu,"
	       "\"refused\":%lu,\"resent\":%lu,\"fec_recovered\":0}\n",
	       accepted, moved, (now() - begun) / 1e3, failed, refused, resent);
	fflush(stdout);
}

static void serve(void) {
	struct sockaddr_in own;
	socklen_t size = sizeof own;
	getsockname(sock, (struct sockaddr *)&own, &size);
	printf("listening 127.0.0.1:%d\n", ntohs(own.sin_port));
	fflush(stdout);
	while (!stopped) {
		rest();
		receive(1);
		for (struct session *s = sessions; s; s = s->next) {
			int len;
			while (has_room(s->kcp) && (len = ikcp_recv(s->kcp, piece, PIECE)) > 0) {
				moved += len;
				if (ikcp_send(s->kcp, piece, len) < 0)
					failed++;
			}
		}
		update();
	}
}

static void drive(struct sockaddr_in peer, unsigned long bytes, int timeout) {
	IUINT32 begun = now();
	struct session *s = begin((IUINT32)getpid() << 16 ^ begun, peer);
	unsigned long written = 0;
	accepted = 1;
	while (moved < bytes && now() - begun < (IUINT32)timeout * 1000) {
		while (written < bytes && has_room(s->kcp)) {
			int len = bytes - written < PIECE ? bytes - written : PIECE;
			for (int i = 0; i < len; i++)
				piece[i] = byte_at(written + i);
			if (ikcp_send(s->kcp, piece, len) < 0)
				fail("ikcp_send");
			written += len;
		}
		update();
		rest();
		receive(0);
		int len;
		while ((len = ikcp_recv(s->kcp, piece, PIECE)) > 0)
			for (int i = 0; i < len; i++)
				if (piece[i] != byte_at(moved++))
					failed = 1;
	}
	failed |= moved != bytes;
	// The last ACKs leave with the next updates.
	for (int i = 0; i < 5; i++) {
		usleep(10000);
		update();
	}
}

static void stop(int signal) {
	(void)signal;
	stopped = 1;
}

int main(int count, char **args) {
	const char *addr = "127.0.0.1:0";
	unsigned long bytes = 1000000;
	int timeout = 60;
	for (int i = 2; i + 1 < count; i += 2) {
		if (!strcmp(args[i], "--addr"))
			addr = args[i + 1];
		else if (!strcmp(args[i], "--bytes"))
			bytes = strtoul(args[i + 1], NULL, 10);
		else if (!strcmp(args[i], "--greet"))
			greeting = args[i + 1];
		else if (!strcmp(args[i], "--timeout"))
			timeout = atoi(args[i + 1]);
	}
	struct sockaddr_in own = {.sin_family = AF_INET}, peer = own;
	own.sin_addr.s_addr = peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	const char *port = strrchr(addr, ':');
	peer.sin_port = htons(port ? atoi(port + 1) : 0);
	sock = socket(AF_INET, SOCK_DGRAM, 0);
	if (sock < 0 || bind(sock, (struct sockaddr *)&own, sizeof own) < 0)
		fail("no socket");
	int room = 4 << 20;
	setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
	struct sigaction action = {.sa_handler = stop};
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	IUINT32 begun = now();
	if (count > 1 && !strcmp(args[1], "serve")) {
		serve();
	} else if (count > 1 && !strcmp(args[1], "drive")) {
		drive(peer, bytes, timeout);
	} else {
		fprintf(stderr, "usage: c-peer serve | c-peer drive --addr HOST:PORT --bytes N\n");
		return 2;
	}
	report(begun);
	return failed ? 1 : 0;
}
