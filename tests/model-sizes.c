/* SPDX-License-Identifier: Apache-2.0 */
/* usage: tests/model-sizes CONFIG...
 *
 * Print a line for each config.json: its name, and parameters, bytes of the weights and of the KV
 * cache of a token in all layers, number of layers with keys; or why it is refused. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>

#include "model/layer_size.h"
#include "model/params.h"
#include "model/quant.h"

static void put(const struct model *m)
{
	int64_t kv = 0;
	int keys = 0;

	for (int i = 0; i < m->n_layers; i++)
		if (m->layer[i].kv_heads) {
			kv += layer_cache_bytes(&m->layer[i]);
			keys++;
		}
	printf("parameters %" PRId64 ", weights %" PRId64 ", KV %" PRId64 ", layers %d/%d",
	       model_params(m), model_weight_bytes(m), kv, keys, m->n_layers);
	if (*m->unread)
		printf(", unread %s", m->unread);
	putchar('\n');
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		struct ar_err err = { 0 };
		struct model m;
		enum ar_status st = model_load(&m, argv[i], &err);

		printf("%s: ", argv[i]);
		if (!st)
			st = model_set_formats(&m, NULL, NULL, &err);
		if (st)
			printf("refused: %s\n", err.msg);
		else
			put(&m);
		model_release(&m);
	}
	return 0;
}
