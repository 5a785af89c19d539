/* SPDX-License-Identifier: Apache-2.0 */
/* Models, as Hugging Face config.json files describe them. */
#ifndef AR_MODEL_H
#define AR_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "model/format.h"

enum rope_type { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN };

/* Rotary embedding, half-split pairs (k, k + D/2) of the first D channels of a head.  theta 0: not
 * known.  Source: Hugging Face Transformers 4.57, modeling_rope_utils.py. */
struct rope {
	double theta;
	enum rope_type type;
	double factor;		       /* not of ROPE_DEFAULT */
	double low_freq, high_freq;    /* llama3 */
	double original_len;	       /* llama3, yarn */
	double beta_fast, beta_slow;   /* yarn: turns within original_len that bound its ramp */
	double attention_factor;       /* yarn, of Q and K; 0: from factor and the next two */
	double mscale, mscale_all_dim; /* yarn; 0: not given */
	int truncate;		       /* yarn: the ramp goes from a whole pair to a whole pair */
	double share;		       /* of a head's channels that rotate; 0: all */
};

/* inv[k] = angle per position of pair k, k < dim/2.  dim: channels that rotate.  All are 0 (no
 * rotation) if theta is 0. */
void rope_inv_freq(const struct rope *r, int dim, float *inv);

/* How a layer mixes the tokens of a request. */
enum mixer {
	MIX_FULL,   /* attention over all positions up to its own */
	MIX_WINDOW, /* attention over its own position and the window - 1 before it */
	MIX_LINEAR, /* gated DeltaNet: a state per request, no keys */
	MIX_CHUNK,  /* attention over its own position and those before it in its chunk */
	MIX_LATENT, /* attention over one latent for each position, which all heads share */
	MIX_SSM,    /* Mamba-2: a state per request, no keys */
	MIX_NONE,   /* not at all: the layer is its MLP */
	MIXERS
};

/* Whether such layers have queries and keys. */
static inline bool mixer_attends(enum mixer m)
{
	return m != MIX_LINEAR && m != MIX_SSM && m != MIX_NONE;
}

/* The activation of the MLP. */
enum mlp_act {
	ACT_SILU,	  /* silu(gate) * up */
	ACT_GELU_TANH,	  /* gelu(gate) * up, by tanh */
	ACT_SWIGLU_CLAMP, /* gpt-oss: (up + 1) * gate * sigmoid(1.702 gate), both clamped at 7 */
	ACT_RELU2	  /* the square of max(up, 0); there is no gate */
};

/* A gated DeltaNet.  Each key head serves v_heads / k_heads value heads. */
struct delta_spec {
	int k_heads, v_heads, k_dim, v_dim;
	int conv; /* width of the causal depthwise convolution over q, k and v */
};

/* Multi-head latent attention.  Q and the latent come from low-rank products.  A position keeps the
 * latent and a rotated key, which all heads share; K and V of a head are products of the latent.
 * The first head_dim - rotary_dim channels of a head do not rotate. */
struct mla_spec {
	int q_lora;	/* rank of Q's product; 0: Q has one product */
	int kv_lora;	/* width of the latent */
	int interleave; /* flag: RoPE turns pairs (2k, 2k + 1) */
};

/* A trained indexer of latent attention: each row attends to its topk keys of the highest scores
 * alone.  heads 0: there is none. */
struct index_spec {
	int heads, dim, topk;
	int interleave; /* flag, of RoPE in the first rotary_dim channels */
	int own; /* flag; 0: the layer takes the list of the nearest layer before it with own */
};

/* How a layer chooses experts for a row. */
enum router_scoring { ROUTER_SOFTMAX, ROUTER_SIGMOID };
struct router {
	enum router_scoring scoring;
	int groups, groups_kept; /* equal groups of experts, of which the best are kept; 0: one */
	int bias;		 /* flag: a bias of each expert, which chooses and does not weigh */
	double scaling;		 /* of the weights; 0: 1 */
};

/* A state-space mixer, Mamba-2.  The heads of a group share B and C. */
struct ssm_spec {
	int heads, head_dim, groups;
	int state;	      /* channels of B, of C, and of the state of each channel of a head */
	int conv;	      /* width of the causal depthwise convolution over x, B and C */
	int conv_bias;	      /* flags, 0 or 1 */
	int norm;	      /* RMS norm of the gated output, over the heads of a group */
	int chunk;	      /* rows of a prompt that are one product, as published */
	int elem;	      /* bytes of an element of the state in an engine: 2 or 4 */
	float dt_min, dt_max; /* limits of the time step; dt_max 0: no upper one */
};

