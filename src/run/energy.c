/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/run.h"

#include <stdio.h>

#include "base/log.h"

enum { IDLE_NS = 1000000000 };

/* A run is of use without its energy. */
static void give_up(struct run *r, const struct ar_err *err)
{
	log_warn("%s; no energy is stored", err->msg);
	energy_close(&r->meter);
}

void run_energy_begin(struct run *r)
{
	const struct store_gpu *gpu = r->store && r->backend->gpu ? r->backend->gpu(r->self) : NULL;
	struct ar_err err = { 0 };

	r->energy = (struct energy_use){ 0 };
	if (!gpu)
		return;
	if (energy_open(&r->meter, gpu->uuid, &err) || energy_begin(&r->meter, IDLE_NS, &err))
		give_up(r, &err);
}

void run_energy_end(struct run *r)
{
	struct ar_err err = { 0 };

	if (!r->meter.gpu)
		return;
	if (energy_end(&r->meter, &r->energy, &err))
		give_up(r, &err);
	energy_close(&r->meter);
}

struct gpu_state run_gpu_state(const struct run *r)
{
	const struct store_gpu *gpu = r->backend->gpu ? r->backend->gpu(r->self) : NULL;
	struct gpu_state s = { 0 };

	if (!gpu)
		return s;
	gpu_state_read(&s, gpu->uuid);
	if (!*s.driver)
		snprintf(s.driver, sizeof s.driver, "%s", gpu->driver);
	return s;
}
