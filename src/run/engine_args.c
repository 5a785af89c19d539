/* SPDX-License-Identifier: Apache-2.0 */
/* Sources: vLLM 0.33.0, vllm/engine/arg_utils.py and vllm/utils/argparse_utils.py; SGLang 0.5.23,
 * python/sglang/srt/arg_groups/fields. */
#include "config.h"
#include "src/run/engine_args.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/data.h"
#include "base/grow.h"
#include "base/number.h"
#include "model/quant.h"
#include "src/run/options.h"

/* ---- words ---- */

struct words {
	char **v;
	size_t n, cap;
};

static void words_release(struct words *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->v[i]);
	free(w->v);
}

/* Read a word as a shell does, into to, which has room for all of s.  Returns its end; NULL: a
 * quote has no end. */
static const char *shell_word(const char *s, char *to)
{
	char quote = 0;

	for (; *s && (quote || !isspace((unsigned char)*s)); s++) {
		if (!quote && (*s == '\'' || *s == '"')) {
			quote = *s;
		} else if (quote && *s == quote) {
			quote = 0;
		} else if (*s == '\\' && quote != '\'' && s[1]) {
			s++;
			if (*s != '\n') /* which goes on with the line */
				*to++ = *s;
		} else {
			*to++ = *s;
		}
	}
	*to = 0;
	return quote ? NULL : s;
}

/* The white space at s; a backslash before the end of a line is none. */
static const char *between(const char *s)
{
	while (isspace((unsigned char)*s) || (*s == '\\' && (s[1] == '\n' || s[1] == '\r')))
		s++;
	return s;
}

/* Split the command: what follows &, |, ; or a redirection is for the shell. */
static enum ar_status split(struct words *w, const char *s, struct ar_err *err)
{
	char *word = malloc(strlen(s) + 1);
	enum ar_status st = word ? AR_OK : ar_nomem(err);

	for (s = between(s); !st && *s && !strchr("&|;<>", *s) && strncmp(s, "2>", 2) != 0;
	     s = between(s)) {
		const char *from = s;

		s = shell_word(s, word);
		if (!s) {
			st = ar_fail(err, AR_USAGE, "%.40s: a quote without its end", from);
			break;
		}
		if (!GROW(w->v, w->cap, w->n + 1) || !(w->v[w->n] = strdup(word)))
			st = ar_nomem(err);
		else
			w->n++;
	}
	free(word);
	return st;
}

/* ---- flags ---- */

enum engine { VLLM, SGLANG };

enum kind {
	VALUE,	/* of our option, as it is */
	COUNT,	/* an integer */
	HUMAN,	/* an integer, also 25.6k and 32K; auto and -1: not given */
	CHUNK,	/* an integer; -1: prompts are not cut */
	WORDS,	/* all words up to the next flag, which our option has with commas */
	MODEL,	/* a name of a hub, or a path */
	QUANT,	/* the format of the model's weights, its own or another */
	ON,	/* a flag that sets our option to 1 */
	OFF,	/* ... to 0 */
	SPREAD, /* ... to all ranks of all engines */
	MIXED,	/* a flag: decodes run beside prompts */
	SWITCH, /* a flag that has no option here; it is listed so as not to take a value */
};

