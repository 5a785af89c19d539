/* SPDX-License-Identifier: Apache-2.0 */
/* Orders, for qsort() and bsearch(). */
#ifndef AR_ORDER_H
#define AR_ORDER_H

#include <stdint.h>
#include <string.h>

/* -1, 0 or 1: a is less than b, neither less nor greater, or greater.  A comparison by two keys
 * takes the second one where this is 0. */
#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

/* A comparison of two values of a type, ascending. */
#define ORDER_FN(name, type) \
	static inline int name(const void *a, const void *b) \
	{ \
		const type x = *(const type *)a, y = *(const type *)b; \
\
		return ORDER(x, y); \
	}

ORDER_FN(order_i32, int32_t)
ORDER_FN(order_i64, int64_t)
ORDER_FN(order_u64, uint64_t)
ORDER_FN(order_f64, double)

/* The same, descending. */
static inline int order_i64_down(const void *a, const void *b)
{
	return order_i64(b, a);
}

/* Texts: a and b point to char *. */
static inline int order_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

#endif
