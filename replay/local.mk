libattnreplay_a_SOURCES += \
  replay/backend.h replay/batch.h replay/block_pool.c replay/block_pool.h \
  replay/policies.c replay/policy.h replay/sched.c replay/sched.h replay/vllm_0_16.c
