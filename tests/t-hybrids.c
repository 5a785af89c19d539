/* SPDX-License-Identifier: Apache-2.0 */
/* Hybrids of attention and state-space layers: their layers and published counts, ranks, KV cache
 * groups, and the roofline's work. */
#include "config.h"
#include "model/params.h"

#include <stdio.h>
#include <string.h>

#include "model/layer_gap.h"
#include "model/layer_size.h"
#include "replay/host/host.h"
#include "replay/sched/model_groups.h"
#include "tests/a_model.h"
#include "tests/roofline_work.h"
#include "tests/tap.h"

/* Bytes of a token in the KV cache, and of a request's states as kernels here have them. */
static void is_memory(const struct model *m, int64_t kv, int64_t state)
{
	int64_t sum = 0, states = 0;

	for (int i = 0; i < m->n_layers; i++) {
		sum += layer_cache_bytes(&m->layer[i]);
		if (!mixer_attends(m->layer[i].mixer))
			states += (int64_t)layer_state_bytes(&m->layer[i]);
	}
	is_int(sum, kv, "%s: bytes of a token", m->name);
	is_int(states, state, "... of a request's states");
}

/* F: attention, s: state space, -: an MLP alone. */
static void is_kinds(const struct model *m, const char *want)
{
	char got[256] = "";

	for (int i = 0; i < m->n_layers; i++)
		got[i] = "FwlcLsN"[m->layer[i].mixer];
	is_str(got, want, "%s: kinds of layers", m->name);
}

static bool same(const struct ssm_spec *a, const struct ssm_spec *b)
{
	return layer_alike(&(struct layer_spec){ .ssm = *a }, &(struct layer_spec){ .ssm = *b });
}

/* ---- Nemotron ---- */

static void test_nano(void)
{
	struct model m = a_model("nemotron-3-nano-30b-a3b");
	const struct layer_spec *s = &m.layer[0], *e = &m.layer[1], *f = &m.layer[5];
	const struct ssm_spec want = { 64, 64, 8, 128, 4, 1, 1, 128, 4, 0, 0 };

	is_kinds(&m, "sNsNsFNsNsNsFNsNsNsFNsNsNsFNsNsNsFNsNsNsNsFNsNsNsNsN");
	is_int(model_params(&m), 31577940288, "... parameters");
	is_memory(&m, 6144, 23 * (64 * 64 * 128 * 4 + 3 * 6144 * 2));
	ok(same(&s->ssm, &want) && !s->ffn && !s->q_heads && !s->n_experts,
	   "a state-space layer is one alone");
	ok(f->q_heads == 32 && f->kv_heads == 2 && f->head_dim == 128 && !f->rotary_dim &&
		   !f->ffn && !f->ssm.heads,
	   "attention has no RoPE and no MLP");
	ok(e->n_experts == 128 && e->experts_per_tok == 6 && e->ffn == 1856 &&
		   e->shared_ffn == 3712 && e->act == ACT_RELU2 && !e->q_heads && !e->head_dim,
	   "the others are experts");
	ok(m.norm_eps == 1e-5 && !m.tied, "its norms and head");
	is_int(host_kernels(&m), 23 * (3 + 5) + 6 * (3 + 3) + 23 * (4 + 5 + 3), "... launches");
	model_release(&m);
}

static const char super[] =
	"{\"model_type\": \"nemotron_h\", \"hidden_size\": 4096, \"num_hidden_layers\": 88,"
	"\"num_attention_heads\": 32, \"num_key_value_heads\": 2, \"head_dim\": 128,"
	"\"intermediate_size\": 2688, \"hybrid_override_pattern\": \"MEMEMEM*EMEMEMEM*EMEMEMEM*"
	"EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME\","
	"\"mamba_num_heads\": 128, \"mamba_head_dim\": 64, \"ssm_state_size\": 128, "
	"\"n_groups\": 8, \"conv_kernel\": 4, \"n_routed_experts\": 512, \"n_shared_experts\": 1,"
	"\"num_experts_per_tok\": 22, \"moe_intermediate_size\": 2688, \"moe_latent_size\": 1024,"
	"\"moe_shared_expert_intermediate_size\": 5376, \"mlp_hidden_act\": \"relu2\","
	"\"time_step_limit\": [0.0, 1e308], \"vocab_size\": 131072}";

