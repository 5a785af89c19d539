/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "model/layer_size.h"
#include "model/quant.h"
#include "replay/cost/backend_cost.h"

const char *run_clock_name(const struct run_session *s)
{
	if (!s->backend->needs_model || s->o.clock == RUN_CLOCK_FORMULA)
		return "cost";
	if (s->backend->modelled)
		return "modelled";
	return !s->backend->uses_gpu ? "cpu" : s->prof ? "cupti" : "events";
}

/* Names of files, and text from them, are foreign. */
static void put_after(const char *before, const char *name)
{
	fputs(before, stdout);
	text_put(name, stdout);
}

static bool any_random(const struct run_inputs *in)
{
	for (size_t i = 0; i < in->n_capture; i++)
		if (capture_info(in->capture[i])->random)
			return true;
	return false;
}

static void print_weights(const struct run_inputs *in, const struct run_options *o)
{
	struct run_fit f = run_prompts_fit(in);

	put_after("weights   ", o->weights);
	if (in->model.tp > 1 && o->ranks != RUN_RANKS_ONE)
		printf(", a slice on each of %d ranks", in->model.tp);
	else if (in->model.tp > 1)
		printf(", slices of rank 0 (partial sums: tokens, accuracy and selections are of "
		       "no model)");
	if (o->temperature > 0)
		printf(", tokens drawn at temperature %g", o->temperature);
	put_after("\nprompts   ", o->prompts);
	printf(": %zu for %zu requests; to the lengths of the trace %zu are cut and %zu repeated\n",
	       in->prompts.n, in->trace->n, f.cut, f.repeated);
}

static void print_ranks(const struct run_session *s)
{
	const char *nvls = getenv("NCCL_NVLS_ENABLE");
	const struct nccl *nccl;
	char version[16];

	if (!s->world || nccl_load(&nccl, NULL))
		return;
	printf("ranks     %d processes over NCCL %s, NVLS %s; the slowest moves the clock",
	       world_size(s->world), nccl_version_text(nccl->version, version),
	       nvls && !strcmp(nvls, "0") ? "off" : "on");
	if (s->barrier.p50_ns >= 0)
		printf("; they leave a barrier within %.2f us, in 99 %% within %.2f us",
		       (double)s->barrier.p50_ns / 1e3, (double)s->barrier.p99_ns / 1e3);
	putchar('\n');
}

static void print_model(const struct run_inputs *in, const struct run_options *o)
{
	const struct model *m = &in->model;
	const struct layer_spec *l = model_attention(m);
	char text[96];

	put_after("model     ", m->name);
	printf(", %d layers, ", m->n_layers);
	if (l->mixer == MIX_LATENT)
		printf("%d heads of %d over latents of %d", l->q_heads, l->head_dim,
		       layer_key_dim(l));
	else
		printf("%d/%d heads of %d", l->q_heads, l->kv_heads, l->head_dim);
	if (l->index.heads)
		printf(", lists of %d keys", l->index.topk);
	if (m->tp > 1)
		printf(" on each of %d ranks", m->tp);
	if (in->prep.n_run_layers < m->n_layers)
		printf(", %d layers executed and scaled to %d", in->prep.n_run_layers, m->n_layers);
	if (*model_weights_text(m, text, sizeof text))
		printf(", weights %s", text);
	if (*model_kv_text(m, text, sizeof text))
		printf(", KV cache %s", text);
	putchar('\n');
	if (o->weights)
		print_weights(in, o);
	if (!in->n_capture)
		return;
	printf("capture  ");
	for (size_t i = 0; i < in->n_capture; i++)
		put_after(" ", capture_info(in->capture[i])->name);
	if (any_random(in))
		printf(" (random values: accuracy and selections are of no model)");
	printf("%s\n", o->extend == RUN_EXTEND_TILE ? ", repeated for longer requests" : "");
}

/* The preset of the engine may be of an older version. */
static void print_preset(const struct run_inputs *in)
{
	const char *policy = in->limits.policy->name;

	if (strncmp(in->host.name, policy, strlen(policy)))
		printf(" (nearest preset to policy %s; see --host)", policy);
	else
		printf(" (preset of policy %s; see --host)", policy);
}

