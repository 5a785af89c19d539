/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds of pieces: the least and the largest value of each channel over the piece's keys, as they
 * lie in the cache.  They are a state of selectors of decodes:
 *
 *   state   [page][kv_heads][pieces of a page][2][head_dim]   least, largest; bf16 or e5m2
 *
 * Rows make the bounds of their pieces anew from the keys that the pieces have.  On the device, a
 * row that comes next (attn_call) extends them by its own key.  Both give equal bits: rounding
 * keeps the order of values.
 */
#ifndef AR_BOUNDS_H
#define AR_BOUNDS_H

#include <stdbool.h>
#include <string.h>

#include "base/bf16.h"
#include "base/both.h"
#include "kernels/select/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

enum bounds_type { BOUNDS_BF16, BOUNDS_E5M2 };
enum bounds_round { BOUNDS_NEAREST, BOUNDS_OUTWARD }; /* e5m2 only; outward: they stay bounds */

struct bounds {
	int tok; /* of a piece */
	enum bounds_type type;
	enum bounds_round round;
};

/* The choices of parameters. */
extern const char *const bounds_types[], *const bounds_rounds[]; /* end with NULL */

AR_BOTH static inline size_t bounds_elem(const struct bounds *x)
{
	return x->type == BOUNDS_E5M2 ? 1 : 2;
}

size_t bounds_state_bytes(const struct bounds *x, const struct attn_shape *s);

/* Where the least values of a piece are, in elements; the largest are head_dim further. */
AR_BOTH static inline size_t bounds_at(const struct bounds *x, const struct attn_batch *b, int r,
				       int kv_head, int piece)
{
	const struct attn_shape *s = &b->shape;
	int per_page = s->page_tok / x->tok;
	size_t page = (size_t)b->keys.page[b->keys.page0[r] + piece / per_page];

	return ((page * (size_t)s->kv_heads + (size_t)kv_head) * (size_t)per_page +
		(size_t)(piece % per_page)) *
	       2 * (size_t)s->head_dim;
}

/* e5m2: a sign, five bits of exponent, two of mantissa.  A value above the largest number becomes
 * the largest number. */
enum { E5M2_LARGEST = 57344, E5M2_MOST = 0x7b, E5M2_NAN = 0x7f };

AR_BOTH static inline float e5m2_to_f32(uint8_t x)
{
	uint32_t exp = x >> 2 & 31, man = x & 3;
	uint32_t u = (uint32_t)(x & 0x7f) << 21;
	float f = (float)man / 65536; /* no exponent: in steps of 2^-16 */

	if (exp) {
		u = exp == 31 ? 0x7f800000 | man << 21 : u + (112u << 23);
		memcpy(&f, &u, sizeof f);
	}
	return x & 0x80 ? -f : f;
}

/* Rounded to the nearest, of two the even; up > 0: up, up < 0: down. */
AR_BOTH static inline uint8_t e5m2_from_f32(float f, int up)
{
	float size = f < 0 ? -f : f, rest, step;
	uint32_t u, code;
	bool more;

	if (!(size <= E5M2_LARGEST))
		return f != f ? E5M2_NAN : f < 0 ? E5M2_MOST | 0x80 : E5M2_MOST;
	memcpy(&u, &size, sizeof u);
	code = size < 1.0f / 16384 ? (uint32_t)(size * 65536) : (u >> 21) - (112 << 2);
	rest = size - e5m2_to_f32((uint8_t)code);
	step = e5m2_to_f32((uint8_t)(code + 1)) - e5m2_to_f32((uint8_t)code);
	more = up ? rest > 0 && (up > 0) == (f > 0) :
		    rest * 2 > step || (rest * 2 == step && code & 1);
	return (uint8_t)((code + more) | (f < 0 ? 0x80 : 0));
}

/* A number that ascends with x, a bf16; -0 is below 0.  Twice gives x. */
AR_BOTH static inline int16_t bounds_order(int16_t x)
{
	return (int16_t)(x < 0 ? x ^ 0x7fff : x);
}

/* Element `at` of a state. */
AR_BOTH static inline float bounds_get(const struct bounds *x, const void *state, size_t at)
{
	return x->type == BOUNDS_E5M2 ? e5m2_to_f32(((const uint8_t *)state)[at]) :
					bf16_to_f32(((const bf16_t *)state)[at]);
}

/* Set the bounds of a channel. */
AR_BOTH static inline void bounds_set(const struct bounds *x, void *state, size_t at, int head_dim,
				      bf16_t least, bf16_t most)
{
	int out = x->round == BOUNDS_OUTWARD;

	if (x->type == BOUNDS_E5M2) {
		((uint8_t *)state)[at] = e5m2_from_f32(bf16_to_f32(least), -out);
		((uint8_t *)state)[at + (size_t)head_dim] = e5m2_from_f32(bf16_to_f32(most), out);
	} else {
		((bf16_t *)state)[at] = least;
		((bf16_t *)state)[at + (size_t)head_dim] = most;
	}
}

/* The work of a selector that multiplies the rows of all query heads by one vector for each piece,
 * which it takes from the bounds. */
struct selector_work bounds_work(const struct bounds *x, const struct attn_shape *s,
				 const struct selector_chunk *c);

/* Make the bounds of all pieces that rows of b are in. */
void bounds_append(const struct bounds *x, const struct attn_batch *b, const bf16_t *k,
		   void *state);
enum ar_status bounds_append_enqueue(const struct bounds *x, const struct attn_call *call,
				     struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
