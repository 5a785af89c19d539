/* SPDX-License-Identifier: Apache-2.0 */
/* A build without CUDA has nothing to measure with. */
#include "config.h"
#include "src/bench/bench_decode.h"
#include "src/bench/bench_mixer.h"
#include "src/bench/bench_device.h"
#include "src/bench/bench_prefill.h"
#include "src/bench/collective.h"

static enum ar_status no_cuda(struct ar_err *err)
{
	return ar_fail(err, AR_NODEV,
		       "this build has no CUDA; configure it with a CUDA toolkit to "
		       "measure, or use --dry-run");
}

enum ar_status bench_open(struct bench_device **out, const struct bench_env *env,
			  struct ar_err *err)
{
	(void)env;
	*out = NULL;
	return no_cuda(err);
}

void bench_close(struct bench_device *d)
{
	(void)d;
}

const char *bench_gpu(const struct bench_device *d)
{
	(void)d;
	return "";
}

enum ar_status bench_product(struct bench_device *d, int n, struct bench_result *r,
			     struct ar_err *err)
{
	(void)d;
	(void)n;
	(void)r;
	return no_cuda(err);
}

enum ar_status bench_copy(struct bench_device *d, int n, struct bench_result *r, struct ar_err *err)
{
	(void)d;
	(void)n;
	(void)r;
	return no_cuda(err);
}

enum ar_status bench_run(struct bench_device *d, const struct bench_case *c,
			 struct bench_result result[BENCH_PARTS], struct ar_err *err)
{
	(void)d;
	(void)c;
	(void)result;
	return no_cuda(err);
}

enum ar_status bench_prefill_open(struct bench_prefill **out, struct bench_device *d,
				  const char *method, const struct bench_shape *s,
				  const struct bench_input *input, struct ar_err *err)
{
	(void)d;
	(void)method;
	(void)s;
	(void)input;
	*out = NULL;
	return no_cuda(err);
}

void bench_prefill_close(struct bench_prefill *p)
{
	(void)p;
}

enum ar_status bench_prefill_run(struct bench_prefill *p, int ctx, int n, struct bench_core *core,
				 struct ar_err *err)
{
	(void)p;
	(void)ctx;
	(void)n;
	(void)core;
	return no_cuda(err);
}

enum ar_status bench_prefill_use(struct bench_prefill *p, const char *method, struct ar_err *err)
{
	(void)p;
	(void)method;
	return no_cuda(err);
}

enum ar_status bench_prefill_count(struct bench_prefill *p, int ctx, int n,
				   struct selection_count *count, struct ar_err *err)
{
	(void)p;
	(void)ctx;
	(void)n;
	(void)count;
	return no_cuda(err);
}

enum ar_status bench_mixer_run(struct bench_device *d, const struct bench_mixer *x,
			       struct bench_result *r, struct ar_err *err)
{
	(void)d;
	(void)x;
	(void)r;
	return no_cuda(err);
}

enum ar_status bench_decode_run(struct bench_device *d, const struct method *m, bool takes,
				const struct bench_shape *s, struct bench_decode *out,
				struct ar_err *err)
{
	(void)d;
	(void)m;
	(void)takes;
	(void)s;
	(void)out;
	return no_cuda(err);
}

static enum ar_status open_none(struct collective_rank **out, const struct world_join *j,
				const struct collective_env *env, struct collective_about *about,
				struct ar_err *err)
{
	(void)j;
	(void)env;
	(void)about;
	*out = NULL;
	return no_cuda(err);
}

const struct collective_way collective_device = { .name = "device", .open = open_none };
