/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists that pass between layers: some of the layers that run a part of decodes choose, and those
 * after them take what the last one chose.  Lists last for one iteration.
 *
 * As TidalDecode (2024, section 3) has it, where layers that choose see every key; and as in
 * engines that share indices, where they see their own lists.
 */
#ifndef AR_REUSE_H
#define AR_REUSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/opt_table.h"

enum { REUSE_ATTEND_LIST, REUSE_ATTEND_FULL };

struct reuse {
	int64_t every; /* the first of so many layers chooses; 1: all do */
	char *layers;  /* these layers of the model choose, "2+13"; NULL: by every */
	int attend;    /* index: layers that choose see their list, or every key */
	bool takes;    /* of the layers that take lists */
};

/* Its parameters; their values are in struct method_part. */
extern const struct opt reuse_opts[];

static inline bool reuse_on(const struct reuse *r)
{
	return r->every > 1 || r->layers;
}

/* Whether a layer sees every key, and chooses for later layers alone. */
static inline bool reuse_sees_all(const struct reuse *r)
{
	return r->attend == REUSE_ATTEND_FULL && !r->takes;
}

/* AR_USAGE: the parameters do not go together. */
enum ar_status reuse_check(const struct reuse *r, struct ar_err *err);

/* Whether a layer of the model chooses; n: layers before it that run the part. */
bool reuse_chooses(const struct reuse *r, int layer, int n);

#endif
