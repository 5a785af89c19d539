# SPDX-License-Identifier: Apache-2.0
# What knows nothing of serving: errors, options, numbers, files.
libattnreplay_a_SOURCES += \
  base/available.c base/available.h base/binfile.c base/binfile.h base/block_length.c \
    base/block_length.h base/bootstrap.c \
    base/bootstrap.h base/data.c base/data.h base/dynlib.c base/dynlib.h \
    base/forked.c base/forked.h base/gpu.c base/gpu.h \
    base/grow.c base/grow.h base/json.c base/json.h base/jsonval.h \
    base/large.c base/large.h base/log.c base/log.h \
    base/number.c base/number.h base/opt.c base/opt.h base/order.h base/packed.c base/packed.h \
    base/paired.c base/paired.h base/parallel.c base/parallel.h base/probe.c base/probe.h \
    base/rng.h base/safetensors.c \
    base/safetensors.h base/stats.c base/stats.h base/status.c base/text.c base/text.h \
    base/workspace.h

check_PROGRAMS += \
  tests/t-base \
  tests/t-block-length \
  tests/t-bootstrap \
  tests/t-forked \
  tests/t-paired \
  tests/t-safetensors