static void test_super(void)
{
	struct model m = a_model_of(super);
	const struct layer_spec *e = &m.layer[1];

	is_int(model_params(&m), 120668707840, "Nemotron 3 Super: parameters");
	is_memory(&m, 8192, 40 * (128 * 64 * 128 * 4 + 3 * (8192 + 2048) * 2));
	ok(e->expert_hidden == 1024 && m.layer[0].ssm.dt_max == 0, "experts work on 1024 columns");
	model_release(&m);
}

/* Dense, with layers by name, and no count of them. */
static void test_names(void)
{
	struct model m = a_model_of(
		"{\"model_type\": \"nemotron_h\", \"hidden_size\": 8192,"
		"\"layers_block_type\": [\"mamba\", \"mlp\", \"attention\"],"
		"\"num_attention_heads\": 64, \"num_key_value_heads\": 8,"
		"\"intermediate_size\": 32768, \"mamba_num_heads\": 256,"
		"\"attention_head_dim\": 64,"
		"\"mamba_head_dim\": 64, \"ssm_state_size\": 256, \"n_groups\": 8,"
		"\"mamba_ssm_cache_dtype\": \"float16\", \"use_conv_bias\": false,"
		"\"time_step_limit\": [0.001, 0.5], \"vocab_size\": 131072}");
	const struct ssm_spec want = { 256, 64, 8, 256, 4, 0, 1, 256, 2, 0.001F, 0.5F };

	is_kinds(&m, "sNF");
	is_int(m.layer[2].head_dim, 64, "heads of attention have a size of their own");
	ok(same(&m.layer[0].ssm, &want), "elements of the state, limits of the time step");
	is_int(layer_params(&m, &m.layer[1]), 8192 + 2LL * 8192 * 32768, "an MLP has no gate");
	is_int(layer_params(&m, &m.layer[0]),
	       8192 + 8192LL * (2 * 16384 + 2 * 8 * 256 + 256) + (16384 + 2 * 8 * 256) * 4 +
		       3 * 256 + 16384 + 16384LL * 8192,
	       "a state-space layer's tensors");
	model_release(&m);
}

/* ---- Granite, Falcon ---- */

static const char granite[] =
	"{\"model_type\": \"granitemoehybrid\", \"num_hidden_layers\": 40, \"layer_types\": ["
	"\"mamba\", \"mamba\", \"mamba\", \"mamba\", \"mamba\", \"attention\", \"mamba\","
	"\"mamba\", \"mamba\", \"mamba\", \"mamba\", \"mamba\", \"mamba\", \"mamba\", \"mamba\","
	"\"attention\", \"mamba\", \"mamba\", \"mamba\", \"mamba\", \"mamba\", \"mamba\","
	"\"mamba\", \"mamba\", \"mamba\", \"attention\", \"mamba\", \"mamba\", \"mamba\","
	"\"mamba\", \"mamba\", \"mamba\", \"mamba\", \"mamba\", \"mamba\", \"attention\","
	"\"mamba\", \"mamba\", \"mamba\", \"mamba\"], \"mamba_chunk_size\": 256,"
	"\"mamba_conv_bias\": true, \"mamba_d_conv\": 4, \"mamba_d_head\": 64,"
	"\"mamba_d_state\": 128, \"mamba_n_groups\": 1, \"position_embedding_type\": \"nope\","
	"\"tie_word_embeddings\": true, \"vocab_size\": 100352,"
	"\"attention_multiplier\": 0.0078125,"
	"\"embedding_multiplier\": 12, %s}";

static struct model granite_of(const char *rest)
{
	char json[2048];

	snprintf(json, sizeof json, granite, rest);
	return a_model_of(json);
}

