/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "traces/capture/random.h"

#include <string.h>

#include "base/number.h"
#include "base/rng.h"

static const char prefix[] = "random:";

bool random_named(const char *arg)
{
	return !strncmp(arg, prefix, sizeof prefix - 1);
}

enum ar_status random_seed(const char *arg, uint64_t *seed, struct ar_err *err)
{
	const char *s = arg + sizeof prefix - 1;

	if (num_u64(s, strlen(s), seed))
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "capture '%s': want random:SEED with a whole number, such as random:0; put "
		       "./ before the name of a file",
		       arg);
}

static void row_values(uint64_t key, int head_dim, bf16_t *out)
{
	for (int i = 0; i < head_dim; i++)
		out[i] = bf16_from_f32((float)rng_sum(rng_mix(key + (uint64_t)i)) *
				       (1 / RNG_SUM_DEVIATION));
}

void random_values(uint64_t seed, int layer, enum capture_tensor t, int n_head, int head_dim,
		   int64_t tok0, int64_t n, bf16_t *out)
{
	uint64_t tensor = rng_mix(rng_mix(rng_mix(seed) + (uint64_t)layer) + (uint64_t)t);

	for (int h = 0; h < n_head; h++) {
		uint64_t head = rng_mix(tensor + (uint64_t)h);

		for (int64_t i = 0; i < n; i++, out += head_dim)
			row_values(rng_mix(head + (uint64_t)(tok0 + i)), head_dim, out);
	}
}
