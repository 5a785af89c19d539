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
	energy_close(&r->session.meter);
}

void run_energy_begin(struct run *r)
{
	const struct store_gpu *gpu = r->session.store && r->session.backend->gpu ?
					      r->session.backend->gpu(r->session.self) :
					      NULL;
	struct ar_err err = { 0 };

	r->out.energy = (struct energy_use){ 0 };
	if (!gpu)
		return;
	if (energy_open(&r->session.meter, gpu->uuid, &err) ||
	    energy_begin(&r->session.meter, IDLE_NS, &err))
		give_up(r, &err);
}

void run_energy_end(struct run *r)
{
	struct ar_err err = { 0 };

	if (!r->session.meter.gpu)
		return;
	if (energy_end(&r->session.meter, &r->out.energy, &err))
		give_up(r, &err);
	energy_close(&r->session.meter);
}

struct gpu_state run_gpu_state(const struct run *r)
{
	const struct store_gpu *gpu = r->session.backend->gpu ?
					      r->session.backend->gpu(r->session.self) :
					      NULL;
	struct gpu_state s = { 0 };

	if (!gpu)
		return s;
	gpu_state_read(&s, gpu->uuid);
	if (!*s.driver)
		snprintf(s.driver, sizeof s.driver, "%s", gpu->driver);
	return s;
}