static void print_host(const struct run_inputs *in, const struct run_options *o)
{
	bool none = !strcmp(in->host.name, "none");
	const struct {
		int64_t ns;
		const char *of;
	} more[] = { { o->host_fixed_ns, "an iteration" },
		     { o->host_per_request_ns, "a request" },
		     { o->host_per_tok_ns, "a token" } };
	char time[32];

	put_after("host      ", in->host.name);
	if (*in->host.about)
		put_after(": ", in->host.about);
	for (int k = 0; k < HOST_KINDS; k++)
		if (in->host.spread[k][0]) {
			printf(", drawn with seed %" PRId64, o->host_seed);
			break;
		}
	if (!strcmp(o->host, "auto") && !none)
		print_preset(in);
	if (host_has_front(&in->host) && !host_has_http(&in->host))
		printf("; without HTTP and tokenization, which are %s",
		       o->host_http ? "not measured" : "left out");
	if (in->host_probed)
		printf("; host of the preset: probe 1.00; this host: %.2f", in->host_scale);
	else if (in->host_scale > 0)
		printf("; its times are those of the preset by %.2f", in->host_scale);
	for (size_t i = 0; i < sizeof more / sizeof *more; i++)
		if (more[i].ns) {
			printf(" + %s %s", num_time_str(time, sizeof time, (double)more[i].ns),
			       more[i].of);
			none = false;
		}
	puts(none ? " (host time is not modelled)" : "");
}

static void print_clock(const struct run_inputs *in, const struct run_session *s)
{
	const struct cost_options *o = run_options_of(&s->o, &backend_cost);
	const struct costs *c = in->costs;
	char fixed[32], per_tok[32];

	printf("clock     %s", run_clock_name(s));
	if (!strcmp(run_clock_name(s), "cpu"))
		printf(" (times of this CPU show mechanics, not the speed of a GPU)");
	if (!strcmp(run_clock_name(s), "modelled")) {
		const struct roofline_options *roof = run_options_of(&s->o, &backend_roofline);

		put_after(", not measured: the roofline of ", roof->gpu);
		printf("\nrates     %s", in->rates);
	} else if (c) {
		printf(", from %zu iterations", cost_table_size(c->table));
		put_after(" of ", c->name);
		if (c->run.method_name) {
			put_after(", ", c->run.method_name);
			put_after(" on ", c->run.model_name);
		}
		if (c->run.gpu)
			put_after(", ", c->gpu.name);
		if (c->no_longest)
			fputs("; keys of the longest decode are not known, so mixed batches with "
			      "long ones may be off",
			      stdout);
	} else if (!strcmp(run_clock_name(s), "cost")) {
		printf(", %s + %s a token",
		       num_time_str(fixed, sizeof fixed, (double)o->formula.fixed_ns),
		       num_time_str(per_tok, sizeof per_tok, (double)o->formula.per_tok_ns));
	}
	putchar('\n');
}

static void print_dense_as(const struct run_inputs *in, const struct run_session *s)
{
	const struct dense_as *d = &in->dense_as;

	if (!s->o.dense_as)
		return;
	fputs("dense     as the engine's: ", stdout);
	if (in->costs && !in->costs->dense_as) {
		put_after("", s->o.dense_as);
		fputs(" in the run with the costs", stdout);
	} else if (!d->file) {
		printf("attention x %g, decode x %g", d->prefill.point[0].factor,
		       d->decode.point[0].factor);
	} else {
		put_after("", s->o.dense_as);
		if (*d->about)
			put_after(": ", d->about);
		if (d->has_mixed)
			printf("; chunks and decodes in one launch%s%s, %g us a layer for 1000 "
			       "keys of the longest decode",
			       *d->attention ? " of " : "", d->attention, d->mixed.walk_us);
	}
	puts(" (--dense-as-engine)");
}

static void print_arrivals(const struct run_options *o)
{
	const struct arrival_rule *a = &o->arrival;
	char think[32] = "0";

	if (a->think_ns)
		num_time_str(think, sizeof think, (double)a->think_ns);
	if (a->loop == LOOP_SESSIONS)
		printf("arrivals  follow answers in a session, think time %s where the trace has "
		       "none\n",
		       think);
	if (a->loop == LOOP_USERS)
		printf("arrivals  of %" PRId64 " users, think time %s where the trace has none; "
		       "its times are not used\n",
		       a->users, think);
	if (a->idle_cap_ns)
		printf("          idle at most %s before all that follows comes earlier\n",
		       num_time_str(think, sizeof think, (double)a->idle_cap_ns));
}