struct layer_spec {
	enum mixer mixer;
	int q_heads, kv_heads, head_dim; /* MIX_LINEAR: 0 */
	int v_dim;			 /* channels of a head's values; 0: head_dim */
	int k_is_v;			 /* flag: the product of K gives V as well */
	int window; /* MIX_WINDOW: keys that a row sees, its own included; MIX_CHUNK: tokens of a
		     * chunk, the first of which begins at position 0; else 0 */
	int rotary_dim;			  /* channels that RoPE rotates, the first of each head */
	double score_scale;		  /* of q k^T; 0: 1 / sqrt(head_dim) */
	const struct cache_layout *cache; /* of its KV cache; NULL: kv-bf16 */
	int qkv_bias, o_bias;		  /* flags, 0 or 1, as all below */
	int mlp_bias;		 /* of gate, up and down, of each expert, and of the router */
	int qk_norm;		 /* RMS norm of each head of Q and K before RoPE */
	int qk_norm_all;	 /* with qk_norm: of all heads of Q together, and of K */
	int out_gate;		 /* attention output times sigmoid of a gate that QKV gives */
	int sinks;		 /* a learned logit per head that no value belongs to */
	int post_norms;		 /* norms after attention and MLP, too: four in all */
	struct delta_spec delta; /* MIX_LINEAR; else all 0 */
	int state_f32;		 /* MIX_LINEAR: engines keep its state as fp32, not bf16 */
	struct ssm_spec ssm;	 /* MIX_SSM; else all 0 */
	int beside; /* its mixer reads the rows that the layer before has read, without a norm */
	enum mlp_act act;
	int ffn; /* MLP's width; of one expert when n_experts > 0; 0: no MLP */
	int n_experts, experts_per_tok; /* 0: dense MLP */
	int held_experts;		/* whose weights the rank has; 0: all */
	int expert_hidden;		/* rows of experts, between two products; 0: hidden */
	int shared_ffn;			/* width of the expert that all rows take; 0: none */
	int shared_gate;		/* its output times the sigmoid of a gate of one column */
	int expert_norms; /* norms before and after routed experts and after the shared, scales of
			   * the router's channels and of each expert */
	struct router router;		      /* without experts: all 0 */
	struct mla_spec mla;		      /* MIX_LATENT; else all 0 */
	struct index_spec index;	      /* MIX_LATENT */
	struct linear_format format[LINEARS]; /* of its weights, see quant.h */
};

struct model {
	char name[64];
	int n_layers, hidden, vocab;
	struct layer_spec *layer; /* [n_layers], owned */
	int64_t max_len;	  /* max_position_embeddings; 0: not given */
	struct rope rope;
	struct rope rope_window; /* of window layers; theta 0: the same */
	double embed_scale;	 /* of the embeddings' rows; 0: 1 */
	double norm_eps;	 /* of all RMS norms */
	int norm_plus_one;	 /* norms multiply by 1 + weight; heads' in linear layers do not */
	int tied;		 /* the head's weights are the embeddings */
	struct linear_format head; /* of the head's weights, if they are not tied */
	char rope_unknown[48]; /* rope.theta is 0: the embedding whose angles are not known, such as
				* "rope type 'longrope'"; else "" */
	bool unnamed;	       /* the config names no type: it was read as that of a Llama */
	char unread[192];      /* keys of the config that may matter and were not read, or "" */
	int tp;		       /* 1: whole; N: layers and vocab are rank 0's slice of N */
	char *json;	       /* the config as read, owned */
};

/* Load a model.  name_or_path: a preset ("llama-3.1-8b"), a config.json or a folder with one. */
enum ar_status model_load(struct model *m, const char *name_or_path, struct ar_err *err);
/* Load a model as if its config had model_type `as`, such as "llama".  as NULL: the same as
 * model_load().  AR_USAGE: the type is not known. */
enum ar_status model_load_as(struct model *m, const char *name_or_path, const char *as,
			     struct ar_err *err);
/* Read the text of the config alone, which the caller frees. */
enum ar_status model_read_text(char **text, const char *name_or_path, struct ar_err *err);
/* The same for the text of a config.json.  name: of the model, and of the text in messages. */
enum ar_status model_parse(struct model *m, const char *name, const char *json, struct ar_err *err);
/* Name the keys of the config that may matter and were not read, if there are any. */
void model_warn(const struct model *m);
void model_release(struct model *m);

/* Give a model without layers n layers, all equal to spec. */
enum ar_status model_set_layers(struct model *m, int n, const struct layer_spec *spec,
				struct ar_err *err);
/* Whether all members are equal. */
bool layer_alike(const struct layer_spec *a, const struct layer_spec *b);
/* Whether two models compute the same with the same weights; names do not count. */
bool model_alike(const struct model *a, const struct model *b);
/* The first layer that differs from layer 0; 0: all layers are equal. */
int model_odd_layer(const struct model *m);
/* The first layer that is like layer i: the same number for all layers of a kind. */
int model_layer_kind(const struct model *m, int i);
/* The factor of Q, because kernels scale q k^T by 1 / sqrt(head_dim). */
double layer_q_scale(const struct layer_spec *l);
/* The first layer with attention; if there is none, the first layer, which has no heads. */
const struct layer_spec *model_attention(const struct model *m);

/* Keep one rank's share: heads, FFN and shared expert of each layer, and vocabulary.  If KV heads
 * are fewer than tp, each rank has one, as in engines; so has it the one group of a state-space
 * layer.  Key heads of linear layers are divided.
 * AR_USAGE names the size that tp does not divide; then nothing is split. */
enum ar_status model_split(struct model *m, int tp, struct ar_err *err);
/* Keep one rank's share of the experts, of ep ranks above 1; model_split() then leaves them whole.
 * AR_USAGE: a layer's experts are no multiple of ep, or there are none; then nothing is spread. */
enum ar_status model_spread(struct model *m, int ep, struct ar_err *err);

#endif
