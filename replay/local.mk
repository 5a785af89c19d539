libattnreplay_a_SOURCES += \
  replay/backend.h replay/backend_cost.c replay/backend_cost.h replay/backends.c replay/batch.c \
  replay/batch.h replay/block_pool.c replay/block_pool.h replay/cost_table.c replay/cost_table.h replay/costs.c \
  replay/costs.h replay/kdtree.c replay/kdtree.h replay/latency.c replay/latency.h replay/orca.c \
  replay/arrivals.c replay/arrivals.h replay/backend.h replay/backend_cost.c replay/backend_cost.h replay/backends.c replay/batch.h \
  replay/block_pool.c replay/block_pool.h replay/latency.c replay/latency.h replay/orca.c \
  replay/policies.c replay/policy.h replay/prefix_cache.c replay/prefix_cache.h replay/prepare.c \
  replay/prepare.h replay/replay.c replay/replay.h replay/sarathi.c replay/sched.c replay/sched.h \
  replay/sglang.c replay/trtllm.c replay/vllm.c

check_PROGRAMS += tests/t-policies tests/t-vllm tests/t-workloads
tests_t_policies_SOURCES = tests/t-policies.c tests/policy-case.c tests/policy-case.h
tests_t_policies_LDADD = $(TEST_LIBS)
tests_t_vllm_SOURCES = tests/t-vllm.c tests/policy-case.c tests/policy-case.h
tests_t_vllm_LDADD   = $(TEST_LIBS)
tests_t_workloads_SOURCES = tests/t-workloads.c tests/policy-case.c tests/policy-case.h
tests_t_workloads_LDADD = $(TEST_LIBS)

check_PROGRAMS += tests/t-prefix
tests_t_prefix_SOURCES = tests/t-prefix.c
tests_t_prefix_LDADD   = $(TEST_LIBS)
tests_t_prefix_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc

check_PROGRAMS += tests/t-arrivals
tests_t_arrivals_SOURCES = tests/t-arrivals.c
tests_t_arrivals_LDADD   = $(TEST_LIBS)
tests_t_arrivals_LDFLAGS = $(FAULT_LINK)

check_PROGRAMS += tests/t-engine
tests_t_engine_SOURCES = tests/t-engine.c
tests_t_engine_LDADD   = $(TEST_LIBS)
tests_t_engine_LDFLAGS = $(FAULT_LINK)

check_PROGRAMS += tests/t-costs
tests_t_costs_SOURCES = tests/t-costs.c
tests_t_costs_LDADD   = $(TEST_LIBS)
tests_t_costs_LDFLAGS = $(FAULT_LINK)

dist_check_SCRIPTS += tests/t-cmd-costs.sh tests/t-replay.sh tests/t-faults.sh tests/t-faults-db.sh \
                      tests/t-schedule.sh

# Backends that run attention.
libattnreplay_a_SOURCES += replay/accuracy.c replay/accuracy.h replay/backend_cpu.c \
                           replay/backend_cuda.h replay/backends_attn.h replay/decoder.h \
                           replay/graphs.h replay/pages.c replay/pages.h replay/rows.c \
                           replay/rows.h replay/source.c replay/source.h
if HAVE_CUDA
libattnreplay_a_SOURCES += replay/backend_cuda.c replay/backend_cuda_memory.c replay/decoder.c \
                           replay/graphs.c
endif

check_PROGRAMS += tests/t-accuracy tests/t-pages
tests_t_accuracy_SOURCES = tests/t-accuracy.c
tests_t_accuracy_LDADD = $(TEST_LIBS)
tests_t_pages_SOURCES = tests/t-pages.c
tests_t_pages_LDADD = $(TEST_LIBS)

check_PROGRAMS += tests/t-backend-cpu tests/t-backend-gpu
tests_t_backend_cpu_SOURCES = tests/t-backend-cpu.c tests/backend-case.c tests/backend-case.h
tests_t_backend_cpu_LDADD = $(TEST_LIBS)
tests_t_backend_cpu_LDFLAGS = $(FAULT_LINK)
tests_t_backend_gpu_SOURCES = tests/t-backend-gpu.c tests/backend-case.c tests/backend-case.h
tests_t_backend_gpu_LDADD = $(TEST_LIBS)

check_PROGRAMS += tests/t-graphs-gpu
tests_t_graphs_gpu_SOURCES = tests/t-graphs-gpu.c
tests_t_graphs_gpu_LDADD = $(TEST_LIBS)