/* What each replica has is said in the lines that follow. */
static void print_replicas(const struct run_options *o)
{
	const struct router_rule rule = run_options_route(o);
	char time[32];

	if (o->replicas == 1)
		return;
	printf("replicas  %" PRId64 ", router %s", o->replicas, rule.router->name);
	if (rule.router->published && rule.stats_ns)
		printf(" with the loads of every %s",
		       num_time_str(time, sizeof time, (double)rule.stats_ns));
	printf("; each has what is said below%s\n",
	       run_shares_experts(o) ? "" : ", and none waits for another");
}

static void put_kind(const struct kv_group *g)
{
	if (g->mixer == MIX_WINDOW)
		printf("window %" PRId64, g->window);
	else if (g->mixer == MIX_CHUNK)
		printf("chunks of %" PRId64, g->window);
	else
		fputs(g->mixer == MIX_FULL ? "full attention" :
		      g->mixer == MIX_SSM  ? "state space" :
					     "linear attention",
		      stdout);
}

/* Groups from i on that are of one type. */
static size_t same_type(const struct sched_limits *l, size_t i)
{
	size_t n = 1;

	while (i + n < l->n_group && l->group[i + n].type == l->group[i].type)
		n++;
	return n;
}

/* The layers of n groups, whose numbers may differ. */
static void print_layers(const struct kv_group *g, size_t n)
{
	int least = g->n_layers, most = least;

	for (size_t i = 1; i < n; i++) {
		least = g[i].n_layers < least ? g[i].n_layers : least;
		most = g[i].n_layers > most ? g[i].n_layers : most;
	}
	printf(" with %d", least);
	if (most > least)
		printf(" to %d", most);
	printf(" layers%s", n > 1 ? " each" : "");
}

static void print_groups(const struct run_inputs *in)
{
	const struct sched_limits *l = &in->limits;

	for (size_t i = 0, n; l->group && i < l->n_group; i += n) {
		n = same_type(l, i);
		fputs(i ? ", " : "groups    ", stdout);
		printf("%zu of ", n);
		put_kind(&l->group[i]);
		print_layers(&l->group[i], n);
	}
	if (l->group)
		printf("; a block has %.4g MB\n", (double)in->groups.block_bytes / 1e6);
}

/* What the model needs, and what the pool is: an engine's on this GPU. */
static void print_memory(const struct run_inputs *in)
{
	const struct run_memory *m = &in->memory;
	const struct sched_limits *l = &in->limits;

	if (!m->n_params)
		return;
	printf("memory    %.4g B parameters, %.4g GB a rank, KV %.4g KiB a token: %" PRId64
	       " blocks of %" PRId64 ", %" PRId64 " tokens",
	       (double)m->n_params / 1e9, (double)m->weight_bytes / 1e9,
	       (double)m->token_bytes / 1024, l->num_blocks, l->block_tok, run_pool_tokens(in));
	if (m->gpu_bytes) {
		put_after(" (", m->gpu);
		printf(", %.4g of %.1f GB", m->share, (double)m->gpu_bytes / 1e9);
		if (m->free_bytes)
			printf(", %.1f free", (double)m->free_bytes / 1e9);
		putchar(')');
	}
	putchar('\n');
}

/* Groups of one type need about the same; the largest counts for all. */
static void print_group_peaks(const struct run_inputs *in, const struct replay_result *res)
{
	const struct sched_limits *l = &in->limits;

	for (size_t i = 0, n; res->group_peak && i < l->n_group; i += n) {
		int64_t most = 0;

		n = same_type(l, i);
		for (size_t k = i; k < i + n; k++)
			most = res->group_peak[k] > most ? res->group_peak[k] : most;
		fputs(i ? "; " : "KV blocks used at most: ", stdout);
		put_kind(&l->group[i]);
		printf(" %" PRId64 "%s, %.1f MB", most, n > 1 ? " in each group" : "",
		       (double)most * (double)n * (double)in->groups.block_bytes / 1e6);
	}
	if (res->group_peak)
		putchar('\n');
}

const char *run_label(const struct run *r, size_t i)
{
	const char *method = r->in.plan	 ? r->in.plan[i]->name :
			     r->in.costs ? r->in.costs->run.method_name :
					   NULL;

	return method ? method : r->session.backend->name;
}

static void print_defaults(const struct run_session *s)
{
	put_after("defaults  ", s->defaults);
	if (*s->o.engine_left)
		put_after("\nleft out  of --engine-args: ", s->o.engine_left);
	putchar('\n');
}

