/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake NCCL library for ranks of one host, without GPUs: data are in host memory, and streams are
 * ignored.  A call is posted; polls of ncclCommGetAsyncError() carry it out.
 *
 * Ranks share a memory file, whose path is in the id.  With NCCL_COMM_ID it is a shared object of
 * that name, which the last rank to join removes.
 *
 * It aborts the program if the calls of ranks differ, if a communicator is used after an abort, or
 * destroyed before it is finalised.  Environment variables, with R:N for call N of rank R, from 1:
 *   FAKE_NCCL_DIE=R:N  FAKE_NCCL_HANG=R:N (until another rank aborts)  FAKE_NCCL_ERROR=R:N:CODE
 *   FAKE_NCCL_WRONG=R:N (its result has a wrong bit)
 *   FAKE_NCCL_SLOW=R:MICROSECONDS  FAKE_NCCL_VERSION=V
 *   FAKE_NCCL_PROGRESS=N: polls before a call is carried out
 *   FAKE_NCCL_RECORD=FILE: rank 0 appends a line for each call: name, type, count
 */
#define _GNU_SOURCE
#include "base/bf16.h"
#include "replay/ranks/nccl_api.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_RANKS = 16, SLOT = 1 << 20 };

enum kind { GATHER, REDUCE, SCATTER, SWAP, SEND };
static const char *const names[] = { "allgather", "allreduce", "reducescatter", "alltoall",
				     "sendrecv" };

/* What a rank calls. */
struct call {
	int kind, type;
	uint64_t count;
};

struct slot {
	atomic_long came, left; /* pieces that its rank has put there, and has read everywhere */
	struct call call;
	_Alignas(8) char data[SLOT];
};

struct shared {
	atomic_int joined, aborted;
	struct slot slot[MOST_RANKS];
};

struct nccl_comm {
	struct shared *s;
	int n, rank;
	char name[sizeof(struct nccl_id)]; /* of the shared object, "": none */
	long calls, pieces;		   /* posted; carried out */
	int polls;			   /* of this call */
	int error;
	int aborted, finalised;
	struct nccl_comm *next; /* aborted before */
	/* The call that is posted: done of `bytes` bytes are. */
	struct call call;
	const char *from;
	char *to;
	size_t bytes, done;
	int put; /* its piece is in the slot */
};

/* Sends and receives between ncclGroupStart() and ncclGroupEnd(): one with each rank. */
static _Thread_local struct group {
	int open;
	struct nccl_comm *comm;
	const char *from[MOST_RANKS];
	char *to[MOST_RANKS];
	size_t bytes;
} group;

#define EXPORT __attribute__((visibility("default")))
#define DECLARE(name, args) EXPORT int nccl##name args;
NCCL_CALLS(DECLARE)
#undef DECLARE
#define DECLARE(name, args) EXPORT const char *nccl##name args;
NCCL_TEXTS(DECLARE)
#undef DECLARE

static int number(const char *name, int other)
{
	const char *text = getenv(name);

	return text ? atoi(text) : other;
}

/* Whether the variable is set for this call; *x: gets the number after it. */
static int is_now(const char *name, const struct nccl_comm *c, int *x)
{
	const char *text = getenv(name);
	int rank = -1;
	long call = -1;
	int code = 0;

	if (!text || sscanf(text, "%d:%ld:%d", &rank, &call, &code) < 2 || rank != c->rank ||
	    call != c->calls)
		return 0;
	*x = code;
	return 1;
}

static void wrong(const struct nccl_comm *c, const char *what)
{
	fprintf(stderr, "fake NCCL: rank %d: %s\n", c->rank, what);
	abort();
}

EXPORT int ncclGetVersion(int *version)
{
	*version = number("FAKE_NCCL_VERSION", 22809);
	return NCCL_OK;
}

EXPORT const char *ncclGetErrorString(int result)
{
	return result == NCCL_REMOTE_ERROR ? "remote process exited or there was a network error" :
					     "internal error";
}

EXPORT const char *ncclGetLastError(struct nccl_comm *c)
{
	(void)c;
	return "a fake error";
}

EXPORT int ncclGetUniqueId(struct nccl_id *id)
{
	const char *name = getenv("NCCL_COMM_ID");
	int fd = -1;

	memset(id, 0, sizeof *id);
	if (name) {
		snprintf(id->byte, sizeof id->byte, "/fake-nccl-%s", name);
		return NCCL_OK;
	}
	fd = memfd_create("fake-nccl", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, sizeof(struct shared)))
		return 2;
	snprintf(id->byte, sizeof id->byte, "/proc/%d/fd/%d", (int)getpid(), fd);
	return NCCL_OK;
}

EXPORT int ncclCommInitRankConfig(struct nccl_comm **out, int n, struct nccl_id id, int rank,
				  struct nccl_config *config)
{
	struct nccl_comm *c = calloc(1, sizeof *c);
	const int named = !strncmp(id.byte, "/fake-nccl-", 11);
	int fd = named ? shm_open(id.byte, O_RDWR | O_CREAT, 0600) : open(id.byte, O_RDWR);

