/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How clusters of thread blocks share the chunks of a batch, for delta_scan_sm90.cu.
 *
 * A job is a sequence and a value head; its chunks are one chain.  With all jobs in a row, cluster
 * c makes len chunks from c * len on.  len is at least the longest job, so a job has at most two
 * clusters.  The second one begins with the job: it makes the job's first chunks.  The first one
 * ends with the chunks after them.  So all clusters end together, and no piece waits for one that
 * waits.
 */
#ifndef AR_DELTA_WALK_H
#define AR_DELTA_WALK_H

#include "base/both.h"
#include "kernels/delta/delta.h"

/* Neighbouring chunks of a sequence, for one value head. */
struct delta_piece {
	struct state_seq seq;
	int head;
	int first, n; /* chunks of the sequence */
	int waits;    /* the next cluster makes the chunks before */
	int signals;  /* the cluster before this one makes the chunks after */
};

/* A way through the chunks of a cluster. */
struct delta_walk {
	int heads;
	int at, end; /* in the row of all jobs' chunks */
	int n_chunk; /* of the piece's sequence; 0: not known */
	struct delta_piece p;
	int i; /* the current chunk: p.first + i of its sequence */
};

AR_BOTH static inline int delta_count_chunks(int n_row)
{
	return (n_row + STATE_CHUNK - 1) / STATE_CHUNK;
}

/* longest: rows of the longest sequence. */
AR_BOTH static inline struct delta_walk delta_walk_of(const struct state_batch *b, int heads,
						      int longest, int cluster, int n_cluster)
{
	const int all = b->n_chunk * heads, chunks = delta_count_chunks(longest);
	const int even = (all + n_cluster - 1) / n_cluster, len = chunks > even ? chunks : even;
	const int64_t from = (int64_t)cluster * len;
	struct delta_walk k;

	k.heads = heads;
	k.at = from < all ? (int)from : all;
	k.end = k.at + len < all ? k.at + len : all;
	k.n_chunk = k.i = 0;
	k.p.n = 0;
	return k;
}

/* Go to the next piece.  False: there is none. */
AR_BOTH static inline int delta_next_piece(struct delta_walk *k, const struct state_batch *b)
{
	int before;

	if (k->at >= k->end)
		return 0;
	if (!k->n_chunk || k->at >= (k->p.seq.chunk0 + k->n_chunk) * k->heads) {
		k->p.seq = b->seq[b->chunk[k->at / k->heads].seq];
		k->n_chunk = delta_count_chunks(k->p.seq.n_row);
	}
	before = k->at - k->p.seq.chunk0 * k->heads;
	k->p.head = before / k->n_chunk;
	before -= k->p.head * k->n_chunk;
	k->p.n = k->n_chunk - before < k->end - k->at ? k->n_chunk - before : k->end - k->at;
	k->p.signals = before > 0;
	k->p.waits = !before && k->p.n < k->n_chunk;
	k->p.first = k->p.waits ? k->n_chunk - k->p.n : 0;
	k->at += k->p.n;
	return 1;
}

/* Go to the next chunk. */
AR_BOTH static inline int delta_next_chunk(struct delta_walk *k, const struct state_batch *b)
{
	if (++k->i < k->p.n)
		return 1;
	k->i = 0;
	return delta_next_piece(k, b);
}

#endif
