/* Dense numbers for what files name otherwise: prefix blocks and strings.  Hash tables
 * that compare the whole key, so that nothing rests on a hash value. */
#ifndef AR_INTERN_H
#define AR_INTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A prefix block: the number of the block before it, its id in the source, and for
 * a last block that is not full how it differs from a full one. */
struct chain_key {
	uint64_t prev, src;
	uint32_t tail;
};
#define CHAIN_START UINT64_MAX	/* prev of a first block */

struct chain {
	struct chain_slot *slot;
	size_t cap, n;
};

/* *id is what was stored for the key; id_if_new is stored when it is new.  False: no memory. */
bool chain_put(struct chain *c, struct chain_key key, uint64_t id_if_new, uint64_t *id);
void chain_release(struct chain *c);

struct names {
	char **v;		/* by number, owned */
	size_t n, cap;
	uint32_t *slot;
	size_t n_slot;
};

/* The number of s[0..n), by first appearance.  False: no memory, or 2^31 names. */
bool names_put(struct names *a, const char *s, size_t n, uint32_t *number);
/* s, or the first of s~2, s~3 ... from s~next on, that is not there yet; next 1: s itself. */
bool names_put_new(struct names *a, const char *s, unsigned next);
uint64_t names_hash(const char *s, size_t n);
/* Replace the names of (*v, *n), which are freed, by those of *all, which is empty afterwards. */
void names_take(char ***v, size_t *n, struct names *all);
void names_release(struct names *a);

#endif