static enum ar_status end_print(struct ar_err *err)
{
	if (fflush(stdout))
		return ar_fail(err, AR_IO, "cannot write standard output: %s", strerror(errno));
	return AR_OK;
}

static void print_resumed(const struct run_inputs *in, const struct run_options *o)
{
	const struct resumed *old = o->resumed;

	if (!old)
		return;
	printf("resumed   run %" PRId64, old->run);
	put_after(" of ", old->db);
	for (size_t i = 0; i < in->n_runs && in->plan; i++) {
		put_after(i ? ", " : ": ", in->plan[i]->name);
		fputs(old->done[i] ? " is done" : " will run", stdout);
	}
	putchar('\n');
}

/* Printed before the run, so that an output that cannot be written fails now, not after hours. */
enum ar_status run_print_header(const struct run *r, struct ar_err *err)
{
	const struct sched_limits *l = &r->in.limits;

	print_resumed(&r->in, &r->session.o);
	if (r->session.point)
		printf("search    %s is the first point, others differ in that\n",
		       r->session.point);
	put_after("trace     ", r->in.trace->name);
	printf(" (%s), %zu requests\n", r->in.trace->format, r->in.trace->n);
	print_arrivals(&r->session.o);
	print_replicas(&r->session.o);
	run_print_apart(&r->in, &r->session.o);
	if (r->session.backend->needs_model)
		print_model(&r->in, &r->session.o);
	print_ranks(&r->session);
	printf("policy    %s, %" PRId64 " tokens and %" PRId64 " requests an iteration%s\n",
	       r->in.limits.policy->name, l->max_batched_tok, l->max_seqs,
	       l->async ? ", planned ahead" : "");
	print_defaults(&r->session);
	printf("blocks    %" PRId64 " of %" PRId64 " tokens%s, one reserved%s\n", l->num_blocks,
	       l->block_tok, r->session.o.limits.num_blocks ? "" : " (auto)",
	       !l->prefix_cache	     ? "" :
	       r->session.o.share_kv ? ", prefix cache across methods" :
				       ", prefix cache");
	print_groups(&r->in);
	print_memory(&r->in);
	if (r->session.match)
		r->session.tuner->print(r->session.match, r);
	printf("backend   %s\n", r->session.backend->name);
	print_clock(&r->in, &r->session);
	print_dense_as(&r->in, &r->session);
	run_print_stages(&r->in);
	run_print_experts(&r->in, &r->session);
	if (*r->in.comm_text) {
		put_after("comm      ", r->in.comm_text);
		putchar('\n');
	}
	print_host(&r->in, &r->session.o);
	return end_print(err);
}

struct run_goodput run_goodput(const struct trace *trace, const struct replay_result *res)
{
	double of = (double)(res->ok + res->rejected + res->unfinished), good = (double)res->good;
	double s = (double)(res->end_ns - trace->req[0].arrival_ns) / 1e9;

	return (struct run_goodput){ .good = good,
				     .of = of,
				     .share = of > 0 ? good / of : 0,
				     .per_s = s > 0 ? good / s : NAN };
}

static void print_goodput(const struct run_inputs *in, const struct run_options *o,
			  const struct replay_result *res)
{
	struct run_goodput g = run_goodput(in->trace, res);

	printf("goodput: %.0f of %.0f requests (%.1f %%) within %s", g.good, g.of, 100 * g.share,
	       o->slo);
	if (!isnan(g.per_s))
		printf(", %.4g a second", g.per_s);
	putchar('\n');
}

static void print_energy(const struct energy_use *e)
{
	double j = (double)e->mj / 1e3, s = (double)e->ns / 1e9, idle_w = (double)e->idle_mw / 1e3;

	if (e->ns)
		printf("energy: the GPU took %.1f J in %.3f s, %.1f J above its idle power of "
		       "%.1f W\n",
		       j, s, j - idle_w * s, idle_w);
}

/* Print the seconds of each part of the run.  span_ns: the time of the GPU that it measured. */
static void print_wall(const struct run_wall *w, int64_t span_ns)
{
	if (span_ns)
		printf("time: %.3f s to open, %.3f s to replay %.3f s of the GPU (%.2f times), "
		       "%.3f s for replicates\n",
		       (double)w->open_ns / 1e9, (double)w->replay_ns / 1e9, (double)span_ns / 1e9,
		       (double)w->replay_ns / (double)span_ns, (double)w->replicates_ns / 1e9);
}

