/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay bench host: how fast this host is. */
#include "config.h"

#include <stdio.h>

#include "base/gpu.h"
#include "replay/host/host_probe.h"
#include "src/bench/bench.h"
#include "src/json_file.h"

enum ar_status bench_host(const struct bench_args *a, struct ar_err *err)
{
	static const char *const about[] = {
#define X(name, key, text) text,
		PROBE_TIMES(X)
#undef X
	};
	struct outfile f = { 0 };
	struct probe p;
	struct gpu gpu;
	enum ar_status st = json_file_open(&f, a->json, err);

	if (!st)
		st = host_probe(&p,
				gpu_ask((int)a->device, &gpu, NULL) ? HOST_PROBE_NO_GPU :
								      (int)a->device,
				err);
	if (!st && a->json)
		st = json_file_end(&f, probe_json(&p), err);
	for (int i = 0; i < PROBE_N_TIMES && !st && !json_file_alone(a->json); i++)
		if (p.ns[i] > 0)
			printf("%-12s%10.0f  %s\n", probe_keys[i], p.ns[i], about[i]);
	outfile_release(&f);
	return st;
}
