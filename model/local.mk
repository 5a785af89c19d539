# SPDX-License-Identifier: Apache-2.0
# Models: config.json files and the presets.
libattnreplay_a_SOURCES += \
  model/arch.h model/arch_llama.c model/arch_qwen3.c model/archs.c model/model.c model/model.h \
    model/rope.c model/rope.h
nobase_dist_pkgdata_DATA += \
  model/presets/llama-3.1-8b.json model/presets/niah-llama-14m.json \
  model/presets/qwen3-30b-a3b.json

check_PROGRAMS += \
  tests/t-model
