/* SPDX-License-Identifier: Apache-2.0 */
/* Traces whose tokens are letters, and the text of a schedule with its block tables. */
#ifndef AR_TESTS_LETTERS_H
#define AR_TESTS_LETTERS_H

#include "base/rng.h"
#include "replay/sched/policy.h"

#define MS 1000000

struct text {
	char s[2048];
	size_t n;
};

/* The test ends if the text gets too long. */
void letters_put(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Add a request with the letters of text for its prompt.  t->req and t->block have room. */
void letters_add(struct trace *t, int64_t us, const char *text, uint32_t output);

/* Add n requests of an output each.  prompt: [n][longest + 1], their letters.  Each is like an
 * earlier one up to some place. */
void letters_draw(struct trace *t, struct rng *r, char *prompt, int n, size_t longest);

/* An engine in which every iteration takes 1 ms.  Each gets a line such as "0-1 A:12@0 [1 2 3]":
 * request A ran 12 tokens from 0 on, and then tables() puts the blocks of the request. */
void letters_replay(struct sched *s, struct text *log,
		    void (*tables)(struct text *log, const struct sched *s,
				   const struct sched_seq *q));

/* Test that sched_open() reports each allocation that fails.  There are at least `least`. */
void letters_fail(const struct trace *t, const struct sched_limits *lim, long least);

#endif
