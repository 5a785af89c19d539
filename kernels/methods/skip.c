/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of skip-softmax.  TensorRT-LLM and FlashInfer take tiles of 64 rows on Hopper.
 * FlashInfer's newer interface takes tiles of 32 rows. */
#include "config.h"
#include "kernels/methods/skip.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "base/opt.h"
#include "kernels/attend/attend.h"

static const char *const tiles[] = { "64x128", "32x128", NULL };
static const int tile_rows[] = { 64, 32 };
enum { DECODE_KEYS = 64 };

#define OFF(member) offsetof(struct skip, member)
/* clang-format off */
const struct opt skip_opts[] = {
	{ .name = "prefill", .type = OPT_REAL, .off = OFF(prefill), .arg = "SCALE", .def = "0",
	  .max = 1e6, .help = "chunks skip below SCALE over the request's keys; 0: nothing" },
	{ .name = "decode", .type = OPT_REAL, .off = OFF(decode), .arg = "SCALE", .def = "0",
	  .max = 1e6, .help = "the same for decodes; with fewer keys than SCALE nothing" },
	{ .name = "threshold", .type = OPT_REAL, .off = OFF(threshold), .arg = "X", .def = "0",
	  .max = 1, .help = "both skip below X, whatever the keys" },
	{ .name = "tile", .type = OPT_ENUM, .off = OFF(tile), .arg = "RxK", .def = "64x128",
	  .choice = tiles,
	  .help = "rows and keys that chunks skip together; 64 keys at head size 256" },
	{ .name = "parts", .type = OPT_INT, .off = OFF(parts), .arg = "N", .def = "0",
	  .max = 64, .help = "parts that tiles of decodes are dealt to; 0: as the kernel cuts" },
	{ .name = "clamp", .type = OPT_FLAG, .off = OFF(clamp), .def = "1",
	  .help = "chunks take a threshold above 1 as 1" },
	{ 0 }
};
/* clang-format on */

static void params_of(const struct skip *s, struct opt_group g[static 2])
{
	g[0] = (struct opt_group){ .opts = skip_opts, .base = (void *)(uintptr_t)s };
	g[1] = (struct opt_group){ 0 };
}

enum ar_status skip_parse(struct skip **out, const char *text, struct ar_err *err)
{
	size_t n = strcspn(text, ":,");
	struct skip *s = calloc(1, sizeof *s);
	struct opt_group g[2];
	enum ar_status st;

	if (!s)
		return ar_nomem(err);
	params_of(s, g);
	st = opt_init(g, err);
	if (!st && text[n])
		st = opt_set_all(g, text + n + 1, err);
	if (!st && s->threshold > 0 && (s->prefill > 0 || s->decode > 0))
		st = ar_fail(err, AR_USAGE,
			     "threshold is for both halves: leave out prefill and decode");
	if (st) {
		ar_err_prefix(err, "skip part '%s'", text);
		free(s);
		return st;
	}
	*out = s;
	return AR_OK;
}

cJSON *skip_json(const struct skip *s)
{
	cJSON *o = cJSON_CreateObject();
	struct opt_group g[2];

	params_of(s, g);
	if (o && cJSON_AddStringToObject(o, "name", "softmax") && opt_json(g, o))
		return o;
	cJSON_Delete(o);
	return NULL;
}

struct attn_skip skip_of(const struct skip *s, enum row_kind kind, const struct attn_shape *shape)
{
	bool chunks = kind == ROW_PREFILL;
	struct attn_skip x = { .threshold = s ? (float)s->threshold : 0,
			       .scale = !s ? 0 : (float)(chunks ? s->prefill : s->decode) };

	if (!attn_skip_on(&x) || (!chunks && kind != ROW_DECODE))
		return (struct attn_skip){ 0 };
	x.clamp = s->clamp;
	x.rows = chunks ? tile_rows[s->tile] : 0;
	x.keys = chunks ? attend_step(shape) : DECODE_KEYS;
	x.parts = chunks ? 0 : (int)s->parts;
	return x;
}
