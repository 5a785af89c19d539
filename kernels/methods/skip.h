/* SPDX-License-Identifier: Apache-2.0 */
/* The part of methods that says which tiles attention skips, in prefill and in decodes. */
#ifndef AR_SKIP_H
#define AR_SKIP_H

#include "base/opt_table.h"
#include "kernels/attn.h"
#include "kernels/row_kind.h"

struct cJSON;

/* Skip-softmax. */
struct skip {
	double prefill, decode; /* scales; 0: this half skips nothing */
	double threshold;	/* of both halves, instead of scales */
	int tile;		/* index in the choices of the option */
	int64_t parts;		/* of decodes; 0: as the kernel cuts */
	bool clamp;
};

extern const struct opt skip_opts[];

/* text: "softmax[,KEY=VALUE...]" or "softmax:KEY=VALUE...".  AR_USAGE: an unknown parameter, a
 * value out of range, or values that do not go together. */
enum ar_status skip_parse(struct skip **out, const char *text, struct ar_err *err);

/* Its name and parameters, owned by the caller.  NULL: there is no memory. */
struct cJSON *skip_json(const struct skip *s);

/* What rows of a kind skip.  A tile of chunks has as many keys as a step of the kernels. */
struct attn_skip skip_of(const struct skip *s, enum row_kind kind, const struct attn_shape *shape);

#endif