static void print_latency(const struct run *r, const struct series *s)
{
	const double ms[] = { series_mean(s) / 1e6, series_percentile(s, 50) / 1e6,
			      series_percentile(s, 90) / 1e6, series_percentile(s, 99) / 1e6 };

	for (size_t i = 0; i < sizeof ms / sizeof *ms; i++)
		printf("%14.*f", run_latency_decimals(r, ms[i]), ms[i]);
}

/* whose: of whom the samples are. */
static void print_accuracy(const struct run *r, const char *whose, const struct sample_sums *s)
{
	const double n = (double)s->n_heads;

	if (!s->n_heads)
		return;
	printf("%sagainst dense%s, %" PRId64 " samples: relative L2 mean %.3g max %.3g, "
	       "cosine min %.6f, recall mean %.4f\n",
	       whose, any_random(&r->in) ? " on values of no model" : "", s->n, s->rel_l2_sum / n,
	       s->rel_l2_max, s->cosine_min, s->recall_sum / n);
}

static void print_messages(const struct run_inputs *in, const struct replay_result *res)
{
	const char *before = "collectives: ";

	for (int k = 0; k < COMM_KERNELS; k++) {
		if (!res->comm_sent[k])
			continue;
		printf("%s%" PRId64, before, res->comm_sent[k]);
		put_after(" by ", in->comm_table.kernel[k]);
		before = ", ";
	}
	if (*before == ',')
		putchar('\n');
}

void run_print_latencies(const struct run *r, size_t i, const char *label,
			 const struct replay_result *res)
{
	const int64_t *from = res->cost_sources;

	put_after("\n", label);
	if (r->session.o.repeats > 1)
		printf(", repeat %zu of %" PRId64, i / r->in.n_methods + 1, r->session.o.repeats);
	printf(": %" PRId64 " requests ok, %" PRId64 " rejected, %" PRId64
	       " unfinished in %.6f s\n",
	       res->ok, res->rejected, res->unfinished, (double)res->end_ns / 1e9);
	printf("%" PRId64 " iterations, %" PRId64 " entries, %" PRId64 " prefill and %" PRId64
	       " decode tokens, %" PRId64 " preemptions, %" PRId64 " tokens recomputed\n",
	       res->iterations, res->entries, res->prefill_tok, res->decode_tok, res->preemptions,
	       res->recomputed_tok);
	if (res->failures)
		printf("in %" PRId64 " iterations the engine would fail, out of memory\n",
		       res->failures);
	if (from[COST_MEASURED] + from[COST_INTERPOLATED] + from[COST_EXTRAPOLATED])
		printf("costs: %" PRId64 " iterations measured, %" PRId64 " interpolated, %" PRId64
		       " extrapolated\n",
		       from[COST_MEASURED], from[COST_INTERPOLATED], from[COST_EXTRAPOLATED]);
	if (r->in.limits.prefix_cache)
		printf("%" PRId64 " tokens found in the prefix cache\n", res->cached_tok);
	if (res->kv_refilled)
		printf("%" PRId64 " of them were on no page, and filled outside of the measured "
		       "time\n",
		       res->kv_refilled);
	if (res->evict_waits)
		printf("events of the evictor waited %" PRId64 " times for KV blocks\n",
		       res->evict_waits);
	print_messages(&r->in, res);
	print_group_peaks(&r->in, res);
	printf("%-8s%10s%14s%14s%14s%14s\n", "ms", "count", "mean", "p50", "p90", "p99");
	for (int m = 0; m < LATENCY_COUNT; m++) {
		const struct series *s = &res->latency[m];

		printf("%-8s%10" PRIu64, latency_names[m], s->n);
		if (s->n)
			print_latency(r, s);
		putchar('\n');
	}
}

enum ar_status run_print_rest(const struct run *r, size_t i, const struct replay_result *res,
			      struct ar_err *err)
{
	enum ar_status st = run_print_draws(r, err);

	print_accuracy(r, "", &res->sample[ROW_PREFILL]);
	print_accuracy(r, "decodes ", &res->sample[ROW_DECODE]);
	if (r->session.match)
		r->session.tuner->reached(r->session.match, i % r->in.n_methods, res);
	if (r->session.o.slo)
		print_goodput(&r->in, &r->session.o, res);
	print_energy(&r->out.energy);
	print_wall(&r->out.wall, res->span_ns);
	if (r->session.store) {
		printf("stored as run %" PRId64, r->out.run_id);
		put_after(" in ", r->session.o.db);
		putchar('\n');
	}
	return st ? st : end_print(err);
}
