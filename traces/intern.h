/* SPDX-License-Identifier: Apache-2.0 */
/* Interning: dense numbers for the prefix blocks and strings of a file.  The hash tables compare
 * whole keys, so equal hash values do no harm. */
#ifndef AR_INTERN_H
#define AR_INTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Key of a prefix block: the number of the block before it, its id in the source, and its tail.
 * The tail holds the tokens of a partial block (0: full) and flags. */
struct chain_key {
	uint64_t prev, src;
	uint32_t tail;
};
#define CHAIN_START UINT64_MAX /* prev of a first block */

struct chain {
	struct chain_slot *slot;
	size_t cap, n;
};

/* Store id_if_new for a new key, and return the stored id in *id.  False: no memory. */
bool chain_put(struct chain *c, struct chain_key key, uint64_t id_if_new, uint64_t *id);
void chain_release(struct chain *c);

struct intern_table {
	char **v; /* by number, owned */
	size_t n, cap;
	uint32_t *slot;
	size_t n_slot;
};

/* Intern s[0..n); numbers follow first appearance.  False: no memory, or 2^31 names. */
bool intern_put(struct intern_table *a, const char *s, size_t n, uint32_t *number);
/* Add s under the first unused name of s~next, s~(next + 1), ...; next 1 begins with s itself. */
bool intern_put_new(struct intern_table *a, const char *s, unsigned next);
uint64_t intern_hash(const char *s, size_t n);
/* Free the names (*v, *n) and put the names of *all in their place.  *all is empty afterwards. */
void intern_take(char ***v, size_t *n, struct intern_table *all);
void intern_release(struct intern_table *a);

#endif