/* Flags of engines and the options that have their meaning here. */
static const struct flag {
	enum engine engine;
	const char *names; /* without dashes, "a,b" */
	const char *option;
	enum kind kind;
} flags[] = {
	{ VLLM, "model", "model", MODEL },
	{ VLLM, "max-model-len", "max-model-len", HUMAN },
	{ VLLM, "max-num-batched-tokens", "max-num-batched-tokens", HUMAN },
	{ VLLM, "max-num-seqs", "max-num-seqs", COUNT },
	{ VLLM, "block-size", "block-size", COUNT },
	{ VLLM, "num-gpu-blocks-override", "num-gpu-blocks", COUNT },
	{ VLLM, "gpu-memory-utilization", "gpu-memory-utilization", VALUE },
	{ VLLM, "tensor-parallel-size,tp", "tp", COUNT },
	{ VLLM, "data-parallel-size,dp", "replicas", COUNT },
	{ VLLM, "pipeline-parallel-size,pp", "pp", COUNT },
	{ VLLM, "enable-expert-parallel,ep", "ep", SPREAD },
	{ VLLM, "enable-prefix-caching", "enable-prefix-caching", ON },
	{ VLLM, "no-enable-prefix-caching", "enable-prefix-caching", OFF },
	{ VLLM, "async-scheduling", "async-scheduling", ON },
	{ VLLM, "no-async-scheduling", "async-scheduling", OFF },
	{ VLLM, "enable-chunked-prefill", "enable-chunked-prefill", ON },
	{ VLLM, "no-enable-chunked-prefill", "enable-chunked-prefill", OFF },
	{ VLLM, "scheduling-policy", "scheduling-policy", VALUE },
	{ VLLM, "long-prefill-token-threshold", "long-prefill-token-threshold", COUNT },
	{ VLLM, "disable-hybrid-kv-cache-manager", "disable-hybrid-kv-cache-manager", ON },
	{ VLLM, "no-disable-hybrid-kv-cache-manager", "disable-hybrid-kv-cache-manager", OFF },
	{ VLLM, "max-num-queued-reqs", "max-num-queued-reqs", COUNT },
	{ VLLM, "max-num-queued-tokens", "max-num-queued-tokens", HUMAN },
	{ VLLM, "enforce-eager", "enforce-eager", ON },
	{ VLLM, "no-enforce-eager", "enforce-eager", OFF },
	{ VLLM, "dtype", "dtype", VALUE },
	{ VLLM, "kv-cache-dtype", "kv-cache-dtype", VALUE },
	{ VLLM, "kv-cache-dtype-skip-layers", "kv-cache-dtype-skip-layers", WORDS },
	{ VLLM, "quantization,q", "quantization", QUANT },
	{ VLLM, "trust-remote-code", NULL, SWITCH },
	{ VLLM, "enable-auto-tool-choice", NULL, SWITCH },
	{ VLLM, "enable-log-requests", NULL, SWITCH },
	{ VLLM, "disable-log-requests", NULL, SWITCH },
	{ VLLM, "disable-log-stats", NULL, SWITCH },
	{ VLLM, "enable-lora", NULL, SWITCH },
	{ VLLM, "enable-sleep-mode", NULL, SWITCH },
	{ VLLM, "disable-custom-all-reduce", NULL, SWITCH },
	{ SGLANG, "model-path,model", "model", MODEL },
	{ SGLANG, "context-length", "max-model-len", COUNT },
	{ SGLANG, "chunked-prefill-size", "max-num-batched-tokens", CHUNK },
	{ SGLANG, "max-prefill-tokens", "max-prefill-tokens", COUNT },
	{ SGLANG, "max-running-requests", "max-num-seqs", COUNT },
	{ SGLANG, "page-size", "block-size", COUNT },
	{ SGLANG, "mem-fraction-static", "gpu-memory-utilization", VALUE },
	{ SGLANG, "tensor-parallel-size,tp-size,tp", "tp", COUNT },
	{ SGLANG, "expert-parallel-size,ep-size,ep", "ep", COUNT },
	{ SGLANG, "disable-radix-cache", "enable-prefix-caching", OFF },
	{ SGLANG, "disable-overlap-schedule", "async-scheduling", OFF },
	{ SGLANG, "enable-mixed-chunk", NULL, MIXED },
	{ SGLANG, "schedule-policy", "schedule-policy", VALUE },
	{ SGLANG, "disable-cuda-graph", "enforce-eager", ON },
	{ SGLANG, "dtype", "dtype", VALUE },
	{ SGLANG, "kv-cache-dtype", "kv-cache-dtype", VALUE },
	{ SGLANG, "quantization", "quantization", QUANT },
	{ SGLANG, "trust-remote-code", NULL, SWITCH },
	{ SGLANG, "enable-metrics", NULL, SWITCH },
	{ SGLANG, "enable-torch-compile", NULL, SWITCH },
	{ SGLANG, "enable-dp-attention", NULL, SWITCH },
	{ SGLANG, "enable-p2p-check", NULL, SWITCH },
	{ SGLANG, "skip-server-warmup", NULL, SWITCH },
	{ SGLANG, "disable-custom-all-reduce", NULL, SWITCH },
};

/* The format that an engine gives weights in bf16 where it is told fp8. */
static const char *const own_fp8[] = { [VLLM] = "fp8_per_tensor", [SGLANG] = "fp8_per_channel" };

/* The row of a name of n letters; '_' is '-' in it. */
static const struct flag *find_flag(enum engine e, const char *name, size_t n)
{
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
		for (const char *s = flags[i].names; *s; s += *s == ',') {
			size_t len = strcspn(s, ","), k = 0;

			while (k < len && k < n && (name[k] == '_' ? '-' : name[k]) == s[k])
				k++;
			if (flags[i].engine == e && k == len && k == n)
				return &flags[i];
			s += len;
		}
	return NULL;
}