	*out = c;
	if (!c || n > MOST_RANKS || rank >= n || config->magic != NCCL_MAGIC || config->blocking)
		return 4;
	if (fd < 0 || (named && ftruncate(fd, sizeof *c->s)))
		return 2;
	c->s = mmap(NULL, sizeof *c->s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (c->s == MAP_FAILED)
		return 2;
	c->n = n;
	c->rank = rank;
	if (named)
		memcpy(c->name, id.byte, sizeof c->name);
	atomic_fetch_add(&c->s->joined, 1);
	return NCCL_IN_PROGRESS;
}

/* All ranks have reached `least`: came, or left. */
static int all_at(const struct nccl_comm *c, int came, long least)
{
	for (int i = 0; i < c->n; i++)
		if (atomic_load(came ? &c->s->slot[i].came : &c->s->slot[i].left) < least)
			return 0;
	return 1;
}

static void check_calls(const struct nccl_comm *c)
{
	const struct call *mine = &c->call;

	for (int i = 0; i < c->n; i++) {
		const struct call *x = &c->s->slot[i].call;

		if (x->kind == mine->kind && x->type == mine->type && x->count == mine->count)
			continue;
		fprintf(stderr,
			"fake NCCL: rank %d: %s of %llu, type %d; rank %d: %s of %llu, "
			"type %d\n",
			c->rank, names[mine->kind], (unsigned long long)mine->count, mine->type, i,
			names[x->kind], (unsigned long long)x->count, x->type);
		abort();
	}
}

/* Sums of bf16 in order of ranks, rounded once; they are at `at` in the slots. */
static void add_up(struct nccl_comm *c, size_t at, size_t bytes)
{
	bf16_t *to = (bf16_t *)(c->to + c->done);

	for (size_t k = 0; k < bytes / sizeof *to; k++) {
		float sum = 0;

		for (int i = 0; i < c->n; i++)
			sum += bf16_to_f32(((const bf16_t *)(c->s->slot[i].data + at))[k]);
		to[k] = bf16_from_f32(sum);
	}
}

/* Bytes of a slot for each rank, of calls that have a part for each. */
static size_t part_room(const struct nccl_comm *c)
{
	return SLOT / (size_t)c->n / 8 * 8;
}

static size_t piece_room(const struct nccl_comm *c)
{
	return c->call.kind == SCATTER || c->call.kind == SWAP ? part_room(c) : SLOT;
}

/* Put n bytes of this call into the rank's slot. */
static void put_piece(struct nccl_comm *c, char *data, size_t n)
{
	const int parts = c->call.kind == SCATTER || c->call.kind == SWAP;

	if (!parts && c->from)
		memcpy(data, c->from + c->done, n);
	for (int i = 0; i < c->n && parts; i++)
		memcpy(data + (size_t)i * part_room(c),
		       (c->call.kind == SWAP ? group.from[i] : c->from + (size_t)i * c->bytes) +
			       c->done,
		       n);
}

/* Read n bytes of all slots. */
static void take_piece(struct nccl_comm *c, size_t n)
{
	const size_t mine = (size_t)c->rank * part_room(c);

	switch (c->call.kind) {
	case REDUCE: add_up(c, 0, n); break;
	case SCATTER: add_up(c, mine, n); break;
	case SEND:
		if (c->to)
			memcpy(c->to + c->done, c->s->slot[1 - c->rank].data, n);
		break;
	default:
		for (int i = 0; i < c->n; i++)
			memcpy(c->call.kind == SWAP ? group.to[i] + c->done :
						      c->to + (size_t)i * c->bytes + c->done,
			       c->s->slot[i].data + (c->call.kind == SWAP ? mine : 0), n);
	}
}

/* Put, exchange and read the next piece.  Returns whether it is done. */
static int move_piece(struct nccl_comm *c)
{
	struct slot *mine = &c->s->slot[c->rank];
	const size_t left = c->bytes - c->done, room = piece_room(c), n = left < room ? left : room;
	int unused;

	if (!c->put) {
		if (!all_at(c, 0, c->pieces))
			return 0;
		mine->call = c->call;
		put_piece(c, mine->data, n);
		c->put = 1;
		atomic_store(&mine->came, c->pieces + 1);
	}
	if (!all_at(c, 1, c->pieces + 1))
		return 0;
	check_calls(c);
	take_piece(c, n);
	if (is_now("FAKE_NCCL_WRONG", c, &unused))
		c->to[c->done] ^= 1;
	c->done += n;
	c->put = 0;
	atomic_store(&mine->left, ++c->pieces);
	return 1;
}

static int progress(struct nccl_comm *c)
{
	if (atomic_load(&c->s->aborted) && !c->error)
		c->error = NCCL_REMOTE_ERROR;
	if (c->error)
		return c->error;
	if (atomic_load(&c->s->joined) < c->n || c->polls-- > 0)
		return NCCL_IN_PROGRESS;
	if (*c->name)
		shm_unlink(c->name);
	*c->name = 0;
	while (c->done < c->bytes)
		if (!move_piece(c))
			return NCCL_IN_PROGRESS;
	return NCCL_OK;
}

EXPORT int ncclCommGetAsyncError(struct nccl_comm *c, int *result)
{
	if (c->aborted)
		wrong(c, "a call after the abort");
	*result = progress(c);
	return NCCL_OK;
}

static void record(const struct nccl_comm *c)
{
	const char *path = getenv("FAKE_NCCL_RECORD");
	FILE *f = path && !c->rank ? fopen(path, "a") : NULL;

	if (!f)
		return;
	fprintf(f, "%s %d %llu\n", names[c->call.kind], c->call.type,
		(unsigned long long)c->call.count);
	fclose(f);
}

static int post(struct nccl_comm *c, struct call call, const void *from, void *to, size_t bytes)
{
	const char *slow = getenv("FAKE_NCCL_SLOW");
	int rank, us;

	if (c->aborted || c->finalised)
		wrong(c, "a call after the end");
	if (c->done < c->bytes)
		wrong(c, "a call before the last one has ended");
	c->calls++;
	c->polls = number("FAKE_NCCL_PROGRESS", 0);
	c->call = call;
	c->from = from;
	c->to = to;
	c->bytes = bytes;
	c->done = 0;
	if (is_now("FAKE_NCCL_DIE", c, &us))
		abort();
	while (is_now("FAKE_NCCL_HANG", c, &us) && !atomic_load(&c->s->aborted))
		usleep(1000);
	if (is_now("FAKE_NCCL_ERROR", c, &c->error))
		return NCCL_IN_PROGRESS;
	if (slow && sscanf(slow, "%d:%d", &rank, &us) == 2 && rank == c->rank)
		usleep((useconds_t)us);
	record(c);
	return NCCL_IN_PROGRESS;
}

EXPORT int ncclAllGather(const void *from, void *to, size_t count, int type, struct nccl_comm *c,
			 void *stream)
{
	(void)stream;
	return type == NCCL_UINT8 ? post(c, (struct call){ GATHER, type, count }, from, to, count) :
				    4;
}

EXPORT int ncclAllReduce(const void *from, void *to, size_t count, int type, int op,
			 struct nccl_comm *c, void *stream)
{
	(void)stream;
	return type == NCCL_BF16 && op == NCCL_SUM ? post(c, (struct call){ REDUCE, type, count },
							  from, to, count * sizeof(bf16_t)) :
						     4;
}

EXPORT int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op,
			     struct nccl_comm *c, void *stream)
{
	(void)stream;
	return type == NCCL_BF16 && op == NCCL_SUM ? post(c, (struct call){ SCATTER, type, count },
							  from, to, count * sizeof(bf16_t)) :
						     4;
}