static void test_granite(void)
{
	struct model m = granite_of("\"hidden_size\": 4096, \"num_attention_heads\": 32,"
				    "\"num_key_value_heads\": 8, \"num_local_experts\": 72,"
				    "\"num_experts_per_tok\": 10, \"intermediate_size\": 768,"
				    "\"shared_intermediate_size\": 1536, \"mamba_n_heads\": 128");
	const struct layer_spec *s = &m.layer[0], *f = &m.layer[5];

	is_kinds(&m, "sssssFsssssssssFsssssssssFsssssssssFssss");
	is_int(model_params(&m), 32207337984, "Granite 4.0 H Small: parameters");
	is_memory(&m, 16384, 36 * (128 * 64 * 128 * 4 + 3 * (8192 + 256) * 2));
	ok(s->n_experts == 72 && s->shared_ffn == 1536 && f->score_scale == 0.0078125 &&
		   !f->rotary_dim && !f->shared_gate && m.embed_scale == 12,
	   "experts and a shared one, attention without RoPE");
	model_release(&m);
	m = granite_of("\"hidden_size\": 1536, \"num_attention_heads\": 12,"
		       "\"num_key_value_heads\": 4, \"num_local_experts\": 64,"
		       "\"num_experts_per_tok\": 6, \"intermediate_size\": 512,"
		       "\"shared_intermediate_size\": 1024, \"mamba_n_heads\": 48");
	is_int(model_params(&m), 6939037248, "Granite 4.0 H Tiny: parameters");
	model_release(&m);
	m = granite_of("\"hidden_size\": 2048, \"num_attention_heads\": 32,"
		       "\"num_key_value_heads\": 8, \"num_local_experts\": 0,"
		       "\"num_experts_per_tok\": 0, \"intermediate_size\": 8192,"
		       "\"shared_intermediate_size\": 8192, \"mamba_n_heads\": 64");
	ok(!m.layer->n_experts && m.layer->ffn == 8192 && !m.layer->shared_ffn,
	   "Granite 4.0 H Micro has no experts");
	is_int(model_params(&m), 3191396096, "... parameters");
	model_release(&m);
}

static const char falcon[] =
	"{\"model_type\": \"falcon_h1\", \"num_hidden_layers\": 24, \"num_attention_heads\": 8,"
	"\"num_key_value_heads\": 2, \"head_dim\": 64, \"hidden_size\": 512, \"mamba_d_head\": 32,"
	"\"mamba_d_state\": 64, \"mamba_n_groups\": 1, \"mamba_n_heads\": 24,"
	"\"intermediate_size\": 768, \"vocab_size\": 32768, \"tie_word_embeddings\": true,"
	"\"hidden_act\": \"silu\", \"rope_theta\": 100000000000.0}";

static void test_falcon(void)
{
	struct model m = a_model_of(falcon);

	is_kinds(&m, "sFsFsFsFsFsFsFsFsFsFsFsFsFsFsFsFsFsFsFsFsFsFsFsF");
	is_int(model_params(&m), 91131072, "Falcon-H1 Tiny 90M: parameters");
	is_memory(&m, 24 * 512, 24 * (24 * 32 * 64 * 4 + 3 * (768 + 128) * 2));
	ok(m.layer[1].beside && !m.layer[0].beside && !m.layer[0].ffn && m.layer[1].ffn == 768 &&
		   m.layer[1].rotary_dim == 64 && !m.layer[0].ssm.norm,
	   "attention is beside the state space, before the MLP");
	model_release(&m);
}

/* ---- refusals ---- */

static void is_refused(const char *from, const char *to, const char *why)
{
	const char *at = strstr(super, from);
	struct ar_err err = { 0 };
	char json[2048];
	struct model m;

	snprintf(json, sizeof json, "%.*s%s%s", (int)(at - super), super, to, at + strlen(from));
	is_int(model_parse(&m, "m.json", json, &err), AR_DATA, "refused");
	ok(strstr(err.msg, why), "%s", err.msg);
	model_release(&m);
}