static bool takes_value(const struct flag *f)
{
	return f->kind < ON;
}

/* ---- the command ---- */

struct command {
	struct run_options *o;
	const struct policy *policy;
	enum engine engine;
	const char *model; /* as it names it; NULL: not yet */
	const char *quant; /* the format of its weights; NULL: none is named */
	bool spread;	   /* experts are spread over all ranks */
};

/* Leave the word out, with the value of a flag; NULL: it has none. */
static void leave_out(struct run_options *o, const char *word, const char *value)
{
	size_t n = strlen(o->engine_left), size = sizeof o->engine_left;

	snprintf(o->engine_left + n, size - n, "%s%s%s%s", n ? ", " : "", word, value ? " " : "",
		 value ? value : "");
}

/* Take "-word" out of the name. */
static void cut_word(char *name, const char *word)
{
	const size_t n = strlen(word);

	for (char *s = name; (s = strstr(s, word));)
		if (!s[n] || s[n] == '-')
			memmove(s, s + n, strlen(s + n) + 1);
		else
			s += n;
}

/* Of a hub's name or a path, the preset whose name it begins with, as
 * meta-llama/Llama-3.1-8B-Instruct does, or "".  Weights in another format are another model. */
static void preset_of(const char *model, char *name, size_t size)
{
	static const char *const formats[] = { "fp8", "fp4", "awq",  "gptq", "int4", "int8",
					       "w4a", "w8a", "gguf", "bnb",  "4bit", "8bit" };
	const char *base = strrchr(model, '/') ? strrchr(model, '/') + 1 : model;
	char path[4096], file[256];

	base += strncasecmp(base, "Meta-Llama", 10) ? 0 : 5;
	snprintf(name, size, "%s", base);
	for (char *c = name; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
		if (strstr(name, formats[i]))
			*name = 0;
	cut_word(name, "-instruct");
	cut_word(name, "-chat");
	while (*name) {
		char *dash = strrchr(name, '-');

		snprintf(file, sizeof file, "model/presets/%.200s.json", name);
		if (data_find(file, path, sizeof path))
			return;
		*(dash ? dash : name) = 0;
	}
}

static enum ar_status set(struct command *c, const char *option, const char *value,
			  const char *word, struct ar_err *err)
{
	enum ar_status st = opt_set_weak(c->o->group, option, value, err);

	if (st)
		ar_err_prefix(err, "%s", word);
	return st;
}

static enum ar_status set_model(struct command *c, const char *value, struct ar_err *err)
{
	char name[256];

	c->model = value;
	if (opt_given(c->o->group, "model") || opt_given(c->o->group, "weights"))
		return AR_OK;
	if (!access(value, F_OK))
		return set(c, "model", value, value, err);
	preset_of(value, name, sizeof name);
	if (!*name)
		return ar_fail(err, AR_USAGE,
			       "%s: no file of this name, and no preset for it; name its "
			       "config.json with --model",
			       value);
	return set(c, "model", name, value, err);
}

static enum ar_status bad_number(const char *word, const char *value, const char *want,
				 struct ar_err *err)
{
	return ar_fail(err, AR_USAGE, "%s '%s': want %s", word, value, want);
}

static enum ar_status set_number(struct command *c, const struct flag *f, const char *word,
				 const char *value, struct ar_err *err)
{
	const bool minus = !strcmp(value, "-1");
	int64_t n;

	if (f->kind == HUMAN && (minus || !strcasecmp(value, "auto")))
		return AR_OK;
	if (f->kind == CHUNK && minus) {
		leave_out(c->o, word, value);
		return AR_OK;
	}
	if (f->kind == HUMAN ? !num_count(value, &n) :
			       !*value || value[strspn(value, "0123456789")])
		return bad_number(word, value,
				  f->kind == HUMAN ? "an integer, such as 32768, 32k or 32K" :
						     "an integer",
				  err);
	return set(c, f->option, value, word, err);
}

/* Whether kernels run, which are of a rank with all experts of an engine by itself. */
static bool runs_kernels(const struct run_options *o)
{
	const struct backend *b = backend_find(o->backend); /* NULL: auto */

	return !b || (b->needs_model && !b->modelled);
}

/* Whether an option of ours has the meaning of the flag, and an effect under the policy and with
 * the backend. */
static bool is_modelled(const struct command *c, const struct flag *f)
{
	struct opt_group *g = c->o->group;
	const struct opt *x = f && f->option ? opt_find(&g, f->option, NULL) : NULL;

	if (x &&
	    (!strcmp(x->name, "ep") || !strcmp(x->name, "pp") || !strcmp(x->name, "replicas")) &&
	    runs_kernels(c->o))
		return false;
	return x && !(x->scope & POLICY_SETTINGS & ~c->policy->can);
}

/* word: the flag as it is written; value: NULL for none. */
static enum ar_status take(struct command *c, const struct flag *f, const char *word,
			   const char *value, struct ar_err *err)
{
	if (f && f->kind == MIXED)
		return AR_OK; /* the policy has it */
	if (f && f->kind == MODEL)
		return set_model(c, value, err);
	if (!is_modelled(c, f)) {
		leave_out(c->o, word, value);
		return AR_OK;
	}
	c->o->engine_dp = c->o->engine_dp || !strcmp(f->option, "replicas");
	if (f->kind == SPREAD) {
		c->spread = true;
		return AR_OK;
	}
	if (f->kind == QUANT) {
		c->quant = value;
		return AR_OK;
	}
	if (!takes_value(f))
		return set(c, f->option, f->kind == ON ? "1" : "0", word, err);
	if (f->kind == VALUE || f->kind == WORDS)
		return set(c, f->option, value, word, err);
	return set_number(c, f, word, value, err);
}

static bool is_flag(const char *word)
{
	return word[0] == '-' && word[1] && !isdigit((unsigned char)word[1]);
}

/* An unknown flag may have several values: all words up to the next flag.  Returns their number. */
static size_t leave_all(struct command *c, const struct words *w, size_t i)
{
	size_t n = 1;

	leave_out(c->o, w->v[i], NULL);
	for (; i + n < w->n && !is_flag(w->v[i + n]); n++)
		snprintf(c->o->engine_left + strlen(c->o->engine_left),
			 sizeof c->o->engine_left - strlen(c->o->engine_left), " %s", w->v[i + n]);
	return n;
}

/* Take the flag of words at word i. */
static enum ar_status take_words(struct command *c, const struct flag *f, const struct words *w,
				 size_t i, size_t *used, struct ar_err *err)
{
	enum ar_status st;
	size_t size = 0, n = 1;
	char *list;

	for (; i + n < w->n && !is_flag(w->v[i + n]); n++)
		size += strlen(w->v[i + n]) + 1;
	if (n == 1)
		return ar_fail(err, AR_USAGE, "%s: its value is missing", w->v[i]);
	list = calloc(1, size);
	if (!list)
		return ar_nomem(err);
	for (size_t k = 1; k < n; k++)
		strcat(strcat(list, k > 1 ? "," : ""), w->v[i + k]);
	st = take(c, f, w->v[i], list, err);
	*used = n;
	free(list);
	return st;
}

/* Take the flag at word i.  *used: words that it has. */
static enum ar_status take_flag(struct command *c, const struct words *w, size_t i, size_t *used,
				struct ar_err *err)
{
	char *word = w->v[i], *name = word + strspn(word, "-"), *value = strchr(name, '=');
	const struct flag *f = find_flag(c->engine, name, strcspn(name, "="));
	enum ar_status st;

	*used = 1;
	if (!f && !value) {
		*used = leave_all(c, w, i);
		return AR_OK;
	}
	if (value)
		*value++ = 0;
	if (f && value && !takes_value(f))
		return ar_fail(err, AR_USAGE, "%s=%s: the flag takes no value", word, value);
	if (f && f->kind == WORDS && !value)
		return take_words(c, f, w, i, used, err);
	if (f && takes_value(f) && !value) {
		if (i + 1 == w->n)
			return ar_fail(err, AR_USAGE, "%s: its value is missing", word);
		value = w->v[i + 1];
		*used = 2;
	}
	st = take(c, f, word, value, err);
	return st;
}

/* ---- the engine ---- */

static const char *last_part(const char *path)
{
	return strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
}

/* Whether word is this program, at any path, or an image of this name with any tag. */
static bool is_program(const char *word, const char *program)
{
	const char *name = last_part(word);
	size_t n = strlen(program);

	return !strncmp(name, program, n) && (!name[n] || name[n] == ':' || name[n] == '@');
}

/* Find the engine, behind variables of the environment, containers and what else starts it: the
 * last place that names one.  *first: its first argument. */
static enum ar_status find_engine(struct command *c, const struct words *w, size_t *first,
				  struct ar_err *err)
{
	static const struct {
		const char *program, *verb;
		enum engine engine;
	} starts[] = { { "vllm", "serve", VLLM },
		       { "vllm.entrypoints.openai.api_server", NULL, VLLM },
		       { "vllm-openai", NULL, VLLM },
		       { "sglang.launch_server", NULL, SGLANG },
		       { "sglang", "serve", SGLANG } };

	for (size_t i = w->n; i-- > 0;)
		for (size_t k = 0; k < sizeof starts / sizeof *starts; k++) {
			const char *verb = starts[k].verb;

			if (!is_program(w->v[i], starts[k].program) ||
			    (verb && (i + 1 == w->n || strcmp(w->v[i + 1], verb) != 0)))
				continue;
			c->engine = starts[k].engine;
			*first = i + (verb ? 2 : 1);
			return AR_OK;
		}
	return ar_fail(err, AR_USAGE,
		       "'%s': want a command line of 'vllm serve' or of 'python -m "
		       "sglang.launch_server'",
		       w->n ? w->v[0] : "");
}

/* The newest policy of the engine, unless one was given. */
static void set_policy(struct command *c, const struct words *w, size_t first)
{
	const char *name = c->engine == VLLM ? "vllm" : "sglang";

	for (size_t i = first; i < w->n && c->engine == SGLANG; i++) {
		const char *flag = w->v[i] + strspn(w->v[i], "-");
		const struct flag *f = find_flag(SGLANG, flag, strlen(flag));

		if (is_flag(w->v[i]) && f && f->kind == MIXED)
			name = "sglang-mixed";
	}
	if (!opt_given(c->o->group, "policy"))
		for (c->o->policy = 0; policies[c->o->policy] != policy_find(name);)
			c->o->policy++;
	c->policy = policies[c->o->policy];
}

/* Whether name is of quant_method own, as awq_marlin is of awq. */
static bool is_method(const char *name, const char *own)
{
	const size_t n = strlen(own);

	return !strncmp(name, own, n) && (!name[n] || name[n] == '_');
}

/* A model whose weights have formats is named by their method: they stay as they are. */
static enum ar_status set_quant(struct command *c, struct ar_err *err)
{
	static const char word[] = "--quantization";
	const char *model = c->o->model ? c->o->model : c->o->weights;
	char own[64] = "", *json = NULL;
	enum ar_status st = model ? model_read_text(&json, model, err) : AR_OK;

	if (!st && json)
		st = quant_method(own, sizeof own, json, err);
	free(json);
	if (st)
		return st;
	if (!*own)
		return set(c, "quantization",
			   strcmp(c->quant, "fp8") ? c->quant : own_fp8[c->engine], word, err);
	if (!is_method(c->quant, own))
		return ar_fail(err, AR_USAGE, "%s %s: the weights of %s are of quant_method '%s'",
			       word, c->quant, model, own);
	return set(c, "quantization", "auto", word, err);
}

/* vLLM spreads experts over all ranks of all engines. */
static enum ar_status set_spread(struct command *c, struct ar_err *err)
{
	char ranks[32];

	snprintf(ranks, sizeof ranks, "%lld", (long long)(c->o->tp * c->o->replicas));
	return set(c, "ep", ranks, "--enable-expert-parallel", err);
}

static enum ar_status take_all(struct command *c, const struct words *w, struct ar_err *err)
{
	size_t i = 0, used;
	enum ar_status st = find_engine(c, w, &i, err);

	if (!st)
		set_policy(c, w, i);
	for (; i < w->n && !st; i += used) {
		used = 1;
		if (is_flag(w->v[i]))
			st = take_flag(c, w, i, &used, err);
		else if (!c->model)
			st = set_model(c, w->v[i], err);
		else
			st = ar_fail(err, AR_USAGE, "'%s': the model is '%s' already", w->v[i],
				     c->model);
	}
	if (!st && c->spread)
		st = set_spread(c, err);
	return st || !c->quant ? st : set_quant(c, err);
}

enum ar_status run_engine_args(struct run_options *o, struct ar_err *err)
{
	struct command c = { .o = o };
	struct words w = { 0 };
	enum ar_status st = split(&w, o->engine_args, err);

	*o->engine_left = 0;
	if (!st)
		st = take_all(&c, &w, err);
	words_release(&w);
	if (st)
		ar_err_prefix(err, "engine-args");
	return st;
}
