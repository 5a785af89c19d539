# SPDX-License-Identifier: Apache-2.0
# Models: config.json files and the presets.
libattnreplay_a_SOURCES += \
  model/arch.h model/arch_ernie4_5.c model/arch_gemma4.c model/arch_glm4_moe.c \
    model/arch_llama4.c model/arch_mimo_v2.c model/arch_minimax_m2.c model/arch_step3p7.c \
    model/arch_falcon_h1.c model/arch_granite_hybrid.c model/arch_jamba.c model/arch_nemotron_h.c \
    model/config_ssm.c \
    model/arch_gemma3.c model/arch_gpt_oss.c model/arch_latent.c model/arch_llama.c \
    model/arch_mistral.c model/arch_qwen2.c model/arch_qwen3.c model/arch_qwen3_next.c \
    model/archs.c model/cache_layout.c model/config_keys.c model/config_moe.c model/config_read.c \
    model/format.c model/format.h model/layer_gap.c model/layer_gap.h model/layer_size.h \
    model/layers.c model/model.c model/model.h model/params.c model/params.h model/quant.c \
    model/quant.h model/quant_list.c model/quant_rules.c model/quant_rules.h model/rope.c \
    model/rope.h model/shards.c model/shards.h model/weights.c model/weights.h
nobase_dist_pkgdata_DATA += \
  model/presets/deepseek-v2-lite.json model/presets/deepseek-v3.json \
    model/presets/deepseek-v3.2.json model/presets/gemma-3-12b.json \
    model/presets/gemma-4-31b.json model/presets/llama-4-maverick.json \
    model/presets/llama-4-scout.json model/presets/mimo-v2-flash.json \
    model/presets/minimax-m2.5.json model/presets/qwen3.5-27b.json \
    model/presets/qwen3.5-35b-a3b.json \
    model/presets/glm-4.7-flash.json model/presets/glm-5.json model/presets/gpt-oss-20b.json \
    model/presets/kimi-k2.json model/presets/llama-3.1-70b.json model/presets/llama-3.1-8b.json \
    model/presets/mistral-7b-v0.1.json model/presets/mistral-7b-v0.3.json \
    model/presets/mixtral-8x7b.json model/presets/nemotron-3-nano-30b-a3b.json \
    model/presets/niah-llama-14m.json model/presets/qwen2.5-7b.json \
    model/presets/qwen3-30b-a3b.json model/presets/qwen3-32b.json model/presets/qwen3-8b.json \
    model/presets/qwen3-next-80b-a3b.json model/presets/smollm2-135m.json

check_PROGRAMS += \
  tests/fuzz-weights \
  tests/t-archs tests/t-cache-layout tests/t-config-keys tests/t-families \
  tests/t-latent tests/t-layer-gap \
  tests/t-model tests/t-params tests/t-quant tests/t-rope tests/t-weights
# For contrib/check_configs.sh.
noinst_PROGRAMS += tests/model-sizes
tests_model_sizes_SOURCES = tests/model-sizes.c
EXTRA_DIST += tests/data/models
