# Models: config.json files and the presets.
libattnreplay_a_SOURCES += model/arch.h model/archs.c model/model.c model/model.h \
                           model/rope.c model/rope.h
libattnreplay_a_SOURCES += model/arch_llama.c
libattnreplay_a_SOURCES += model/arch_qwen3.c
nobase_dist_pkgdata_DATA += \
  model/presets/llama-3.1-8b.json model/presets/niah-llama-14m.json \
  model/presets/qwen3-30b-a3b.json

check_PROGRAMS += tests/t-model
tests_t_model_SOURCES = tests/t-model.c
tests_t_model_LDADD   = $(TEST_LIBS)
tests_t_model_LDFLAGS = $(FAULT_LINK)