static void test_refusals(void)
{
	struct ar_err err = { 0 };
	struct model m;

	is_refused("\"MEMEMEM*", "\"MEM", "has 83 layers, but num_hidden_layers is 88");
	is_refused("MEMEMEM*EMEM", "MEMEMEM*EMEX", "the kind of layer 11 is not known");
	is_refused("\"n_routed_experts\": 512,", "", "the kind of layer 1 is not known");
	is_refused("\"relu2\"", "\"silu\"", "mlp_hidden_act 'silu' is not known");
	is_refused("\"n_groups\": 8", "\"n_groups\": 3", "n_groups 3 does not divide");
	is_refused("\"n_groups\": 8", "\"n_groups\": 8, \"mamba_proj_bias\": true", "biases");
	is_refused("[0.0, 1e308]", "[0.0]", "want two numbers from 0 on as 'time_step_limit'");
	is_refused("[0.0, 1e308]", "[0.5, 0.1]", "time_step_limit does not ascend");
	is_refused("\"n_groups\": 8", "\"n_groups\": 8, \"layer_norm_epsilon\": 2",
		   "layer_norm_epsilon");
	is_refused("\"ssm_state_size\": 128, ", "",
		   "want an integer from 1 to 65536 as 'ssm_state");
	is_refused("\"num_hidden_layers\": 88",
		   "\"num_hidden_layers\": 1, \"layers_block_type\": "
		   "[\"moe\"], \"x\": 1",
		   "has 88 layers");
	is_int(model_parse(&m, "m.json",
			   "{\"model_type\": \"nemotron_h\", \"hidden_size\": 64,"
			   "\"layers_block_type\": [\"mlp\"], \"num_attention_heads\": 1,"
			   "\"intermediate_size\": 64, \"mamba_num_heads\": 1,"
			   "\"mamba_head_dim\": 64, \"ssm_state_size\": 64, \"vocab_size\": 100}",
			   &err),
	       AR_DATA, "MLPs alone are refused");
	ok(strstr(err.msg, "no layer has attention or a state"), "%s", err.msg);
	is_int(model_parse(&m, "m.json",
			   "{\"model_type\": \"jamba\", \"hidden_size\": 64,"
			   "\"num_hidden_layers\": 8, \"num_attention_heads\": 1,"
			   "\"intermediate_size\": 64, \"mamba_dt_rank\": 256,"
			   "\"vocab_size\": 100}",
			   &err),
	       AR_DATA, "Mamba-1 is refused");
	ok(strstr(err.msg, "Mamba-1 (mamba_dt_rank)"), "%s", err.msg);
}

/* ---- ranks ---- */

static void test_ranks(void)
{
	struct model m = a_model("nemotron-3-nano-30b-a3b");
	struct ar_err err = { 0 };
	const struct ssm_spec want = { 16, 64, 2, 128, 4, 1, 1, 128, 4, 0, 0 };

	ok(!model_split(&m, 4, &err) && same(&m.layer[0].ssm, &want),
	   "a rank of four has two groups");
	model_release(&m);
	m = a_model("nemotron-3-nano-30b-a3b");
	is_int(model_split(&m, 16, &err), AR_USAGE, "sixteen are refused");
	ok(strstr(err.msg, "groups of state-space layers 8"), "%s", err.msg);
	model_release(&m);
	m = a_model_of(falcon);
	ok(!model_split(&m, 2, &err) && m.layer[0].ssm.heads == 12 && m.layer[0].ssm.groups == 1,
	   "one group is whole on each rank");
	model_release(&m);
}

/* ---- groups ---- */

static void test_groups(void)
{
	static const struct kv_rules rules = { .spread = 1.25 };
	struct model m = a_model("nemotron-3-nano-30b-a3b");
	struct model_groups g;
	struct ar_err err = { 0 };
	char text[64] = "";
	size_t n = 0;

	if (model_groups_init(&g, &m, 16, &rules, false, &err))
		bail_out("%s", err.msg);
	for (size_t i = 0; i < g.n; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s%c%d", i ? " " : "",
				      "FwlcLsN"[g.group[i].mixer], g.group[i].n_layers);
	is_str(text, "s6 s6 s6 s5 F6", "four groups of states, one of attention");
	is_int(g.of[1], -1, "an MLP has none");
	is_int(g.of[5], 4, "attention is in the last");
	/* 2,134,016 bytes of a state, 1,024 of a token: 130.25 times 16 tokens */
	is_int(g.block_tok, 131 * 16, "a block of attention holds a state");
	is_int(g.block_bytes, 6 * 131 * 16 * 1024, "... its bytes");
	model_groups_release(&g);
	model_release(&m);
	m = a_model_of(falcon);
	if (model_groups_init(&g, &m, 16, &rules, false, &err))
		bail_out("%s", err.msg);
	ok(g.n == 2 && g.group[0].n_layers == 24 && g.group[1].n_layers == 24,
	   "mixers side by side are in a group each");
	model_groups_release(&g);
	model_release(&m);
}

/* ---- roofline ---- */

enum { H = 256 };