/* One of a message between two ranks, of which the other is NULL; or a part of a group. */
static int post_part(struct nccl_comm *c, const void *from, void *to, size_t count, int type,
		     int peer)
{
	if (type != NCCL_UINT8 || peer < 0 || peer >= c->n || (!group.open && c->n != 2))
		return 4;
	if (!group.open)
		return post(c, (struct call){ SEND, type, count }, from, to, count);
	group.comm = c;
	group.bytes = count;
	if (from)
		group.from[peer] = from;
	if (to)
		group.to[peer] = to;
	return NCCL_OK;
}

EXPORT int ncclSend(const void *from, size_t count, int type, int peer, struct nccl_comm *c,
		    void *stream)
{
	(void)stream;
	return post_part(c, from, NULL, count, type, peer);
}

EXPORT int ncclRecv(void *to, size_t count, int type, int peer, struct nccl_comm *c, void *stream)
{
	(void)stream;
	return post_part(c, NULL, to, count, type, peer);
}

EXPORT int ncclGroupStart(void)
{
	group = (struct group){ .open = 1 };
	return NCCL_OK;
}

EXPORT int ncclGroupEnd(void)
{
	group.open = 0;
	for (int i = 0; group.comm && i < group.comm->n; i++)
		if (!group.from[i] || !group.to[i])
			wrong(group.comm, "a group without a message for each rank");
	return !group.comm ? NCCL_OK :
			     post(group.comm, (struct call){ SWAP, NCCL_UINT8, group.bytes },
				  group.from[0], group.to[0], group.bytes);
}

/* Aborted ones are kept, so that a later call is found. */
EXPORT int ncclCommAbort(struct nccl_comm *c)
{
	static struct nccl_comm *aborted;

	if (c->aborted)
		wrong(c, "a second abort");
	if (*c->name)
		shm_unlink(c->name);
	atomic_store(&c->s->aborted, 1);
	munmap(c->s, sizeof *c->s);
	c->aborted = 1;
	c->next = aborted;
	aborted = c;
	return NCCL_OK;
}

EXPORT int ncclCommFinalize(struct nccl_comm *c)
{
	if (c->done < c->bytes)
		wrong(c, "finalised before the last call has ended");
	c->finalised = 1;
	return NCCL_OK;
}

EXPORT int ncclCommDestroy(struct nccl_comm *c)
{
	if (!c->finalised)
		wrong(c, "destroyed before it is finalised");
	munmap(c->s, sizeof *c->s);
	free(c);
	return NCCL_OK;
}
