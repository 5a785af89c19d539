/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "traces/intern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/rng.h"

struct chain_slot {
	struct chain_key key;
	bool used;
	uint64_t id;
};

static struct chain_slot *chain_find(struct chain_slot *slot, size_t cap, const struct chain_key *k)
{
	size_t i = (size_t)rng_mix(k->prev ^ rng_mix(k->src ^ rng_mix(k->tail))) & (cap - 1);

	while (slot[i].used && (slot[i].key.prev != k->prev || slot[i].key.src != k->src ||
				slot[i].key.tail != k->tail))
		i = (i + 1) & (cap - 1);
	return &slot[i];
}

static bool chain_grow(struct chain *c)
{
	size_t cap = c->cap ? 2 * c->cap : 1024;
	struct chain_slot *slot = calloc(cap, sizeof *slot);

	if (!slot)
		return false;
	for (size_t i = 0; i < c->cap; i++)
		if (c->slot[i].used)
			*chain_find(slot, cap, &c->slot[i].key) = c->slot[i];
	free(c->slot);
	c->slot = slot;
	c->cap = cap;
	return true;
}

bool chain_put(struct chain *c, struct chain_key key, uint64_t id_if_new, uint64_t *id)
{
	struct chain_slot *s;

	if (4 * (c->n + 1) > 3 * c->cap && !chain_grow(c))
		return false;
	s = chain_find(c->slot, c->cap, &key);
	if (!s->used) {
		*s = (struct chain_slot){ .key = key, .used = true, .id = id_if_new };
		c->n++;
	}
	*id = s->id;
	return true;
}

void chain_release(struct chain *c)
{
	free(c->slot);
	*c = (struct chain){ 0 };
}

uint64_t intern_hash(const char *s, size_t n)
{
	uint64_t h = n;

	for (size_t i = 0; i < n; i++)
		h = rng_mix(h ^ (unsigned char)s[i]);
	return h;
}

/* Return the slot of s, or the empty slot for it.  A slot holds a number plus 1. */
static uint32_t *intern_find(const struct intern_table *a, const char *s, size_t n)
{
	size_t i = (size_t)intern_hash(s, n) & (a->n_slot - 1);

	while (a->slot[i] && (strncmp(a->v[a->slot[i] - 1], s, n) || a->v[a->slot[i] - 1][n]))
		i = (i + 1) & (a->n_slot - 1);
	return &a->slot[i];
}

static bool intern_grow(struct intern_table *a)
{
	size_t n_slot = 2 * array_room(a->cap, a->n + 1); /* a power of two */
	uint32_t *slot = calloc(n_slot, sizeof *slot);

	if (!slot || !GROW(a->v, a->cap, a->n + 1)) {
		free(slot);
		return false;
	}
	free(a->slot);
	a->slot = slot;
	a->n_slot = n_slot;
	for (size_t i = 0; i < a->n; i++)
		*intern_find(a, a->v[i], strlen(a->v[i])) = (uint32_t)i + 1;
	return true;
}

bool intern_put(struct intern_table *a, const char *s, size_t n, uint32_t *number)
{
	uint32_t *slot;

	if (a->n == a->cap && (a->n >= INT32_MAX || !intern_grow(a)))
		return false;
	slot = intern_find(a, s, n);
	if (!*slot) {
		a->v[a->n] = strndup(s, n);
		if (!a->v[a->n])
			return false;
		*slot = (uint32_t)++a->n;
	}
	*number = *slot - 1;
	return true;
}

bool intern_put_new(struct intern_table *a, const char *s, unsigned next)
{
	size_t size = strlen(s) + 12, before = a->n;
	char *text = malloc(size);
	uint32_t number;
	bool done = text;

	for (; done && a->n == before; next++) {
		snprintf(text, size, next > 1 ? "%s~%u" : "%s", s, next);
		done = intern_put(a, text, strlen(text), &number);
	}
	free(text);
	return done;
}

void intern_release(struct intern_table *a)
{
	for (size_t i = 0; i < a->n; i++)
		free(a->v[i]);
	free(a->v);
	free(a->slot);
	*a = (struct intern_table){ 0 };
}

void intern_take(char ***v, size_t *n, struct intern_table *all)
{
	struct intern_table old = { .v = *v, .n = *n };

	*v = all->v;
	*n = all->n;
	all->v = NULL;
	all->n = 0;
	intern_release(&old);
	intern_release(all);
}