static void count(const struct layer_spec *l, struct roofline_work *work)
{
	/* a chunk of 128 rows on 128 keys, and a decode with 256 */
	static struct batch_entry entry[] = {
		{ .start = 128, .n_tok = 128 },
		{ .start = 255, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
	};
	const struct batch b = { entry, 2, 128, 1, NULL, { 0 } };
	struct layer_spec copy = *l;
	const struct model model = { .n_layers = 1, .hidden = H, .vocab = 1000, .layer = &copy };
	const double density[] = { 1, 1 };
	struct method *m;
	struct ar_err err = { 0 };

	if (method_parse(&m, "dense", &err))
		bail_out("%s", err.msg);
	roofline_count(&(struct roofline_subject){ .model = &model, .method = m }, 0, &b, density,
		       work);
	method_free(m);
}

static void test_mixer(void)
{
	const struct layer_spec l = { .mixer = MIX_SSM,
				      .ssm = { 4, 32, 2, 16, 4, 1, 1, 32, 2, 0, 0 } };
	struct roofline_work w[PHASE_COUNT];
	/* gate, x, B and C, time steps; and the output */
	const int in = 2 * 128 + 2 * 2 * 16 + 4, row = 2 * (in + 128);
	const int state = 2 * (4 * 128 * 16 + 2 * 3 * (128 + 64));

	count(&l, w);
	is_work(&w[PHASE_MIX], 129 * 4 * 128 * 16 + 128 * 2 * 32 * (32 + 128),
		129 * row + 2 * state, 5, "a state-space mixer");
	is_work(&w[PHASE_LINEAR], 2LL * 129 * H * (in + 128),
		2LL * (129 * H + in * H + 129 * in) + 2LL * (129 * 128 + 128 * H + 129 * H), 2,
		"its two products");
	is_work(&w[PHASE_NORM], 0, 2 * H * (129 * 4 + 1), 1, "its one norm");
	is_int(w[PHASE_ATTEND].kernels + w[PHASE_DECODE].kernels + w[PHASE_ROPE].kernels +
		       w[PHASE_CACHE].kernels,
	       0, "and no keys");
}

static void test_mlp(void)
{
	struct layer_spec l = { .mixer = MIX_NONE, .ffn = 512, .act = ACT_RELU2 };
	struct roofline_work w[PHASE_COUNT], v[PHASE_COUNT];

	count(&l, w);
	is_work(&w[PHASE_LINEAR], 2LL * 129 * H * 2 * 512, 2 * 2 * (129 * H + 512 * H + 129 * 512),
		2, "an MLP without a gate");
	is_work(&w[PHASE_NORM], 0, 2 * H * (129 * 4 + 1) + 2 * 2 * 129 * 512, 2,
		"its norm and activation");
	is_int(w[PHASE_MIX].kernels, 0, "it has no mixer");
	l.n_experts = 8;
	l.experts_per_tok = 2;
	l.shared_ffn = 64;
	count(&l, w);
	l.expert_hidden = 128;
	count(&l, v);
	/* 33 rows of each of 8 experts */
	is_int((int64_t)(v[PHASE_LINEAR].flops - w[PHASE_LINEAR].flops), 2LL * 2 * 129 * H * 128,
	       "two products around the experts: FLOPs");
	is_int((int64_t)(v[PHASE_LINEAR].part[FORMATS].flops - w[PHASE_LINEAR].part[FORMATS].flops),
	       -2LL * 2 * 8 * 33 * 512 * 128, "... between which these are half as wide");
	is_int(v[PHASE_LINEAR].kernels - w[PHASE_LINEAR].kernels, 2, "... launches");
}

static void test_beside(void)
{
	struct layer_spec l = { .q_heads = 4, .kv_heads = 2, .head_dim = 64, .ffn = 512 };
	struct roofline_work w[PHASE_COUNT], v[PHASE_COUNT];

	count(&l, w);
	l.beside = 1;
	count(&l, v);
	is_int((int64_t)(w[PHASE_NORM].bytes - v[PHASE_NORM].bytes),
	       2 * H * (129 * 4 + 1) - 2 * H * 129,
	       "beside another mixer there is a norm less, and a sum more");
	is_int(w[PHASE_NORM].kernels - v[PHASE_NORM].kernels, 1, "... a launch less");
}

/* ---- kernels ---- */

static void test_gaps(void)
{
	struct model m = a_model_of(falcon);
	struct ar_err err = { 0 };

	is_int(model_check_gap(&m, &err), AR_OK, "kernels run a mixer beside another");
	model_release(&m);
}

int main(void)
{
	plan(0);
	test_nano();
	test_super();
	test_names();
	test_granite();
	test_falcon();
	test_refusals();
	test_ranks();
	test_groups();
	test_mixer();
	test_mlp();
	test_beside();
	test_gaps();
	return done_testing();
}
