# What knows nothing of serving: errors, options, numbers, files.
libattnreplay_a_SOURCES += \
  base/bf16.h base/binfile.c base/binfile.h base/both.h base/data.c base/data.h base/dynlib.c \
  base/dynlib.h base/gpu.c base/gpu.h base/jsonval.h base/log.c base/log.h base/number.c base/number.h base/opt.c \
  base/opt.h base/rng.h base/safetensors.c base/safetensors.h base/stats.c base/stats.h \
  base/status.c base/status.h base/text.c base/text.h

check_PROGRAMS += tests/t-base
tests_t_base_SOURCES = tests/t-base.c
tests_t_base_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/t-safetensors
tests_t_safetensors_SOURCES = tests/t-safetensors.c
tests_t_safetensors_LDADD   = $(TEST_LIBS)
