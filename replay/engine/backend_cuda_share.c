/* SPDX-License-Identifier: Apache-2.0 */
/* Backend "cuda": tokens of shared pages that a request goes on after.  Those that earlier batches
 * wrote are copied in all layers at once, before the first layer.  Those that the batch writes are
 * copied in each layer, behind the appends. */
#include "config.h"
#include "replay/engine/backend_cuda.h"

#include <stdlib.h>
#include <string.h>

/* Fill plane[n_run_layers * GROUP_PLANES] and x->first. */
static void list_planes(struct cuda *c, struct share_plane *plane)
{
	struct cuda_share *x = &c->pass.share;

	for (int i = 0; i < c->env.n_run_layers; i++) {
		const struct cache_group *g = attn_engine_group(&c->engine, i);

		x->first[i + 1] = x->first[i];
		if (!mixer_attends(g->mixer))
			continue;
		x->first[i + 1] += groups_share_planes(g, &c->pass.kv[i], c->pass.state[i],
						       (size_t)g->n_page + 1, plane + x->first[i]);
		for (int k = x->first[i]; k < x->first[i + 1]; k++)
			x->widest = plane[k].page > x->widest ? plane[k].page : x->widest;
	}
}

enum ar_status cuda_take_share(struct cuda *c, cuda_take_fn *take, struct ar_err *err)
{
	struct cuda_share *x = &c->pass.share;
	size_t n = (size_t)c->env.n_run_layers, planes = n * GROUP_PLANES * sizeof *x->plane;
	size_t copies = (size_t)(c->env.max_seqs * c->engine.groups.n) * sizeof *x->copy;
	struct share_plane *plane = calloc(n, GROUP_PLANES * sizeof *plane);
	enum ar_status st;

	x->first = calloc(n + 1, sizeof *x->first);
	if (!plane || !x->first) {
		free(plane);
		return ar_nomem(err);
	}
	list_planes(c, plane);
	st = take(&c->device, &x->plane, planes, "the planes of the KV cache", err);
	if (!st)
		st = take(&c->device, &x->copy, copies, "copies of shared tokens", err);
	if (!st)
		CU(cudaMemcpy(x->plane, plane, planes, cudaMemcpyHostToDevice));
	if (!st)
		CU(cudaMallocHost((void **)&x->host, copies));
out:
	free(plane);
	return st;
}

void cuda_release_share(struct cuda_share *x)
{
	cudaFreeHost(x->host);
	free(x->first);
}

enum ar_status cuda_stage_share(struct cuda *c, bool graph, struct ar_err *err)
{
	const struct blocks *b = c->env.blocks;
	struct cuda_share *x = &c->pass.share;
	enum ar_status st = AR_OK;

	x->n = x->n_early = 0;
	for (int late = 0; late < 2; late++) {
		for (size_t k = 0; k < b->n_copy; k++)
			if ((b->copy[k].fresh && !graph) == late)
				x->host[x->n++] = groups_share_copy(&b->copy[k]);
		if (!late)
			x->n_early = x->n;
	}
	if (x->n)
		CU(cudaMemcpyAsync(x->copy, x->host, (size_t)x->n * sizeof *x->copy,
				   cudaMemcpyHostToDevice, c->device.stream));
out:
	return st;
}

enum ar_status cuda_share_early(struct cuda *c, struct ar_err *err)
{
	const struct cuda_share *x = &c->pass.share;

	if (!x->n_early)
		return AR_OK;
	prof_phase(c->env.prof, PHASE_NO_LAYER, PHASE_SHARE);
	return share_pages(x->plane, x->first[c->env.n_run_layers], x->widest, x->copy, x->n_early,
			   c->device.stream, err);
}

enum ar_status cuda_share_late(struct cuda *c, int i, bool states, struct ar_err *err)
{
	const struct cuda_share *x = &c->pass.share;
	const int n_kv = cache_layout(attn_engine_group(&c->engine, i)->layout)->n_plane;
	const int from = x->first[i] + (states ? n_kv : 0);
	const int to = states ? x->first[i + 1] : from + n_kv;

	if (from == to)
		return AR_OK;
	prof_phase(c->env.prof, c->env.run_layer[i], PHASE_SHARE);
	return share_pages(x->plane + from, to - from, x->widest, x->copy + x->n_early,
			   x->n - x->n_early, c->device.stream, err);
}
